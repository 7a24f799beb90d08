//! Candidates of a session timed against something else than its baselines: kernels of the judge's
//! own, by which it measures how exactly it measures.

use warpwright_task::Task;

use super::TaskSession;
use crate::baseline::{Baseline, BaselineProcess, Tuned};
use crate::contenders::{Baselines, Terms};
use crate::error::JudgeError;
use crate::gate::Purpose;

impl TaskSession<'_> {
    /// From now on candidates are timed against this reference alone, where eager is else, in
    /// `process` or in that of the last one. Seconds that a call of it takes, roughly.
    pub(crate) fn pit(
        &mut self,
        process: Option<BaselineProcess>,
        contender: &Task,
    ) -> Result<f64, JudgeError> {
        // A session on a GPU has started one, which cannot call these kernels.
        self.early = None;
        let judge = self.judge;
        let Some(mut process) = process.or_else(|| Some(self.baselines.take()?.process)) else {
            let reason = "there is no process to time it in";
            return Err(JudgeError::infrastructure("time a contender", reason));
        };
        let shared = (!judge.config.device.is_cuda()).then(|| judge.gate.share(Purpose::Baselines));
        let settings = (judge.config.profile, judge.config.seed);
        process.open(contender, settings, (self.oracle.played, None), &judge.gate)?;
        drop(shared);
        let seeded = (Baseline::Eager, judge.config.seed, Tuned::Alone);
        process.compile(&contender.name, seeded, &judge.gate)?;
        let (task, opened) = (&self.task, &self.oracle.opened);
        let (memory, layout, plan) = (self.memory, self.layout, self.plan);
        let weights = self.oracle.played;
        let terms = Terms { judge, task, opened, weights, memory, layout, plan };
        let wanted = (vec![Baseline::Eager], Vec::new());
        let baselines = Baselines::stage(&terms, process, wanted, &mut self.random)?;
        let seconds = baselines.ready.first().map_or(0.0, |ready| ready.seconds);
        self.baselines = Some(baselines);
        Ok(seconds)
    }
}
