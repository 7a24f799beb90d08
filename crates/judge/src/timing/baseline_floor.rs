//! The floor of a baseline: its undisturbed time per call. It bounds the time that a slow window counts as.
//!
//! The host bounds a window of a short compiled baseline (50 to 100 us per call): Python and launches take
//! most of it. On a busy host such windows vary by 20 % and more, those of a candidate by less than 1 %.
//! Disturbance only slows a baseline down, which makes speed-ups over it too high. On a GPU a baseline's
//! window therefore counts as at most [`SLOWEST`] times its *floor*. All windows of the baseline process
//! while it lives determine the floor (`docs/decisions/0011`). The limit can lower a speed-up and never
//! raise one, and a candidate has no influence on a baseline's windows.
//!
//! On the cpu device the host computes for the candidate as for its baselines. If other processes used more
//! than a tenth of it, the windows of all contenders are limited, those of the candidate by its fastest
//! windows in the same measurement. By medians of nine disturbed windows, candidates that earn 1 on an idle
//! host were up to eight times as fast as the best baseline. Otherwise nothing is limited on the cpu device.

use std::collections::VecDeque;

use crate::timing::stats::{self, LEAST};

/// What a window counts as at most, as a multiple of the floor: less than the 5 % at which
/// rewards change, more than undisturbed windows vary by.
pub(crate) const SLOWEST: f64 = 1.03;
/// From here on a window counts as disturbed, as a multiple of the floor: undisturbed ones
/// lie above [`SLOWEST`] now and then, by a little.
const DISTURBED: f64 = 1.04;
/// Windows that are remembered: those of six verdicts or more. The more there are, the further below
/// the median the quickest of them lie: the third of 128 by two standard deviations.
const NEWEST: usize = 128;

/// Seconds per call of one baseline's newest windows, whole verdicts and those that chose its
/// window's length.
#[derive(Clone, Debug, Default)]
pub(crate) struct History(VecDeque<f64>);

impl History {
    /// Remembers windows, and forgets the oldest for them.
    pub(crate) fn add(&mut self, per_call: &[f64]) {
        self.0.extend(per_call);
        let over = self.0.len().saturating_sub(NEWEST);
        self.0.drain(..over);
    }

    /// Seconds per call when nothing disturbs: the third smallest of the remembered windows and of
    /// those of `now`, or the second smallest of fewer than 12. `None` for fewer than 6.
    ///
    /// Not the smallest: one window that was timed wrongly would stand for the baseline. Not the
    /// median: a host can be busy for minutes, and then most windows are disturbed.
    pub(crate) fn level(&self, now: &[f64]) -> Option<f64> {
        // A window that is no longer than the empty ones beside it says nothing.
        let told = self.0.iter().chain(now).filter(|seconds| **seconds > LEAST);
        let mut all: Vec<f64> = told.copied().collect();
        let rank = match all.len() {
            0..6 => return None,
            6..12 => 2,
            _ => 3,
        };
        let (_, level, _) = all.select_nth_unstable_by(rank - 1, f64::total_cmp);
        Some(*level)
    }
}

/// The quickest measurements' empty windows of a judge's life. All are alike, whatever the task: how
/// much longer they take than they can tells how busy the host is with what launches need.
///
/// Medians of a measurement are compared, not single windows: of thousands the quickest is a third
/// below the median of an idle host, and the more there are, the further.
#[derive(Debug, Default)]
pub(crate) struct Quickest {
    /// The three shortest medians in seconds, the shortest first.
    least: Vec<f64>,
}

/// From here on the verdict tells of it, as a multiple of what an empty window can take.
const SLOW_HOST: f64 = 1.2;

impl Quickest {
    /// Remembers the windows of one measurement. How many times longer their median is than the third
    /// shortest ever; `None` for the first two measurements.
    pub(crate) fn add(&mut self, windows: &[f64]) -> Option<f64> {
        if windows.is_empty() {
            return None;
        }
        let median = stats::rough(windows);
        self.least.push(median);
        self.least.sort_by(f64::total_cmp);
        self.least.truncate(3);
        Some(median / self.least.get(2)?)
    }
}

/// The caveat for a host that was slower than its fastest state by this factor.
pub(crate) fn slow_host(times: Option<f64>) -> Option<String> {
    let percent = 100.0 * (times.filter(|times| *times > SLOW_HOST)? - 1.0);
    Some(format!(
        "the host was busy: empty windows took {percent:.0} % longer than the fastest so far; speed-ups \
         over baselines with many short kernels may be too high"
    ))
}

/// Lowers windows, in seconds per call, to what they count as; how many were disturbed.
pub(crate) fn limit(level: Option<f64>, per_call: &mut [f64]) -> usize {
    let Some(level) = level else { return 0 };
    let disturbed = per_call.iter().filter(|seconds| **seconds > DISTURBED * level).count();
    for seconds in per_call {
        *seconds = seconds.min(SLOWEST * level);
    }
    disturbed
}

/// The caveat if more than a quarter of a contender's windows were disturbed.
pub(crate) fn caveat(which: &str, disturbed: usize, windows: usize) -> Option<String> {
    (4 * disturbed > windows).then(|| {
        format!(
            "{disturbed} of {windows} windows of {which} were disturbed, as on a busy host; each \
             counts as at most 3 % slower than the fastest"
        )
    })
}

#[cfg(test)]
mod tests;
