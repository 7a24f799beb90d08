//! Selects the timed calls that are compared with the oracle.
//!
//! A candidate that skips a share `f` of the timed calls passes with probability `(1 - f)^n` if `n` of them
//! are compared: [`TIMED`] comparisons detect 5 % in 99 of 100 verdicts. They are spread over all windows:
//! otherwise a candidate that skips many calls in few windows would be missed.

use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use warpwright_record::verdict::Profile;

use crate::check::families::Draw;
use crate::check::findings::Findings;
use crate::check::share;
use crate::check::verify::{glances, look, unwritten};
use crate::process::candidate::LoadedCandidate;
use crate::process::failure::Trouble;
use crate::process::oracle::Oracle;
use crate::process::played::Played;
use crate::timing::sequential::Schedule;

/// Timed calls that are looked at before measuring may stop first, where there are as many:
/// `0.95^90 < 0.01`.
pub(crate) const TIMED: usize = 90;
/// In each round after that: a candidate that counts windows finds none after which it is not looked at.
const LATER: usize = 3;
/// Name of their checks.
const NAME: &str = "timed call";
/// Time that looking may take; then one call of each window is looked at. A reference that takes a second
/// is timed by few calls, of which most have been looked at by then.
const BUDGET: Duration = Duration::from_secs(10);

/// The looks of one measurement.
pub(crate) struct Checks {
    /// Rounds up to the first time at which measuring may stop.
    first: usize,
    /// Calls to look at until then.
    wanted: usize,
    done: usize,
    spent: Duration,
}

impl Checks {
    /// `workloads`: how many share the looks of a verdict.
    pub(crate) fn new(schedule: &Schedule, workloads: usize) -> Self {
        let wanted = share::looks(TIMED, workloads);
        Self { first: schedule.first(), wanted, done: 0, spent: Duration::ZERO }
    }

    /// Number of calls of a round's window to compare.
    fn in_round(&self, round: usize) -> usize {
        if self.spent > BUDGET {
            return 1;
        }
        match self.first.checked_sub(round) {
            None | Some(0) => LATER,
            Some(left) => self.wanted.saturating_sub(self.done).div_ceil(left).max(1),
        }
    }

    /// Compares calls of a round's window, chosen after the clock has stopped.
    pub(crate) fn look(
        &mut self,
        round: usize,
        (played, draws): (&Played, &[Draw]),
        (oracle, candidate): (&mut Oracle, &mut dyn LoadedCandidate),
        (profile, random): (Profile, &mut StdRng),
        found: &mut Findings,
    ) -> Result<(), Trouble> {
        if let Some(failure) = unwritten(played, NAME) {
            found.failure = Some(failure);
            return Ok(());
        }
        let started = Instant::now();
        let by_call: Vec<Draw> = played.order.iter().map(|&slot| draws[slot]).collect();
        let wanted = self.in_round(round);
        let mut chosen = oracle.families.looked_at(&by_call, wanted, random);
        // A candidate that computes this call before or after it is wrong there.
        if let Some(call) = played.exchanged.filter(|call| !chosen.contains(call)) {
            chosen.pop();
            chosen.push(call);
        }
        let of = (played, oracle.played);
        let name = |_: usize| NAME.to_owned();
        let calls = (chosen.as_slice(), by_call.as_slice());
        let glanced = glances(oracle, candidate, of, calls, (&name, profile))?;
        for (call, glanced) in chosen.into_iter().zip(glanced) {
            let question = (oracle.played, by_call[call]);
            let looked = match glanced {
                Some(looked) => looked,
                None => look(oracle, candidate, played, call, question, NAME, profile)?,
            };
            // Where honest programs need not agree, nothing was compared.
            self.done += usize::from(!looked.void);
            found.take(looked);
            if found.bad() {
                break;
            }
        }
        self.spent += started.elapsed();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::families::Families;
    use rand::{RngExt, SeedableRng};

    #[test]
    fn enough_calls_are_compared_before_the_first_look() {
        let schedule = Schedule::sequential(21);
        let mut checks = Checks::new(&schedule, 1);
        let mut each = Vec::new();
        for round in 0..schedule.first() {
            each.push(checks.in_round(round));
            checks.done += checks.in_round(round);
        }
        assert!(each.iter().sum::<usize>() >= TIMED, "{each:?}");
        assert!(each.iter().all(|n| (10..=16).contains(n)), "{each:?}");
        assert_eq!(checks.in_round(schedule.first()), LATER);
        // Windows of a single call each: no more than there are, and what was missed is made up for.
        let mut short = Checks::new(&schedule, 1);
        short.done = 3;
        assert!(short.in_round(3) >= 20);
        short.spent = BUDGET * 2;
        assert_eq!(short.in_round(4), 1);
    }

    /// What the number of looks is for, simulated: 5 % of the calls skipped at random, or a third of one
    /// window of seven, which is 5 % of all.
    #[test]
    fn skipping_a_twentieth_of_the_calls_is_found() {
        const CALLS: usize = 51;
        let schedule = Schedule::sequential(21);
        let draws = vec![Draw::own(1); CALLS];
        let families = Families::own(Profile::Strict, vec![None]);
        let mut random = StdRng::seed_from_u64(11);
        let mut found = |skips: &dyn Fn(&mut StdRng, usize, usize) -> bool| {
            let mut checks = Checks::new(&schedule, 1);
            let cheated = random.random_range(0..schedule.first());
            (0..schedule.first()).fold(false, |found, round| {
                let skipped: Vec<bool> =
                    (0..CALLS).map(|call| skips(&mut random, round + 7 - cheated, call)).collect();
                let looked = families.looked_at(&draws, checks.in_round(round), &mut random);
                checks.done += looked.len();
                found || looked.iter().any(|call| skipped[*call])
            })
        };
        let verdicts = 2000;
        let scattered = |random: &mut StdRng, _: usize, _: usize| random.random_bool(0.05);
        let count = (0..verdicts).filter(|_| found(&scattered)).count();
        assert!(count * 1000 >= verdicts * 985, "{count} of {verdicts}");
        let together = |_: &mut StdRng, at: usize, call: usize| at == 7 && call < CALLS / 3;
        let count = (0..verdicts).filter(|_| found(&together)).count();
        assert!(count * 1000 >= verdicts * 985, "{count} of {verdicts}");
    }
}
