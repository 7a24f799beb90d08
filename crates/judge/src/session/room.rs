//! What a session does whose task fills the device: there is no more memory to be had.
//!
//! The oracle needs the most while it computes in float64, the baselines' process while it is played.
//! They take turns: what torch keeps in one for its next call is given back before the other computes.
//! Where that is not enough, baselines with buffers of their own are done without, then float64.

use warpwright_build::Artifact;
use warpwright_record::candidate::Candidate;
use warpwright_record::verdict::Stage;

use super::TaskSession;
use crate::baseline::BaselineProcess;
use crate::contenders::Terms;
use crate::error::JudgeError;
use crate::measure::{self, Ready};
use crate::verdict::Findings;

impl TaskSession<'_> {
    /// Has the candidate run, with less beside it each time the memory is too small.
    pub(super) fn run_with_room(
        &mut self,
        candidate: &Candidate,
        artifact: &Artifact,
        stage: Stage,
        found: &mut Findings,
    ) -> Result<(), JudgeError> {
        let before = found.clone();
        loop {
            if let Some(baselines) = self.baselines.as_mut().filter(|_| self.short) {
                baselines.process.spare(&self.task.name)?;
            }
            match self.run(candidate, artifact, stage, found) {
                Err(JudgeError::Memory { .. }) if self.memory.is_all() && self.make_room()? => {
                    *found = before.clone();
                }
                done => return done,
            }
        }
    }

    /// Does without something that takes memory; false if there is nothing left.
    fn make_room(&mut self) -> Result<bool, JudgeError> {
        if let Some(baselines) = self.baselines.take() {
            let terms = Terms {
                judge: self.judge,
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

    /// Before the oracle computes in between windows.
    pub(super) fn make_way(&self, process: &mut BaselineProcess) -> Result<(), JudgeError> {
        if self.short { process.spare(&self.task.name) } else { Ok(()) }
    }

    /// After it, before windows that count: each baseline has what it needs again.
    pub(super) fn warm_up(
        &self,
        process: &mut BaselineProcess,
        ready: &[Ready],
        staged: usize,
    ) -> Result<(), JudgeError> {
        let mut each = ready.iter().filter(|_| self.short);
        each.try_for_each(|ready| measure::window(process, &self.task.name, ready, staged))
    }
}
