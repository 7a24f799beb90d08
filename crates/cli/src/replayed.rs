//! A verdict beside the one that replaying its launch plan gave.

use std::fmt::Write;

use serde::Serialize;
use serde_json::Value;
use warpwright_judge::agree;
use warpwright_record::fingerprint::Fingerprint;
use warpwright_record::interval::Interval;
use warpwright_record::verdict::{BASELINES, Verdict, WorkloadVerdict};

use crate::contract::{Judged, VERSION};

/// Output of `replay`.
#[derive(Debug, Serialize)]
pub(crate) struct Replayed<'a> {
    version: u32,
    task: &'a str,
    candidate: &'a str,
    plan: Option<String>,
    /// Whether both were measured under the same conditions: figures of others are not compared.
    comparable: bool,
    /// What of the fingerprint differs.
    differences: Vec<Difference>,
    /// Whether both are verified or both are not, and the candidate's times agree; `null` if they are not
    /// comparable.
    agrees: Option<bool>,
    figures: Vec<Figure>,
    before: Judged<'a>,
    after: Judged<'a>,
}

/// A part of the fingerprint that differs.
#[derive(Debug, Serialize)]
struct Difference {
    part: &'static str,
    before: String,
    after: String,
}

/// A figure of both verdicts.
#[derive(Debug, Serialize)]
struct Figure {
    name: String,
    before: Option<Interval>,
    after: Option<Interval>,
    /// Whether they differ by no more than noise allows; `null` if they cannot be compared.
    agrees: Option<bool>,
}

/// Name of the candidate's time.
const CANDIDATE: &str = "candidate, ms";

impl<'a> Replayed<'a> {
    /// Compares the recorded verdict with that of the replay.
    pub(crate) fn new(before: &'a Verdict, after: &'a Verdict) -> Self {
        let differences = differences(&before.fingerprint, &after.fingerprint);
        let comparable = differences.is_empty();
        let figure = |name: String, before: Option<Interval>, after: Option<Interval>| {
            let both = before.zip(after).filter(|_| comparable);
            Figure { name, before, after, agrees: both.map(|(one, other)| agree(one, other)) }
        };
        let (old, new) = (&before.times_ms, &after.times_ms);
        let mut figures = vec![figure(CANDIDATE.to_owned(), old.candidate, new.candidate)];
        for name in BASELINES {
            figures.push(figure(format!("{name}, ms"), old.over(name), new.over(name)));
        }
        let (old, new) = (&before.speedup, &after.speedup);
        for name in BASELINES {
            figures.push(figure(format!("speed-up over {name}"), old.over(name), new.over(name)));
        }
        figures.push(figure("speed-up over the best".to_owned(), old.best, new.best));
        let (old, new) = (&before.workloads, &after.workloads);
        for (old, new) in old.iter().filter_map(|old| Some((old, matching(new, old)?))) {
            let name = named(&old.name);
            let (one, other) = (old.times_ms.candidate, new.times_ms.candidate);
            figures.push(figure(format!("{name}: candidate, ms"), one, other));
            let (one, other) = (old.speedup.best, new.speedup.best);
            figures.push(figure(format!("{name}: speed-up over the best"), one, other));
        }
        figures.retain(|figure| figure.before.is_some() || figure.after.is_some());
        let timed = figures.iter().find(|figure| figure.name == CANDIDATE);
        let times_agree = timed.and_then(|figure| figure.agrees).unwrap_or(true);
        let same = before.verified == after.verified;
        Self {
            version: VERSION,
            task: &after.task,
            candidate: &after.candidate,
            plan: after.plan.map(|plan| plan.to_string()),
            comparable,
            differences,
            agrees: comparable.then_some(same && times_agree),
            figures,
            before: Judged::new(before),
            after: Judged::new(after),
        }
    }

    /// A column for each.
    pub(crate) fn table(&self) -> String {
        let mut text = format!("{:<30} {:>26} {:>26}  agree\n", self.task, "verdict", "replay");
        let result = |judged: &Judged<'_>| {
            if judged.verified {
                return "verified".to_owned();
            }
            let class = judged.failure.and_then(|failure| serde_json::to_value(failure.class).ok());
            let class = class.as_ref().and_then(Value::as_str).map(str::to_owned);
            let found = class.or_else(|| judged.integrity.first().map(|found| found.class.clone()));
            found.unwrap_or_else(|| "not verified".to_owned())
        };
        let (old, new) = (result(&self.before), result(&self.after));
        let same = word(Some(self.before.verified == self.after.verified));
        let _ = writeln!(text, "{:<30} {old:>26} {new:>26}  {same}", "result");
        for Figure { name, before, after, agrees } in &self.figures {
            let (before, after) = (shown(*before), shown(*after));
            let _ = writeln!(text, "{name:<30} {before:>26} {after:>26}  {}", word(*agrees));
        }
        for Difference { part, before, after } in &self.differences {
            let _ = writeln!(text, "not comparable: {part} was `{before}`, and is `{after}` now");
        }
        text
    }
}

