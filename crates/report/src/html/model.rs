//! What the templates are given: a record turned into words and finished pieces of SVG.

use std::collections::BTreeSet;

use minijinja::Value;
use serde::Serialize;
use warpwright_record::event::{EpisodeId, NoteLevel, Outcome, RunOutcome, StoredFile};
use warpwright_record::history::{Episode, Given, History};
use warpwright_record::interval::Interval;
use warpwright_record::reader::RunReader;
use warpwright_record::run::Machine;
use warpwright_record::verdict::{BASELINES, Speedup};

use super::plot::{self, Point};
use super::steps;
use super::verdict::{self, VerdictView};
use crate::evaluation::rules;
use crate::figures;
use crate::highlight::{Language, highlight};
use crate::summary::{Standing, Summary};
use crate::text::cut;

/// Most bytes of code shown per episode. A candidate may be a gigabyte; a page may not.
const ROOM: usize = 512 << 10;

/// A label with the class that colours it: `good`, `bad`, `warn`, `plain`.
#[derive(Serialize)]
pub(super) struct Chip {
    pub(super) label: String,
    pub(super) class: &'static str,
}

#[derive(Serialize)]
pub(super) struct RunView {
    command: String,
    folder: String,
    created: String,
    lasted: Option<String>,
    program: String,
    machine: String,
    /// How exactly each of its devices measures, where that was tried.
    exactness: Vec<String>,
    state: Chip,
    /// Where and when the run was measured, if it is shown as a recorded run.
    pub(super) recorded: Option<String>,
    /// That its candidates were judged again, and what came of it.
    pub(super) rejudged: Vec<String>,
    resumed: usize,
    pub(super) config: String,
    notes: Vec<Chip>,
    pub(super) episodes: Vec<EpisodeView>,
}

#[derive(Serialize)]
pub(super) struct EpisodeView {
    anchor: String,
    task: String,
    policy: String,
    device: String,
    cpu: bool,
    profile: String,
    seed: String,
    budget: String,
    outcome: Chip,
    result: Chip,
    turns: u32,
    took: Option<String>,
    time: Option<String>,
    time_range: Option<String>,
    speedups: Vec<Option<[String; 2]>>,
    spark: Option<Value>,
    #[serde(skip)]
    pub(super) best: Option<Interval>,
    reward: Option<[String; 3]>,
    verdict: Option<VerdictView>,
    verdict_of: &'static str,
    mixed: usize,
    times_plot: Option<Value>,
    progress_plot: Option<Value>,
    judged: Vec<JudgedView>,
    files: Vec<FileView>,
    files_of: &'static str,
    reference: Option<FileView>,
    steps: Vec<steps::StepView>,
    notes: Vec<Chip>,
}

/// A row of the list of judged candidates.
#[derive(Serialize)]
struct JudgedView {
    turn: String,
    candidate: String,
    result: Chip,
    time: Option<String>,
    speedups: Vec<Option<[String; 2]>>,
}

#[derive(Serialize)]
struct FileView {
    path: String,
    lines: usize,
    html: Value,
    missing: Option<String>,
}

impl EpisodeView {
    /// Whether the baseline in this column was measured for any candidate.
    pub(super) fn measured(&self, column: usize) -> bool {
        let of =
            |speedups: &[Option<[String; 2]>]| speedups.get(column).is_some_and(Option::is_some);
        of(&self.speedups) || self.judged.iter().any(|row| of(&row.speedups))
    }
}

pub(super) fn run_view(reader: &RunReader, history: &History, number: usize) -> RunView {
    let header = reader.header();
    let episodes = history
        .episodes
        .iter()
        .map(|(id, episode)| {
            let ended = history.outcome.is_some();
            let mut view = episode_view(reader, *id, episode, number, ended);
            view.notes = notes(history, Some(*id));
            view
        })
        .collect();
    let state = match &history.outcome {
        Some(RunOutcome::Completed) => chip("completed", "good"),
        Some(RunOutcome::Interrupted) => chip("interrupted", "warn"),
        Some(RunOutcome::Failed { message }) => chip(format!("failed: {message}"), "bad"),
        None => chip("unfinished: killed or still running", "warn"),
    };
    let lasted = history.last.map(|last| {
        let lasted = last.duration_since(header.created).as_secs_f64();
        figures::seconds(lasted)
    });
    RunView {
        command: header.command.clone(),
        folder: reader.dir().display().to_string(),
        created: header.created.strftime("%Y-%m-%d %H:%M UTC").to_string(),
        lasted,
        program: header.program.clone(),
        machine: machine_words(&header.machine),
        exactness: exactness(history),
        state,
        recorded: None,
        rejudged: Vec::new(),
        resumed: history.resumed.len(),
        config: serde_json::to_string_pretty(&header.config).unwrap_or_default(),
        notes: notes(history, None),
        episodes,
    }
}

