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
    /// Length of a window.
    pub(crate) window: Duration,
    /// Rounds, if the time allows.
    pub(crate) rounds: usize,
    /// Time to stay within, roughly.
    pub(crate) budget: Duration,
    /// Whether to stop as soon as the rewards are decided.
    pub(crate) sequential: bool,
    /// Windows of each baseline before any candidate runs, so that its quiet level is known.
    pub(crate) preview: usize,
}

/// Length of a window that only says how long a call takes, to some percent.
const BRIEF: Duration = Duration::from_millis(5);
/// Windows that say it.
const BRIEF_PREVIEW: usize = 3;

impl Plan {
    /// The device's own, with windows of another length if one is named.
    pub(crate) fn of(device: Device, window: Option<Duration>) -> Self {
        let usual = if device.is_cuda() {
            Self {
                window: Duration::from_millis(15),
                rounds: 21,
                budget: Duration::from_secs(15),
                sequential: true,
                preview: 9,
            }
        } else {
            Self {
                window: Duration::from_millis(12),
                rounds: 9,
                budget: Duration::from_secs(6),
                sequential: false,
                preview: 0,
            }
        };
        Self { window: window.unwrap_or(usual.window), ..usual }
    }

    /// For a look at how long something takes: what it is compared with is not decided by it.
    pub(crate) fn brief(self) -> Self {
        if self.preview == 0 {
            return self;
        }
        Self { window: self.window.min(BRIEF), preview: BRIEF_PREVIEW, ..self }
    }
}

/// Fewest seconds that count as a call's time: no call through torch takes less.
pub(crate) const LEAST: f64 = 1e-7;

/// A baseline that is compiled, staged and has its window chosen.
#[derive(Clone, Debug)]
pub(crate) struct Ready {
    pub(crate) which: Baseline,
    /// Calls of a window.
    pub(crate) calls: usize,
    /// Seconds of a call, roughly.
    pub(crate) seconds: f64,
    /// What its windows took so far.
    pub(crate) quiet: History,
}

