//! Windows of a single call on a GPU, after the windows that the slope is taken from.

use warpwright_record::verdict::Speedup;

use super::measurement::Measurement;
use crate::check::findings::Findings;
use crate::check::timed_calls::Checks;
use crate::process::baseline::{BaselineProcess, Look};
use crate::process::failure::Trouble;
use crate::process::runner::Runner;
use crate::timing::alone;
use crate::timing::measure::{self, Ready};
use crate::timing::sequential::THRESHOLDS;

/// Whether any speed-up is so high that a reward may turn on it.
fn pays(speedup: &Speedup) -> bool {
    let over = [speedup.eager, speedup.compile, speedup.reduce_overhead, speedup.max_autotune];
    over.iter().flatten().any(|i| i.low > THRESHOLDS[0])
}

/// Where the candidate is faster than a baseline, has single calls agree with the slope; what they
/// give is compared as that of any timed call is.
pub(super) fn compare(
    measurement: &mut Measurement<'_>,
    (process, ready, staged): (&mut BaselineProcess, &[Ready], usize),
    runner: &mut Runner,
    samples: &[u64],
    (checks, round): (&mut Checks, usize),
    found: &mut Findings,
) -> Result<(), Trouble> {
    if !measurement.machine.device.times_single_calls() {
        return Ok(());
    }
    let best = found.speedup.best_baseline.as_deref();
    let best = ready.iter().find(|ready| Some(ready.which.name()) == best);
    let Some(best) = best.filter(|_| pays(&found.speedup)) else { return Ok(()) };
    let Some(slope) = found.times.over(best.which.name()) else { return Ok(()) };
    let mut pairs = Vec::with_capacity(alone::PAIRS);
    for _ in 0..alone::PAIRS {
        let (mut candidate, mut baseline) = (0.0, 0.0);
        let look = Look { arena: &runner.arena, samples };
        let nothing = process.nothing(measurement.task, Some(look))?.as_secs_f64();
        for contender in measure::order(1, measurement.random) {
            if contender == 0 {
                candidate = measurement.timed_window(process, runner, 1, (checks, round), found)?;
                if found.bad() {
                    return Ok(());
                }
                measurement.warm_up(process, ready, staged)?;
            } else {
                let look = Look { arena: &runner.arena, samples };
                let (name, one) = (measurement.task, (best.which, 1));
                baseline = measure::baseline_window(process, name, one, staged, look)?;
            }
        }
        pairs.push((candidate - nothing, baseline - nothing));
    }
    let Some(least) = alone::at_least(&pairs, 1e-3 * slope.value) else { return Ok(()) };
    found.caveats.extend(alone::limit(&mut found.times, &mut found.speedup, least));
    Ok(())
}
