//! What was done to a task so that it fits a device with less memory, and what memory judging it took.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::verdict::WorkloadVerdict;

/// The dimension of a task's inputs that `--fit` scaled down. Figures of such a task are never combined with those of
/// the task itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fit {
    /// Its name in the task's source, e.g. `batch_size`.
    pub dimension: String,
    /// Its size in the task itself. Of several workloads, that of the one that was scaled down most.
    pub from: u64,
    /// Its size as judged.
    pub to: u64,
    /// The workloads that were scaled down, where that is not the whole task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workloads: Vec<WorkloadFit>,
}

/// The dimension in one workload of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkloadFit {
    /// The workload's name.
    pub workload: String,
    /// The dimension's size in the workload itself.
    pub from: u64,
    /// Its size as judged.
    pub to: u64,
}

impl Fit {
    /// What it tells of these workloads; `None` where that is nothing.
    pub(crate) fn of(self, seen: &[WorkloadVerdict]) -> Option<Self> {
        if self.workloads.is_empty() {
            return Some(self);
        }
        let is_seen = |one: &WorkloadFit| seen.iter().any(|of| of.name == one.workload);
        let workloads: Vec<_> = self.workloads.into_iter().filter(is_seen).collect();
        let shrunk = |one: &&WorkloadFit| one.from / one.to.max(1);
        let &WorkloadFit { from, to, .. } = workloads.iter().max_by_key(shrunk)?;
        Some(Self { from, to, workloads, dimension: self.dimension })
    }
}

impl fmt::Display for Fit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.dimension)?;
        if self.workloads.is_empty() {
            return write!(f, "{} of {}", self.to, self.from);
        }
        for (number, WorkloadFit { workload, from, to }) in self.workloads.iter().enumerate() {
            let comma = if number > 0 { ", " } else { "" };
            write!(f, "{comma}{to} of {from} in workload {workload}")?;
        }
        Ok(())
    }
}

/// Most memory that was held while a candidate was judged: of the device on a GPU, of the host on the cpu device.
/// Contexts and code on a GPU are not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryUse {
    /// Bytes in all: the sum; where oracle and baselines take turns, the larger of both and the candidate's.
    pub peak_bytes: u64,
    /// Memory that the judge made for the candidate: arena, and inputs of a window beside it.
    pub candidate_bytes: u64,
    /// Of the oracle once the task is open: what torch held, and the oracle's arena; on the cpu device all of its
    /// process.
    pub oracle_bytes: u64,
    /// Of the baseline process; `None` where nothing was timed.
    pub baseline_bytes: Option<u64>,
}

impl MemoryUse {
    /// Of these parts.
    pub fn of(candidate: u64, oracle: u64, baseline: Option<u64>, they_take_turns: bool) -> Self {
        let beside = baseline.unwrap_or(0);
        let others =
            if they_take_turns { oracle.max(beside) } else { oracle.saturating_add(beside) };
        Self {
            peak_bytes: candidate.saturating_add(others),
            candidate_bytes: candidate,
            oracle_bytes: oracle,
            baseline_bytes: baseline,
        }
    }
}
