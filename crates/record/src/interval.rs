//! A figure with its uncertainty.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A figure with a 95 % interval. A figure without an interval is not published.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    /// Point estimate.
    #[serde(with = "crate::number")]
    #[schemars(with = "Option<f64>")]
    pub value: f64,
    /// Lower end of the 95 % interval.
    #[serde(with = "crate::number")]
    #[schemars(with = "Option<f64>")]
    pub low: f64,
    /// Upper end of the 95 % interval.
    #[serde(with = "crate::number")]
    #[schemars(with = "Option<f64>")]
    pub high: f64,
}

/// Two times agree whose ratio is within this, or within [`INTERVALS`] of the wider interval.
const MARGIN: f64 = 0.05;
/// Half widths of the wider of two intervals by which two times may differ.
const INTERVALS: f64 = 3.0;

impl Interval {
    /// Whether two measurements of the same kernels differ by no more than their noise allows: the larger of
    /// 5 % and three half widths of the wider interval.
    pub fn agrees_with(self, other: Self) -> bool {
        let half = |of: Self| (of.high - of.low) / 2.0 / of.value;
        let allowed = f64::max(MARGIN, INTERVALS * f64::max(half(self), half(other)));
        // What is not a number agrees with nothing.
        (self.value / other.value).ln().abs() <= allowed.ln_1p()
    }
}
