//! The page of an evaluation, and a page for each of its tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use fs_err as fs;
use minijinja::{Value, context, value::Serde};
use serde::Serialize;
use warpwright_record::event::EpisodeId;
use warpwright_record::history::History;
use warpwright_record::interval::Interval;
use warpwright_record::reader::RunReader;

use super::curves;
use super::model::{self, Chip, ratio};
use super::{ReportError, environment, render, write_page};
use crate::evaluation::paper::PAPER;
use crate::evaluation::rows::{Row, RowState};
use crate::evaluation::scores::{Against, Figures, Scores};
use crate::evaluation::table::percent;
use crate::evaluation::{Evaluation, Scored};
use crate::figures;

/// A line of figures: rates, then speed-ups, each value with its range.
#[derive(Serialize)]
struct LineView {
    name: String,
    of: String,
    cpu: bool,
    tasks: u32,
    cells: Vec<Option<[String; 2]>>,
}

#[derive(Serialize)]
struct TaskView {
    task: String,
    page: Option<String>,
    level: String,
    policy: String,
    attempt: u32,
    cpu: bool,
    result: Chip,
    detail: String,
    time: Option<[String; 2]>,
    eager: Option<[String; 2]>,
    compile: Option<[String; 2]>,
    best: Option<[String; 2]>,
    seen: Option<[String; 2]>,
    turns: u32,
    seconds: String,
    /// What the columns are sorted by.
    keys: [String; 5],
}

/// Writes `out`, a page about `evaluation`, and a page for each task that was begun into the folder
/// `tasks` beside it. `run_dir` is the run that the evaluation was read from.
pub fn write_evaluation(
    evaluation: &Evaluation,
    run_dir: &Path,
    out: &Path,
) -> Result<(), ReportError> {
    let pages = page_names(&evaluation.rows);
    write_tasks(&pages, evaluation, run_dir, out)?;
    let reader = RunReader::open(run_dir)?;
    let header = reader.header();
    let mut environment = environment()?;
    environment.add_template("evaluation.html", include_str!("../../templates/evaluation.html"))?;
    let script = include_str!("../../templates/evaluation.js").to_owned();
    let lines: Vec<LineView> = scopes(evaluation)
        .iter()
        .flat_map(|scope| evaluation.tables.iter().filter_map(|t| line(scope, t)))
        .collect();
    let conventions: Vec<LineView> = evaluation.tables.iter().flat_map(conventions).collect();
    let tasks: Vec<TaskView> = evaluation.rows.iter().map(|row| task_view(row, &pages)).collect();
    let passes: Vec<LineView> = evaluation.tables.iter().filter_map(passes).collect();
    let html = environment.get_template("evaluation.html")?.render(context! {
        script => Value::from_safe_string(script),
        folder => run_dir.display().to_string(),
        command => header.command.clone(),
        run_program => header.program.clone(),
        complete => evaluation.complete,
        lines => Value::from(Serde(&lines)),
        conventions => Value::from(Serde(&conventions)),
        passes => Value::from(Serde(&passes)),
        paper => Value::from(Serde(paper(evaluation))),
        curve => curves::fast_p(evaluation).map(Value::from_safe_string),
        speedups => evaluation
            .tables
            .iter()
            .filter_map(|table| {
                let svg = curves::speedups(evaluation, table)?;
                Some(context! { policy => table.policy.clone(), svg => Value::from_safe_string(svg) })
            })
            .collect::<Vec<_>>(),
        outcomes => outcomes(&evaluation.rows),
        integrity => integrity(&evaluation.rows),
        caveats => caveats(evaluation),
        exactness => exactness(evaluation),
        notes => evaluation.notes.clone(),
        tasks => Value::from(Serde(&tasks)),
        any_cpu => evaluation.tables.iter().any(Scored::is_cpu),
    })?;
    write_page(&html, out)
}

/// File names of the pages of tasks that were begun: harmless on any file system, and different from
/// each other also where case does not count.
fn page_names(rows: &[Row]) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    let mut taken = BTreeSet::new();
    for row in rows.iter().filter(|row| row.episode.is_some()) {
        if names.contains_key(&row.task) {
            continue;
        }
        let plain = |c: char| if c.is_ascii_alphanumeric() || "_-".contains(c) { c } else { '_' };
        let base: String = row.task.chars().take(100).map(plain).collect();
        let numbered = (2u32..).map(|n| format!("{base}-{n}"));
        let free = std::iter::once(base.clone())
            .chain(numbered)
            .find(|name| taken.insert(name.to_ascii_lowercase()));
        names.insert(row.task.clone(), format!("tasks/{}.html", free.unwrap_or(base)));
    }
    names
}

