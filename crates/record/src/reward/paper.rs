//! The reward `paper`: that of arXiv 2602.24286.

use super::{FASTER, LowerBounds, RewardScheme};

/// 1 for a correct candidate, 2 for one that is faster than eager, 3 for one that is also faster than
/// `torch.compile`.
pub(super) struct Paper;

impl RewardScheme for Paper {
    fn verified(&self, low: LowerBounds) -> f64 {
        match (low.eager > FASTER, low.compile > FASTER) {
            (true, true) => 3.0,
            (true, false) => 2.0,
            (false, _) => 1.0,
        }
    }
}
