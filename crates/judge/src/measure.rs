//! Times: interleaved windows of n and 2n calls of candidate and baselines.
//!
//! The time of a call is the slope `(T(2n) - T(n)) / n` of the judge's own clock, from sending "go"
//! to the fingerprint of the results, so that everything constant (messages, wake-ups, the
//! fingerprint) cancels. Each round gives one slope per contender; speed-ups are medians of the
//! rounds' ratios. The number of rounds is fixed before the first one, so nothing is gained by
//! stopping early.

use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use warpwright_record::interval::Interval;
use warpwright_record::verdict::{Speedup, Times};

use crate::baseline::{Baseline, BaselineProcess};
use crate::error::JudgeError;
use crate::oracle::Oracle;
use crate::runner::{Played, Runner, Trouble};
use crate::stats;

/// How long and how often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Length of the shorter window.
    pub(crate) window: Duration,
    /// Rounds, if the time allows.
    pub(crate) rounds: usize,
    /// Time to stay within, roughly.
    pub(crate) budget: Duration,
}

/// Fewest rounds that give an interval with something to spare.
const MIN_ROUNDS: usize = 7;

/// A baseline that is compiled, staged and has its window chosen.
#[derive(Clone, Debug)]
pub(crate) struct Ready {
    pub(crate) which: Baseline,
    pub(crate) n: usize,
    pub(crate) seconds: f64,
}

/// Slopes in seconds per call, one per round; rows of the same index belong together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slopes {
    pub(crate) candidate: Vec<f64>,
    pub(crate) baselines: Vec<(Baseline, Vec<f64>)>,
}

/// Calls for a window of about the planned length, given one call's rough time.
pub(crate) fn window_calls(plan: &Plan, seconds: f64, most: u64) -> usize {
    let wanted = (plan.window.as_secs_f64() / seconds.max(1e-7)).ceil() as u64;
    wanted.clamp(1, (most / 2).max(1)) as usize
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
    let mut slope = |n: usize| -> Result<f64, JudgeError> {
        let mut slopes = Vec::new();
        for _ in 0..3 {
            let short = process.play(task, which.name(), &cycle(n, staged))?;
            let long = process.play(task, which.name(), &cycle(2 * n, staged))?;
            slopes.push((long.as_secs_f64() - short.as_secs_f64()) / n as f64);
        }
        Ok(stats::rough(&slopes))
    };
    let first = slope(1)?;
    let n = window_calls(plan, first, most);
    let seconds = if n == 1 { first } else { slope(n)? };
    Ok(Ready { which, n: window_calls(plan, seconds, most), seconds: seconds.max(1e-7) })
}

fn cycle(calls: usize, staged: usize) -> Vec<usize> {
    (0..calls).map(|i| i % staged).collect()
}

/// One window of the candidate on fresh inputs; the seeds by slot.
pub(crate) fn candidate_window(
    oracle: &mut Oracle,
    runner: &mut Runner,
    calls: usize,
    random: &mut StdRng,
) -> Result<(Played, Vec<u64>), Trouble> {
    let seeds: Vec<u64> = (0..calls).map(|_| random.random_range(1..1 << 62)).collect();
    let played = runner.play(oracle, "init", &seeds)?;
    Ok((played, seeds))
}

/// How many rounds fit.
pub(crate) fn rounds(plan: &Plan, round_seconds: f64) -> usize {
    let fit = (plan.budget.as_secs_f64() / round_seconds.max(1e-6)) as usize;
    fit.clamp(MIN_ROUNDS, plan.rounds.max(MIN_ROUNDS))
}

/// The order in which contenders are timed in one round: 0 is the candidate, `i` is baseline
/// `i - 1`.
pub(crate) fn order(baselines: usize, random: &mut StdRng) -> Vec<usize> {
    let mut order: Vec<usize> = (0..=baselines).collect();
    order.shuffle(random);
    order
}

/// One slope of a baseline.
pub(crate) fn baseline_slope(
    process: &mut BaselineProcess,
    task: &str,
    ready: &Ready,
    staged: usize,
    random: &mut StdRng,
) -> Result<f64, JudgeError> {
    let mut window = |calls: usize| process.play(task, ready.which.name(), &cycle(calls, staged));
    let n = ready.n;
    let (short, long) = if random.random() {
        let short = window(n)?;
        (short, window(2 * n)?)
    } else {
        let long = window(2 * n)?;
        (window(n)?, long)
    };
    Ok((long.as_secs_f64() - short.as_secs_f64()) / n as f64)
}

