//! The three rewards (design, "Reward"), computed in one place.

use crate::verdict::{Reward, Speedup};

/// "Faster" means that the lower bound of the speed-up exceeds this.
pub const FASTER: f64 = 1.05;
/// Between this and [`FASTER`] the `bounded` reward calls a candidate as fast as the baseline.
pub const SLOWER: f64 = 0.95;

impl Reward {
    /// Reward of a candidate that is not verified: -1 in every scheme.
    pub fn unverified() -> Self {
        Self { paper: -1.0, speedup: -1.0, bounded: -1.0 }
    }

    /// Reward of a verified candidate, from the speedups' lower confidence bounds. A speedup that was not
    /// measured has the lower bound 0.
    pub fn verified(speedup: &Speedup) -> Self {
        let low = |interval: Option<crate::interval::Interval>| match interval {
            Some(interval) if interval.low.is_finite() => interval.low.max(0.0),
            _ => 0.0,
        };
        let (eager, compile, best) = (low(speedup.eager), low(speedup.compile), low(speedup.best));
        let paper = match (eager > FASTER, compile > FASTER) {
            (true, true) => 3.0,
            (true, false) => 2.0,
            (false, _) => 1.0,
        };
        let s = if (SLOWER..=FASTER).contains(&best) { 1.0 } else { best };
        Self { paper, speedup: best, bounded: 1.0 + s.log2().clamp(-0.5, 2.0) }
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
            paper: self.paper.min(1.0),
            speedup: self.speedup.min(1.0),
            bounded: self.bounded.min(1.0),
        }
    }
}
