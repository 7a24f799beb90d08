//! Times and speed-ups of a candidate by baseline.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::interval::Interval;

/// Names of the baselines in a verdict, in the order in which reports show them.
pub const BASELINES: [&str; 4] = ["eager", "compile", "reduce_overhead", "max_autotune"];

/// Milliseconds per call, each a median with its interval; `None` where not measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Times {
    /// The candidate.
    pub candidate: Option<Interval>,
    /// PyTorch eager.
    pub eager: Option<Interval>,
    /// `torch.compile`, default mode.
    pub compile: Option<Interval>,
    /// `torch.compile`, `reduce-overhead` (CUDA graphs); GPU only.
    pub reduce_overhead: Option<Interval>,
    /// `torch.compile`, `max-autotune`; only with `--baselines all`.
    pub max_autotune: Option<Interval>,
    /// `ModelNew.prepare()`, once, untimed for the reward.
    pub prepare: Option<f64>,
    /// Rounds that were measured, one window of each contender in each.
    #[serde(default)]
    pub rounds: Option<u32>,
}

impl Times {
    /// Milliseconds a call of the baseline of this name, as in [`Speedup::best_baseline`].
    #[must_use]
    pub fn over(&self, baseline: &str) -> Option<Interval> {
        match baseline {
            "eager" => self.eager,
            "compile" => self.compile,
            "reduce_overhead" => self.reduce_overhead,
            "max_autotune" => self.max_autotune,
            _ => None,
        }
    }
}

/// Speed-up over each baseline, from paired windows; `None` where not measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Speedup {
    /// Over eager.
    pub eager: Option<Interval>,
    /// Over `torch.compile`, default mode.
    pub compile: Option<Interval>,
    /// Over `reduce-overhead`.
    pub reduce_overhead: Option<Interval>,
    /// Over `max-autotune`.
    pub max_autotune: Option<Interval>,
    /// Over the best baseline: the one over which it is least.
    pub best: Option<Interval>,
    /// Which baseline that was.
    pub best_baseline: Option<String>,
}

impl Speedup {
    /// The speed-up over the baseline of this name, as in [`Speedup::best_baseline`].
    #[must_use]
    pub fn over(&self, baseline: &str) -> Option<Interval> {
        match baseline {
            "eager" => self.eager,
            "compile" => self.compile,
            "reduce_overhead" => self.reduce_overhead,
            "max_autotune" => self.max_autotune,
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_baseline_is_found_by_its_name_in_json() {
        for name in BASELINES {
            let interval = Interval { value: 2.0, low: 1.0, high: 3.0 };
            let object = json!({ name: interval });
            let times: Times = serde_json::from_value(object.clone()).unwrap();
            let speedup: Speedup = serde_json::from_value(object).unwrap();
            assert_eq!((times.over(name), speedup.over(name)), (Some(interval), Some(interval)));
            for other in BASELINES.into_iter().filter(|other| *other != name) {
                assert_eq!((times.over(other), speedup.over(other)), (None, None), "{other}");
            }
        }
    }
}
