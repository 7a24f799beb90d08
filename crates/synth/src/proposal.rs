//! A task that was composed and has not been tried.

use serde::{Deserialize, Serialize};
use warpwright_task::Task;

/// What a composer gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// In snake case, from what it computes: `conv2d_gelu_mean`.
    pub name: String,
    /// In KernelBench form.
    pub source: String,
    /// Names of catalogue entries in the order in which `forward` applies them; one may come twice.
    pub operators: Vec<String>,
    /// How hard it is to make faster, from 1 on.
    pub level: u8,
    /// How to make it again.
    pub provenance: Provenance,
}

/// Where a proposal comes from: the same composer makes it again from the same seed and catalogue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// `grammar`, `mutation`, or the name of a policy.
    pub composer: String,
    /// The composer's seed for this one.
    pub seed: u64,
    /// BLAKE3 of the catalogue it was composed from.
    pub catalogue: String,
    /// The task that it is a mutation of.
    pub parent: Option<String>,
}

impl Proposal {
    /// As a task, to be run.
    pub fn task(&self) -> Task {
        Task::from_source(&self.name, self.source.clone())
    }
}
