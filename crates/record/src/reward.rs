//! The rewards of a candidate (design, "Reward"), one file per scheme.

mod bounded;
mod paper;
mod speedup;

use crate::interval::Interval;
use crate::verdict::{Reward, Speedup};

/// "Faster" means that the lower bound of the speed-up exceeds this.
pub const FASTER: f64 = 1.05;
/// Between this and [`FASTER`] the `bounded` reward calls a candidate as fast as the baseline.
pub const SLOWER: f64 = 0.95;

/// Reward of a candidate that is not verified, in every scheme.
const UNVERIFIED: f64 = -1.0;
/// Most that a candidate earns whose task may let wrong candidates pass: that of a correct one that is
/// not faster.
const CORRECT: f64 = 1.0;

/// Lower confidence bounds of a verified candidate's speed-ups; 0 where none was measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LowerBounds {
    /// Over eager execution.
    pub(crate) eager: f64,
    /// Over `torch.compile` in its default mode.
    pub(crate) compile: f64,
    /// Over the fastest measured baseline.
    pub(crate) best: f64,
}

impl LowerBounds {
    fn of(speedup: &Speedup) -> Self {
        let low = |interval: Option<Interval>| match interval {
            Some(interval) if interval.low.is_finite() => interval.low.max(0.0),
            _ => 0.0,
        };
        Self { eager: low(speedup.eager), compile: low(speedup.compile), best: low(speedup.best) }
    }
}

/// A scheme of rewards. A new one is a file here, a field of [`Reward`] and a variant of
/// [`Scheme`](crate::verdict::Scheme).
pub(crate) trait RewardScheme {
    /// The reward of a verified candidate. It never depends on a point estimate.
    fn verified(&self, low: LowerBounds) -> f64;
}

impl Reward {
    /// Reward of a candidate that is not verified: -1 in every scheme.
    pub fn unverified() -> Self {
        Self { paper: UNVERIFIED, speedup: UNVERIFIED, bounded: UNVERIFIED }
    }

    /// Reward of a verified candidate, from the speedups' lower confidence bounds. A speedup that was not
    /// measured has the lower bound 0.
    pub fn verified(speedup: &Speedup) -> Self {
        let low = LowerBounds::of(speedup);
        Self {
            paper: paper::Paper.verified(low),
            speedup: speedup::LowerBound.verified(low),
            bounded: bounded::Bounded.verified(low),
        }
    }

    /// [`Reward::verified`] or [`Reward::unverified`].
    pub fn of(verified: bool, speedup: &Speedup) -> Self {
        if verified { Self::verified(speedup) } else { Self::unverified() }
    }

    /// Capped at the reward of a correct candidate that is not faster: for tasks where a wrong candidate may pass
    /// as correct.
    #[must_use]
    pub fn capped(self) -> Self {
        Self {
            paper: self.paper.min(CORRECT),
            speedup: self.speedup.min(CORRECT),
            bounded: self.bounded.min(CORRECT),
        }
    }
}
