//! Baseline windows that candidates of one task share.
//!
//! Rollouts of a task are judged one after the other, and each would time the same baselines in most of its time. In
//! the device tier a candidate's empty windows are its own, so a round needs nothing of the baselines but their
//! windows, and another candidate's will do if they are recent. Some rounds of each measurement have windows of
//! their own: if these say something else, all others are measured again.

use std::time::{Duration, Instant};

use super::measure::Rounds;
use super::stats;

/// Age at which windows are no longer shared: the temperature and clocks of a GPU settle in seconds.
const RECENT: Duration = Duration::from_secs(30);
/// One in so many rounds has windows of its own.
const OWN: usize = 3;
/// By how much the median of own windows may be off that of shared ones, as a share of it, beyond how far the
/// shared ones are apart.
const AGREE: f64 = 0.01;
/// Rounds that are kept: those of a measurement that stops at its first look.
const KEPT: usize = 7;

/// The windows of a round that are not the candidate's.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Beside {
    at: Instant,
    /// Seconds of the window in which nothing is computed.
    pub(crate) nothing: f64,
    /// Calls and seconds of each baseline's window.
    pub(crate) windows: Vec<(usize, f64)>,
}

/// The latest rounds of a task.
#[derive(Debug, Default)]
pub(crate) struct SharedRounds(Vec<Beside>);

/// Rounds that one measurement may use.
#[derive(Debug, Default)]
pub(crate) struct Borrowed(Vec<Beside>);

impl SharedRounds {
    /// Those that are recent, if there are as many as the first rounds of a measurement.
    pub(crate) fn lend(&mut self, now: Instant, rounds: usize) -> Borrowed {
        self.0.retain(|beside| now.saturating_duration_since(beside.at) < RECENT);
        Borrowed(if self.0.len() < rounds.min(KEPT) { Vec::new() } else { self.0.clone() })
    }

    /// Keeps the rounds that a measurement timed itself, with as many calls as the first rounds have.
    pub(crate) fn keep(&mut self, rounds: &Rounds, calls: &[usize], now: Instant) {
        for round in (0..rounds.nothing.len()).filter(|round| !rounds.is_shared(*round)) {
            let windows = rounds.beside_of(round);
            if windows.iter().map(|(calls, _)| calls).eq(calls) {
                self.0.push(Beside { at: now, nothing: rounds.nothing[round], windows });
            }
        }
        self.0.drain(..self.0.len().saturating_sub(KEPT));
    }
}

impl Borrowed {
    /// The windows of this round, if it has none of its own.
    pub(crate) fn take(&mut self, round: usize) -> Option<Beside> {
        if round.is_multiple_of(OWN) { None } else { self.0.pop() }
    }

    /// Gives all back.
    pub(crate) fn none(&mut self) {
        self.0.clear();
    }
}

/// Whether the windows that a measurement timed itself say what the shared ones do, of each baseline.
pub(crate) fn agree(own: &[f64], shared: &[f64]) -> bool {
    if own.is_empty() || shared.is_empty() {
        return true;
    }
    let usual = stats::rough(shared);
    let least = shared.iter().copied().fold(f64::INFINITY, f64::min);
    let most = shared.iter().copied().fold(0.0, f64::max);
    (stats::rough(own) - usual).abs() <= AGREE * usual + (most - least)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::baseline::Baseline;
    use crate::timing::measure::Windows;

    /// Rounds of which every third is the measurement's own.
    fn rounds(count: usize, own: f64, shared: f64) -> Rounds {
        let mut rounds =
            Rounds { baselines: vec![(Baseline::Eager, Windows::default())], ..Rounds::default() };
        for round in 0..count {
            let is_shared = !round.is_multiple_of(OWN);
            rounds.nothing.push(1e-4);
            rounds.candidate.push(100, 5e-3);
            rounds.shared.push(is_shared);
            let each = if is_shared { shared } else { own };
            rounds.baselines[0].1.push(100, 1e-4 + 100.0 * each * (1.0 + 1e-4 * round as f64));
        }
        rounds
    }

    #[test]
    fn recent_rounds_are_shared_and_old_ones_are_not() {
        let (mut kept, now) = (SharedRounds::default(), Instant::now());
        assert_eq!(kept.lend(now, 7).take(1), None, "there is nothing yet");
        kept.keep(&rounds(19, 5e-5, 5e-5), &[100], now);
        assert_eq!(kept.0.len(), KEPT, "no shared round is kept as one's own");
        let mut lent = kept.lend(now, 7);
        assert_eq!(lent.take(0), None, "some rounds are measured");
        assert_eq!((1..30).filter(|round| lent.take(*round).is_some()).count(), KEPT);
        kept.keep(&rounds(19, 5e-5, 5e-5), &[70], now);
        assert_eq!(kept.0.len(), KEPT, "windows of another length are not kept");
        assert!(kept.lend(now + RECENT, 7).take(1).is_none());
    }

    #[test]
    fn shared_rounds_that_disagree_are_measured_again() {
        let mut same = rounds(7, 5e-5, 5e-5);
        assert!(same.forget_unlike_shared().is_empty());
        assert_eq!(same.nothing.len(), 7);
        let mut other = rounds(7, 5.2e-5, 5e-5);
        assert_eq!(other.forget_unlike_shared(), [5, 4, 2, 1], "the latest first");
        assert_eq!((other.nothing.len(), other.shared.len()), (3, 3));
    }
}
