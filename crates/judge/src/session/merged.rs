//! One verdict of those on the workloads of a task.

use warpwright_record::conditions::Conditions;
use warpwright_record::interval::Interval;
use warpwright_record::verdict::{
    AblationResult, BASELINES, PhaseSeconds, Provenance, Reward, Speedup, Stage, Times, Verdict,
    WorkloadVerdict,
};

use crate::timing::series::{self, Measured, Series};

/// The verdict on one workload.
pub(super) struct Part {
    pub(super) name: String,
    pub(super) held_out: bool,
    /// Whether no more than 1 can be earned on it.
    pub(super) capped: bool,
    /// Whether nothing can.
    pub(super) degenerate: bool,
    pub(super) verdict: Verdict,
    /// The samples of its times.
    pub(super) measured: Measured,
}

/// The verdict on a task. Where a workload failed, it is the last one of `parts`. `None` if there are no parts.
///
/// Times and speed-ups are geometric means over the workloads, with the intervals of `timing/series.rs`. As for a single
/// workload, the best baseline is that over which the speed-up is least, and the rewards are those of the intervals'
/// lower ends. Conditions and provenance are the worst of the workloads.
pub(super) fn merge(
    task: &str,
    parts: Vec<Part>,
    refused: Vec<WorkloadVerdict>,
) -> Option<Verdict> {
    let Part { name, verdict: decisive, .. } =
        parts.iter().find(|part| !part.verdict.verified).or(parts.first())?;
    let verified = parts.iter().all(|part| part.verdict.verified);
    let mut verdict = decisive.clone();
    task.clone_into(&mut verdict.task);
    verdict.verified = verified;
    verdict.tier = parts.iter().map(|part| part.verdict.tier).min().unwrap_or_default();
    // Those of the workloads are in their entries.
    (verdict.plan, verdict.replayer) = (None, None);
    if let Some(failure) = &mut verdict.failure {
        failure.message = of(name, &failure.message);
        if let Some(mismatch) = &mut failure.mismatch {
            mismatch.check = of(name, &mismatch.check);
        }
    }
    for finding in &mut verdict.integrity {
        finding.message = of(name, &finding.message);
    }
    verdict.checks = checks(&parts);
    let memory = parts.iter().filter_map(|part| part.verdict.memory);
    verdict.memory = memory.max_by_key(|memory| memory.peak_bytes);
    verdict.caveats = caveats(&parts, &refused);
    verdict.conditions =
        Conditions::worst(parts.iter().filter_map(|p| p.verdict.conditions.as_ref()));
    let clocks = verdict.conditions.as_ref().map(Conditions::clocks);
    verdict.fingerprint.clocks = clocks.unwrap_or_default();
    verdict.provenance = provenance(&parts);
    let seconds = parts.iter().map(|part| part.verdict.seconds);
    verdict.seconds = seconds.fold(PhaseSeconds::default(), PhaseSeconds::and);
    // Every part has that of the one build.
    verdict.seconds.build = decisive.seconds.build;
    let measured = verified && verdict.stage == Stage::Measured;
    (verdict.times_ms, verdict.speedup) =
        if measured { (times(&parts), speedup(&parts)) } else { Default::default() };
    verdict.reward = reward(&parts, &verdict);
    let floors: Option<Vec<f64>> = parts.iter().map(|part| part.verdict.floor_ms).collect();
    verdict.floor_ms = floors.and_then(|floors| mean(&floors));
    let bytes: Vec<f64> = parts.iter().map(|part| part.verdict.unavoidable_bytes as f64).collect();
    verdict.unavoidable_bytes = mean(&bytes).map_or(0, |bytes| bytes.round() as u64);
    verdict.workloads = parts.into_iter().map(entry).chain(refused).collect();
    Some(verdict)
}

/// A text about one workload.
fn of(name: &str, text: &str) -> String {
    format!("workload {name}: {text}")
}

fn entry(part: Part) -> WorkloadVerdict {
    let Part { name, held_out, verdict, .. } = part;
    let Verdict { verified, tier, plan, replayer, times_ms, speedup, .. } = verdict;
    let Verdict { conditions, provenance, .. } = verdict;
    WorkloadVerdict {
        name,
        held_out,
        refused: None,
        verified,
        tier,
        plan,
        replayer,
        times_ms,
        speedup,
        conditions,
        provenance,
    }
}

/// What every workload has: the fewest kernels, all library calls, and the ablation that says most against the
/// candidate. `None` unless all have it.
fn provenance(parts: &[Part]) -> Option<Provenance> {
    let doubt = |ablation| match ablation {
        AblationResult::FailedWithoutKernels => 0,
        AblationResult::FailedWithoutLibraries => 1,
        AblationResult::NotRun => 2,
        AblationResult::Passed => 3,
    };
    let all: Option<Vec<&Provenance>> =
        parts.iter().map(|part| part.verdict.provenance.as_ref()).collect();
    let all = all?;
    let mut library_calls = Vec::new();
    for call in all.iter().flat_map(|each| &each.library_calls) {
        if !library_calls.contains(call) {
            library_calls.push(call.clone());
        }
    }
    Some(Provenance {
        own_kernels: all.iter().map(|each| each.own_kernels).min()?,
        library_calls,
        ablation: all.iter().map(|each| each.ablation).max_by_key(|&ablation| doubt(ablation))?,
    })
}