/// `cuda:0: identical kernels called faster 0 of 30 ...`, once for each device.
fn exactness(history: &History) -> Vec<String> {
    let told = history.episodes.values().filter_map(|episode| {
        let print = &episode.standing()?.fingerprint;
        Some(format!("{}: {}", print.device, print.exactness.as_ref()?))
    });
    told.collect::<BTreeSet<_>>().into_iter().collect()
}

fn machine_words(machine: &Machine) -> String {
    let memory = machine.memory_bytes as f64 / f64::from(1 << 30);
    let cores = format!("{} cores", machine.cores);
    let memory = format!("{memory:.0} GiB");
    let parts = [&machine.cpu, &cores, &memory, &machine.system, &machine.kernel];
    let parts: Vec<&str> =
        parts.into_iter().map(String::as_str).filter(|p| !p.is_empty()).collect();
    parts.join(", ")
}

fn notes(history: &History, about: Option<EpisodeId>) -> Vec<Chip> {
    let of = history.notes.iter().filter(|(episode, _, _)| *episode == about);
    of.map(|(_, level, text)| {
        let warning = *level == NoteLevel::Warning;
        chip(text, if warning { "warn" } else { "plain" })
    })
    .collect()
}

pub(super) fn chip(label: impl Into<String>, class: &'static str) -> Chip {
    Chip { label: label.into(), class }
}

pub(super) fn standing_chip(standing: Standing) -> Chip {
    let class = match standing {
        Standing::Verified => "good",
        Standing::NotCompared | Standing::NoVerdict => "plain",
        Standing::Infrastructure => "warn",
        Standing::Failed(_) | Standing::Dishonest => "bad",
    };
    chip(standing.words(), class)
}

fn episode_view(
    reader: &RunReader,
    id: EpisodeId,
    episode: &Episode,
    run: usize,
    run_ended: bool,
) -> EpisodeView {
    let setup = &episode.setup;
    let summary = Summary::of(episode);
    let standing = episode.standing();
    let end = episode.end.as_ref();
    let outcome = match end.map(|end| &end.outcome) {
        Some(Outcome::Infrastructure { message }) => {
            chip(format!("infrastructure error: {message}"), "warn")
        }
        Some(outcome) => {
            chip(outcome.words(), if outcome.is_resumable() { "warn" } else { "plain" })
        }
        None if run_ended => chip("unfinished", "warn"),
        None => chip("unfinished: killed or still running", "warn"),
    };
    let fresh = end.is_some_and(|end| end.final_verdict.is_some()) || !episode.fresh.is_empty();
    let (files, files_of) = final_files(episode);
    let mut room = ROOM;
    EpisodeView {
        anchor: format!("r{run}e{id}"),
        task: setup.task.clone(),
        policy: setup.policy.clone(),
        device: setup.device.clone(),
        cpu: setup.device == "cpu",
        profile: rules(setup.profile, setup.dtype, setup.fit.as_ref(), setup.backward),
        seed: setup.seed.to_string(),
        budget: budget_words(setup.budget.turns, setup.budget.seconds),
        outcome,
        result: standing_chip(summary.standing),
        turns: summary.turns,
        took: end.map(|end| figures::seconds(end.seconds)),
        time: summary.time_ms.map(|time| figures::time(time.value)),
        time_range: summary.time_ms.map(|time| figures::time_range(&time)),
        speedups: ratios(&summary.speedup),
        spark: None,
        best: summary.speedup.best.filter(|_| summary.standing == Standing::Verified),
        reward: summary.reward.map(|r| [r.paper, r.speedup, r.bounded].map(figures::reward)),
        verdict: standing.map(verdict::view),
        verdict_of: if fresh {
            "the final verdict"
        } else {
            "the best verdict of the episode; there is no final verdict"
        },
        mixed: verdict::fingerprints(episode.verdicts().map(|(_, given)| &given.verdict)),
        times_plot: standing.and_then(plot::times).map(Value::from_safe_string),
        progress_plot: plot::progress(&points(episode)).map(Value::from_safe_string),
        judged: episode.verdicts().map(|(turn, given)| judged(turn, given)).collect(),
        files: files.iter().map(|file| file_view(reader, file, &mut room)).collect(),
        files_of,
        reference: Some(file_view(
            reader,
            &StoredFile { path: "model.py".to_owned(), blob: setup.source },
            &mut { ROOM },
        )),
        steps: episode.turns.iter().map(steps::view).collect(),
        notes: Vec::new(),
    }
}

