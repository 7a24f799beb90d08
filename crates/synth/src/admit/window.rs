//! The accepted range of eager times.

use std::ops::RangeInclusive;

/// Accepted range of the eager time per call, in milliseconds: shorter calls are launch-bound, longer ones
/// take too much judge time.
#[derive(Clone, Debug, PartialEq)]
pub struct Window(RangeInclusive<f64>);

/// Why a time is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeRefusal {
    /// Faster than the window's lower bound.
    TooFast,
    /// Slower than the window's upper bound.
    TooSlow,
}

impl TimeRefusal {
    /// A stable key for counting.
    pub fn name(self) -> &'static str {
        match self {
            Self::TooFast => "too_fast",
            Self::TooSlow => "too_slow",
        }
    }
}

impl Window {
    /// 0.05 to 10 ms on a GPU: the judge can process thousands of such tasks.
    pub fn fast() -> Self {
        Self(0.05..=10.0)
    }

    /// 1 to 100 ms, the paper's.
    pub fn paper() -> Self {
        Self(1.0..=100.0)
    }

    /// 0.1 to 50 ms, for the cpu device: launches cost little there, and memory is a hundredth as
    /// fast.
    pub fn host() -> Self {
        Self(0.1..=50.0)
    }

    /// The range, in milliseconds.
    pub fn range(&self) -> &RangeInclusive<f64> {
        &self.0
    }

    /// Why a call of this duration is refused, if it is.
    pub fn refusal(&self, eager_ms: f64) -> Option<TimeRefusal> {
        if eager_ms < *self.0.start() {
            Some(TimeRefusal::TooFast)
        } else if eager_ms > *self.0.end() {
            Some(TimeRefusal::TooSlow)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_window_includes_both_ends() {
        let window = Window::paper();
        assert_eq!(
            [0.99, 1.0, 100.0, 100.1].map(|ms| window.refusal(ms)),
            [Some(TimeRefusal::TooFast), None, None, Some(TimeRefusal::TooSlow),]
        );
    }
}