fn checks(parts: &[Part]) -> Vec<warpwright_record::verdict::Check> {
    let mut all = Vec::new();
    for part in parts {
        for check in &part.verdict.checks {
            let mut check = check.clone();
            check.name = of(&part.name, &check.name);
            all.push(check);
        }
    }
    all
}

/// Each once: what holds for all workloads without their names.
fn caveats(parts: &[Part], refused: &[WorkloadVerdict]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for each in refused {
        let why = each.refused.as_deref().unwrap_or_default();
        all.push(of(&each.name, &format!("refused, and not judged: {why}")));
    }
    for part in parts {
        for caveat in &part.verdict.caveats {
            let common = parts.iter().all(|other| other.verdict.caveats.contains(caveat));
            let text = if common { caveat.clone() } else { of(&part.name, caveat) };
            if !all.contains(&text) {
                all.push(text);
            }
        }
    }
    all
}

fn reward(parts: &[Part], verdict: &Verdict) -> Reward {
    let reward = Reward::of(verdict.verified, &verdict.speedup);
    if verdict.verified && parts.iter().any(|part| part.degenerate) {
        return Reward::UNEARNED;
    }
    if parts.iter().any(|part| part.capped) { reward.capped() } else { reward }
}

/// The geometric mean of a figure that every part has. That of a single part is its own, which may be one of a
/// measurement that stopped early.
fn over<'p>(
    parts: &'p [Part],
    figure: impl Fn(&Verdict) -> Option<Interval>,
    samples: impl Fn(&'p Measured) -> Option<&'p Series>,
) -> Option<Interval> {
    let known: Option<Vec<Interval>> = parts.iter().map(|part| figure(&part.verdict)).collect();
    if let [one] = known?.as_slice() {
        return Some(*one);
    }
    let all: Option<Vec<&Series>> = parts.iter().map(|part| samples(&part.measured)).collect();
    series::mean(&all?)
}

fn time_of(parts: &[Part], name: &str) -> Option<Interval> {
    over(parts, |verdict| verdict.times_ms.over(name), |measured| measured.time_of(name))
}

fn speedup_over(parts: &[Part], name: &str) -> Option<Interval> {
    over(parts, |verdict| verdict.speedup.over(name), |measured| measured.speedup_over(name))
}

/// The mean of each workload's speed-up over its own best baseline.
fn over_best_of_each(parts: &[Part]) -> Option<Interval> {
    let best = |part: &Part| part.verdict.speedup.best_baseline.clone();
    let names: Option<Vec<String>> = parts.iter().map(best).collect();
    let of_each = parts.iter().zip(names?);
    let all: Option<Vec<&Series>> =
        of_each.map(|(part, name)| part.measured.speedup_over(&name)).collect();
    series::mean(&all?)
}

fn times(parts: &[Part]) -> Times {
    let verdicts = || parts.iter().map(|part| &part.verdict.times_ms);
    Times {
        candidate: over(parts, |of| of.times_ms.candidate, |of| Some(&of.candidate)),
        eager: time_of(parts, "eager"),
        compile: time_of(parts, "compile"),
        reduce_overhead: time_of(parts, "reduce_overhead"),
        max_autotune: time_of(parts, "max_autotune"),
        prepare: verdicts().filter_map(|times| times.prepare).reduce(f64::max),
        rounds: verdicts().map(|times| times.rounds).sum(),
    }
}

fn speedup(parts: &[Part]) -> Speedup {
    let mut speedup = Speedup {
        eager: speedup_over(parts, "eager"),
        compile: speedup_over(parts, "compile"),
        reduce_overhead: speedup_over(parts, "reduce_overhead"),
        max_autotune: speedup_over(parts, "max_autotune"),
        best: None,
        best_baseline: None,
    };
    let known = BASELINES.iter().filter_map(|name| Some((*name, speedup.over(name)?)));
    if let Some((name, best)) = known.min_by(|(_, a), (_, b)| a.value.total_cmp(&b.value)) {
        (speedup.best, speedup.best_baseline) = (Some(best), Some(name.to_owned()));
    }
    let uneven = |name: &&str| {
        let has = |part: &&Part| part.verdict.speedup.over(name).is_some();
        (1..parts.len()).contains(&parts.iter().filter(has).count())
    };
    if BASELINES.iter().any(uneven)
        && let (Some(best), Some(of_each)) = (&mut speedup.best, over_best_of_each(parts))
        && of_each.value < best.value
    {
        // A baseline that one workload lacks still counts on the others.
        *best = of_each;
    }
    speedup
}

/// The geometric mean of positive numbers.
fn mean(numbers: &[f64]) -> Option<f64> {
    let known = !numbers.is_empty() && numbers.iter().all(|n| n.is_finite() && *n > 0.0);
    let logs = numbers.iter().map(|number| number.ln()).sum::<f64>();
    known.then(|| (logs / numbers.len() as f64).exp())
}

#[cfg(test)]
mod tests;
