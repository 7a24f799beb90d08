//! What became of the verdicts of a run whose candidates were judged again.
//!
//! [`Rejudged::of`] compares two histories, episode by episode. [`notes()`] are the sentences that reports of either
//! run show.

mod change;
mod notes;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use comfy_table::Cell;
use serde::Serialize;
use warpwright_record::event::{EpisodeId, Outcome};
use warpwright_record::history::{Episode, History};
use warpwright_record::interval::Interval;
use warpwright_record::verdict::{Reward, Tier, Verdict};

use self::change::{change, differences, result};
pub use self::notes::{default_folder, notes};
use crate::figures;
use crate::table::{right, style, trimmed};
use crate::text::one_line;

/// Characters of a reason at most.
const WIDTH: usize = 200;

/// The verdicts of a run beside those of the run in which its candidates were judged again.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Rejudged {
    /// Candidates that were judged again, tasks that are refused today included.
    pub judged: u64,
    /// Verdicts that changed.
    pub changed: u64,
    /// Those, by reason: `verified -> mismatch`, `slower`, ...
    pub by_reason: BTreeMap<String, u64>,
    /// Candidates that could not be judged again.
    pub not_judged: Vec<NotJudged>,
    /// What was not compared, and why.
    pub caveats: Vec<String>,
    /// One for each candidate that was judged again, in order.
    pub rows: Vec<Row>,
}

/// A candidate that could not be judged again.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NotJudged {
    /// The episode.
    pub episode: u32,
    /// Its task.
    pub task: String,
    /// Why.
    pub reason: String,
}

/// Both verdicts on a candidate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The episode, which has the same number in both runs.
    pub episode: u32,
    /// The task.
    pub task: String,
    /// The policy.
    pub policy: String,
    /// From 0.
    pub attempt: u32,
    /// Hash of the candidate.
    pub candidate: String,
    /// The recorded verdict; `None` where the episode ended without one.
    pub old: Option<Side>,
    /// Today's verdict; `None` where the task is refused today.
    pub new: Option<Side>,
    /// How the verdict changed; `None` where it did not.
    pub change: Option<String>,
    /// Why, in a line. It may quote the candidate.
    pub reason: Option<String>,
}

/// One of the two verdicts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    /// Whether the candidate is verified.
    pub verified: bool,
    /// `verified`, or the class of failure or of integrity finding.
    pub result: String,
    /// Version of the rules.
    pub rules: u32,
    /// Where candidate host code ran.
    pub tier: Tier,
    /// Milliseconds per call.
    pub time_ms: Option<Interval>,
    /// Speed-up over the best baseline.
    pub speedup: Option<Interval>,
    /// Rewards.
    pub reward: Reward,
}

impl Side {
    fn of(verdict: &Verdict) -> Self {
        Self {
            verified: verdict.verified,
            result: result(verdict),
            rules: verdict.version,
            tier: verdict.tier,
            time_ms: verdict.times_ms.candidate,
            speedup: verdict.speedup.best,
            reward: verdict.reward,
        }
    }
}

impl Rejudged {
    /// Compares the verdicts on the final candidates of `old` with those of `new`, which has the same episode
    /// numbers. Episodes that `new` does not have are left out.
    pub fn of(old: &History, new: &History) -> Self {
        let mut all = Self::default();
        let mut caveats: BTreeMap<String, u64> = BTreeMap::new();
        for (id, episode) in &old.episodes {
            let Some(candidate) = final_candidate(episode) else { continue };
            let again = new.episodes.get(id).and_then(|episode| episode.end.as_ref());
            let verdict = again.and_then(|end| end.final_verdict.as_ref());
            let refusal = new.refused.get(&episode.setup.task).filter(|_| verdict.is_none());
            match (verdict, refusal, again.map(|end| &end.outcome)) {
                (None, None, Some(Outcome::Infrastructure { message })) => {
                    let reason = one_line(message, WIDTH);
                    all.not_judged.push(NotJudged {
                        episode: id.0,
                        task: episode.setup.task.clone(),
                        reason,
                    });
                    continue;
                }
                (None, None, _) => continue,
                _ => {}
            }
            let before = recorded(episode);
            let differs = before.zip(verdict).map(|(old, new)| differences(old, new));
            let (change, reason) = match (verdict, refusal) {
                (Some(new), _) => {
                    change(before, new, differs.as_ref().is_some_and(BTreeSet::is_empty))
                }
                (None, refusal) => {
                    let old = before.map_or_else(|| "no verdict".to_owned(), result);
                    let why = refusal.map(|refusal| refusal.message.as_str()).unwrap_or_default();
                    Some((format!("{old} -> task refused"), why.to_owned()))
                }
            }
            .unzip();
            // Where one was not timed, there is nothing to compare.
            let timed = before
                .zip(verdict)
                .is_some_and(|(old, new)| old.speedup.best.is_some() && new.speedup.best.is_some());
            for part in differs.into_iter().flatten().filter(|_| timed) {
                *caveats.entry(part).or_default() += 1;
            }
            all.judged += 1;
            if let Some(change) = &change {
                all.changed += 1;
                *all.by_reason.entry(change.clone()).or_default() += 1;
            }
            all.rows.push(Row {
                episode: id.0,
                task: episode.setup.task.clone(),
                policy: episode.setup.policy.clone(),
                attempt: episode.setup.attempt,
                candidate,
                old: before.map(Side::of),
                new: verdict.map(Side::of),
                change,
                reason: reason.map(|text| one_line(&text, WIDTH)).filter(|text| !text.is_empty()),
            });
        }
        let told = |(part, count): (String, u64)| {
            let of =
                if count == 1 { "1 candidate".to_owned() } else { format!("{count} candidates") };
            format!("times of {of} are not compared: {part}")
        };
        all.caveats = caveats.into_iter().map(told).collect();
        all
    }

