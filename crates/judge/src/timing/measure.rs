//! Times: interleaved windows of candidate and baselines.
//!
//! The time of a call is `(T(m) - T(0)) / m` by the judge's own clock, from sending "go" to the fingerprint
//! of memory. So constant costs (messages, wake-ups, the fingerprint) cancel. `T(0)` is a window of the
//! trusted baseline process in which nothing is computed: a candidate has no influence on it, and slowing
//! some of its own windows only costs it time (`docs/decisions/0005`). Each round has one window per
//! contender; speed-ups are medians of the rounds' ratios. The rounds at which measuring may stop are fixed
//! before the first round (`sequential.rs`), so stopping early gains nothing. On a busy host of the cpu
//! device a candidate that may be faster gets more rounds; then only the last look counts. `baseline_floor.rs`
//! limits the time that a window of a busy host counts as.

use std::iter::zip;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use warpwright_record::interval::Interval;
use warpwright_record::verdict::{Speedup, Times};

use crate::check::families::Draw;
use crate::check::share;
use crate::error::JudgeError;
use crate::process::baseline::{BaselineProcess, Look};
use crate::process::candidate::LoadedCandidate;
use crate::process::failure::Trouble;
use crate::process::oracle::Oracle;
use crate::process::played::Played;
use crate::timing::baseline::Baseline;
use crate::timing::baseline_floor::{self, History};
use crate::timing::plan::Plan;
use crate::timing::sequential::{Interim, Schedule};
use crate::timing::series::{self, Measured, Series};
use crate::timing::shared_rounds;
use crate::timing::stats::{self, LEAST};

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
    /// Times of its windows so far.
    pub(crate) history: History,
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
    /// Windows in which nothing is computed, in the baselines' process.
    pub(crate) nothing: Vec<f64>,
    /// The same in the candidate's process, if that runs only our own host code.
    pub(crate) own_nothing: Vec<f64>,
    pub(crate) candidate: Windows,
    pub(crate) baselines: Vec<(Baseline, Windows)>,
    /// Whether a round's windows beside the candidate's are those of another measurement (`shared_rounds.rs`).
    pub(crate) shared: Vec<bool>,
}

impl Rounds {
    /// See `shared`.
    pub(crate) fn is_shared(&self, round: usize) -> bool {
        self.shared.get(round) == Some(&true)
    }

    /// The baselines' windows of a round: calls and seconds.
    pub(crate) fn beside_of(&self, round: usize) -> Vec<(usize, f64)> {
        self.baselines.iter().filter_map(|(_, windows)| windows.0.get(round).copied()).collect()
    }

    /// Takes all shared rounds out if the other rounds say something else of some baseline; their numbers, the
    /// latest first.
    pub(crate) fn forget_unlike_shared(&mut self) -> Vec<usize> {
        let split = |windows: &Windows| {
            let each = self.per_call(windows);
            let (mut shared, mut own) = (Vec::new(), Vec::new());
            for (round, seconds) in each.into_iter().enumerate() {
                if self.is_shared(round) { shared.push(seconds) } else { own.push(seconds) }
            }
            (own, shared)
        };
        let alike = self.baselines.iter().all(|(_, windows)| {
            let (own, shared) = split(windows);
            shared_rounds::agree(&own, &shared)
        });
        let unlike = |round: &usize| !alike && self.is_shared(*round);
        let gone: Vec<usize> = (0..self.nothing.len()).rev().filter(unlike).collect();
        for round in &gone {
            self.forget(*round);
        }
        gone
    }

    /// Takes one round out.
    pub(crate) fn forget(&mut self, round: usize) {
        self.nothing.remove(round);
        if round < self.shared.len() {
            self.shared.remove(round);
        }
        if round < self.own_nothing.len() {
            self.own_nothing.remove(round);
        }
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
        stats::variation(&self.per_call_of_candidate())
    }

    /// Whether most of the candidate's windows were not longer than empty ones, so that they tell no time.
    pub(crate) fn tell_nothing(&self) -> bool {
        stats::rough(&self.per_call_of_candidate()) <= LEAST
    }

    /// Seconds of a window of the candidate's in which nothing is computed.
    fn candidates_nothing(&self) -> f64 {
        let own = Some(&self.own_nothing).filter(|own| !own.is_empty());
        stats::rough(own.unwrap_or(&self.nothing))
    }