impl Slopes {
    /// Takes the last round back if one of its slopes is not positive: a disturbance longer than
    /// the window hit the shorter one. Whether it stayed.
    pub(crate) fn keep_last_round(&mut self) -> bool {
        let positive = |samples: &[f64]| samples.last().is_some_and(|s| *s > 0.0);
        let good = positive(&self.candidate) && self.baselines.iter().all(|(_, s)| positive(s));
        if !good {
            self.candidate.pop();
            for (_, samples) in &mut self.baselines {
                samples.pop();
            }
        }
        good
    }
}

/// Times and speed-ups with intervals, from slopes of whole rounds.
pub(crate) fn summarise(slopes: &Slopes) -> (Times, Speedup) {
    let ms = |samples: &[f64]| {
        let scaled: Vec<f64> = samples.iter().map(|s| s * 1e3).collect();
        stats::median(&scaled)
    };
    let mut times = Times { candidate: ms(&slopes.candidate), ..Times::default() };
    let mut speedup = Speedup::default();
    let mut best: Option<(Baseline, Interval, Interval)> = None;
    for (which, samples) in &slopes.baselines {
        let ratios: Vec<f64> = samples.iter().zip(&slopes.candidate).map(|(b, c)| b / c).collect();
        let (time, ratio) = (ms(samples), stats::median(&ratios));
        let (at, over) = match which {
            Baseline::Eager => (&mut times.eager, &mut speedup.eager),
            Baseline::Compile => (&mut times.compile, &mut speedup.compile),
            Baseline::ReduceOverhead => (&mut times.reduce_overhead, &mut speedup.reduce_overhead),
            Baseline::MaxAutotune => (&mut times.max_autotune, &mut speedup.max_autotune),
        };
        *at = time;
        *over = ratio;
        if let (Some(time), Some(ratio)) = (time, ratio)
            && best.as_ref().is_none_or(|(_, t, _)| time.value < t.value)
        {
            best = Some((*which, time, ratio));
        }
    }
    if let Some((which, _, ratio)) = best {
        speedup.best = Some(ratio);
        speedup.best_baseline = Some(which.name().to_owned());
    }
    (times, speedup)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn the_best_baseline_is_the_fastest_one() {
        let slopes = Slopes {
            candidate: vec![1e-3; 9],
            baselines: vec![(Baseline::Eager, vec![3e-3; 9]), (Baseline::Compile, vec![2e-3; 9])],
        };
        let (times, speedup) = summarise(&slopes);
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
        let slopes = Slopes {
            candidate: drift.iter().map(|d| 1e-3 * d).collect(),
            baselines: vec![(Baseline::Eager, drift.iter().map(|d| 1.5e-3 * d).collect())],
        };
        let over = summarise(&slopes).1.eager.unwrap();
        assert!((over.low - 1.5).abs() < 1e-9 && (over.high - 1.5).abs() < 1e-9);
    }

    #[test]
    fn a_round_that_went_backwards_is_dropped_whole() {
        let mut slopes = Slopes {
            candidate: vec![1.0, 2.0],
            baselines: vec![(Baseline::Eager, vec![3.0, -1.0])],
        };
        assert!(!slopes.keep_last_round());
        assert!(slopes.keep_last_round());
        assert_eq!((slopes.candidate.len(), slopes.baselines[0].1.len()), (1, 1));
    }

    #[test]
    fn windows_are_long_enough_and_fit() {
        let plan =
            Plan { window: Duration::from_millis(10), rounds: 9, budget: Duration::from_secs(8) };
        assert_eq!(window_calls(&plan, 1e-3, 4096), 10);
        assert_eq!(window_calls(&plan, 1.0, 4096), 1);
        assert_eq!(window_calls(&plan, 1e-5, 100), 50);
        assert_eq!(rounds(&plan, 10.0), MIN_ROUNDS);
        assert_eq!(rounds(&plan, 0.01), 9);
    }

    #[test]
    fn every_contender_gets_every_position() {
        let mut random = StdRng::seed_from_u64(3);
        let firsts: std::collections::BTreeSet<usize> =
            (0..100).map(|_| order(3, &mut random)[0]).collect();
        assert_eq!(firsts.len(), 4);
    }
}
