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
