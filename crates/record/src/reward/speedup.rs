//! The reward `speedup`, for comparison only.

use super::{LowerBounds, RewardScheme};

/// The lower bound of the speed-up over the best baseline itself.
pub(super) struct LowerBound;

impl RewardScheme for LowerBound {
    fn verified(&self, low: LowerBounds) -> f64 {
        low.best
    }
}
