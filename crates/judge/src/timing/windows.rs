//! Chooses the number of calls per window by trying windows with more and more calls.

use std::time::Duration;

use crate::error::JudgeError;
use crate::process::baseline::BaselineProcess;
use crate::timing::baseline::Baseline;
use crate::timing::baseline_floor::History;
use crate::timing::measure::{Ready, cycle, per_call};
use crate::timing::plan::Plan;
use crate::timing::stats::{self, LEAST};

/// Fewest seconds that a call's time counts as by windows of a single call: what these vary by.
const LEAST_ALONE: f64 = 1e-5;

/// Calls for a window of about this length, given one call's rough time: one where a call alone is long enough.
pub(crate) fn window_calls(plan: &Plan, window: Duration, seconds: f64, most: u64) -> usize {
    if seconds > plan.single.as_secs_f64() {
        return 1;
    }
    let wanted = (window.as_secs_f64() / seconds.max(LEAST)).ceil() as u64;
    wanted.clamp(1, most.max(1)) as usize
}

/// Calls to try first, given one call's time by windows of a single one, which is too long as a rule:
/// most of a window, so that it need not be tried again with more.
pub(crate) fn first_calls(plan: &Plan, single: f64, most: u64) -> usize {
    window_calls(plan, plan.window, 1.25 * single.max(LEAST_ALONE), most)
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

    /// How many calls to try next: more, until the quickest window is half as long as is planned, or a call alone is
    /// long enough. In shorter ones what every window costs hides what a call takes.
    fn next(&self, plan: &Plan, window: Duration, most: usize) -> Option<usize> {
        let (window, quickest) = (window.as_secs_f64(), self.quickest());
        let alone = quickest / self.calls as f64 > plan.single.as_secs_f64();
        if self.calls >= most || alone || 2.0 * quickest >= window {
            return None;
        }
        let more = (window / quickest.max(1e-9)).clamp(2.0, STEP);
        Some(((self.calls as f64 * more).ceil() as usize).min(most))
    }
}