    /// The episodes whose verdict changed.
    pub fn changed_episodes(&self) -> BTreeSet<EpisodeId> {
        let changed = self.rows.iter().filter(|row| row.change.is_some());
        changed.map(|row| EpisodeId(row.episode)).collect()
    }

    /// The table: what changed, then counts. For a terminal `width` columns wide.
    pub fn text(&self, width: Option<u16>) -> String {
        let mut text = String::new();
        let mut grid = style(width);
        grid.set_header(
            ["task", "policy", "was", "is", "speed-up was", "is", "reward was", "is", "change"]
                .map(str::to_owned),
        );
        for row in &self.rows {
            let word = |side: &Option<Side>, none: &str| {
                side.as_ref().map_or_else(|| none.to_owned(), |side| one_line(&side.result, 40))
            };
            let times = |side: &Option<Side>| {
                right(side.as_ref().and_then(|s| s.speedup).as_ref().map(figures::speedup))
            };
            let earned = |side: &Option<Side>| {
                right(side.as_ref().map(|side| figures::digits(side.reward.bounded)))
            };
            grid.add_row([
                Cell::new(one_line(&row.task, 60)),
                Cell::new(one_line(&row.policy, 40)),
                Cell::new(word(&row.old, "no verdict")),
                Cell::new(word(&row.new, "task refused")),
                times(&row.old),
                times(&row.new),
                earned(&row.old),
                earned(&row.new),
                Cell::new(
                    row.change.as_deref().map_or_else(|| "-".to_owned(), |c| one_line(c, 60)),
                ),
            ]);
        }
        if !self.rows.is_empty() {
            let _ = writeln!(text, "{grid}");
        }
        let _ =
            writeln!(text, "{}; speed-ups over the best baseline, reward `bounded`", self.counts());
        for (reason, count) in &self.by_reason {
            let _ = writeln!(text, "  {count:>5}  {}", one_line(reason, 80));
        }
        for row in &self.rows {
            if let (Some(_), Some(reason)) = (&row.change, &row.reason) {
                let _ = writeln!(text, "{}: {reason}", one_line(&row.task, 60));
            }
        }
        for NotJudged { task, reason, .. } in &self.not_judged {
            let _ = writeln!(text, "{}: not judged: {reason}", one_line(task, 60));
        }
        for caveat in &self.caveats {
            let _ = writeln!(text, "Note: {}.", one_line(caveat, WIDTH));
        }
        trimmed(&text)
    }

    /// `3 of 10 verdicts changed`.
    pub fn counts(&self) -> String {
        let mut text = format!("{} of {} verdicts changed", self.changed, self.judged);
        if !self.not_judged.is_empty() {
            let _ = write!(text, ", {} candidates not judged", self.not_judged.len());
        }
        text
    }
}

/// Hash of the final candidate of an episode.
fn final_candidate(episode: &Episode) -> Option<String> {
    Some(episode.end.as_ref()?.candidate.as_ref()?.hash.clone())
}

/// The recorded verdict on the final candidate.
pub fn recorded(episode: &Episode) -> Option<&Verdict> {
    episode.end.as_ref()?.final_verdict.as_ref()
}
