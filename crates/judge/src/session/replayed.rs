//! Judges the stored plans of a candidate on several workloads, as one verdict.

use warpwright_record::blob::BlobHash;
use warpwright_record::verdict::{Stage, Verdict};
use warpwright_task::Task;

use super::merged::{Part, merge};
use crate::error::JudgeError;
use crate::judge::LocalJudge;
use crate::process::plan_file::StoredPlan;

impl LocalJudge {
    /// Verifies and measures the stored plans of a candidate, one per workload of `task`, and merges their verdicts. The
    /// first failure ends it. `sharing`: of how many workloads the verdict was that stored them.
    ///
    /// # Errors
    /// [`JudgeError::NotReplayable`] if a plan is of no workload, or not for this machine; else as
    /// [`TaskSession::judge`](crate::TaskSession::judge).
    pub fn replay_workloads(
        &self,
        task: &str,
        plans: &[(StoredPlan, BlobHash)],
        (sharing, stage): (usize, Stage),
    ) -> Result<Verdict, JudgeError> {
        let mut parts = Vec::with_capacity(plans.len());
        for (stored, hash) in plans {
            let task = Task { sharing, ..stored.task() };
            let workload = task.workload().ok_or_else(|| nothing_of("it is of no workload"))?;
            let mut session = self.task(&task)?;
            let (verdict, measured) = session.replay_with_samples(stored, *hash, stage)?;
            let known = session.known();
            let good = verdict.verified;
            parts.push(Part {
                name: workload.name,
                held_out: workload.held_out,
                capped: known.capped,
                degenerate: !known.degenerate.is_empty(),
                verdict,
                measured,
            });
            if !good {
                break;
            }
        }
        merge(task, parts, Vec::new()).ok_or_else(|| nothing_of("there are no plans"))
    }
}

fn nothing_of(reason: &str) -> JudgeError {
    JudgeError::not_replayable(reason.to_owned(), "judge the candidate again")
}