/// The entry of the same workload.
fn matching<'w>(
    of: &'w [WorkloadVerdict],
    workload: &WorkloadVerdict,
) -> Option<&'w WorkloadVerdict> {
    of.iter().find(|other| other.name == workload.name && workload.refused.is_none())
}

/// A stranger's name of a workload, for a line of a table.
fn named(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(64).collect()
}

fn word(agrees: Option<bool>) -> &'static str {
    match agrees {
        Some(true) => "yes",
        Some(false) => "no",
        None => "-",
    }
}

fn shown(interval: Option<Interval>) -> String {
    let told = |of: Interval| format!("{:.4} [{:.4}, {:.4}]", of.value, of.low, of.high);
    interval.map_or_else(|| "-".to_owned(), told)
}

/// What of two fingerprints differs that makes figures incomparable. Clocks and ceilings are measured each time.
fn differences(before: &Fingerprint, after: &Fingerprint) -> Vec<Difference> {
    let parts = |of: &Fingerprint| {
        [
            ("hardware", of.hardware.clone()),
            ("driver", of.driver.clone()),
            ("torch", of.torch.clone()),
            ("warpwright", of.warpwright.clone()),
        ]
    };
    let pairs = parts(before).into_iter().zip(parts(after));
    pairs
        .filter(|((_, before), (_, after))| before != after)
        .map(|((part, before), (_, after))| Difference { part, before, after })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A verdict whose candidate took so long.
    fn verdict(value: f64) -> Verdict {
        let text = include_str!("../../serve/tests/verdict.json");
        let mut verdict: Verdict = serde_json::from_str(text).unwrap();
        verdict.verified = true;
        verdict.times_ms.candidate =
            Some(Interval { value, low: 0.99 * value, high: 1.01 * value });
        verdict
    }

    #[test]
    fn replay_agrees_within_noise_only() {
        let (before, near, far) = (verdict(1.0), verdict(1.04), verdict(1.2));
        let compared = Replayed::new(&before, &near);
        assert_eq!((compared.comparable, compared.agrees), (true, Some(true)));
        let compared = Replayed::new(&before, &far);
        assert_eq!(compared.agrees, Some(false));
        let table = compared.table();
        let row = table.lines().find(|line| line.starts_with(CANDIDATE)).unwrap();
        assert!(row.contains("1.0000 [0.9900, 1.0100]") && row.ends_with("no"), "{table}");
        let wrong = Verdict { verified: false, ..verdict(1.0) };
        assert_eq!(Replayed::new(&before, &wrong).agrees, Some(false));
    }

    #[test]
    fn each_workload_is_compared_with_its_replay() {
        let with = |times: [(&str, f64); 2]| {
            let mut verdict = verdict(1.0);
            verdict.workloads = times
                .map(|(name, time)| {
                    let refused = WorkloadVerdict::refused(name.to_owned(), false, String::new());
                    let mut one = WorkloadVerdict { refused: None, verified: true, ..refused };
                    one.times_ms.candidate = Some(Interval { value: time, low: time, high: time });
                    one
                })
                .to_vec();
            verdict
        };
        let (before, after) = (with([("a", 1.0), ("b", 2.0)]), with([("b", 4.0), ("a", 1.0)]));
        let table = Replayed::new(&before, &after).table();
        let row = |name: &str| table.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(row("a: candidate, ms").ends_with("yes"), "{table}");
        assert!(row("b: candidate, ms").ends_with("no"), "{table}");
    }

    #[test]
    fn figures_of_another_driver_are_not_compared() {
        let (before, mut after) = (verdict(1.0), verdict(1.0));
        after.fingerprint.driver = "another".to_owned();
        let compared = Replayed::new(&before, &after);
        assert_eq!((compared.comparable, compared.agrees), (false, None));
        assert!(compared.figures.iter().all(|figure| figure.agrees.is_none()));
        let table = compared.table();
        assert!(table.contains("not comparable: driver was"), "{table}");
    }
}
