//! One verdict of those on the workloads of a task.

use warpwright_record::interval::Interval;
use warpwright_record::verdict::{
    BASELINES, PhaseSeconds, Reward, Speedup, Stage, Times, Verdict, WorkloadVerdict,
};

/// The verdict on one workload.
pub(super) struct Part {
    pub(super) name: String,
    pub(super) held_out: bool,
    /// Whether no more than 1 can be earned on it.
    pub(super) capped: bool,
    /// Whether nothing can.
    pub(super) degenerate: bool,
    pub(super) verdict: Verdict,
}

/// The verdict on a task. Where a workload failed, it is the last one of `parts`. `None` if there are no parts.
///
/// Times and speed-ups are geometric means over the workloads. As for a single workload, the best baseline is that
/// over which the speed-up is least, and the rewards are those of the intervals' lower ends.
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
    }
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

/// The geometric mean of a figure that every part has.
fn over(parts: &[Part], figure: impl Fn(&Verdict) -> Option<Interval>) -> Option<Interval> {
    let all: Option<Vec<Interval>> = parts.iter().map(|part| figure(&part.verdict)).collect();
    Interval::geometric_mean(&all?)
}

fn times(parts: &[Part]) -> Times {
    let verdicts = || parts.iter().map(|part| &part.verdict.times_ms);
    Times {
        candidate: over(parts, |verdict| verdict.times_ms.candidate),
        eager: over(parts, |verdict| verdict.times_ms.eager),
        compile: over(parts, |verdict| verdict.times_ms.compile),
        reduce_overhead: over(parts, |verdict| verdict.times_ms.reduce_overhead),
        max_autotune: over(parts, |verdict| verdict.times_ms.max_autotune),
        prepare: verdicts().filter_map(|times| times.prepare).reduce(f64::max),
        rounds: verdicts().map(|times| times.rounds).sum(),
    }
}

fn speedup(parts: &[Part]) -> Speedup {
    let mut speedup = Speedup {
        eager: over(parts, |verdict| verdict.speedup.eager),
        compile: over(parts, |verdict| verdict.speedup.compile),
        reduce_overhead: over(parts, |verdict| verdict.speedup.reduce_overhead),
        max_autotune: over(parts, |verdict| verdict.speedup.max_autotune),
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
        && let (Some(best), Some(of_each)) =
            (&mut speedup.best, over(parts, |verdict| verdict.speedup.best))
        && of_each.value < best.value
    {
        // A baseline that one workload lacks still counts on the others.
        *best = of_each;
    }
    speedup
}

/// Of positive numbers.
fn mean(numbers: &[f64]) -> Option<f64> {
    let figures = numbers.iter().map(|&value| Interval { value, low: value, high: value });
    Interval::geometric_mean(&figures.collect::<Vec<_>>()).map(|mean| mean.value)
}

#[cfg(test)]
mod tests;
