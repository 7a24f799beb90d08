//! Decides when to stop measuring: after few rounds if they decide the reward, after more otherwise.
//!
//! An interval that is examined repeatedly while samples arrive misses the true value more often than its
//! level says. So the error probability is divided in advance among a few looks. At look `j`, after `n_j`
//! rounds, the interval between ranks `k_j` and `n_j + 1 - k_j` of the samples misses the median with
//! probability `a_j = 2 P(Binomial(n_j, 1/2) < k_j)`. By Boole's inequality the interval at which measuring
//! stops misses it with probability at most `a_1 + a_2 + ...`, whatever the stopping rule (alpha spending:
//! Lan and DeMets, "Discrete sequential boundaries for clinical trials", Biometrika 1983). Samples of
//! different rounds are assumed to be independent. They need not be identically distributed: it suffices
//! that each lies above and below the median with equal probability. So later windows may be longer, and
//! more exact, than the first. The last look leaves the short windows out: all of its samples are exact.

use warpwright_record::interval::Interval;
use warpwright_record::verdict::Speedup;

use crate::timing::stats;

/// One look at what was measured so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interim {
    /// Rounds so far.
    rounds: usize,
    /// The first of them that do not count for it.
    pub(crate) leaves: usize,
    /// Rank of the interval's ends among the others; 0 for too few of them.
    pub(crate) rank: usize,
}

/// Looks that together miss in at most 5 of 100 (1.56, 1.17, 0.74 and 1.29).
const LOOKS: [Interim; 4] = [
    Interim { rounds: 7, leaves: 0, rank: 1 },
    Interim { rounds: 11, leaves: 0, rank: 2 },
    Interim { rounds: 15, leaves: 0, rank: 3 },
    Interim { rounds: 21, leaves: 7, rank: 3 },
];

#[cfg(test)]
impl Interim {
    /// One at which all rounds count.
    pub(crate) fn at_all(rank: usize) -> Self {
        Self { rounds: 0, leaves: 0, rank }
    }
}

/// Speed-ups at which a reward changes: see `Reward`.
pub(crate) const THRESHOLDS: [f64; 2] = [0.95, 1.05];
/// Widest interval, relative to its value, with which the speed-up over the best baseline and the
/// candidate's time are known well enough to compare versions of a kernel.
const PRECISE: f64 = 0.06;
/// Rounds after which that is not waited for any longer: on a host whose launches vary by a tenth more
/// rounds hardly help, and no reward turns on it.
const LONG_ENOUGH: usize = 15;

/// The looks of one measurement, fixed before its first round.
#[derive(Clone, Debug)]
pub(crate) struct Schedule(Vec<Interim>);

impl Schedule {
    /// Looks while measuring, up to `most` rounds, and no fewer than the first look needs.
    pub(crate) fn sequential(most: usize) -> Self {
        let fits = LOOKS.iter().filter(|look| look.rounds <= most).count().max(1);
        Self(LOOKS[..fits].to_vec())
    }

    /// One look, at the end of so many rounds (at least those of the first look above).
    pub(crate) fn fixed(rounds: usize) -> Self {
        let rounds = rounds.max(LOOKS[0].rounds);
        Self(vec![Interim { rounds, leaves: 0, rank: stats::rank(rounds).unwrap_or(1) }])
    }

    /// One look at the end of fewer rounds than have an interval of ranks: a part of those of a task with several
    /// workloads.
    pub(crate) fn shared(rounds: usize) -> Self {
        Self(vec![Interim { rounds, leaves: 0, rank: 0 }])
    }

    /// Rounds up to the first time at which measuring may stop.
    pub(crate) fn first(&self) -> usize {
        self.0.first().map_or(0, |look| look.rounds)
    }

    /// Maximum number of rounds.
    pub(crate) fn last(&self) -> usize {
        self.0.last().map_or(0, |look| look.rounds)
    }

    /// The look, if this is the time for one.
    pub(crate) fn look_after(&self, rounds: usize) -> Option<Interim> {
        self.0.iter().find(|look| look.rounds == rounds).copied()
    }
}

/// Whether after so many rounds more could change a reward, or are needed to know the figures well. An
/// interval's ends have this share of its value on top, which is not of the windows' own variation.
pub(crate) fn decided(
    speedup: &Speedup,
    candidate: Option<Interval>,
    (rounds, unequal): (usize, f64),
) -> bool {
    let over = [speedup.eager, speedup.compile, speedup.reduce_overhead, speedup.max_autotune];
    let clear = |i: &Interval| THRESHOLDS.iter().all(|t| i.high < *t || *t < i.low);
    let precise = |i: Interval| i.high - i.low <= (PRECISE + 2.0 * unequal) * i.value;
    let known = speedup.best.is_some_and(precise) && candidate.is_some_and(precise);
    over.iter().flatten().all(clear) && (known || rounds >= LONG_ENOUGH)
}

