//! How long and how often candidates are timed.

use std::time::Duration;

use crate::check::share;

/// How long and how often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Length of a window, up to the first time at which measuring may stop.
    pub(crate) window: Duration,
    /// From then on: what short windows decide costs little, and what they do not is worth long ones.
    pub(crate) longer: Duration,
    /// A call that takes longer has windows of its own: one call, less an empty window. More calls would make it no more
    /// exact, and inputs of several are what large tasks have no memory for.
    pub(crate) single: Duration,
    /// Rounds, if the time allows.
    pub(crate) rounds: usize,
    /// Time to stay within, roughly.
    pub(crate) budget: Duration,
    /// Whether to stop as soon as the rewards are decided.
    pub(crate) sequential: bool,
    /// Windows of each baseline before any candidate runs, so that its floor is known.
    pub(crate) preview: usize,
    /// Workloads of the task, of whose speed-ups the mean counts.
    pub(crate) workloads: usize,
}

/// Windows that only say how long a call takes, to some percent.
const BRIEF_PREVIEW: usize = 3;

impl Plan {
    /// The same with windows of another length, if one is named.
    pub(crate) fn with_windows_of(self, window: Option<Duration>) -> Self {
        window.map_or(self, |window| Self { window, longer: window, single: window, ..self })
    }

    /// For one of so many workloads.
    pub(crate) fn shared_among(self, workloads: usize) -> Self {
        let part = share::window(workloads);
        let (window, longer) = (self.window.mul_f64(part), self.longer.mul_f64(part));
        Self { window, longer, workloads, ..self }
    }

    /// For the cpu device where other processes compute beside it.
    pub(crate) fn on_a_busy_host(self) -> Self {
        Self { rounds: BUSY_ROUNDS, budget: BUSY_TIME * self.budget, ..self }
    }

    /// For a look at how long something takes: what it is compared with is not decided by it.
    pub(crate) fn brief(self) -> Self {
        if self.preview == 0 {
            return self;
        }
        Self { longer: self.window, preview: BRIEF_PREVIEW, ..self }
    }
}

/// Rounds on a busy host, if the time allows. If six windows of ten are disturbed, fewer than two of 9 are not
/// in 7 of 100 measurements; of 21, in 3 of 10,000.
pub(crate) const BUSY_ROUNDS: usize = 21;
/// How many times longer than elsewhere measuring may take there.
const BUSY_TIME: u32 = 3;
