//! How far final kernels are from the memory roofline.

use std::fmt::Write;

use comfy_table::Cell;
use serde::{Deserialize, Serialize};
use warpwright_record::event::EpisodeSetup;
use warpwright_record::history::History;
use warpwright_record::interval::Interval;
use warpwright_record::reward::FASTER;
use warpwright_record::verdict::{BASELINES, Verdict};

use super::{AnalysisError, VERSION, speedup_cell};
use crate::figures;
use crate::summary::{Standing, baseline_name};
use crate::table::{right, style, trimmed};
use crate::text::one_line;

/// A task has room if its head-room is at least this.
const ROOM: f64 = 1.1;

/// The final kernels of a run, compared with the floor: the time in which the device moves every
/// input, parameter and output once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RooflineTable {
    /// Version of the serialised form.
    pub version: u32,
    /// The run.
    pub run: String,
    /// One per episode, sorted by task, policy and attempt.
    pub episodes: Vec<RooflineRow>,
    /// Episodes with a final verdict.
    pub judged: u32,
    /// Of these, those with a verified kernel.
    pub verified: u32,
    /// Verified kernels whose task has room: a head-room of at least 1.1.
    pub with_room: u32,
    /// Of these, those that win: the lower bound of the speed-up over the best baseline is above 1.05.
    pub won: u32,
}

/// The final kernel of an episode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RooflineRow {
    /// The task.
    pub task: String,
    /// The policy.
    pub policy: String,
    /// From 0.
    pub attempt: u32,
    /// Whether there is a final verdict.
    pub is_judged: bool,
    /// Whether the kernel is verified.
    pub is_verified: bool,
    /// `verified`, or the reason why it is not.
    pub result: String,
    /// Milliseconds per call. This and the fields below are `None` where not measured.
    pub time_ms: Option<f64>,
    /// The time divided by the floor.
    pub over_floor: Option<f64>,
    /// The fastest baseline's time divided by the floor.
    pub head_room: Option<f64>,
    /// Speed-up over the best baseline.
    pub speedup: Option<Interval>,
    /// The best baseline.
    pub best_baseline: Option<String>,
    /// Whether the task has room.
    pub has_room: bool,
    /// Whether the lower bound of the speed-up is above 1.05.
    pub is_faster: bool,
}

impl RooflineTable {
    /// Of the run `run` with this history.
    ///
    /// # Errors
    /// [`AnalysisError::Empty`] if the run has no episode.
    pub fn of(run: &str, history: &History) -> Result<Self, AnalysisError> {
        if history.episodes.is_empty() {
            return Err(AnalysisError::Empty {
                run: run.to_owned(),
                what: "episode",
                cure: "name a run of `warpwright optimize` or `warpwright eval` that has begun an \
                       episode",
            });
        }
        let mut episodes: Vec<RooflineRow> = history
            .episodes
            .values()
            .map(|episode| {
                let end = episode.end.as_ref();
                let verdict = end.and_then(|end| end.final_verdict.as_ref());
                RooflineRow::of(&episode.setup, verdict)
            })
            .collect();
        episodes
            .sort_by(|a, b| (&a.task, &a.policy, a.attempt).cmp(&(&b.task, &b.policy, b.attempt)));
        let count = |holds: fn(&RooflineRow) -> bool| {
            episodes.iter().filter(|row| holds(row)).count() as u32
        };
        Ok(Self {
            version: VERSION,
            run: run.to_owned(),
            judged: count(|row| row.is_judged),
            verified: count(|row| row.is_verified),
            with_room: count(|row| row.has_room),
            won: count(|row| row.has_room && row.is_faster),
            episodes,
        })
    }

    /// The table as text for a terminal `width` columns wide.
    pub fn text(&self, width: Option<u16>) -> String {
        let mut grid = style(width);
        grid.set_header([
            "task",
            "policy",
            "time",
            "over floor",
            "head-room",
            "speed-up",
            "best baseline",
            "",
        ]);
        for row in &self.episodes {
            let ratio = |ratio: Option<f64>| right(ratio.map(figures::digits));
            let marks = match (row.has_room, row.is_faster) {
                _ if !row.is_verified => row.result.clone(),
                (true, true) => "room, won".to_owned(),
                (true, false) => "room".to_owned(),
                (false, true) => "won".to_owned(),
                (false, false) => String::new(),
            };
            grid.add_row([
                Cell::new(one_line(&row.task, 60)),
                Cell::new(one_line(&row.policy, 40)),
                right(row.time_ms.map(figures::time)),
                ratio(row.over_floor),
                ratio(row.head_room),
                speedup_cell(row.speedup.as_ref()),
                Cell::new(row.best_baseline.as_deref().map(baseline_name).unwrap_or_default()),
                Cell::new(marks),
            ]);
        }
        let share = if self.with_room > 0 {
            format!(" ({:.0} %)", 100.0 * f64::from(self.won) / f64::from(self.with_room))
        } else {
            String::new()
        };
        let mut text = format!("{grid}\n");
        let _ = writeln!(
            text,
            "{} of {} verified; {} of {} with room won{share}",
            self.verified, self.judged, self.won, self.with_room
        );
        text.push_str(
            "Floor: the time to move every input, parameter and output once. Head-room: the time of \
             the fastest\nbaseline over the floor. Room: a head-room of at least 1.1. Won: the lower \
             bound of the speed-up over the\nbest baseline is above 1.05.",
        );
        trimmed(&text)
    }
}

impl RooflineRow {
    fn of(setup: &EpisodeSetup, verdict: Option<&Verdict>) -> Self {
        let row = Self {
            task: setup.task.clone(),
            policy: setup.policy.clone(),
            attempt: setup.attempt,
            is_judged: verdict.is_some(),
            is_verified: false,
            result: "not judged".to_owned(),
            time_ms: None,
            over_floor: None,
            head_room: None,
            speedup: None,
            best_baseline: None,
            has_room: false,
            is_faster: false,
        };
        let Some(verdict) = verdict else { return row };
        let result = Standing::of(verdict).words().to_owned();
        if !verdict.verified {
            return Self { result, ..row };
        }
        let times = &verdict.times_ms;
        let baselines = BASELINES.into_iter().filter_map(|name| times.over(name));
        let fastest = baselines.map(|time| time.value).min_by(f64::total_cmp);
        let floor = verdict.floor_ms.filter(|floor| *floor > 0.0);
        let over_floor = |time: Option<f64>| Some(time? / floor?);
        let time_ms = times.candidate.map(|time| time.value);
        let (best, head_room) = (verdict.speedup.best, over_floor(fastest));
        Self {
            is_verified: true,
            result,
            time_ms,
            over_floor: over_floor(time_ms),
            head_room,
            speedup: best,
            best_baseline: verdict.speedup.best_baseline.clone(),
            has_room: head_room.is_some_and(|ratio| ratio >= ROOM),
            is_faster: best.is_some_and(|best| best.low.is_finite() && best.low > FASTER),
            ..row
        }
    }
}
