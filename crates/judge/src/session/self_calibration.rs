//! Self-calibration: times candidates against the judge's own kernels of known speed instead of baselines,
//! to measure the judge's timing accuracy.

use warpwright_task::Task;

use super::TaskSession;
use crate::device::device_arbiter::Purpose;
use crate::error::JudgeError;
use crate::process::baseline::{BaselineProcess, Tuned};
use crate::timing::baseline::Baseline;
use crate::timing::baseline_set::{Baselines, Terms};

impl TaskSession<'_> {
    /// Makes `contender` the only baseline, in eager's place, in `process` or in the process of the last
    /// contender. Returns its time per call in seconds, roughly.
    pub(crate) fn time_against(
        &mut self,
        process: Option<BaselineProcess>,
        contender: &Task,
    ) -> Result<f64, JudgeError> {
        // A session on a GPU has started one, which cannot call these kernels.
        self.early = None;
        let (machine, processes) = (self.machine, self.processes);
        let Some(mut process) = process.or_else(|| Some(self.baselines.take()?.process)) else {
            let reason = "no baseline process is available";
            return Err(JudgeError::infrastructure("time the self-calibration kernel", reason));
        };
        let shared = machine.device.share_for_host_work(&machine.arbiter, Purpose::Baselines);
        let settings = machine.settings();
        process.open(contender, settings, (self.oracle.played, None), &machine.arbiter)?;
        drop(shared);
        let seeded = (Baseline::Eager, machine.config.seed, Tuned::Alone);
        process.compile(&contender.name, seeded, &machine.arbiter)?;
        let (task, opened) = (&self.task, &self.oracle.opened);
        let (memory, layout, plan) = (self.memory, self.layout, self.plan);
        let weights = self.oracle.played;
        let terms = Terms { machine, processes, task, opened, weights, memory, layout, plan };
        let wanted = (vec![Baseline::Eager], Vec::new());
        let baselines = Baselines::stage(&terms, process, wanted, &mut self.random)?;
        let seconds = baselines.ready.first().map_or(0.0, |ready| ready.seconds);
        self.baselines = Some(baselines);
        Ok(seconds)
    }
}
