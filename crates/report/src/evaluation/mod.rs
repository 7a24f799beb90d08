//! What an evaluation came to: rows, figures with intervals, tables. Made from run folders alone.
//!
//! [`Evaluation::read`] takes one run folder. Its rows are grouped into [`Scored`] tables, one for
//! each policy, profile, dtype that tasks were cast to, kind of device, with and without gradients, and for tasks of
//! full size and those that `--fit` scaled down: figures of different ones are never in one number.
//! `docs/reference/evaluation-metrics.md` defines every figure.

pub mod compare;
pub mod export;
pub mod finals;
pub mod gap;
pub mod paper;
pub mod rows;
pub mod schema;
pub mod scores;
pub mod statistics;
pub mod table;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use warpwright_record::error::ReadError;
use warpwright_record::fingerprint::Fingerprint;
use warpwright_record::fit::Fit;
use warpwright_record::history::History;
use warpwright_record::reader::RunReader;
use warpwright_record::verdict::{Dtype, Profile};

use self::rows::{Plan, Row, RowState, rows};
use self::scores::Scores;
use crate::rejudged::notes;

/// Version of the serialised form.
pub const VERSION: u32 = 1;

/// One run, evaluated: what `eval --json` prints. `overall` and `levels` are those of the first
/// table; `tables` has all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Evaluation {
    /// [`VERSION`] of the writer.
    pub version: u32,
    /// The run folder.
    pub run: String,
    /// The first table's policy.
    pub policy: String,
    /// The first table's profile.
    pub profile: Option<Profile>,
    /// The first table's device or devices.
    pub device: String,
    /// Whether every planned attempt came to an end, or its task was refused.
    pub complete: bool,
    /// Over all tasks of the first table.
    pub overall: Scores,
    /// By level of the suite, of the first table. Tasks without a level are in `overall` only.
    pub levels: BTreeMap<String, Scores>,
    /// One for each policy, profile and kind of device.
    pub tables: Vec<Scored>,
    /// One for each attempt.
    pub rows: Vec<Row>,
    /// Whether the tasks are KernelBench's, so that the paper's table can stand beside.
    pub kernelbench: bool,
    /// What a reader must know about the run as a whole, e.g. that its candidates were judged again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Figures of one policy under one profile on one kind of device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Scored {
    /// The policy.
    pub policy: String,
    /// Rules of precision and comparison.
    pub profile: Profile,
    /// The dtype that the tasks were cast to; `None`: they kept their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<Dtype>,
    /// Whether `--fit` scaled its tasks down.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub scaled_down: bool,
    /// Whether calls computed gradients too: forward, then backward.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub backward: bool,
    /// `cpu`, `cuda:0`, or several: `cuda:0, cuda:1`.
    pub device: String,
    /// What the figures were measured under; that of the first row that has one.
    pub fingerprint: Option<Fingerprint>,
    /// Over all tasks.
    pub overall: Scores,
    /// By level of the suite.
    pub levels: BTreeMap<String, Scores>,
}

impl Evaluation {
    /// Of the run in `dir`, closed or not. The plan is what `run.json` says (see
    /// [`Plan::from_config`]).
    pub fn read(dir: &Path) -> Result<Self, ReadError> {
        let reader = RunReader::open(dir)?;
        let history = History::read(&reader)?;
        let plan = Plan::from_config(&reader.header().config);
        let evaluation = Self::of(&dir.display().to_string(), &history, &plan);
        let notes = evaluation.notes.iter().cloned().chain(notes(dir, &[])?).collect();
        Ok(Self { notes, ..evaluation })
    }

    /// Of a history and its plan. `run` names the folder.
    pub fn of(run: &str, history: &History, plan: &Plan) -> Self {
        Self::from_rows(run, rows(history, plan))
    }

    /// Of rows, e.g. those of several runs. `run` names where they come from.
    pub fn from_rows(run: &str, rows: Vec<Row>) -> Self {
        let mut groups: Vec<Vec<&Row>> = Vec::new();
        for row in &rows {
            let key = |row: &Row| {
                let cpu = row.device == "cpu";
                (row.policy.clone(), row.profile, row.dtype, row.fit.is_some(), row.backward, cpu)
            };
            match groups.iter_mut().find(|group| key(group[0]) == key(row)) {
                Some(group) => group.push(row),
                None => groups.push(vec![row]),
            }
        }
        // Tasks of full size first: the figures at the head are theirs.
        groups.sort_by_key(|group| group[0].fit.is_some());
        let other_sizes: usize = groups.iter_mut().map(keep_one_size).sum();
        let tables: Vec<Scored> = groups.iter().map(|rows| Scored::of(rows)).collect();
        let told = format!(
            "{other_sizes} attempts were judged before `--fit` scaled their tasks down further, and are in no table"
        );
        let done = |row: &Row| {
            matches!(
                row.state,
                RowState::Judged | RowState::Refused | RowState::Degenerate | RowState::TooLarge
            )
        };
        let first = tables.first();
        Self {
            version: VERSION,
            run: run.to_owned(),
            policy: first.map(|t| t.policy.clone()).unwrap_or_default(),
            profile: first.map(|t| t.profile),
            device: first.map(|t| t.device.clone()).unwrap_or_default(),
            complete: rows.iter().all(done),
            overall: first.map(|t| t.overall.clone()).unwrap_or_default(),
            levels: first.map(|t| t.levels.clone()).unwrap_or_default(),
            kernelbench: paper::is_kernelbench(&rows),
            tables,
            rows,
            notes: if other_sizes > 0 { vec![told] } else { Vec::new() },
        }
    }
}

