//! Bounds the time of a call from below by windows of a single call.
//!
//! The time of a call is the slope of a window's length over its calls. A candidate that computes all calls
//! of a window in one launch has a slope near zero. A window of a single call reveals this, but it also
//! contains the constant costs of a window: messages, a wake-up, cold caches. Single calls of a baseline, in
//! windows of the judge's own process, measure these costs. So a call alone takes at least
//! `t_b + (S_c - S_b)`: `S_c` and `S_b` are windows of a single call of candidate and baseline, `t_b` is the
//! baseline's slope. Constant costs cancel, and the candidate cannot influence the part that is subtracted.

use warpwright_record::interval::Interval;
use warpwright_record::verdict::{Speedup, Times};

use super::measurement::Measurement;
use crate::check::findings::Findings;
use crate::check::timed_calls::Checks;
use crate::process::baseline::{BaselineProcess, Look};
use crate::process::candidate::LoadedCandidate;
use crate::process::failure::Trouble;
use crate::timing::measure::{self, Ready};
use crate::timing::sequential::THRESHOLDS;
use crate::timing::stats;

/// Windows of a single call, of the candidate and of the best baseline each.
const PAIRS: usize = 6;
/// Rank of the lower end among their differences: the median lies below the least of six in 1.6 of 100.
const RANK: usize = 1;
/// By how much a first call of the candidate's may be longer than one of a baseline's, in seconds: its
/// process was frozen, and the baseline's was not.
const WOKEN: f64 = 100e-6;
/// The same of a process that is never frozen, and whose own empty windows are subtracted.
const NEVER_FROZEN: f64 = 20e-6;
/// How many times as long as the slope a call alone may take besides: queues run empty, threads and caches
/// have to be fetched.
const TIMES: f64 = 2.0;

/// What a call alone takes at least, in seconds, by pairs of windows of a single call (candidate, baseline)
/// and the baseline's seconds a call. `woken`: by how much longer a first call of the candidate's may be. `None`
/// for too few pairs.
fn at_least(pairs: &[(f64, f64)], baseline: f64, woken: f64) -> Option<f64> {
    let longer: Vec<f64> = pairs.iter().map(|(candidate, baseline)| candidate - baseline).collect();
    Some(baseline + stats::between(&longer, RANK)?.low - woken)
}

/// Where a call alone takes far longer than one of many, its time and speed-ups are those of the call
/// alone. The caveat that says so.
fn limit(times: &mut Times, speedup: &mut Speedup, alone: f64) -> Option<String> {
    let among = times.candidate?;
    let factor = 1e3 * alone / among.value;
    if !factor.is_finite() || factor <= TIMES {
        return None;
    }
    let by =
        |i: Interval, f: f64| Interval { value: i.value * f, low: i.low * f, high: i.high * f };
    times.candidate = Some(by(among, factor));
    let Speedup { eager, compile, reduce_overhead, max_autotune, best, best_baseline: _ } = speedup;
    for over in [eager, compile, reduce_overhead, max_autotune, best] {
        *over = over.map(|i| by(i, 1.0 / factor));
    }
    Some(format!(
        "a call alone takes at least {:.4} ms, one of many {:.4} ms: speed-ups are those of a call alone",
        1e3 * alone,
        among.value
    ))
}

/// Whether any speed-up is so high that a reward may turn on it. Of one of several workloads that is the upper end's to
/// say: the mean's interval is narrower, and windows that a candidate makes vary must not spare it the check.
fn pays(speedup: &Speedup, workloads: usize) -> bool {
    let over = [speedup.eager, speedup.compile, speedup.reduce_overhead, speedup.max_autotune];
    let end = |i: &Interval| if workloads > 1 { i.high } else { i.low };
    over.iter().flatten().any(|i| end(i) > THRESHOLDS[0])
}

