//! Which timed calls are compared with the oracle.
//!
//! A candidate that computes all but a share `f` of the timed calls gets by with `(1 - f)^n` where `n`
//! of them are looked at: [`TIMED`] find 5 % in 99 of 100 verdicts. They are spread over all windows,
//! since whoever skips much in few of them would be missed by looking at the others.

use std::time::{Duration, Instant};

use super::TaskSession;
use crate::families::{Draw, Families};
use crate::runner::{Played, Runner, Trouble};
use crate::sequential::Schedule;
use crate::verdict::Findings;
use crate::verify::{look, unwritten};

/// Timed calls that are looked at before measuring may stop first, where there are as many:
/// `0.95^90 < 0.01`.
pub(super) const TIMED: usize = 90;
/// In each round after that: a candidate that counts windows finds none after which it is not looked at.
const LATER: usize = 3;
/// Time that looking may take; then one call of each window is looked at. A reference that takes a second
/// is timed by few calls, of which most have been looked at by then.
const BUDGET: Duration = Duration::from_secs(10);

/// The looks of one measurement.
pub(super) struct Checks {
    /// Rounds up to the first time at which measuring may stop.
    first: usize,
    done: usize,
    spent: Duration,
}

impl Checks {
    pub(super) fn new(schedule: &Schedule) -> Self {
        Self { first: schedule.first(), done: 0, spent: Duration::ZERO }
    }

    /// How many calls of a round's window are looked at.
    fn in_round(&self, round: usize) -> usize {
        if self.spent > BUDGET {
            return 1;
        }
        match self.first.checked_sub(round) {
            None | Some(0) => LATER,
            Some(left) => TIMED.saturating_sub(self.done).div_ceil(left).max(1),
        }
    }
}

impl TaskSession<'_> {
    /// Looks at calls of a round's window, chosen after the clock has stopped.
    pub(super) fn look_at_timed(
        &mut self,
        runner: &mut Runner,
        (played, draws): (&Played, &[Draw]),
        (checks, round): (&mut Checks, usize),
        found: &mut Findings,
    ) -> Result<(), Trouble> {
        if let Some(failure) = unwritten(played, "timed call") {
            found.failure = Some(failure);
            return Ok(());
        }
        let started = Instant::now();
        let by_call: Vec<Draw> = played.order.iter().map(|&slot| draws[slot]).collect();
        let wanted = checks.in_round(round);
        for call in Families::looked_at(&by_call, wanted, &mut self.random) {
            let (question, profile) = (("init", by_call[call]), self.judge.config.profile);
            let looked =
                look(&mut self.oracle, runner, played, call, question, "timed call", profile)?;
            found.take(looked);
            checks.done += 1;
            if found.bad() {
                break;
            }
        }
        checks.spent += started.elapsed();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_looked_at_in_all_rounds_and_enough_of_them_before_the_first_stop() {
        let schedule = Schedule::sequential(21);
        let mut checks = Checks::new(&schedule);
        let mut each = Vec::new();
        for round in 0..schedule.first() {
            each.push(checks.in_round(round));
            checks.done += checks.in_round(round);
        }
        assert!(each.iter().sum::<usize>() >= TIMED, "{each:?}");
        assert!(each.iter().all(|n| (10..=16).contains(n)), "{each:?}");
        assert_eq!(checks.in_round(schedule.first()), LATER);
        // Windows of a single call each: no more than there are, and what was missed is made up for.
        let mut short = Checks::new(&schedule);
        short.done = 3;
        assert!(short.in_round(3) >= 20);
        short.spent = BUDGET * 2;
        assert_eq!(short.in_round(4), 1);
    }

    /// What the number of looks is for, simulated: 5 % of the calls skipped at random, or all of them in
    /// one window of seven.
    #[test]
    fn skipping_a_twentieth_of_the_calls_is_found() {
        assert!(0.95f64.powi(TIMED as i32) < 0.01);
        // A third of one window of seven, which is 5 % of all: looked at thirteen times.
        assert!(0.65f64.powi((TIMED / 7 + 1) as i32) < 0.01);
    }
}