/// Whether a reward for being faster is within reach: the speed-up over eager or over the best baseline may be
/// above the upper threshold.
pub(crate) fn may_be_faster(speedup: &Speedup) -> bool {
    [speedup.eager, speedup.best].iter().flatten().any(|over| over.high > THRESHOLDS[1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    /// Chance that ranks `k` and `n + 1 - k` of `n` samples miss the median, by its definition.
    fn misses(n: usize, k: usize) -> f64 {
        let mut binomial = vec![1.0f64];
        for _ in 0..n {
            let shifted = std::iter::once(0.0).chain(binomial.iter().copied());
            let padded = binomial.iter().copied().chain(std::iter::once(0.0));
            binomial = shifted.zip(padded).map(|(a, b)| f64::midpoint(a, b)).collect();
        }
        2.0 * binomial[..k].iter().sum::<f64>()
    }

    #[test]
    fn interim_looks_spend_at_most_five_percent() {
        let spent: f64 = LOOKS.iter().map(|l| misses(l.rounds - l.leaves, l.rank)).sum();
        assert!(spent <= 0.05, "{spent}");
        assert!((misses(9, 2) - 0.039_062_5).abs() < 1e-12, "by the published table");
    }

    #[test]
    fn a_kernel_slower_than_all_baselines_earns_no_speed_reward() {
        let over = |low, high| Some(Interval { value: f64::midpoint(low, high), low, high });
        let speedup = |eager, best| Speedup { eager, best, ..Speedup::default() };
        assert!(!may_be_faster(&speedup(over(0.2, 0.5), over(0.2, 0.4))));
        assert!(!may_be_faster(&speedup(None, None)));
        assert!(may_be_faster(&speedup(over(0.9, 1.2), over(0.2, 0.4))));
        assert!(may_be_faster(&speedup(None, over(0.5, 1.1))));
    }

    #[test]
    fn looks_follow_their_scheduled_rounds() {
        assert_eq!(Schedule::sequential(16).last(), 15);
        assert_eq!(Schedule::sequential(2).last(), 7);
        assert_eq!(Schedule::fixed(9).look_after(9).map(|look| look.rank), Some(2));
        assert_eq!(Schedule::fixed(9).look_after(7), None);
    }

    /// One measurement of a kernel whose true speed-up is `truth`, with ratios that are skewed and now
    /// and then disturbed as on a real host. `look` says when there is one.
    fn measure(
        truth: f64,
        noise: f64,
        random: &mut StdRng,
        look: impl Fn(usize) -> Option<Interim>,
    ) -> Interval {
        let mut ratios = Vec::new();
        loop {
            // Later windows are longer. The median of `exp(x)` with a symmetric `x` is 1.
            let noise = if ratios.len() < LOOKS[0].rounds { noise } else { noise / 3.0 };
            let x = noise * (random.random::<f64>() + random.random::<f64>() - 1.0);
            let hiccup = if random.random_bool(0.05) { 5.0 * x } else { x };
            ratios.push(truth * hiccup.exp());
            let Some(look) = look(ratios.len()) else { continue };
            let over = stats::between(&ratios[look.leaves..], look.rank).unwrap();
            let all = Speedup { eager: Some(over), best: Some(over), ..Speedup::default() };
            if ratios.len() >= 21 || decided(&all, Some(over), (ratios.len(), 0.0)) {
                return over;
            }
        }
    }

    /// A kernel at exactly the margin earns the higher reward at most at the nominal rate; looking at
    /// ordinary 95 % intervals after every round, as a naive rule does, earns it far more often.
    #[test]
    fn at_the_margin_the_higher_reward_is_earned_at_most_at_the_nominal_rate() {
        let mut random = StdRng::seed_from_u64(11);
        let schedule = Schedule::sequential(21);
        let trials = 20_000;
        for noise in [0.002, 0.02, 0.1] {
            let mut earned = [0, 0];
            for _ in 0..trials {
                let spent = measure(1.05, noise, &mut random, |n| schedule.look_after(n));
                let naive =
                    |n: usize| (n >= 7).then(|| stats::rank(n)).flatten().map(Interim::at_all);
                let naive = measure(1.05, noise, &mut random, naive);
                earned[0] += u32::from(spent.low > 1.05);
                earned[1] += u32::from(naive.low > 1.05);
            }
            let [spent, naive] = earned.map(|n| f64::from(n) / f64::from(trials));
            // Half of 5 %, and three standard errors of the simulation.
            assert!(spent < 0.025 + 0.0034, "{spent} with noise {noise}");
            assert!(naive > 0.04, "{naive} with noise {noise}: the control sees nothing");
        }
    }

    #[test]
    fn a_clear_case_stops_at_the_first_look() {
        let mut random = StdRng::seed_from_u64(12);
        let schedule = Schedule::sequential(21);
        for truth in [0.8, 1.0, 1.12, 3.0] {
            let longest = std::cell::Cell::new(0);
            let over = measure(truth, 0.003, &mut random, |n| {
                longest.set(n);
                schedule.look_after(n)
            });
            assert_eq!(longest.get(), 7, "{truth}");
            assert_eq!(over.low > 1.05, truth > 1.05, "{over:?}");
        }
    }

    #[test]
    fn a_wide_interval_decides_no_reward() {
        let wide = Interval { value: 1.06, low: 1.04, high: 1.08 };
        let clear = Interval { value: 1.2, low: 1.19, high: 1.21 };
        let of =
            |eager, best| Speedup { eager: Some(eager), best: Some(best), ..Speedup::default() };
        assert!(!decided(&of(wide, clear), Some(clear), (20, 0.0)));
        assert!(decided(&of(clear, clear), Some(clear), (7, 0.0)));
        let blurred = Interval { value: 1.5, low: 1.4, high: 1.6 };
        assert!(!decided(&of(clear, blurred), Some(clear), (11, 0.0)));
        assert!(decided(&of(clear, blurred), Some(clear), (11, 0.05)), "more would not narrow it");
        assert!(!decided(&of(clear, clear), None, (11, 0.0)));
        assert!(decided(&of(clear, blurred), Some(clear), (15, 0.0)), "no reward turns on it");
    }
}