fn write_tasks(
    pages: &BTreeMap<String, String>,
    evaluation: &Evaluation,
    run_dir: &Path,
    out: &Path,
) -> Result<(), ReportError> {
    let reader = RunReader::open(run_dir)?;
    let history = History::read(&reader)?;
    let folder = out.parent().unwrap_or(Path::new(""));
    let tasks = folder.join("tasks");
    if !pages.is_empty() {
        let failed = |source| ReportError::Write { path: tasks.clone(), source };
        fs::create_dir_all(&tasks).map_err(failed)?;
    }
    for (task, page) in pages {
        let ids: BTreeSet<EpisodeId> = evaluation
            .rows
            .iter()
            .filter(|row| row.task == *task)
            .filter_map(|row| row.episode.map(EpisodeId))
            .collect();
        let of_task = history.episodes.iter().filter(|(id, _)| ids.contains(id));
        let part = History {
            episodes: of_task.map(|(id, episode)| (*id, episode.clone())).collect(),
            notes: history
                .notes
                .iter()
                .filter(|(id, _, _)| id.is_some_and(|id| ids.contains(&id)))
                .cloned()
                .collect(),
            outcome: history.outcome.clone(),
            resumed: history.resumed.clone(),
            events: history.events,
            last: history.last,
            refused: history.refused.clone(),
            voided: history.voided.clone(),
        };
        let mut runs = vec![model::run_view(&reader, &part, 0)];
        model::draw_sparks(&mut runs);
        // It holds every task's source: once on each page would be the square of the suite.
        for run in &mut runs {
            "see run.json in the run folder".clone_into(&mut run.config);
        }
        write_page(&render(&runs)?, &folder.join(page))?;
    }
    Ok(())
}

/// `overall`, then every level that any table has.
fn scopes(evaluation: &Evaluation) -> Vec<String> {
    let levels: BTreeSet<String> =
        evaluation.tables.iter().flat_map(|table| table.levels.keys().cloned()).collect();
    std::iter::once("overall".to_owned()).chain(levels).collect()
}

fn scores<'a>(scope: &str, table: &'a Scored) -> Option<&'a Scores> {
    table.scopes().find(|(name, _)| *name == scope).map(|(_, scores)| scores)
}

fn rate(interval: Option<Interval>) -> Option<[String; 2]> {
    let text = percent(&interval?);
    let (value, range) = text.split_once(" [")?;
    Some([value.to_owned(), range.trim_end_matches(']').to_owned()])
}

type Rates = Against<Option<Interval>>;

fn cells(pass: Option<Interval>, faster: &Rates, speedup: &Rates) -> Vec<Option<[String; 2]>> {
    let rates = [pass, faster.eager, faster.compile, faster.best].map(rate);
    let speedups = [speedup.eager, speedup.compile, speedup.best].map(|s| s.as_ref().map(ratio));
    rates.into_iter().chain(speedups).collect()
}

fn of(table: &Scored) -> String {
    format!("{}, {}, {}", table.policy, table.rules(), table.device)
}

fn line(scope: &str, table: &Scored) -> Option<LineView> {
    let scores = scores(scope, table)?;
    Some(LineView {
        name: scope.to_owned(),
        of: of(table),
        cpu: table.is_cpu(),
        tasks: scores.tasks,
        cells: cells(scores.pass_rate, &scores.faster_rate, &scores.geomean_speedup),
    })
}

fn conventions(table: &Scored) -> Vec<LineView> {
    let scores = &table.overall;
    let mut lines = Vec::new();
    let mut push = |name: &str, pass, faster: &Rates, speedup: &Rates| {
        lines.push(LineView {
            name: name.to_owned(),
            of: of(table),
            cpu: table.is_cpu(),
            tasks: scores.tasks,
            cells: cells(pass, faster, speedup),
        });
    };
    let as_one = &scores.geomean_speedup_failures_as_one;
    push("final, failures as 1×", scores.pass_rate, &scores.faster_rate, as_one);
    let mut figures = |name: &str, f: &Figures| {
        push(name, f.pass_rate, &f.faster_rate, &f.geomean_speedup);
    };
    figures("best in trajectory", &scores.best_in_trajectory);
    figures("the paper’s convention", &scores.paper_convention);
    if let Some(best) = &scores.best_attempt {
        figures("best attempt", best);
    }
    lines
}

fn passes(table: &Scored) -> Option<LineView> {
    let list = &table.overall.pass_at_k;
    (list.len() > 1).then(|| LineView {
        name: list.iter().map(|p| format!("pass@{}", p.k)).collect::<Vec<_>>().join(", "),
        of: of(table),
        cpu: table.is_cpu(),
        tasks: table.overall.tasks,
        cells: list.iter().map(|pass| rate(Some(pass.value))).collect(),
    })
}

