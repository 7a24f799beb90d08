//! How two verdicts on one candidate differ.

use std::collections::BTreeSet;

use serde_json::Value;
use warpwright_record::interval::Interval;
use warpwright_record::verdict::{Reward, Stage, Verdict, judged_workloads};

use crate::figures;
use crate::text::one_line;

/// Characters of the names of workloads in a reason.
const MOST_NAMES: usize = 200;

/// `verified`, or the class of the failure or of the first integrity finding.
pub(super) fn result(verdict: &Verdict) -> String {
    if verdict.verified {
        return "verified".to_owned();
    }
    if let Some(finding) = verdict.integrity.first() {
        return format!("integrity: {}", finding.class);
    }
    let class = verdict.failure.as_ref().and_then(|f| serde_json::to_value(f.class).ok());
    let class = class.as_ref().and_then(Value::as_str).map(str::to_owned);
    class.unwrap_or_else(|| "not verified".to_owned())
}

/// How the verdict changed, and why; `None` where it did not. `timed`: whether times may be compared.
pub(super) fn change(
    old: Option<&Verdict>,
    new: &Verdict,
    timed: bool,
) -> Option<(String, String)> {
    let now = result(new);
    let Some(old) = old else {
        return Some((format!("no verdict -> {now}"), why(new).to_owned()));
    };
    if old.stage == Stage::Built && old.failure.is_none() {
        // It compared nothing.
        return None;
    }
    let was = result(old);
    if was != now {
        // Where it is verified today, only the older verdict can say what it was about.
        let about = if new.verified { old } else { new };
        return Some((format!("{was} -> {now}"), why(about).to_owned()));
    }
    if !new.verified || old.stage != Stage::Measured || new.stage != Stage::Measured {
        return None;
    }
    let (before, after) = (payment(old), payment(new));
    if before != after {
        let caveat = new.caveats.iter().find(|caveat| !old.caveats.contains(caveat));
        let why = caveat.map_or("", String::as_str);
        return Some((format!("reward {before} -> {after}"), why.to_owned()));
    }
    let (one, other) = old.speedup.best.zip(new.speedup.best).filter(|_| timed)?;
    if one.agrees_with(other) {
        return None;
    }
    let word = if other.value > one.value { "faster" } else { "slower" };
    let told = |of: &Interval| figures::speedup(of);
    Some((word.to_owned(), format!("{} over the best baseline, then {}", told(&one), told(&other))))
}

fn why(verdict: &Verdict) -> &str {
    let finding = verdict.integrity.first().map(|finding| finding.message.as_str());
    let failure = verdict.failure.as_ref().map(|failure| failure.message.as_str());
    finding.or(failure).unwrap_or_default()
}

/// Whether a verified candidate earned what its speed-up is worth.
fn payment(verdict: &Verdict) -> &'static str {
    let full = Reward::verified(&verdict.speedup);
    if verdict.reward == Reward::UNEARNED {
        "unearned"
    } else if verdict.reward.bounded < full.bounded {
        "capped"
    } else {
        "full"
    }
}

/// What makes the times of two verdicts incomparable.
pub(super) fn differences(old: &Verdict, new: &Verdict) -> BTreeSet<String> {
    let parts = |of: &Verdict| {
        let kind = if of.device == "cpu" { "cpu" } else { "cuda" };
        let print = &of.fingerprint;
        [
            ("kind of device", kind.to_owned()),
            ("hardware", print.hardware.clone()),
            ("driver", print.driver.clone()),
            ("torch", print.torch.clone()),
            ("compiler", print.compiler.clone()),
            ("tier", of.tier.name().to_owned()),
            ("profile", of.profile.name().to_owned()),
        ]
    };
    if old.device == "cpu" && new.device == "cpu" {
        // Two sessions there differ by more than either's interval.
        return BTreeSet::from([
            "on the cpu device they depend on what else the host does".to_owned()
        ]);
    }
    let differ = |((part, old), (_, new)): ((&str, String), (&str, String))| {
        (old != new).then(|| format!("{part} was `{old}`, and is `{new}`"))
    };
    let mut found: BTreeSet<String> =
        parts(old).into_iter().zip(parts(new)).filter_map(differ).collect();
    let judged = |of: &Verdict| {
        judged_workloads(&of.workloads).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    // A failed verdict has those up to its failure.
    if old.verified && new.verified && judged(old) != judged(new) {
        let told = |of: &Verdict| one_line(&judged(of).join(", "), MOST_NAMES);
        found.insert(format!("the judged workloads were `{}`, and are `{}`", told(old), told(new)));
    }
    found
}