    /// Seconds by which `T(0)` of the candidate's windows may be off: the same in all of them, so that what they vary
    /// by does not tell it.
    fn candidates_nothing_error(&self) -> f64 {
        let own = Some(&self.own_nothing).filter(|own| !own.is_empty());
        error_of_median(own.unwrap_or(&self.nothing))
    }

    /// Which share of each of a contender's windows so many seconds, and so many of each call, are.
    fn shares(&self, windows: &Windows, (seconds, each): (f64, f64)) -> Vec<f64> {
        let nothing = stats::rough(&self.nothing);
        let share = |&(calls, spent): &(usize, f64)| {
            let off = seconds + calls as f64 * each;
            (off / (spent - nothing).max(LEAST)).clamp(0.0, 1.0)
        };
        windows.0.iter().map(share).collect()
    }

    /// Seconds per call of a baseline's windows.
    fn per_call(&self, windows: &Windows) -> Vec<f64> {
        each_call(windows, stats::rough(&self.nothing))
    }

    /// Seconds per call of the candidate's windows.
    fn per_call_of_candidate(&self) -> Vec<f64> {
        each_call(&self.candidate, self.candidates_nothing())
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

/// By how many seconds candidate and baselines may differ for reasons that no repetition averages out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unequal {
    /// Of a window, on both sides (`Device::unequal_seconds`).
    pub(crate) window: f64,
    /// Of each call of a baseline's, in speed-ups (`Device::launch_seconds`).
    pub(crate) call: f64,
}

/// Statistics of the measured rounds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary {
    pub(crate) times: Times,
    pub(crate) speedup: Speedup,
    /// Which baselines were disturbed.
    pub(crate) caveats: Vec<String>,
    /// The largest share by which a sample of the candidate or of a speed-up was moved outwards.
    pub(crate) unequal: f64,
    /// The samples, those that the look leaves out too.
    pub(crate) measured: Measured,
}

fn each_call(windows: &Windows, nothing: f64) -> Vec<f64> {
    windows.0.iter().map(|&(calls, seconds)| per_call(seconds, nothing, calls)).collect()
}

/// The larger part of the 95 % interval of a median: by order statistics, or Student's where there are too few samples
/// for these. 0 for fewer than two samples.
fn error_of_median(samples: &[f64]) -> f64 {
    let interval = match stats::rank(samples.len()) {
        Some(rank) => stats::between(samples, rank),
        None => series::mean(&[&Series {
            samples: samples.to_vec(),
            unequal: vec![0.0; samples.len()],
        }]),
    };
    interval.map_or(0.0, |i| (i.high - i.value).max(i.value - i.low))
}

/// Seconds per call of one window.
pub(crate) fn per_call(window: f64, nothing: f64, calls: usize) -> f64 {
    ((window - nothing) / calls as f64).max(LEAST)
}

/// Staged inputs taken in turn.
pub(crate) fn cycle(calls: usize, staged: usize) -> Vec<usize> {
    (0..calls).map(|i| i % staged).collect()
}

/// One window of the candidate on fresh inputs; the draws by slot.
pub(crate) fn candidate_window(
    oracle: &mut Oracle,
    candidate: &mut dyn LoadedCandidate,
    calls: usize,
    random: &mut StdRng,
) -> Result<(Played, Vec<Draw>), Trouble> {
    let draws = oracle.families.timed_draws(calls, true, random);
    let weights = oracle.played;
    let played = candidate.play(oracle, weights, &draws)?;
    Ok((played, draws))
}

/// When to look, given what a round takes.
pub(crate) fn schedule(plan: &Plan, round_seconds: f64) -> Schedule {
    let fit = (plan.budget.as_secs_f64() / round_seconds.max(1e-6)) as usize;
    let most = fit.min(plan.rounds);
    if plan.workloads > 1 {
        let usual = if plan.sequential { Schedule::sequential(0).first() } else { plan.rounds };
        let least = share::rounds(0, plan.workloads);
        return Schedule::shared(share::rounds(usual, plan.workloads).min(fit.max(least)));
    }
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

/// What windows take when nothing disturbs them, in seconds per call; `None` where windows count as they are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Levels {
    pub(crate) candidate: Option<f64>,
    /// In the order of the rounds' baselines.
    pub(crate) baselines: Vec<Option<f64>>,
}

