//! One row per attempt of a policy at a task, made from a run's history and its plan.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use warpwright_record::event::{EpisodeId, Outcome};
use warpwright_record::fingerprint::Fingerprint;
use warpwright_record::fit::{Fit, MemoryUse};
use warpwright_record::history::{Episode, History, Refusal, best};
use warpwright_record::interval::Interval;
use warpwright_record::message::Usage;
use warpwright_record::verdict::{
    Dtype, IntegrityFinding, Profile, Speedup, Stage, Verdict, WorkloadVerdict,
};

use crate::summary::Standing;

/// A task that a run was to evaluate, whether or not an episode came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Planned {
    /// The task's name.
    pub name: String,
    /// The part of the suite it belongs to, e.g. `level2`.
    pub level: Option<String>,
    /// Whether a call of it computes gradients too.
    pub backward: bool,
}

/// What a run was to evaluate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The suite's tasks, in order.
    pub tasks: Vec<Planned>,
    /// The policies, named as in [`warpwright_record::event::EpisodeSetup::policy`].
    pub policies: Vec<String>,
    /// Attempts of each policy at each task; 0 where the run does not say.
    pub attempts: u32,
    /// Where and by which rules an episode that was never begun would have been judged.
    pub place: Option<(Profile, String)>,
    /// The dtype that the tasks are cast to.
    pub dtype: Option<Dtype>,
}

impl Plan {
    /// From the settings in `run.json`: `tasks` (objects with `name` and `level`, a number or a
    /// text), `policies`, `attempts`, `profile` and `devices`. What is not there stays
    /// empty: runs of other commands may have no plan, and their episodes are all there is.
    pub fn from_config(config: &serde_json::Value) -> Self {
        let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
        let list = |key: &str| config.get(key).and_then(|v| v.as_array()).into_iter().flatten();
        let task = |value: &serde_json::Value| {
            let level = value.get("level");
            let number = level.and_then(serde_json::Value::as_u64).map(|n| format!("level{n}"));
            let name = value.get("name").and_then(text)?;
            let backward = value.get("backward").and_then(serde_json::Value::as_bool);
            let level = number.or_else(|| level.and_then(text));
            Some(Planned { name, level, backward: backward.unwrap_or(false) })
        };
        let policies = list("policies").filter_map(text).collect();
        let attempts = config.get("attempts").and_then(serde_json::Value::as_u64).unwrap_or(0);
        let attempts = u32::try_from(attempts).unwrap_or(u32::MAX);
        let profile = config.get("profile").and_then(text).and_then(|name| name.parse().ok());
        let place = profile.zip(list("devices").find_map(text));
        let dtype = config.get("dtype").and_then(text).and_then(|name| Dtype::from_name(&name));
        // Where only a part of an older run's candidates is judged again, the rest is not missing.
        let only = config.pointer("/rejudged/only").and_then(text);
        let partial = only.is_some_and(|only| only == "changed" || only == "failed");
        let tasks = list("tasks").filter(|_| !partial).filter_map(task).collect();
        Self { tasks, policies, attempts, place, dtype }
    }
}

/// How far an attempt came.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum RowState {
    /// The episode came to its end: the row counts.
    Judged,
    /// The task's reference cannot be judged against; nobody's attempt at it counts.
    Refused,
    /// There is nothing to earn on the task: it is listed, and in no rate.
    Degenerate,
    /// The task needs more memory than the device has for it: it is listed, and in no rate.
    TooLarge,
    /// Our own failure; the attempt counts for nothing.
    Infrastructure,
    /// Killed, interrupted, going on, or never begun.
    Unfinished,
}

impl RowState {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Judged => "judged",
            Self::Refused => "task refused",
            Self::Degenerate => "task degenerate",
            Self::TooLarge => "task too large",
            Self::Infrastructure => "infrastructure error",
            Self::Unfinished => "unfinished",
        }
    }
}

