//! The results of an experiment's arms.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use warpwright_learn::arm_stats;
use warpwright_learn::collapse::{Collapse, Collapsed};
use warpwright_learn::run_monitor::{Update, first_and_last};
use warpwright_record::interval::Interval;
use warpwright_report::training::{Curve, Stage as Shown};

use crate::figures::{curves, of_update};

/// One run of an arm.
#[derive(Clone, Debug, Serialize)]
pub struct Ran {
    pub seed: u64,
    /// Mean rewards of the first and the last fifth of the training steps.
    first: f64,
    last: f64,
    /// Mean reward of the best training step.
    best: f64,
    /// Share of the episodes of the last fifth that ended with a verified candidate, and with one
    /// faster than eager.
    verified: f64,
    faster: f64,
    collapsed: Option<Collapsed>,
    updates: usize,
    /// Number of episodes trained on.
    episodes: usize,
    /// Number of times that each alarm was raised.
    alarms: BTreeMap<String, usize>,
    #[serde(skip)]
    curves: Vec<(String, Vec<f64>)>,
}

impl Ran {
    pub fn of(seed: u64, updates: &[Update], rule: &Collapse) -> Self {
        let (first, last) = first_and_last(updates).unwrap_or((f64::NAN, f64::NAN));
        let mut alarms = BTreeMap::new();
        for alarm in updates.iter().flat_map(|update| &update.report.alarms) {
            *alarms.entry(alarm.to_string()).or_insert(0) += 1;
        }
        let fifth = &updates[updates.len() - updates.len().div_ceil(5)..];
        let of_fifth = |share: fn(&Update) -> f64| {
            fifth.iter().map(share).sum::<f64>() / fifth.len().max(1) as f64
        };
        let steps: Vec<_> = updates.iter().map(of_update).collect();
        Self {
            seed,
            first,
            last,
            best: updates.iter().map(|u| u.report.reward).fold(f64::NEG_INFINITY, f64::max),
            verified: of_fifth(|update| update.pass_rate),
            faster: of_fifth(|update| update.faster_rate),
            collapsed: rule.of(updates),
            updates: updates.len(),
            episodes: updates.iter().map(|update| update.report.episodes).sum(),
            alarms,
            curves: curves(&steps),
        }
    }
}

/// All runs of an arm.
#[derive(Clone, Debug, Serialize)]
pub struct ArmResult {
    /// Its name.
    pub name: String,
    /// Its runs.
    pub runs: Vec<Ran>,
    /// Over runs, with Student's 95 % interval.
    first: Option<Interval>,
    last: Option<Interval>,
    verified: Option<Interval>,
    faster: Option<Interval>,
    /// `last` minus that of the first arm, paired by seed.
    beyond_first_arm: Option<Interval>,
    /// Seeds of runs that failed before reinforcement learning, as when every episode was left out
    /// of rejection fine-tuning. The other figures exclude them.
    failed: Vec<u64>,
    /// Number of collapsed runs.
    collapsed: usize,
    /// p-value of Fisher's exact test of that against the first arm; `None` for the first arm.
    p: Option<f64>,
}

/// Results of all arms; each is compared with the first.
pub(super) fn compare(arms: Vec<(String, Vec<Ran>, Vec<u64>)>) -> Vec<ArmResult> {
    let count = |runs: &[Ran]| runs.iter().filter(|run| run.collapsed.is_some()).count();
    let first: Vec<Ran> = arms.first().map_or(Vec::new(), |(_, runs, _)| runs.clone());
    let all = arms.into_iter().enumerate().map(|(number, (name, runs, failed))| {
        let of = |get: fn(&Ran) -> f64| arm_stats::mean(&runs.iter().map(get).collect::<Vec<_>>());
        let pairs = runs.iter().filter_map(|run| {
            let other = first.iter().find(|other| other.seed == run.seed)?;
            Some(run.last - other.last)
        });
        let beyond = arm_stats::mean(&pairs.collect::<Vec<_>>());
        let collapsed = count(&runs);
        let p = arm_stats::fisher((collapsed, runs.len()), (count(&first), first.len()));
        ArmResult {
            first: of(|run| run.first),
            last: of(|run| run.last),
            verified: of(|run| run.verified),
            faster: of(|run| run.faster),
            beyond_first_arm: beyond.filter(|_| number > 0),
            p: (number > 0).then_some(p),
            failed,
            collapsed,
            name,
            runs,
        }
    });
    all.collect()
}