impl Levels {
    /// The floor of each baseline, from its earlier windows and those of these rounds.
    pub(crate) fn of_baselines(ready: &[Ready], rounds: &Rounds) -> Self {
        let known =
            |ready: &Ready, windows| ready.history.level(&rounds.joined(windows, ready.later));
        let pairs = ready.iter().zip(&rounds.baselines);
        let baselines = pairs.map(|(ready, (_, windows))| known(ready, windows)).collect();
        Self { candidate: None, baselines }
    }

    /// The candidate's as well, from these rounds.
    pub(crate) fn of_all(ready: &[Ready], rounds: &Rounds) -> Self {
        let candidate = History::default().level(&rounds.per_call_of_candidate());
        Self { candidate, ..Self::of_baselines(ready, rounds) }
    }
}

/// Adds these rounds to what is known of the baselines.
pub(crate) fn remember(ready: &mut [Ready], rounds: &Rounds) {
    for (ready, (_, windows)) in ready.iter_mut().zip(&rounds.baselines) {
        ready.history.add(&rounds.joined(windows, ready.later));
    }
}

/// Times and speed-ups, with a look's intervals between samples of its rank from either end, each moved
/// outwards by what `unequal` is of its window (0 where it is not known). Windows are
/// limited by their contender's level, where it has one. The best baseline is that over which the speed-up is
/// least.
pub(crate) fn summarise(
    rounds: &Rounds,
    levels: &Levels,
    (look, unequal): (Interim, Unequal),
) -> Summary {
    let between = |series: &Series| series.interval((look.leaves, look.rank));
    let ms = |seconds: &[f64], shares: &[f64]| Series {
        samples: seconds.iter().map(|s| s * 1e3).collect(),
        unequal: shares.to_vec(),
    };
    let mut caveats = Vec::new();
    let mut candidate = rounds.per_call_of_candidate();
    let disturbed = baseline_floor::limit(levels.candidate, &mut candidate);
    caveats.extend(baseline_floor::caveat("the candidate", disturbed, candidate.len()));
    // What differs between processes is far more than what `T(0)` is off by, where it is known, and contains it.
    let own = rounds.candidates_nothing_error();
    let beside = error_of_median(&rounds.nothing);
    let shares = rounds.shares(&rounds.candidate, (unequal.window.max(own), 0.0));
    let counted = Some(rounds.nothing.len() as u32);
    let mut measured = Measured { candidate: ms(&candidate, &shares), baselines: Vec::new() };
    let time = between(&measured.candidate);
    let mut times = Times { candidate: time, rounds: counted, ..Times::default() };
    let mut speedup = Speedup::default();
    let mut best: Option<(Baseline, Interval)> = None;
    let mut most = shares.iter().skip(look.leaves).copied().fold(0.0, f64::max);
    for (i, (which, windows)) in rounds.baselines.iter().enumerate() {
        let mut baseline = rounds.per_call(windows);
        let disturbed =
            baseline_floor::limit(levels.baselines.get(i).copied().flatten(), &mut baseline);
        caveats.extend(baseline_floor::caveat(which.name(), disturbed, baseline.len()));
        let samples: Vec<f64> = baseline.iter().zip(&candidate).map(|(b, c)| b / c).collect();
        let theirs = rounds.shares(windows, (unequal.window.max(beside), 0.0));
        let time = ms(&baseline, &theirs);
        let launched = rounds.shares(windows, (0.0, unequal.call));
        // An error of one `T(0)` moves both times the same way; of two, each its own.
        let both = |((a, b), launched): ((&f64, &f64), f64)| {
            let apart = unequal.window <= 0.0 && !rounds.own_nothing.is_empty();
            (if apart { a + b } else { a.max(*b) } + launched).min(1.0)
        };
        let larger: Vec<f64> = zip(zip(&shares, &theirs), launched).map(both).collect();
        most = larger.iter().skip(look.leaves).copied().fold(most, f64::max);
        let speedups = Series { samples, unequal: larger };
        let ratio = between(&speedups);
        let (at, over) = match which {
            Baseline::Eager => (&mut times.eager, &mut speedup.eager),
            Baseline::Compile => (&mut times.compile, &mut speedup.compile),
            Baseline::ReduceOverhead => (&mut times.reduce_overhead, &mut speedup.reduce_overhead),
            Baseline::MaxAutotune => (&mut times.max_autotune, &mut speedup.max_autotune),
        };
        *at = between(&time);
        *over = ratio;
        measured.baselines.push((*which, time, speedups));
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
    Summary { times, speedup, caveats, unequal: most, measured }
}

#[cfg(test)]
mod tests;