/// Seconds from "go" to the end of the look, one window per round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Windows {
    pub(crate) calls: usize,
    pub(crate) seconds: Vec<f64>,
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
        self.candidate.seconds.remove(round);
        for (_, windows) in &mut self.baselines {
            windows.seconds.remove(round);
        }
    }

    /// Coefficient of variation of the candidate's windows.
    pub(crate) fn variation(&self) -> Option<f64> {
        stats::variation(&self.per_call(&self.candidate))
    }

    /// Seconds per call of a contender's windows.
    fn per_call(&self, windows: &Windows) -> Vec<f64> {
        let nothing = stats::rough(&self.nothing);
        windows.seconds.iter().map(|t| per_call(*t, nothing, windows.calls)).collect()
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

/// Calls for a window of about the planned length, given one call's rough time.
pub(crate) fn window_calls(plan: &Plan, seconds: f64, most: u64) -> usize {
    let wanted = (plan.window.as_secs_f64() / seconds.max(LEAST)).ceil() as u64;
    wanted.clamp(1, most.max(1)) as usize
}

/// Seconds per call of one window.
pub(crate) fn per_call(window: f64, nothing: f64, calls: usize) -> f64 {
    ((window - nothing) / calls as f64).max(LEAST)
}

/// Windows that try a number of calls.
pub(crate) const TRIES: usize = 3;

/// By how much more calls are tried next, at the most: what is far too short says little.
const STEP: f64 = 10.0;

/// Windows of one number of calls, in seconds, each after an empty one.
#[derive(Debug)]
pub(crate) struct Tried {
    pub(crate) calls: usize,
    nothing: Vec<f64>,
    seen: Vec<f64>,
}

impl Tried {
    /// Seconds that the calls of a window take where nothing disturbs.
    pub(crate) fn quickest(&self) -> f64 {
        (least(&self.seen) - least(&self.nothing)).max(0.0)
    }

    /// Of each window. A host that stalls can stall most of a few empty windows.
    fn per_call(&self) -> Vec<f64> {
        let nothing = least(&self.nothing);
        self.seen.iter().map(|t| per_call(*t, nothing, self.calls)).collect()
    }

    /// How many calls to try next: more, until the quickest window is half as long as is planned. In
    /// shorter ones what every window costs hides what a call takes.
    fn next(&self, plan: &Plan, most: usize) -> Option<usize> {
        let (window, quickest) = (plan.window.as_secs_f64(), self.quickest());
        if self.calls >= most || 2.0 * quickest >= window {
            return None;
        }
        let more = (window / quickest.max(1e-9)).clamp(2.0, STEP);
        Some(((self.calls as f64 * more).ceil() as usize).min(most))
    }
}

fn least(windows: &[f64]) -> f64 {
    windows.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Chooses a baseline's window by trying it.
pub(crate) fn ready(
    process: &mut BaselineProcess,
    task: &str,
    which: Baseline,
    plan: &Plan,
    staged: usize,
    most: u64,
) -> Result<Ready, JudgeError> {
    choose(which, plan, most, |calls| {
        let nothing = process.nothing(task, None)?.as_secs_f64();
        let order = cycle(calls, staged);
        Ok((nothing, process.play(task, which.name(), &order, None)?.as_secs_f64()))
    })
}

/// Chooses a window, given what plays an empty one and one of so many calls.
fn choose(
    which: Baseline,
    plan: &Plan,
    most: u64,
    mut play: impl FnMut(usize) -> Result<(f64, f64), JudgeError>,
) -> Result<Ready, JudgeError> {
    // On a host that stalls for ever a number of calls is what it is after some.
    let (mut calls, mut left, most) = (1, 16, most as usize);
    loop {
        let mut tried = grow(plan, (calls, most), |_| TRIES, &mut play)?;
        calls = window_calls(plan, tried.quickest() / tried.calls as f64, most as u64);
        let mut quiet = History::default();
        if plan.preview > 0 {
            // Chosen by a few windows, confirmed by these.
            tried = try_calls(calls, plan.preview, &mut play)?;
            left -= 1;
            if let Some(more) = tried.next(plan, most).filter(|_| left > 0) {
                calls = more;
                continue;
            }
            quiet.add(&tried.per_call());
        }
        return Ok(Ready { which, calls, seconds: stats::rough(&tried.per_call()), quiet });
    }
}

/// Windows of more and more calls, from the first number on and with at most the second, until their
/// quickest is long enough to tell what a call takes. `tries` says how many windows try a number.
pub(crate) fn grow<E>(
    plan: &Plan,
    (first, most): (usize, usize),
    tries: impl Fn(usize) -> usize,
    mut play: impl FnMut(usize) -> Result<(f64, f64), E>,
) -> Result<Tried, E> {
    let mut calls = first;
    loop {
        let tried = try_calls(calls, tries(calls), &mut play)?;
        let Some(more) = tried.next(plan, most) else { return Ok(tried) };
        calls = more;
    }
}

/// Plays so many windows of one number of calls.
fn try_calls<E>(
    calls: usize,
    windows: usize,
    play: &mut impl FnMut(usize) -> Result<(f64, f64), E>,
) -> Result<Tried, E> {
    let pairs = (0..windows).map(|_| play(calls)).collect::<Result<Vec<_>, E>>()?;
    let (nothing, seen) = pairs.into_iter().unzip();
    Ok(Tried { calls, nothing, seen })
}

fn cycle(calls: usize, staged: usize) -> Vec<usize> {
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
    ready: &Ready,
    staged: usize,
    look: Look<'_>,
) -> Result<f64, JudgeError> {
    let order = cycle(ready.calls, staged);
    Ok(process.play(task, ready.which.name(), &order, Some(look))?.as_secs_f64())
}

/// The quiet level of each baseline, from its earlier windows and those of these rounds.
pub(crate) fn levels(ready: &[Ready], rounds: &Rounds) -> Vec<Option<f64>> {
    let pairs = ready.iter().zip(&rounds.baselines);
    pairs.map(|(ready, (_, windows))| ready.quiet.level(&rounds.per_call(windows))).collect()
}

/// Adds these rounds to what is known of the baselines.
pub(crate) fn remember(ready: &mut [Ready], rounds: &Rounds) {
    for (ready, (_, windows)) in ready.iter_mut().zip(&rounds.baselines) {
        ready.quiet.add(&rounds.per_call(windows));
    }
}

/// Times and speed-ups, with intervals between the samples of this rank from either end. Where a
/// baseline has a level, its windows are limited by it. The best baseline is that over which the
/// speed-up is least.
pub(crate) fn summarise(rounds: &Rounds, levels: &[Option<f64>], rank: usize) -> Summary {
    let ms = |seconds: &[f64]| {
        let scaled: Vec<f64> = seconds.iter().map(|s| s * 1e3).collect();
        stats::between(&scaled, rank)
    };
    let candidate = rounds.per_call(&rounds.candidate);
    let counted = Some(rounds.nothing.len() as u32);
    let mut times = Times { candidate: ms(&candidate), rounds: counted, ..Times::default() };
    let mut speedup = Speedup::default();
    let mut caveats = Vec::new();
    let mut best: Option<(Baseline, Interval)> = None;
    for (i, (which, windows)) in rounds.baselines.iter().enumerate() {
        let mut baseline = rounds.per_call(windows);
        let disturbed = quiet::limit(levels.get(i).copied().flatten(), &mut baseline);
        caveats.extend(quiet::caveat(*which, disturbed, baseline.len()));
        let ratios: Vec<f64> = baseline.iter().zip(&candidate).map(|(b, c)| b / c).collect();
        let (time, ratio) = (ms(&baseline), stats::between(&ratios, rank));
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
        Windows { calls, seconds }
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
        let Summary { times, speedup, .. } = summarise(&rounds, &[], 2);
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
        let over = summarise(&rounds, &[], 2).speedup.eager.unwrap();
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
            from_nothing += width(summarise(&rounds, &[], 2).speedup.eager.unwrap());
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

    #[test]
    fn windows_are_long_enough_and_fit() {
        let plan = Plan {
            budget: Duration::from_secs(8),
            ..Plan::of(Device::Cpu, Some(Duration::from_millis(10)))
        };
        assert_eq!(window_calls(&plan, 1e-3, 4096), 10);
        assert_eq!(window_calls(&plan, 1.0, 4096), 1);
        assert_eq!(window_calls(&plan, 1e-5, 100), 100);
        assert_eq!(schedule(&plan, 10.0).last(), 7);
        assert_eq!(schedule(&plan, 0.01).last(), 9);
    }

    /// Whatever a call takes, on a host that now and then stalls a window for longer than a window is
    /// to take: windows are long enough, and the quiet level is what a call takes.
    #[test]
    fn a_window_is_chosen_on_a_host_that_stalls() {
        let plan = Plan::of(Device::Cuda(0), None);
        let mut random = StdRng::seed_from_u64(17);
        for truth in [4e-6, 1.1e-4, 8e-4, 4e-3, 0.2] {
            for _ in 0..300 {
                let ready = choose(Baseline::ReduceOverhead, &plan, 4096, |calls| {
                    let mut stalled = |seconds: f64| {
                        let stall = if random.random_bool(0.3) { 0.02 } else { 0.0 };
                        seconds + stall * random.random::<f64>()
                    };
                    Ok((stalled(7e-5), stalled(7e-5 + calls as f64 * truth)))
                });
                let ready = ready.unwrap();
                let length = ready.calls as f64 * truth;
                assert!((7e-3..=0.031f64.max(truth)).contains(&length), "{length} s of {truth} s");
                if let Some(level) = ready.quiet.level(&[]) {
                    assert!(level > 0.5 * truth, "{level} s for {truth} s");
                }
            }
        }
    }

    #[test]
    fn every_contender_gets_every_position() {
        let mut random = StdRng::seed_from_u64(3);
        let firsts: std::collections::BTreeSet<usize> =
            (0..100).map(|_| order(3, &mut random)[0]).collect();
        assert_eq!(firsts.len(), 4);
    }
}