/// One attempt of a policy at a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// The task.
    pub task: String,
    /// The part of the suite it belongs to.
    pub level: Option<String>,
    /// The policy.
    pub policy: String,
    /// From 0.
    pub attempt: u32,
    /// Rules of precision and comparison.
    pub profile: Profile,
    /// The dtype that the task was cast to; `None`: it kept its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<Dtype>,
    /// How `--fit` scaled the task down; `None`: it has its own size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fit: Option<Fit>,
    /// Whether a call computed gradients too: forward, then backward.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub backward: bool,
    /// `cuda:N` or `cpu`.
    pub device: String,
    /// The episode in its run; `None` where none was begun.
    pub episode: Option<u32>,
    /// How far it came.
    pub state: RowState,
    /// Why it does not count, where it does not.
    pub reason: Option<String>,
    /// Why the episode ended, as in the record: `stopped`, `budget_turns`, ...
    pub outcome: Option<String>,
    /// Whether the final candidate, judged afresh, is right.
    pub verified: bool,
    /// The same in words: `verified`, or what is wrong.
    pub result: String,
    /// Findings against the honesty of any candidate of the episode, without repetition.
    pub integrity: Vec<IntegrityFinding>,
    /// Of the final candidate, measured afresh.
    pub measured: Measured,
    /// Of the best candidate on the way or at the end, by the lower bound of its speed-up over the
    /// best baseline. Selected among noise.
    pub best_seen: Option<Measured>,
    /// Hash of the final candidate.
    pub candidate: Option<String>,
    /// Turns taken.
    pub turns: u32,
    /// Wall seconds used.
    pub seconds: f64,
    /// Seconds of judging, all verdicts together.
    pub judge_seconds: f64,
    /// Tokens and cost, all messages together.
    pub usage: Usage,
    /// Most memory that judging the final candidate held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryUse>,
    /// The final candidate on each workload; empty for a task with one set of inputs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workloads: Vec<WorkloadVerdict>,
    /// What the final verdict was measured under.
    pub fingerprint: Option<Fingerprint>,
}

/// What was measured of one candidate that is right; empty otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measured {
    /// Milliseconds per call.
    pub time_ms: Option<Interval>,
    /// Speed-up over eager.
    pub eager: Option<Interval>,
    /// Over `torch.compile`, default mode.
    pub compile: Option<Interval>,
    /// Over the fastest baseline measured.
    pub best: Option<Interval>,
    /// Which baseline that was.
    pub best_baseline: Option<String>,
}

impl Measured {
    fn of(verdict: &Verdict) -> Self {
        if !verdict.verified {
            return Self::default();
        }
        let Speedup { eager, compile, best, ref best_baseline, .. } = verdict.speedup;
        let time_ms = verdict.times_ms.candidate;
        Self { time_ms, eager, compile, best, best_baseline: best_baseline.clone() }
    }
}

/// Every row of a run: the episodes, and a row for what was planned and never begun. Sorted by
/// policy (as planned, then by name), then by task (as planned, then by name), then by attempt.
pub fn rows(history: &History, plan: &Plan) -> Vec<Row> {
    let levels: BTreeMap<&str, Option<&String>> =
        plan.tasks.iter().map(|t| (t.name.as_str(), t.level.as_ref())).collect();
    let mut rows: Vec<Row> =
        history.episodes.iter().map(|(id, episode)| row(*id, episode)).collect();
    for row in &mut rows {
        if let (Some(refusal), RowState::Infrastructure) =
            (history.refused.get(&row.task), row.state)
        {
            // It turned out while it was judged.
            row.state = refused(refusal);
            row.reason = Some(refusal.message.clone());
            row.state.words().clone_into(&mut row.result);
        }
        let level = levels.get(row.task.as_str()).copied().flatten();
        row.level = row.level.take().or_else(|| level.cloned());
    }
    let mut policies: Vec<String> = plan.policies.clone();
    let begun: BTreeSet<String> = rows.iter().map(|row| row.policy.clone()).collect();
    policies.extend(begun.into_iter().filter(|policy| !plan.policies.contains(policy)));
    let taken: BTreeSet<(String, String, u32)> =
        rows.iter().map(|row| (row.policy.clone(), row.task.clone(), row.attempt)).collect();
    let place = rows.first().map(|row| (row.profile, row.device.clone(), row.dtype));
    let planned = plan.place.clone().map(|(profile, device)| (profile, device, plan.dtype));
    if let Some((profile, device, dtype)) = place.or(planned) {
        let begun_tasks: BTreeSet<String> = rows.iter().map(|row| row.task.clone()).collect();
        for task in &plan.tasks {
            let refusal = history.refused.get(&task.name);
            let begun = begun_tasks.contains(task.name.as_str());
            for policy in &policies {
                for attempt in 0..plan.attempts.max(1) {
                    let key = (policy.clone(), task.name.clone(), attempt);
                    // A refusal is the task's, whatever the number of attempts.
                    if taken.contains(&key) || (refusal.is_some() && attempt > 0) {
                        continue;
                    }
                    let refusal = refusal.filter(|_| !begun);
                    rows.push(absent(task, policy, attempt, (profile, &device, dtype), refusal));
                }
            }
        }
    }
    let policy_place = |name: &str| policies.iter().position(|p| p == name).unwrap_or(usize::MAX);
    let task_place: BTreeMap<&str, usize> =
        plan.tasks.iter().enumerate().map(|(i, task)| (task.name.as_str(), i)).collect();
    rows.sort_by_cached_key(|row| {
        let task = task_place.get(row.task.as_str()).copied().unwrap_or(usize::MAX);
        (policy_place(&row.policy), task, row.task.clone(), row.attempt)
    });
    rows
}