/// The files worth showing: the final candidate's; else those of the verdict that counts; else the
/// last snapshot.
fn final_files(episode: &Episode) -> (Vec<StoredFile>, &'static str) {
    let end = episode.end.as_ref();
    if let Some(candidate) = end.and_then(|end| end.candidate.as_ref()) {
        return (candidate.files.clone(), "the final candidate");
    }
    if let Some(verdict) = episode.standing() {
        let given = episode.verdicts().find(|(_, given)| given.verdict == *verdict);
        if let Some((_, given)) = given.filter(|(_, given)| !given.files.is_empty()) {
            return (given.files.clone(), "the best candidate so far");
        }
    }
    let last = episode.turns.iter().rev().find_map(|turn| turn.snapshot.as_ref());
    (last.map(|(files, _)| files.clone()).unwrap_or_default(), "the last workspace snapshot")
}

fn points(episode: &Episode) -> Vec<Point> {
    let point = |(turn, given): (Option<u32>, &Given)| {
        let verdict = &given.verdict;
        let best = verdict.speedup.best.filter(|_| verdict.verified);
        Point {
            label: turn.map_or("final".to_owned(), |turn| turn.to_string()),
            fresh: turn.is_none(),
            speedup: best.map(|best| (best, verdict.speedup.eager)),
            wrong: matches!(Standing::of(verdict), Standing::Failed(_) | Standing::Dishonest),
        }
    };
    episode.verdicts().map(point).collect()
}

fn judged(turn: Option<u32>, given: &Given) -> JudgedView {
    let verdict = &given.verdict;
    JudgedView {
        turn: turn.map_or("final".to_owned(), |turn| turn.to_string()),
        candidate: verdict.candidate.chars().take(10).collect(),
        result: standing_chip(Standing::of(verdict)),
        time: verdict.times_ms.candidate.map(|time| figures::time(time.value)),
        speedups: ratios(&verdict.speedup),
    }
}

/// The speed-up over each of [`BASELINES`].
fn ratios(speedup: &Speedup) -> Vec<Option<[String; 2]>> {
    BASELINES.into_iter().map(|name| speedup.over(name).as_ref().map(ratio)).collect()
}

/// A ratio and its interval.
pub(super) fn ratio(speedup: &Interval) -> [String; 2] {
    [format!("{}×", figures::digits(speedup.value)), figures::range(speedup)]
}

fn budget_words(turns: Option<u32>, seconds: Option<f64>) -> String {
    let turns = turns.map(|turns| format!("{turns} turns"));
    let seconds = seconds.map(figures::seconds);
    let parts: Vec<String> = turns.into_iter().chain(seconds).collect();
    if parts.is_empty() { "no limit".to_owned() } else { parts.join(", ") }
}

fn file_view(reader: &RunReader, file: &StoredFile, room: &mut usize) -> FileView {
    let path = file.path.clone();
    // A report shows what it can: a lost blob is said where the file would stand.
    match reader.blob(file.blob) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let (shown, left_out) = cut(&text, *room);
            *room -= shown.len();
            let html = Value::from_safe_string(highlight(shown, Language::of(&path)));
            let missing = left_out.then(|| {
                let (shown, all) =
                    (figures::count(shown.len() as u64), figures::count(text.len() as u64));
                format!("Only {shown} of {all} bytes are shown; the file is blob {}.", file.blob)
            });
            FileView { path, lines: text.lines().count(), html, missing }
        }
        Err(error) => {
            FileView { path, lines: 0, html: Value::from(""), missing: Some(error.to_string()) }
        }
    }
}

/// Draws the small plots of the summary on one scale. They stand for the reader's eye only; no
/// figure of one row is combined with another's.
pub(super) fn draw_sparks(runs: &mut [RunView]) {
    let (low, high) = plot::reach(runs.iter().flat_map(|run| &run.episodes).filter_map(|e| e.best));
    let (low, high) = (low.min(-0.5), high.max(1.0));
    for episode in runs.iter_mut().flat_map(|run| &mut run.episodes) {
        let spark = episode.best.and_then(|best| plot::spark(&best, low, high));
        episode.spark = spark.map(Value::from_safe_string);
    }
}
