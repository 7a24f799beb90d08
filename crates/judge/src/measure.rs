//! Times: interleaved windows of candidate and baselines.
//!
//! The time of a call is `(T(m) - T(0)) / m` of the judge's own clock, from sending "go" to the
//! fingerprint of memory, so that everything constant (messages, wake-ups, the fingerprint)
//! cancels. `T(0)` is a window of the trusted baseline process in which nothing is computed: a
//! candidate has no part in it, and slowing some of its own windows only costs it time
//! (`docs/decisions/0005`). Each round gives one window per contender; speed-ups are medians of the
//! rounds' ratios. When it may stop is fixed before the first round (`sequential.rs`), so nothing is
//! gained by stopping early. On a GPU a busy host slows baselines more than candidates; what their
//! windows count as at most is `quiet.rs`'s matter.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use warpwright_record::interval::Interval;
use warpwright_record::verdict::{Speedup, Times};

use crate::baseline::{Baseline, BaselineProcess, Look};
use crate::device::Device;
use crate::error::JudgeError;
use crate::families::Draw;
use crate::oracle::Oracle;
use crate::quiet::{self, History};
use crate::runner::{Played, Runner, Trouble};
use crate::sequential::Schedule;
use crate::stats;

/// How long and how often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Length of a window, up to the first time at which measuring may stop.
    pub(crate) window: Duration,
    /// From then on: what short windows decide costs little, and what they do not is worth long ones.
    pub(crate) longer: Duration,
    /// Rounds, if the time allows.
    pub(crate) rounds: usize,
    /// Time to stay within, roughly.
    pub(crate) budget: Duration,
    /// Whether to stop as soon as the rewards are decided.
    pub(crate) sequential: bool,
    /// Windows of each baseline before any candidate runs, so that its quiet level is known.
    pub(crate) preview: usize,
}

/// Windows that only say how long a call takes, to some percent.
const BRIEF_PREVIEW: usize = 3;

impl Plan {
    /// The device's own, with windows of another length if one is named.
    pub(crate) fn of(device: Device, window: Option<Duration>) -> Self {
        let usual = if device.is_cuda() {
            Self {
                window: Duration::from_millis(4),
                longer: Duration::from_millis(15),
                rounds: 21,
                budget: Duration::from_secs(15),
                sequential: true,
                preview: 9,
            }
        } else {
            Self {
                window: Duration::from_millis(12),
                longer: Duration::from_millis(12),
                rounds: 9,
                budget: Duration::from_secs(6),
                sequential: false,
                preview: 0,
            }
        };
        window.map_or(usual, |window| Self { window, longer: window, ..usual })
    }

    /// For a look at how long something takes: what it is compared with is not decided by it.
    pub(crate) fn brief(self) -> Self {
        if self.preview == 0 {
            return self;
        }
        Self { longer: self.window, preview: BRIEF_PREVIEW, ..self }
    }
}

/// Fewest seconds that count as a call's time: no call through torch takes less.
pub(crate) const LEAST: f64 = 1e-7;

/// What of a window's constant part is not the same in all processes on a GPU, in seconds: how soon the
/// first call begins, and how soon its end is noticed. 300 pairs of identical kernels of 20 us to 5 ms,
/// in windows of 4 ms, differed by 0.3 % in the mean, whatever their length; by a tenth of it in windows of
/// 15 ms (`docs/measurements/2026-11-23-h200-judge-3`).
pub(crate) const UNEQUAL: f64 = 15e-6;

/// Short windows are as good as a longer one if they hold this share of its calls.
const JOINED: f64 = 0.75;

/// A baseline that is compiled, staged and has its window chosen.
#[derive(Clone, Debug)]
pub(crate) struct Ready {
    pub(crate) which: Baseline,
    /// Calls of a window.
    pub(crate) calls: usize,
    /// Calls of a longer one.
    pub(crate) later: usize,
    /// Seconds of a call, roughly.
    pub(crate) seconds: f64,
    /// What its windows took so far.
    pub(crate) quiet: History,
}

