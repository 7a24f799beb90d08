//! Playing the episodes of a training step: what [`crate::online`] asks of the caller.

use serde::{Deserialize, Serialize};
use warpwright_record::history;

/// Plays episodes with the current policy.
pub trait Rollouts: Sync {
    /// An infrastructure failure.
    type Error: std::error::Error + Send + 'static;

    /// Number of tasks.
    fn tasks(&self) -> usize;

    /// Plays `plays`; returns their episodes in the same order. An episode that the record already
    /// has is not played again. Calls `room` when workers are free; `play` may then be called for
    /// more episodes, concurrently.
    fn play(
        &self,
        plays: &[Play],
        room: &(dyn Fn() + Sync),
    ) -> Result<Vec<history::Episode>, Self::Error>;

    /// Cancels the running batches: no more of their episodes begin, and `play` fails.
    fn abandon(&self);

    /// Use of the judge since the rollouts were created.
    fn judged(&self) -> Judged {
        Judged::default()
    }
}

/// Use of the judge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// Candidates that were measured.
    pub judged: u64,
    /// Candidates that were answered from the verdict cache; `judged` does not count them.
    pub repeated: u64,
    /// Seconds that the measured candidates waited for their verdicts, summed over candidates.
    pub seconds: f64,
}

impl std::ops::Sub for Judged {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            judged: self.judged - before.judged,
            repeated: self.repeated - before.repeated,
            seconds: self.seconds - before.seconds,
        }
    }
}

/// An episode to play.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Play {
    /// Its number in the record.
    pub number: u32,
    /// Number of its task, from 0.
    pub task: usize,
    /// Seed of its sampling.
    pub seed: u64,
}