/// The same as a Markdown table.
pub fn table(arms: &[ArmResult]) -> String {
    let mut text = String::from(
        "| arm | runs | reward, first fifth | reward, last fifth | difference to the first arm | pass rate, last fifth | faster rate, last fifth | failed | collapsed | p | alarms |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let interval = |interval: Option<Interval>| match interval {
        Some(i) if i.low.is_finite() => format!("{:.3} [{:.3}, {:.3}]", i.value, i.low, i.high),
        Some(i) => format!("{:.3}", i.value),
        None => String::new(),
    };
    for arm in arms {
        let mut alarms: BTreeMap<&str, usize> = BTreeMap::new();
        for (alarm, count) in arm.runs.iter().flat_map(|run| &run.alarms) {
            *alarms.entry(alarm).or_insert(0) += count;
        }
        let alarms: Vec<String> = alarms.iter().map(|(a, count)| format!("{count} {a}")).collect();
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            arm.name,
            arm.runs.len(),
            interval(arm.first),
            interval(arm.last),
            interval(arm.beyond_first_arm),
            interval(arm.verified),
            interval(arm.faster),
            arm.failed.len(),
            arm.collapsed,
            arm.p.map_or(String::new(), |p| format!("{p:.3}")),
            alarms.join(", ")
        );
    }
    text
}

/// The arms as sections of the report: a chart per metric with a line per run, on common scales.
pub(super) fn shown(arms: &[ArmResult]) -> Vec<Shown> {
    let mut spans: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    let every = arms.iter().flat_map(|arm| &arm.runs).flat_map(|run| &run.curves);
    for (name, values) in every {
        let span = spans.entry(name).or_insert((f64::INFINITY, f64::NEG_INFINITY));
        for value in values.iter().filter(|value| value.is_finite()) {
            *span = (span.0.min(*value), span.1.max(*value));
        }
    }
    let arm = |arm: &ArmResult| {
        let mut names: Vec<&String> = Vec::new();
        for (name, _) in arm.runs.iter().flat_map(|run| &run.curves) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let curves = names.into_iter().map(|name| {
            let of = |run: &Ran| {
                let found = run.curves.iter().find(|(known, _)| known == name);
                found.map(|(_, values)| values.clone())
            };
            let mut lines = arm.runs.iter().filter_map(of);
            Curve {
                name: name.clone(),
                values: lines.next().unwrap_or_default(),
                others: lines.collect(),
                span: spans.get(name.as_str()).copied().filter(|(low, high)| low <= high),
            }
        });
        let mut told = format!("{} runs, {} collapsed", arm.runs.len(), arm.collapsed);
        if !arm.failed.is_empty() {
            let _ = write!(told, ", and {} failed before reinforcement learning", arm.failed.len());
        }
        Shown {
            name: arm.name.clone(),
            is_done: true,
            told: Some(told),
            step: "update",
            curves: curves.collect(),
            samples: Vec::new(),
        }
    };
    arms.iter().map(arm).collect()
}

#[cfg(test)]
mod tests {
    use warpwright_learn::update::Report;

    use super::*;

    fn ran(seed: u64, rewards: &[f64]) -> Ran {
        let updates = rewards.iter().zip(0u32..).map(|(reward, number)| Update {
            number,
            report: Report { reward: *reward, episodes: 4, ..Report::default() },
            ..Update::default()
        });
        Ran::of(
            seed,
            &updates.collect::<Vec<_>>(),
            &Collapse { training_steps: 2, ..Collapse::default() },
        )
    }

    #[test]
    fn arms_are_compared_with_the_first_by_seed() {
        let good = [1, 2, 3].map(|seed| ran(seed, &[0.0, 0.2, 0.5 + seed as f64 / 10.0]));
        let bad = [3, 1, 2].map(|seed| ran(seed, &[0.6, -0.8, -0.9 + seed as f64 / 10.0]));
        let arms = compare(vec![
            ("good".to_owned(), good.to_vec(), vec![]),
            ("bad".to_owned(), bad.to_vec(), vec![4]),
        ]);
        assert_eq!((arms[0].collapsed, arms[1].collapsed), (0, 3));
        assert!(arms[0].p.is_none() && (arms[1].p.unwrap() - 0.1).abs() < 1e-9);
        let beyond = arms[1].beyond_first_arm.unwrap();
        assert!((beyond.value + 1.4).abs() < 1e-9 && beyond.high - beyond.low < 1e-6, "{beyond:?}");
        let table = table(&arms);
        assert!(table.contains("| `bad` | 3 | 0.600 [0.600, 0.600] |"), "{table}");
        assert!(table.contains("| 1 | 3 | 0.100 |"), "{table}");
        let shown = shown(&arms);
        let reward = &shown[1].curves[0];
        assert_eq!((reward.name.as_str(), reward.others.len()), ("critic/rewards/mean", 2));
        assert_eq!(reward.span, Some((-0.8, 0.8)));
    }
}
