//! A verdict's part for each workload of its task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ReplayerTurn, Speedup, Tier, Times, Verdict};
use crate::blob::BlobHash;

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
}

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
        }
    }
}

impl Verdict {
    /// The launch plans that were judged, one per workload.
    pub fn plans(&self) -> impl Iterator<Item = BlobHash> {
        self.plan.into_iter().chain(self.workloads.iter().filter_map(|workload| workload.plan))
    }

    /// The turns in replayers that it is made of.
    pub fn replayer_turns(&self) -> impl Iterator<Item = &ReplayerTurn> {
        let of_workloads = self.workloads.iter().filter_map(|workload| workload.replayer.as_ref());
        self.replayer.iter().chain(of_workloads)
    }
}