/// Where the candidate is faster than a baseline, has single calls agree with the slope; what they
/// give is compared as that of any timed call is.
pub(super) fn compare(
    measurement: &mut Measurement<'_>,
    (process, ready, staged): (&mut BaselineProcess, &[Ready], usize),
    loaded: &mut dyn LoadedCandidate,
    samples: &[u64],
    (checks, round): (&mut Checks, usize),
    found: &mut Findings,
) -> Result<(), Trouble> {
    if !measurement.machine.device.times_single_calls() {
        return Ok(());
    }
    let best = found.speedup.best_baseline.as_deref();
    let best = ready.iter().find(|ready| Some(ready.which.name()) == best);
    let Some(best) = best.filter(|_| pays(&found.speedup, measurement.plan.workloads)) else {
        return Ok(());
    };
    let Some(slope) = found.times.over(best.which.name()) else { return Ok(()) };
    let (mut pairs, mut woken) = (Vec::with_capacity(PAIRS), WOKEN);
    for _ in 0..PAIRS {
        let (mut candidate, mut baseline) = (0.0, 0.0);
        let look = Look { arena: loaded.arena(), samples };
        let nothing = process.nothing(measurement.task, Some(look))?.as_secs_f64();
        let own = loaded.nothing(samples)?.map(|own| own.as_secs_f64());
        if own.is_some() {
            woken = NEVER_FROZEN;
        }
        let own = own.unwrap_or(nothing);
        for contender in measure::order(1, measurement.random) {
            if contender == 0 {
                candidate = measurement.timed_window(process, loaded, 1, (checks, round), found)?;
                if found.bad() {
                    return Ok(());
                }
                measurement.warm_up(process, ready, staged)?;
            } else {
                let look = Look { arena: loaded.arena(), samples };
                let (name, one) = (measurement.task, (best.which, 1));
                baseline = measure::baseline_window(process, name, one, staged, look)?;
            }
        }
        pairs.push((candidate - own, baseline - nothing));
    }
    let Some(least) = at_least(&pairs, 1e-3 * slope.value, woken) else { return Ok(()) };
    let among = found.times.candidate;
    let caveat = limit(&mut found.times, &mut found.speedup, least);
    if let (Some(_), Some(among), Some(alone)) = (&caveat, among, found.times.candidate) {
        found.measured.lengthen(alone.value / among.value);
    }
    found.caveats.extend(caveat);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs of windows of a call that takes so long, where every window of the candidate costs this on
    /// top, and every window of a baseline, whose call takes 1 ms.
    fn pairs(call: f64, constant: (f64, f64)) -> Vec<(f64, f64)> {
        let noise = |i: usize| 1e-6 * (i * 7 % PAIRS) as f64;
        (0..PAIRS).map(|i| (call + constant.0 + noise(i), 1e-3 + constant.1)).collect()
    }

    fn measured(slope_ms: f64) -> (Times, Speedup) {
        let at = |value: f64| Some(Interval { value, low: 0.98 * value, high: 1.02 * value });
        let times = Times { candidate: at(slope_ms), eager: at(1.0), ..Times::default() };
        let over = at(1.0 / slope_ms);
        (times, Speedup { eager: over, best: over, ..Speedup::default() })
    }

    #[test]
    fn a_batched_call_is_paid_as_a_single_call() {
        let alone = at_least(&pairs(8e-4, (3e-4, 2e-4)), 1e-3, WOKEN).unwrap();
        assert!((alone - 8e-4).abs() < 2e-5, "{alone}");
        let (mut times, mut speedup) = measured(0.01);
        let caveat = limit(&mut times, &mut speedup, alone).unwrap();
        assert!(caveat.contains("of many 0.0100 ms"), "{caveat}");
        let best = speedup.best.unwrap();
        assert!(best.value < 1.3 && best.low < best.value && best.value < best.high, "{best:?}");
        assert!((times.candidate.unwrap().value - 1e3 * alone).abs() < 1e-9);
    }

    #[test]
    fn a_call_equally_long_alone_keeps_its_time() {
        for (call, woken) in [(5e-4, 0.0), (5e-4, 9e-5), (5e-4, 4e-4), (2e-5, 1e-4), (2e-3, 1e-4)] {
            let alone = at_least(&pairs(call, (2e-4 + woken, 2e-4)), 1e-3, WOKEN).unwrap();
            let (mut times, mut speedup) = measured(1e3 * call);
            let before = speedup.clone();
            assert_eq!(limit(&mut times, &mut speedup, alone), None, "{call} {woken} {alone}");
            assert_eq!(speedup, before);
        }
    }

    #[test]
    fn varied_windows_of_a_workload_do_not_spare_it() {
        let wide = Some(Interval { value: 20.0, low: 0.9, high: 450.0 });
        let speedup = Speedup { eager: wide, best: wide, ..Speedup::default() };
        assert!(pays(&speedup, 5), "the mean may be paid");
        assert!(!pays(&speedup, 1), "the lower end is");
        let slow = Some(Interval { value: 0.5, low: 0.4, high: 0.6 });
        assert!(!pays(&Speedup { eager: slow, best: slow, ..Speedup::default() }, 5));
    }

    #[test]
    fn a_disturbed_window_never_lengthens_a_call() {
        let mut pairs = pairs(5e-4, (2e-4, 2e-4));
        let quiet = at_least(&pairs, 1e-3, WOKEN).unwrap();
        pairs[3].0 += 1.0;
        assert!((at_least(&pairs, 1e-3, WOKEN).unwrap() - quiet).abs() < 2e-6);
        pairs[5].1 += 1.0;
        assert!(at_least(&pairs, 1e-3, WOKEN).unwrap() < quiet);
        assert_eq!(at_least(&pairs[..1], 1e-3, WOKEN), None);
    }
}