/// The paper's rows beside ours by its convention, where the tasks are KernelBench's.
fn paper(evaluation: &Evaluation) -> Vec<LineView> {
    let mut lines = Vec::new();
    if !evaluation.kernelbench {
        return lines;
    }
    for scope in scopes(evaluation) {
        for table in &evaluation.tables {
            let Some(scores) = scores(&scope, table) else { continue };
            let ours = &scores.paper_convention;
            let mut cells = cells(ours.pass_rate, &ours.faster_rate, &ours.geomean_speedup);
            // The paper has no column for the best baseline.
            cells.remove(6);
            cells.remove(3);
            let (name, of) = (scope.clone(), format!("here: {}", of(table)));
            lines.push(LineView { name, of, cpu: table.is_cpu(), tasks: scores.tasks, cells });
        }
        for row in PAPER {
            let Some(f) = row.scope(&scope) else { continue };
            let percent = |x: f64| Some([format!("{x} %"), String::new()]);
            let factor = |x: f64| Some([format!("{x:.2}×"), String::new()]);
            lines.push(LineView {
                name: scope.clone(),
                of: row.model.to_owned(),
                cpu: false,
                tasks: match scope.as_str() {
                    "overall" => 250,
                    "level3" => 50,
                    _ => 100,
                },
                cells: vec![
                    percent(f.pass),
                    percent(f.faster_eager),
                    percent(f.faster_compile),
                    factor(f.speedup_eager),
                    factor(f.speedup_compile),
                ],
            });
        }
    }
    lines
}

/// What the attempts came to, most frequent first.
fn outcomes(rows: &[Row]) -> Vec<(String, String, usize)> {
    let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
    for row in rows {
        let outcome = row.outcome.clone().unwrap_or_else(|| "unfinished".to_owned());
        *counts.entry((row.result.clone(), outcome.replace('_', " "))).or_default() += 1;
    }
    let mut list: Vec<(String, String, usize)> =
        counts.into_iter().map(|((result, outcome), count)| (result, outcome, count)).collect();
    list.sort_by_key(|(_, _, count)| std::cmp::Reverse(*count));
    list
}

/// Every finding, with where it was made.
fn integrity(rows: &[Row]) -> Vec<(String, String, String, String)> {
    let finding = |row: &Row| {
        let (task, policy) = (row.task.clone(), row.policy.clone());
        row.integrity
            .iter()
            .map(|f| (task.clone(), policy.clone(), f.class.replace('_', " "), f.message.clone()))
            .collect::<Vec<_>>()
    };
    rows.iter().flat_map(finding).collect()
}

/// How exactly each kind of device measures, once.
fn exactness(evaluation: &Evaluation) -> Vec<String> {
    let of = |table: &Scored| Some(format!("{}: {}", table.device, table.exactness()?));
    let told: BTreeSet<String> = evaluation.tables.iter().filter_map(of).collect();
    told.into_iter().collect()
}

fn caveats(evaluation: &Evaluation) -> Vec<String> {
    let of_table = |table: &Scored| {
        let name = of(table);
        let caveats = table.overall.caveats.iter().map(|c| format!("{name}: {c}."));
        caveats.collect::<Vec<_>>()
    };
    evaluation.tables.iter().flat_map(of_table).collect()
}

fn task_view(row: &Row, pages: &BTreeMap<String, String>) -> TaskView {
    let measured = &row.measured;
    let class = match row.state {
        RowState::Judged if row.verified => "good",
        RowState::Judged if row.candidate.is_some() || !row.integrity.is_empty() => "bad",
        RowState::Judged => "plain",
        RowState::Refused
        | RowState::Degenerate
        | RowState::TooLarge
        | RowState::Infrastructure
        | RowState::Unfinished => "warn",
    };
    let time = measured.time_ms.map(|t| [figures::time(t.value), figures::time_range(&t)]);
    let seen = row.best_seen.as_ref().and_then(|seen| seen.best);
    let best = measured.best;
    let key = |x: Option<f64>| x.filter(|x| x.is_finite()).map_or(String::new(), |x| x.to_string());
    TaskView {
        task: row.task.clone(),
        page: pages.get(&row.task).filter(|_| row.episode.is_some()).cloned(),
        level: row.level.clone().unwrap_or_default(),
        policy: row.policy.clone(),
        attempt: row.attempt,
        cpu: row.device == "cpu",
        result: Chip { label: row.result.clone(), class },
        detail: row
            .reason
            .clone()
            .or_else(|| row.fit.as_ref().map(ToString::to_string))
            .unwrap_or_default(),
        time,
        eager: measured.eager.as_ref().map(ratio),
        compile: measured.compile.as_ref().map(ratio),
        best: best.as_ref().map(ratio),
        seen: seen.as_ref().map(ratio),
        turns: row.turns,
        seconds: figures::seconds(row.seconds),
        keys: [
            key(measured.time_ms.map(|t| t.value)),
            key(measured.eager.map(|s| s.value)),
            key(measured.compile.map(|s| s.value)),
            key(best.map(|s| s.value)),
            key(seen.map(|s| s.value)),
        ],
    }
}
