//! Memory pressure: what a session does if its task fills the device memory.
//!
//! The oracle needs the most memory while it computes in float64, the baseline process while it is timed.
//! They take turns: one empties torch's caching allocator before the other computes. If that does not
//! suffice, the session drops baselines with buffers of their own, then the float64 computation.

use warpwright_build::Artifact;
use warpwright_record::verdict::Stage;

use super::TaskSession;
use super::recording::NoPlan;
use super::stages::Way;
use crate::check::findings::Findings;
use crate::error::JudgeError;
use crate::timing::baseline_set::Terms;

impl TaskSession<'_> {
    /// Runs the candidate. After each out-of-memory error it releases memory and runs again.
    pub(super) fn run_under_memory_pressure(
        &mut self,
        way: Way<'_>,
        artifact: &Artifact,
        stage: Stage,
        found: &mut Findings,
    ) -> Result<Option<NoPlan>, JudgeError> {
        let before = found.clone();
        self.processes.make_room(&self.task, self.room)?;
        loop {
            if let Some(baselines) = self.baselines.as_mut().filter(|_| self.short) {
                baselines.process.spare(&self.task.name)?;
            }
            match self.run(way, artifact, stage, found) {
                Err(JudgeError::Memory { .. })
                    if self.memory.is_all() && self.release_memory()? =>
                {
                    *found = before.clone();
                }
                done => return done,
            }
        }
    }

    /// Drops something that takes memory; false if nothing is left to drop.
    fn release_memory(&mut self) -> Result<bool, JudgeError> {
        if let Some(baselines) = self.baselines.take() {
            let terms = Terms {
                machine: self.machine,
                processes: self.processes,
                task: &self.task,
                opened: &self.oracle.opened,
                weights: self.oracle.played,
                memory: self.memory,
                layout: self.layout,
                plan: self.plan,
            };
            let (baselines, fewer) = baselines.without_spare(&terms, &mut self.random)?;
            self.baselines = Some(baselines);
            if fewer {
                return Ok(true);
            }
        }
        Ok(self.oracle.without_double())
    }
}
