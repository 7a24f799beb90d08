//! Void verdicts: a repeat in a fresh context disagreed with the replayer that had given them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::verdict::{ReplayerTurn, Verdict};

/// Verdicts of one replayer that do not count: those since its last agreement with a repeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VoidTurns {
    /// The replayer, as in [`ReplayerTurn::id`].
    pub replayer: String,
    /// Its last turn that a repeat confirmed; 0 if none was.
    pub after: u32,
    /// Its last turn that is void.
    pub through: u32,
    /// When the repeat disagreed.
    pub time: jiff::Timestamp,
    /// Task of the candidate that was repeated.
    pub task: String,
    /// BLAKE3 of that candidate's files.
    pub candidate: String,
    /// How verdict and repeat differ.
    pub reason: String,
}

impl VoidTurns {
    /// Whether this verdict, or the one that it is a copy of, is void.
    pub fn covers(&self, verdict: &Verdict) -> bool {
        verdict.replayer_turns().any(|turn| self.covers_turn(turn))
    }

    /// Whether the verdict of this turn is void.
    pub fn covers_turn(&self, turn: &ReplayerTurn) -> bool {
        turn.id == self.replayer && turn.turn > self.after && turn.turn <= self.through
    }
}
