//! A verdict's part for each workload of its task.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Failure, Provenance, ReplayerTurn, Speedup, Tier, Times, Verdict};
use crate::blob::BlobHash;
use crate::conditions::Conditions;

/// What became of a candidate on one workload of its task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkloadVerdict {
    /// Name of the workload.
    pub name: String,
    /// Whether the agent did not see it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held_out: bool,
    /// Why no candidate can be judged on it, if that is so: it counts for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Right on every check that was run.
    pub verified: bool,
    /// Where candidate host code ran.
    #[serde(default)]
    pub tier: Tier,
    /// The launch plan that was judged, in the device tier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<BlobHash>,
    /// The replayer that launched it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replayer: Option<ReplayerTurn>,
    /// Milliseconds per call.
    #[serde(default)]
    pub times_ms: Times,
    /// Baseline time over candidate time.
    #[serde(default)]
    pub speedup: Speedup,
    /// The machine while the candidate was timed on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Conditions>,
    /// What computed the results on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Provenance>,
}

/// What an agent is told of a failure on a workload that it does not see.
const HIDDEN: &str = "wrong on a held-out workload, which is not shown";

impl WorkloadVerdict {
    /// One on which no candidate can be judged.
    pub fn refused(name: String, held_out: bool, why: String) -> Self {
        Self {
            name,
            held_out,
            refused: Some(why),
            verified: false,
            tier: Tier::default(),
            plan: None,
            replayer: None,
            times_ms: Times::default(),
            speedup: Speedup::default(),
            conditions: None,
            provenance: None,
        }
    }
}

/// Names of the workloads that count. Means over different ones are figures of different things.
pub fn judged_workloads(workloads: &[WorkloadVerdict]) -> BTreeSet<&str> {
    let counts = workloads.iter().filter(|workload| workload.refused.is_none());
    counts.map(|workload| workload.name.as_str()).collect()
}

/// How the caveat of a task begins that `--fit` scaled down.
pub const SCALED_DOWN: &str = "the task is scaled down: ";

impl Verdict {
    /// The launch plans that were judged, one per workload.
    pub fn plans(&self) -> impl Iterator<Item = BlobHash> {
        self.plan.into_iter().chain(self.workloads.iter().filter_map(|workload| workload.plan))
    }

    /// The verdict as an agent may see it: without what it tells of held-out workloads, their names and sizes in the
    /// first place. Means of times and bytes are left out too, because with the other workloads' they tell a size.
    #[must_use]
    pub fn shown(&self) -> Self {
        let (hidden, seen): (Vec<_>, Vec<_>) =
            self.workloads.iter().cloned().partition(|workload| workload.held_out);
        let mut shown = self.clone();
        // After a failure, workloads that were not judged have no entry; they may be held out.
        let fit = shown.fit.take();
        shown.fit = fit.clone().and_then(|fit| fit.of(&seen));
        if shown.fit != fit {
            shown.caveats.retain(|caveat| !caveat.starts_with(SCALED_DOWN));
        }
        if hidden.is_empty() {
            return shown;
        }
        let told_of = |text: &str| {
            let rest = text.strip_prefix("workload ").unwrap_or_default();
            let of = |w: &WorkloadVerdict| {
                rest.strip_prefix(w.name.as_str()).is_some_and(|rest| rest.starts_with(": "))
            };
            hidden.iter().any(of)
        };
        shown.workloads = seen;
        (shown.times_ms, shown.floor_ms, shown.unavoidable_bytes) = (Times::default(), None, 0);
        shown.memory = None;
        shown.checks.retain(|check| !told_of(&check.name));
        let names = |caveat: &str| {
            hidden.iter().any(|hidden| caveat.contains(&format!("workload {}", hidden.name)))
        };
        shown.caveats.retain(|caveat| !names(caveat));
        if hidden.iter().any(|workload| workload.refused.is_none() && !workload.verified) {
            for finding in &mut shown.integrity {
                HIDDEN.clone_into(&mut finding.message);
            }
            shown.failure = shown.failure.map(|Failure { class, .. }| Failure {
                class,
                message: HIDDEN.to_owned(),
                diagnostics: Vec::new(),
                mismatch: None,
                cuda_error: None,
                output_tail: String::new(),
            });
        }
        let count = hidden.len();
        shown.caveats.push(format!("held-out workloads, which are not shown: {count}"));
        shown
    }

    /// The turns in replayers that it is made of.
    pub fn replayer_turns(&self) -> impl Iterator<Item = &ReplayerTurn> {
        let of_workloads = self.workloads.iter().filter_map(|workload| workload.replayer.as_ref());
        self.replayer.iter().chain(of_workloads)
    }
}
