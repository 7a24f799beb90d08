//! The reward `bounded`.

use super::{FASTER, LowerBounds, RewardScheme, SLOWER};

/// 1 + log2 of the speed-up over the best baseline, between 0.5 and 3. A candidate that is about as fast
/// as the baseline gets 1.
pub(super) struct Bounded;

impl RewardScheme for Bounded {
    fn verified(&self, low: LowerBounds) -> f64 {
        let speedup = if (SLOWER..=FASTER).contains(&low.best) { 1.0 } else { low.best };
        1.0 + speedup.log2().clamp(-0.5, 2.0)
    }
}
