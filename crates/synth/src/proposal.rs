//! A composed task that has not been tried.

use serde::{Deserialize, Serialize};
use warpwright_task::Task;

/// A task proposed by a composer, not yet tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// Name in snake case, from its operators: `conv2d_gelu_mean`.
    pub name: String,
    /// Source in KernelBench form.
    pub source: String,
    /// Names of catalogue entries in the order in which `forward` applies them, with repetition.
    pub operators: Vec<String>,
    /// Difficulty level, from 1.
    pub level: u8,
    /// Origin; the same composer reproduces the task from it.
    pub provenance: Provenance,
}

/// Origin of a proposal: the same composer reproduces it from the same seed and catalogue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// `grammar`, `mutation`, or the name of a policy.
    pub composer: String,
    /// The composer's seed of this proposal.
    pub seed: u64,
    /// BLAKE3 of the catalogue.
    pub catalogue: String,
    /// The task that it mutates; `None` if it is not a mutation.
    pub parent: Option<String>,
}

impl Proposal {
    /// The proposal as a task.
    pub fn task(&self) -> Task {
        Task::from_source(&self.name, self.source.clone())
    }
}