/// Keeps, of each task that `--fit` scaled down, the attempts at its smallest size. Returns how many it leaves out.
fn keep_one_size(rows: &mut Vec<&Row>) -> usize {
    let mut least: BTreeMap<&str, &Fit> = BTreeMap::new();
    let size = |fit: &Fit| {
        let parts = fit.workloads.iter().map(|part| part.to);
        parts.fold(u128::from(fit.to), |all, part| all + u128::from(part))
    };
    for row in rows.iter() {
        let Some(fit) = &row.fit else { continue };
        let kept = least.entry(&row.task).or_insert(fit);
        let more = |fit: &Fit| (std::cmp::Reverse(fit.workloads.len()), size(fit));
        if more(fit) < more(kept) {
            *kept = fit;
        }
    }
    let before = rows.len();
    rows.retain(|row| row.fit.as_ref() == least.get(row.task.as_str()).copied());
    before - rows.len()
}

impl Scored {
    fn of(rows: &[&Row]) -> Self {
        let mut by_level: BTreeMap<String, Vec<&Row>> = BTreeMap::new();
        for row in rows {
            if let Some(level) = &row.level {
                by_level.entry(level.clone()).or_default().push(row);
            }
        }
        let mut devices: Vec<&str> = rows.iter().map(|row| row.device.as_str()).collect();
        devices.sort_unstable();
        devices.dedup();
        let first = rows[0];
        Self {
            policy: first.policy.clone(),
            profile: first.profile,
            dtype: first.dtype,
            scaled_down: first.fit.is_some(),
            backward: first.backward,
            device: devices.join(", "),
            fingerprint: rows.iter().find_map(|row| row.fingerprint.clone()),
            overall: Scores::of(rows),
            levels: by_level.into_iter().map(|(l, rows)| (l, Scores::of(&rows))).collect(),
        }
    }

    /// The profile and what was done to the tasks, e.g. `strict` or `strict, cast to bf16, backward`.
    pub fn rules(&self) -> String {
        rules(self.profile, self.dtype, self.scaled_down.then_some(SCALED_DOWN), self.backward)
    }

    /// Whether a row is one of its own.
    pub(crate) fn has(&self, row: &Row) -> bool {
        row.policy == self.policy
            && row.profile == self.profile
            && row.dtype == self.dtype
            && row.fit.is_some() == self.scaled_down
            && row.backward == self.backward
            && (row.device == "cpu") == self.is_cpu()
    }

    /// Whether its times were taken on the host, and say nothing about a GPU.
    pub fn is_cpu(&self) -> bool {
        self.device == "cpu"
    }

    /// How exactly the machine measures, in one line, where that was tried.
    pub fn exactness(&self) -> Option<String> {
        self.fingerprint.as_ref()?.exactness.as_ref().map(ToString::to_string)
    }

    /// `overall`, then the levels, with the names they are shown by.
    pub fn scopes(&self) -> impl Iterator<Item = (&str, &Scores)> {
        let levels = self.levels.iter().map(|(level, scores)| (level.as_str(), scores));
        std::iter::once(("overall", &self.overall)).chain(levels)
    }
}

/// What `--fit` did to several tasks, for people.
pub(crate) const SCALED_DOWN: &str = "scaled down by --fit";

/// The profile, the dtype that tasks were cast to, how they were scaled down, and whether they have gradients, for
/// people.
pub(crate) fn rules(
    profile: Profile,
    dtype: Option<Dtype>,
    scaled: Option<impl std::fmt::Display>,
    backward: bool,
) -> String {
    let mut text = profile.to_string();
    if let Some(dtype) = dtype {
        let _ = write!(text, ", cast to {dtype}");
    }
    if let Some(scaled) = scaled {
        let _ = write!(text, ", {scaled}");
    }
    if backward {
        text.push_str(", backward");
    }
    text
}

/// What a call computes, for people.
pub(crate) fn call(backward: bool) -> &'static str {
    if backward { "forward and backward" } else { "forward" }
}