/// Calls, and seconds from "go" to the end of the look, of one window per round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Windows(Vec<(usize, f64)>);

impl Windows {
    /// The window of the next round.
    pub(crate) fn push(&mut self, calls: usize, seconds: f64) {
        self.0.push((calls, seconds));
    }

    /// Windows of so many calls each.
    #[cfg(test)]
    pub(crate) fn of(calls: usize, seconds: impl IntoIterator<Item = f64>) -> Self {
        Self(seconds.into_iter().map(|seconds| (calls, seconds)).collect())
    }
}

/// The windows of whole rounds; entries of the same index belong together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rounds {
    /// Windows in which nothing is computed.
    pub(crate) nothing: Vec<f64>,
    pub(crate) candidate: Windows,
    pub(crate) baselines: Vec<(Baseline, Windows)>,
}

impl Rounds {
    /// Takes one round out.
    pub(crate) fn forget(&mut self, round: usize) {
        self.nothing.remove(round);
        self.candidate.0.remove(round);
        for (_, windows) in &mut self.baselines {
            windows.0.remove(round);
        }
    }

    /// Seconds in windows that were not the candidate's.
    pub(crate) fn beside(&self) -> f64 {
        let baselines = self.baselines.iter().flat_map(|(_, windows)| &windows.0);
        self.nothing.iter().sum::<f64>() + baselines.map(|(_, seconds)| seconds).sum::<f64>()
    }

    /// Coefficient of variation of the candidate's windows.
    pub(crate) fn variation(&self) -> Option<f64> {
        stats::variation(&self.per_call(&self.candidate))
    }

    /// Share of a contender's usual window that so many seconds are.
    fn share(&self, windows: &Windows, seconds: f64) -> f64 {
        let nothing = stats::rough(&self.nothing);
        let lengths: Vec<f64> = windows.0.iter().map(|window| window.1 - nothing).collect();
        (seconds / stats::rough(&lengths).max(LEAST)).clamp(0.0, 1.0)
    }

    /// Seconds per call of a contender's windows.
    fn per_call(&self, windows: &Windows) -> Vec<f64> {
        let nothing = stats::rough(&self.nothing);
        windows.0.iter().map(|&(calls, seconds)| per_call(seconds, nothing, calls)).collect()
    }

    /// The same, with short windows that follow each other taken for one of about so many calls: what
    /// is known of the quickest of many must not grow with the noise of each.
    fn joined(&self, windows: &Windows, later: usize) -> Vec<f64> {
        let nothing = stats::rough(&self.nothing);
        let (mut joined, mut calls, mut seconds) = (Vec::new(), 0, 0.0);
        for window in &windows.0 {
            calls += window.0;
            seconds += window.1 - nothing;
            if calls as f64 >= JOINED * later as f64 {
                joined.push(per_call(seconds, 0.0, calls));
                (calls, seconds) = (0, 0.0);
            }
        }
        joined
    }
}

/// What rounds say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary {
    pub(crate) times: Times,
    pub(crate) speedup: Speedup,
    /// Which baselines were disturbed.
    pub(crate) caveats: Vec<String>,
}

/// Seconds per call of one window.
pub(crate) fn per_call(window: f64, nothing: f64, calls: usize) -> f64 {
    ((window - nothing) / calls as f64).max(LEAST)
}

/// Staged inputs taken in turn.
pub(crate) fn cycle(calls: usize, staged: usize) -> Vec<usize> {
    (0..calls).map(|i| i % staged).collect()
}

/// One window of the candidate on fresh inputs, of which one call may be looked at; the draws by
/// slot.
pub(crate) fn candidate_window(
    oracle: &mut Oracle,
    runner: &mut Runner,
    (calls, look): (usize, bool),
    random: &mut StdRng,
) -> Result<(Played, Vec<Draw>), Trouble> {
    let draws = oracle.families.timed_draws(calls, look, random);
    let played = runner.play(oracle, "init", &draws)?;
    Ok((played, draws))
}