fn least(windows: &[f64]) -> f64 {
    windows.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Chooses a baseline's windows by trying the longer one.
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

/// Chooses windows, given what plays an empty one and one of so many calls.
fn choose(
    which: Baseline,
    plan: &Plan,
    most: u64,
    mut play: impl FnMut(usize) -> Result<(f64, f64), JudgeError>,
) -> Result<Ready, JudgeError> {
    // On a host that stalls for ever a number of calls is what it is after some.
    let (mut calls, mut left, most) = (1, 16, most as usize);
    loop {
        let mut tried = grow((plan, plan.longer), (calls, most), TRIES, &mut play)?;
        calls = window_calls(plan, plan.longer, tried.quickest() / tried.calls as f64, most as u64);
        let mut history = History::default();
        if plan.preview > 0 {
            // Chosen by a few windows, confirmed by these.
            tried = try_calls(calls, plan.preview, &mut play)?;
            left -= 1;
            if let Some(more) = tried.next(plan, plan.longer, most).filter(|_| left > 0) {
                calls = more;
                continue;
            }
            history.add(&tried.per_call());
        }
        let seconds = stats::rough(&tried.per_call());
        let (later, most) = (calls, calls as u64);
        let calls = window_calls(plan, plan.window, seconds, most);
        return Ok(Ready { which, calls, later, seconds, history });
    }
}

/// Windows of more and more calls, from the first number on and with at most the second, until their
/// quickest is long enough to tell what a call takes. So many windows try a number.
pub(crate) fn grow<E>(
    (plan, window): (&Plan, Duration),
    (first, most): (usize, usize),
    tries: usize,
    mut play: impl FnMut(usize) -> Result<(f64, f64), E>,
) -> Result<Tried, E> {
    let mut calls = first;
    loop {
        let tried = try_calls(calls, tries, &mut play)?;
        let Some(more) = tried.next(plan, window, most) else { return Ok(tried) };
        calls = more;
    }
}

/// Calls of the windows to come, short and long, given what the calls of a short one took: more, where
/// that was too short. How many there are was found by a single try, which the host or the candidate may
/// have slowed.
pub(crate) fn regrown(
    plan: &Plan,
    (calls, later): (usize, usize),
    seconds: f64,
    most: u64,
) -> (usize, usize) {
    if 2.0 * seconds >= plan.window.as_secs_f64() {
        return (calls, later);
    }
    let each = seconds.max(0.0) / calls as f64;
    let held = |window: Duration, before: usize| {
        let furthest = (before as f64 * STEP) as usize;
        window_calls(plan, window, each, most).clamp(before, furthest)
    };
    (held(plan.window, calls), held(plan.longer, later))
}

/// Plays several windows with the same number of calls.
fn try_calls<E>(
    calls: usize,
    windows: usize,
    play: &mut impl FnMut(usize) -> Result<(f64, f64), E>,
) -> Result<Tried, E> {
    let pairs = (0..windows).map(|_| play(calls)).collect::<Result<Vec<_>, E>>()?;
    let (nothing, seen) = pairs.into_iter().unzip();
    Ok(Tried { calls, nothing, seen })
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::device::gpu::WINDOWS;

    #[test]
    fn too_short_windows_grow() {
        let plan = WINDOWS;
        let regrown = |seconds: f64| regrown(&plan, (50, 200), seconds, 1 << 20);
        // Windows of 8 ms, from then on of 15.
        assert_eq!(regrown(8e-3), (50, 200));
        assert_eq!(regrown(4.1e-3), (50, 200), "short, and long enough");
        assert_eq!(regrown(1e-3), (400, 750));
        assert_eq!(regrown(1e-6), (500, 2000), "not by more than a step");
        assert_eq!(regrown(-1e-4), (500, 2000), "shorter than an empty one");
        assert_eq!(super::regrown(&plan, (50, 200), 1e-3, 120), (120, 200), "what fits");
    }

    #[test]
    fn windows_are_long_enough_and_fit() {
        let (plan, window) = (WINDOWS, Duration::from_millis(10));
        assert_eq!(window_calls(&plan, window, 1e-3, 4096), 10);
        assert_eq!(window_calls(&plan, window, 1.0, 4096), 1);
        assert_eq!(window_calls(&plan, window, 1e-5, 100), 100);
        assert_eq!(first_calls(&plan, 1e-3, 4096), 7);
        assert_eq!(first_calls(&plan, 0.0, 4096), 640, "no time is known to be so short");
        assert_eq!(first_calls(&plan, 0.0, 30), 30);
    }

    #[test]
    fn call_over_five_milliseconds_has_its_own_window() {
        let plan = WINDOWS;
        let chosen = |truth: f64| {
            let mut tried = Vec::new();
            let ready = choose(Baseline::Eager, &plan, 4096, |calls| {
                tried.push(calls);
                Ok((1e-4, 1e-4 + calls as f64 * truth))
            });
            let ready = ready.unwrap();
            assert!((ready.seconds - truth).abs() < 1e-9, "the empty window is subtracted");
            (ready.calls, ready.later, tried.into_iter().max())
        };
        assert_eq!(chosen(5.1e-3), (1, 1, Some(1)), "no window holds the inputs of two calls");
        assert_eq!(chosen(4.9e-3), (2, 4, Some(4)), "positive control");
        assert_eq!(first_calls(&plan, 5.1e-3, 4096), 1);
        assert_eq!(regrown(&plan, (1, 1), 5.1e-3, 4096), (1, 1));
    }

    /// Whatever a call takes, on a host that now and then stalls a window for longer than a window is
    /// to take: windows are long enough, and the floor is what a call takes.
    #[test]
    fn a_window_is_chosen_on_a_host_that_stalls() {
        let plan = WINDOWS;
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
                let length = ready.later as f64 * truth;
                assert!((7e-3..=0.033f64.max(truth)).contains(&length), "{length} s of {truth} s");
                let short = ready.calls as f64 * truth;
                assert!((1e-3..=length.min(13e-3f64.max(truth))).contains(&short), "{short} s");
                if let Some(level) = ready.history.level(&[]) {
                    assert!(level > 0.5 * truth, "{level} s for {truth} s");
                }
            }
        }
    }
}