/// The state of a task's rows that was refused.
fn refused(refusal: &Refusal) -> RowState {
    match refusal {
        Refusal { too_large: Some(_), .. } => RowState::TooLarge,
        Refusal { degenerate, .. } if !degenerate.is_empty() => RowState::Degenerate,
        _ => RowState::Refused,
    }
}

fn absent(
    task: &Planned,
    policy: &str,
    attempt: u32,
    (profile, device, dtype): (Profile, &str, Option<Dtype>),
    refusal: Option<&Refusal>,
) -> Row {
    let state = refusal.map_or(RowState::Unfinished, refused);
    Row {
        task: task.name.clone(),
        level: task.level.clone(),
        policy: policy.to_owned(),
        attempt,
        profile,
        dtype,
        fit: None,
        backward: task.backward,
        device: device.to_owned(),
        episode: None,
        state,
        reason: Some(refusal.map_or_else(|| "never begun".to_owned(), |r| r.message.clone())),
        outcome: None,
        verified: false,
        result: state.words().to_owned(),
        integrity: Vec::new(),
        measured: Measured::default(),
        best_seen: None,
        candidate: None,
        turns: 0,
        seconds: 0.0,
        judge_seconds: 0.0,
        usage: Usage::default(),
        memory: None,
        workloads: Vec::new(),
        fingerprint: None,
    }
}

fn row(id: EpisodeId, episode: &Episode) -> Row {
    let setup = &episode.setup;
    let end = episode.end.as_ref();
    let (state, reason) = match end.map(|end| &end.outcome) {
        Some(Outcome::Infrastructure { message }) => {
            (RowState::Infrastructure, Some(message.clone()))
        }
        Some(Outcome::Interrupted) => (RowState::Unfinished, Some("interrupted".to_owned())),
        Some(_) => (RowState::Judged, None),
        None => (RowState::Unfinished, Some("killed, or still going on".to_owned())),
    };
    let judged = state == RowState::Judged;
    let last = end.and_then(|end| end.final_verdict.as_ref()).filter(|_| judged);
    let all = || episode.verdicts().map(|(_, given)| &given.verdict);
    // The final verdict may be in the end alone: a run that another program resumed.
    let seen = best(all().chain(last))
        .or_else(|| all().chain(last).filter(|v| v.verified && v.stage >= Stage::Verified).last());
    let mut integrity: Vec<IntegrityFinding> = Vec::new();
    for finding in all().flat_map(|verdict| &verdict.integrity) {
        if !integrity.contains(finding) {
            integrity.push(finding.clone());
        }
    }
    let mut usage = Usage::default();
    for generation in episode.turns.iter().filter_map(|turn| turn.message.generation.as_ref()) {
        usage.add(&generation.usage);
    }
    let result = match (state, last) {
        (RowState::Judged, Some(verdict)) => Standing::of(verdict).words(),
        (RowState::Judged, None) => Standing::NoVerdict.words(),
        (state, _) => state.words(),
    };
    let judging = |v: &Verdict| {
        let s = &v.seconds;
        s.build + s.start + s.load + s.verify + s.measure
    };
    let elapsed = episode.turns.iter().rev().find_map(|turn| turn.snapshot.as_ref().map(|s| s.1));
    Row {
        task: setup.task.clone(),
        level: setup.level.clone(),
        policy: setup.policy.clone(),
        attempt: setup.attempt,
        profile: setup.profile,
        dtype: setup.dtype,
        fit: setup.fit.clone(),
        backward: setup.backward,
        device: setup.device.clone(),
        episode: Some(id.0),
        state,
        reason,
        outcome: end.map(|end| end.outcome.name().to_owned()),
        verified: last.is_some_and(|verdict| verdict.verified),
        result: result.to_owned(),
        integrity,
        measured: last.map(Measured::of).unwrap_or_default(),
        best_seen: seen.filter(|_| judged).map(Measured::of),
        candidate: end
            .and_then(|end| end.candidate.as_ref())
            .map(|candidate| candidate.hash.clone()),
        turns: end.map_or(episode.turns.len() as u32, |end| end.turns),
        seconds: end.map_or(elapsed.unwrap_or(0.0), |end| end.seconds),
        judge_seconds: all().map(judging).sum(),
        usage,
        memory: last.and_then(|verdict| verdict.memory),
        workloads: last.map(|verdict| verdict.workloads.clone()).unwrap_or_default(),
        fingerprint: last.map(|verdict| verdict.fingerprint.clone()),
    }
}
