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

    /// The geometric mean of independent positive figures. Its logarithm is the mean of their logarithms, and its
    /// interval reaches as far to either side as the root of the sum of their squared distances to that side, over
    /// their number. `None` if there are none, or one is not positive and finite.
    pub fn geometric_mean(figures: &[Self]) -> Option<Self> {
        let count = figures.len() as f64;
        let (mut sum, mut below, mut above) = (0.0, 0.0, 0.0);
        for Self { value, low, high } in figures {
            let known = value.is_finite() && *value > 0.0 && high.is_finite() && high >= value;
            if !known || low.is_nan() || low > value {
                return None;
            }
            sum += value.ln();
            // Down to 0 where a lower end is.
            below += (value.ln() - low.max(0.0).ln()).powi(2);
            above += (high.ln() - value.ln()).powi(2);
        }
        let mean = sum / count;
        (!figures.is_empty()).then(|| Self {
            value: mean.exp(),
            low: (mean - below.sqrt() / count).exp(),
            high: (mean + above.sqrt() / count).exp(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(value: f64, by: f64) -> Interval {
        Interval { value, low: value / by, high: value * by }
    }

    #[test]
    fn the_mean_of_equal_figures_is_narrower() {
        let mean = Interval::geometric_mean(&[around(2.0, 1.2); 4]).unwrap();
        assert!((mean.value - 2.0).abs() < 1e-12);
        // A quarter of the variance: half of the width, in logarithms.
        assert!((mean.high - 2.0 * 1.2_f64.sqrt()).abs() < 1e-12, "{mean:?}");
        assert!((mean.low - 2.0 / 1.2_f64.sqrt()).abs() < 1e-12, "{mean:?}");
        let one = around(3.0, 1.1);
        let same = Interval::geometric_mean(&[one]).unwrap();
        assert!((same.low - one.low).abs() < 1e-12 && (same.high - one.high).abs() < 1e-12);
        let mixed = Interval::geometric_mean(&[around(0.5, 1.0), around(8.0, 1.0)]).unwrap();
        assert!((mixed.value - 2.0).abs() < 1e-12 && (mixed.low - mixed.high).abs() < 1e-12);
    }

    #[test]
    fn a_figure_without_a_lower_bound_leaves_the_mean_none() {
        let unknown = Interval { low: 0.0, ..around(2.0, 1.1) };
        let mean = Interval::geometric_mean(&[around(2.0, 1.1), unknown]).unwrap();
        assert_eq!(mean.low.to_bits(), 0.0_f64.to_bits());
        for bad in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
            assert_eq!(Interval::geometric_mean(&[around(bad, 1.0)]), None);
        }
        assert_eq!(Interval::geometric_mean(&[]), None);
    }
}