/// When to look, given what a round takes.
pub(crate) fn schedule(plan: &Plan, round_seconds: f64) -> Schedule {
    let fit = (plan.budget.as_secs_f64() / round_seconds.max(1e-6)) as usize;
    let most = fit.min(plan.rounds);
    if plan.sequential { Schedule::sequential(most) } else { Schedule::fixed(most) }
}

/// The order in which contenders are timed in one round: 0 is the candidate, `i` is baseline
/// `i - 1`.
pub(crate) fn order(baselines: usize, random: &mut StdRng) -> Vec<usize> {
    let mut order: Vec<usize> = (0..=baselines).collect();
    order.shuffle(random);
    order
}

/// A window of a baseline that counts for nothing.
pub(crate) fn window(
    process: &mut BaselineProcess,
    task: &str,
    ready: &Ready,
    staged: usize,
) -> Result<(), JudgeError> {
    process.play(task, ready.which.name(), &cycle(ready.calls, staged), None).map(drop)
}

/// One window of a baseline, which ends with the same look as a candidate's.
pub(crate) fn baseline_window(
    process: &mut BaselineProcess,
    task: &str,
    (which, calls): (Baseline, usize),
    staged: usize,
    look: Look<'_>,
) -> Result<f64, JudgeError> {
    let order = cycle(calls, staged);
    Ok(process.play(task, which.name(), &order, Some(look))?.as_secs_f64())
}

/// The quiet level of each baseline, from its earlier windows and those of these rounds.
pub(crate) fn levels(ready: &[Ready], rounds: &Rounds) -> Vec<Option<f64>> {
    let pairs = ready.iter().zip(&rounds.baselines);
    let known = |ready: &Ready, windows| ready.quiet.level(&rounds.joined(windows, ready.later));
    pairs.map(|(ready, (_, windows))| known(ready, windows)).collect()
}

/// Adds these rounds to what is known of the baselines.
pub(crate) fn remember(ready: &mut [Ready], rounds: &Rounds) {
    for (ready, (_, windows)) in ready.iter_mut().zip(&rounds.baselines) {
        ready.quiet.add(&rounds.joined(windows, ready.later));
    }
}

