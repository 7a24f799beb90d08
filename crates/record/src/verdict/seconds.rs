//! Where the time of a verdict went.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Wall seconds by phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PhaseSeconds {
    /// Compile and link; near zero on a cache hit.
    pub build: f64,
    /// Record its launches, in the device tier.
    #[serde(default)]
    pub record: f64,
    /// Wait for a process to load the candidate in, and make it the candidate's.
    #[serde(default)]
    pub start: f64,
    /// Load the candidate, with the device held.
    pub load: f64,
    /// Start, compile and tune the baselines; zero when the session had them ready.
    #[serde(default)]
    pub baselines: f64,
    /// Wait for the device.
    #[serde(default)]
    pub wait: f64,
    /// Compare with the oracle.
    pub verify: f64,
    /// Time against the baselines.
    pub measure: f64,
    /// Of `verify` and `measure`: make fresh inputs, and poison the memory of the results.
    #[serde(default)]
    pub inputs: f64,
    /// Of `verify` and `measure`: inside windows, the baselines' too.
    #[serde(default)]
    pub windows: f64,
    /// End its process and all that it left on the device, with the device held.
    #[serde(default)]
    pub end: f64,
    /// Judge it again in a new GPU context, where this verdict was one of those that are repeated.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub repeat: f64,
}

impl PhaseSeconds {
    /// Of two verdicts together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            build: self.build + other.build,
            record: self.record + other.record,
            start: self.start + other.start,
            load: self.load + other.load,
            baselines: self.baselines + other.baselines,
            wait: self.wait + other.wait,
            verify: self.verify + other.verify,
            measure: self.measure + other.measure,
            inputs: self.inputs + other.inputs,
            windows: self.windows + other.windows,
            end: self.end + other.end,
            repeat: self.repeat + other.repeat,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(seconds: &f64) -> bool {
    *seconds == 0.0
}