/// Times and speed-ups, with intervals between the samples of this rank from either end, wider by what
/// `unequal` seconds are of a window ([`UNEQUAL`]; 0 where it is not known). Where a baseline has a level,
/// its windows are limited by it. The best baseline is that over which the speed-up is least.
pub(crate) fn summarise(
    rounds: &Rounds,
    levels: &[Option<f64>],
    (rank, unequal): (usize, f64),
) -> Summary {
    let between = |samples: &[f64], share: f64| {
        let Interval { value, low, high } = stats::between(samples, rank)?;
        Some(Interval { value, low: low * (1.0 - share), high: high * (1.0 + share) })
    };
    let ms = |seconds: &[f64], share| {
        let scaled: Vec<f64> = seconds.iter().map(|s| s * 1e3).collect();
        between(&scaled, share)
    };
    let candidate = rounds.per_call(&rounds.candidate);
    let share = rounds.share(&rounds.candidate, unequal);
    let counted = Some(rounds.nothing.len() as u32);
    let mut times = Times { candidate: ms(&candidate, share), rounds: counted, ..Times::default() };
    let mut speedup = Speedup::default();
    let mut caveats = Vec::new();
    let mut best: Option<(Baseline, Interval)> = None;
    for (i, (which, windows)) in rounds.baselines.iter().enumerate() {
        let mut baseline = rounds.per_call(windows);
        let disturbed = quiet::limit(levels.get(i).copied().flatten(), &mut baseline);
        caveats.extend(quiet::caveat(*which, disturbed, baseline.len()));
        let ratios: Vec<f64> = baseline.iter().zip(&candidate).map(|(b, c)| b / c).collect();
        let baseline_share = rounds.share(windows, unequal);
        let time = ms(&baseline, baseline_share);
        let ratio = between(&ratios, share.max(baseline_share));
        let (at, over) = match which {
            Baseline::Eager => (&mut times.eager, &mut speedup.eager),
            Baseline::Compile => (&mut times.compile, &mut speedup.compile),
            Baseline::ReduceOverhead => (&mut times.reduce_overhead, &mut speedup.reduce_overhead),
            Baseline::MaxAutotune => (&mut times.max_autotune, &mut speedup.max_autotune),
        };
        *at = time;
        *over = ratio;
        if let Some(ratio) = ratio
            && best.as_ref().is_none_or(|(_, least)| ratio.value < least.value)
        {
            best = Some((*which, ratio));
        }
    }
    if let Some((which, ratio)) = best {
        speedup.best = Some(ratio);
        speedup.best_baseline = Some(which.name().to_owned());
    }
    Summary { times, speedup, caveats }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::RngExt;
    use rand::SeedableRng;

    fn windows(calls: usize, seconds: Vec<f64>) -> Windows {
        Windows::of(calls, seconds)
    }

    /// What later, longer windows say of a call is what the first ones do.
    #[test]
    fn windows_of_several_lengths_say_the_same() {
        let lengths = || [4usize, 4, 4, 4, 4, 4, 4, 15, 15, 15, 15].into_iter();
        let of = |call: f64| Windows(lengths().map(|n| (n, 2e-4 + n as f64 * call)).collect());
        let rounds = Rounds {
            nothing: vec![2e-4; 11],
            candidate: of(1e-3),
            baselines: vec![(Baseline::Eager, of(1.5e-3))],
        };
        let Summary { times, speedup, .. } = summarise(&rounds, &[], (2, 0.0));
        let over = speedup.eager.unwrap();
        assert!((over.low - 1.5).abs() < 1e-9 && (over.high - 1.5).abs() < 1e-9, "{over:?}");
        assert!((times.candidate.unwrap().value - 1.0).abs() < 1e-9);
        assert!(rounds.variation().unwrap() < 1e-9);
    }

    #[test]
    fn the_best_baseline_is_the_fastest_one() {
        let rounds = Rounds {
            nothing: vec![0.001; 9],
            candidate: windows(10, vec![0.011; 9]),
            baselines: vec![
                (Baseline::Eager, windows(4, vec![0.013; 9])),
                (Baseline::Compile, windows(5, vec![0.011; 9])),
            ],
        };
        let Summary { times, speedup, .. } = summarise(&rounds, &[], (2, 0.0));
        assert_eq!(speedup.best_baseline.as_deref(), Some("compile"));
        assert!((speedup.best.unwrap().low - 2.0).abs() < 1e-9);
        assert!((speedup.eager.unwrap().value - 3.0).abs() < 1e-9);
        assert!((times.candidate.unwrap().value - 1.0).abs() < 1e-9);
    }

    /// Drift that hits a whole round cancels in the ratio; it would not in the quotient of medians
    /// of times taken one contender after the other.
    #[test]
    fn drift_between_rounds_cancels() {
        let drift: Vec<f64> = (0..9).map(|i| 1.0 + 0.2 * f64::from(i)).collect();
        let rounds = Rounds {
            nothing: vec![0.0; 9],
            candidate: windows(1, drift.iter().map(|d| 1e-3 * d).collect()),
            baselines: vec![(
                Baseline::Eager,
                windows(1, drift.iter().map(|d| 1.5e-3 * d).collect()),
            )],
        };
        let over = summarise(&rounds, &[], (2, 0.0)).speedup.eager.unwrap();
        assert!((over.low - 1.5).abs() < 1e-9 && (over.high - 1.5).abs() < 1e-9);
    }

    /// An identical kernel, noise of a tenth: between windows of m and of no calls the ratio's
    /// interval is narrower than between windows of m and m / 2, for the same calls.
    #[test]
    fn windows_of_nothing_give_narrower_intervals_than_half_windows() {
        let mut random = StdRng::seed_from_u64(5);
        let mut noisy = |t: f64| t * (1.0 + 0.1 * (random.random::<f64>() - 0.5));
        let (mut from_nothing, mut from_half) = (0.0, 0.0);
        for _ in 0..200 {
            let mut draw = |t: f64| -> Vec<f64> { (0..9).map(|_| noisy(t)).collect() };
            let rounds = Rounds {
                nothing: draw(1e-4),
                candidate: windows(10, draw(10.1e-3)),
                baselines: vec![(Baseline::Eager, windows(10, draw(10.1e-3)))],
            };
            let width = |i: Interval| i.high - i.low;
            from_nothing += width(summarise(&rounds, &[], (2, 0.0)).speedup.eager.unwrap());
            let mut slopes = || -> Vec<f64> {
                let (long, short) = (draw(10.1e-3), draw(5.1e-3));
                long.iter().zip(short).map(|(l, s)| (l - s) / 5.0).collect()
            };
            let (b, c) = (slopes(), slopes());
            let ratios: Vec<f64> = b.iter().zip(c).map(|(b, c)| b / c).collect();
            from_half += width(stats::median(&ratios).unwrap());
        }
        assert!(2.0 * from_nothing < from_half, "{from_nothing} and {from_half}");
    }

    /// A kernel at the margin whose windows are shorter by what is not the same in all processes earns
    /// nothing by it, and one that is clearly faster is still called so.
    #[test]
    fn what_does_not_cancel_is_part_of_the_interval() {
        let over = |speedup: f64, window: f64, unequal: f64| {
            let rounds = Rounds {
                nothing: vec![3e-4; 7],
                candidate: windows(4, vec![3e-4 + window - 13e-6; 7]),
                baselines: vec![(Baseline::Eager, windows(4, vec![3e-4 + window * speedup; 7]))],
            };
            summarise(&rounds, &[], (1, unequal)).speedup.eager.unwrap()
        };
        assert!(over(1.05, 4e-3, 0.0).low > 1.05, "the control sees nothing");
        assert!(over(1.05, 4e-3, UNEQUAL).low < 1.05);
        assert!(over(1.07, 4e-3, UNEQUAL).low > 1.06);
        assert!(over(1.052, 15e-3, UNEQUAL).low > 1.05, "long windows say more");
    }

    #[test]
    fn rounds_fit_the_budget() {
        let plan = Plan { budget: Duration::from_secs(8), ..Plan::of(Device::Cpu, None) };
        assert_eq!(schedule(&plan, 10.0).last(), 7);
        assert_eq!(schedule(&plan, 0.01).last(), 9);
    }

    #[test]
    fn short_windows_are_joined_to_long_ones() {
        let rounds = Rounds { nothing: vec![1e-4; 11], ..Rounds::default() };
        let mut windows = Windows::default();
        for noise in [-3e-4, 0.0, 3e-4, 1e-4, 1e-4, -2e-4, 5e-4] {
            windows.push(4, 1e-4 + 4e-3 + noise);
        }
        windows.push(15, 1e-4 + 15e-3);
        let joined = rounds.joined(&windows, 15);
        assert_eq!(joined.len(), 3, "the seventh goes with the eighth: {joined:?}");
        assert!(joined[..2].iter().all(|call| (call - 1e-3).abs() < 1e-9), "{joined:?}");
        assert!((joined[2] - (19e-3 + 5e-4) / 19.0).abs() < 1e-9, "{joined:?}");
        assert_eq!(rounds.joined(&Windows::of(4, [5e-3; 7]), 4).len(), 7);
    }

    #[test]
    fn every_contender_gets_every_position() {
        let mut random = StdRng::seed_from_u64(3);
        let firsts: std::collections::BTreeSet<usize> =
            (0..100).map(|_| order(3, &mut random)[0]).collect();
        assert_eq!(firsts.len(), 4);
    }
}
