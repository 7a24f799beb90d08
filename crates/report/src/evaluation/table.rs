//! An evaluation as tables for a terminal.

use std::collections::BTreeSet;
use std::fmt::Write;

use warpwright_record::interval::Interval;

use super::paper::PAPER;
use super::rows::{Row, RowState};
use super::scores::{Against, Figures, Scores};
use super::{Evaluation, SCALED_DOWN, Scored};
use crate::figures;
use crate::table::{right, style, trimmed};
use crate::text::one_line;
use crate::workloads;

/// Tables of one run: figures by policy, what does not count, and the paper's table where the tasks
/// are KernelBench's. For a terminal `width` columns wide (`None`: as wide as it needs).
pub fn tables(evaluation: &Evaluation, width: Option<u16>) -> String {
    let mut text = String::new();
    for table in &evaluation.tables {
        let _ = writeln!(text, "{}\n", scored(evaluation, table, width));
    }
    if evaluation.kernelbench {
        let _ = writeln!(text, "{}\n", beside_the_paper(evaluation, width));
    }
    let scaled = scaled_down(&evaluation.rows);
    if !scaled.is_empty() {
        let _ = writeln!(text, "{scaled}");
    }
    text += &by_workload(&evaluation.rows);
    let left_out = left_out(&evaluation.rows);
    if !left_out.is_empty() {
        let _ = writeln!(text, "{left_out}");
    }
    if evaluation.tables.is_empty() {
        text.push_str("The run has no episodes.\n");
    }
    for note in &evaluation.notes {
        let _ = writeln!(text, "Note: {}.", one_line(note, 400));
    }
    trimmed(&text)
}

/// One table: final candidates, then the best seen, overall and by level.
fn scored(evaluation: &Evaluation, table: &Scored, width: Option<u16>) -> String {
    let cpu = if table.is_cpu() { " (cpu)" } else { "" };
    let mut text = format!(
        "policy {}, profile {}, device {}{}\n",
        one_line(&table.policy, 60),
        table.rules(),
        one_line(&table.device, 60),
        table
            .fingerprint
            .as_ref()
            .map(|print| format!(", {}", one_line(&print.hardware, 60)))
            .unwrap_or_default(),
    );
    if let Some(exactness) = table.exactness() {
        let _ = writeln!(text, "timing accuracy on this machine: {exactness}");
    }
    let mut grid = style(width);
    grid.set_header([
        "final candidates".to_owned(),
        "tasks".to_owned(),
        "pass rate".to_owned(),
        "faster than eager".to_owned(),
        "than compile".to_owned(),
        "than the best".to_owned(),
        format!("speed-up{cpu} over eager"),
        "over compile".to_owned(),
        "over the best".to_owned(),
    ]);
    for (name, scores) in table.scopes() {
        grid.add_row(line(
            name,
            scores.tasks,
            scores.pass_rate,
            &scores.faster_rate,
            &scores.geomean_speedup,
        ));
    }
    let overall = &table.overall;
    let more = [
        ("overall, failures as 1x", scores_as_one(overall)),
        ("overall, best in trajectory", overall.best_in_trajectory.clone()),
        ("overall, paper's convention", overall.paper_convention.clone()),
    ];
    let best_attempt =
        overall.best_attempt.clone().map(|figures| ("overall, best attempt", figures));
    for (name, figures) in more.into_iter().chain(best_attempt) {
        let Figures { pass_rate, faster_rate, geomean_speedup, .. } = &figures;
        grid.add_row(line(name, overall.tasks, *pass_rate, faster_rate, geomean_speedup));
    }
    let _ = writeln!(text, "{grid}");
    let passes = |p: &super::scores::PassAt| format!("pass@{} {}", p.k, percent(&p.value));
    if overall.pass_at_k.len() > 1 {
        let list: Vec<String> = overall.pass_at_k.iter().map(passes).collect();
        let _ = writeln!(text, "{}", list.join("   "));
    }
    let _ = writeln!(text, "{}", cost(overall));
    if let Some(most) = most_memory(evaluation, table) {
        let _ = writeln!(text, "{most}");
    }
    text.push_str(
        "Intervals are 95 %, by bootstrap over tasks. Faster: the lower bound of the speed-up is \
         above 1.05. Speed-up: geometric mean over verified candidates.",
    );
    for caveat in &overall.caveats {
        let _ = write!(text, "\nNote: {caveat}.");
    }
    if table.is_cpu() {
        text.push_str("\nMeasured on the host (cpu): this says nothing about a GPU.");
    }
    text
}

fn scores_as_one(scores: &Scores) -> Figures {
    Figures {
        pass_rate: scores.pass_rate,
        faster_rate: scores.faster_rate.clone(),
        geomean_speedup: scores.geomean_speedup_failures_as_one.clone(),
        geomean_speedup_failures_as_one: Against::default(),
    }
}

type Rates = Against<Option<Interval>>;

fn line(
    name: &str,
    tasks: u32,
    pass: Option<Interval>,
    faster: &Rates,
    speedup: &Rates,
) -> Vec<comfy_table::Cell> {
    let mut cells =
        vec![comfy_table::Cell::new(one_line(name, 40)), right(Some(tasks.to_string()))];
    let rates = [pass, faster.eager, faster.compile, faster.best];
    cells.extend(rates.map(|rate| right(rate.as_ref().map(percent))));
    let speedups = [speedup.eager, speedup.compile, speedup.best];
    cells.extend(speedups.map(|speedup| right(speedup.as_ref().map(figures::speedup))));
    cells
}

/// `94 % [88–98]`.
pub(crate) fn percent(rate: &Interval) -> String {
    let digits = |x: f64| {
        let text = format!("{:.1}", 100.0 * x);
        text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
    };
    format!("{} % [{}–{}]", digits(rate.value), digits(rate.low), digits(rate.high))
}

fn cost(scores: &Scores) -> String {
    let cost = &scores.cost;
    let mut text = format!(
        "{} {}, {} turns, {}, judging {}",
        cost.attempts,
        if cost.attempts == 1 { "attempt" } else { "attempts" },
        cost.turns,
        figures::seconds(cost.seconds),
        figures::seconds(cost.judge_seconds),
    );
    let usage = cost.usage;
    if usage.input_tokens + usage.output_tokens > 0 {
        let _ = write!(
            text,
            "; {} prompt tokens ({} cached), {} completion tokens",
            figures::count(usage.input_tokens),
            figures::count(usage.cached_tokens),
            figures::count(usage.output_tokens),
        );
    }
    if let Some(dollars) = usage.dollars {
        let _ = write!(text, ", {dollars:.2} US dollars");
    }
    text
}

/// Most rows listed for one reason.
const SHOWN: usize = 12;

/// Rows that do not count, by reason.
fn by_workload(rows: &[Row]) -> String {
    let lines = rows.iter().filter_map(|row| Some((row, workloads::line(&row.workloads)?)));
    let lines: Vec<(&Row, String)> = lines.collect();
    let mut text = String::new();
    if lines.is_empty() {
        return text;
    }
    text.push_str("Speed-up over the best baseline by workload; tables have geometric means:\n");
    for (row, line) in lines.iter().take(SHOWN) {
        let (task, policy) = (one_line(&row.task, 60), one_line(&row.policy, 40));
        let _ = writeln!(text, "  {task} ({policy}): {line}");
    }
    if lines.len() > SHOWN {
        let _ = writeln!(text, "  and {} more: `--export rows.jsonl` has all", lines.len() - SHOWN);
    }
    text.push('\n');
    text
}

fn left_out(rows: &[Row]) -> String {
    let mut text = String::new();
    let states = [
        RowState::Degenerate,
        RowState::TooLarge,
        RowState::Refused,
        RowState::Infrastructure,
        RowState::Unfinished,
    ];
    for state in states {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.state == state).collect();
        if rows.is_empty() {
            continue;
        }
        let _ = writeln!(text, "Excluded, {}: {}", state.words(), rows.len());
        for row in rows.iter().take(SHOWN) {
            let reason = one_line(row.reason.as_deref().unwrap_or_default(), 90);
            let (task, policy) = (one_line(&row.task, 60), one_line(&row.policy, 40));
            let _ = writeln!(text, "  {task} ({policy}): {reason}");
        }
        if rows.len() > SHOWN {
            let _ = writeln!(text, "  and {} more", rows.len() - SHOWN);
        }
    }
    text
}

/// Tasks that `--fit` scaled down: a table of their own has their figures.
fn scaled_down(rows: &[Row]) -> String {
    let name = |row: &Row| {
        let fit = row.fit.as_ref()?;
        Some(format!("{}: {}", one_line(&row.task, 60), one_line(&fit.to_string(), 60)))
    };
    let tasks: BTreeSet<String> = rows.iter().filter_map(name).collect();
    if tasks.is_empty() {
        return String::new();
    }
    let mut text = format!("Too large for the device, {SCALED_DOWN}: {}\n", tasks.len());
    for task in tasks.iter().take(SHOWN) {
        let _ = writeln!(text, "  {task}");
    }
    if tasks.len() > SHOWN {
        let _ = writeln!(text, "  and {} more", tasks.len() - SHOWN);
    }
    text
}

/// The task whose judging held the most memory, and how much that was.
fn most_memory(evaluation: &Evaluation, table: &Scored) -> Option<String> {
    let rows = evaluation.rows.iter().filter(|row| table.has(row));
    let most = rows.max_by_key(|row| row.memory.map(|memory| memory.peak_bytes))?;
    let bytes = most.memory?.peak_bytes;
    let what = if table.is_cpu() { "memory" } else { "device memory" };
    Some(format!(
        "most {what} while a task was judged: {:.1} GiB ({})",
        bytes as f64 / f64::from(1 << 30),
        one_line(&most.task, 60)
    ))
}

/// Ours by the paper's convention, and the paper's, for the levels that the run has.
fn beside_the_paper(evaluation: &Evaluation, width: Option<u16>) -> String {
    let mut grid = style(width);
    grid.set_header([
        "KernelBench",
        "",
        "tasks",
        "pass rate",
        "faster than eager",
        "than compile",
        "over eager",
        "over compile",
    ]);
    let mut scopes: Vec<&str> =
        evaluation.tables.iter().flat_map(|t| t.levels.keys().map(String::as_str)).collect();
    scopes.sort_unstable();
    scopes.dedup();
    for scope in std::iter::once("overall").chain(scopes) {
        let mut label = scope;
        for table in evaluation.tables.iter().filter(|table| !table.scaled_down) {
            let Some((_, scores)) = table.scopes().find(|(name, _)| *name == scope) else {
                continue;
            };
            let ours = &scores.paper_convention;
            let rates = [ours.pass_rate, ours.faster_rate.eager, ours.faster_rate.compile];
            let speedups = [ours.geomean_speedup.eager, ours.geomean_speedup.compile];
            let cpu = if table.is_cpu() { " cpu" } else { "" };
            let name = format!("here: {} {}{cpu}", one_line(&table.policy, 40), table.rules());
            let mut cells = vec![
                comfy_table::Cell::new(label),
                comfy_table::Cell::new(name),
                right(Some(scores.tasks.to_string())),
            ];
            cells.extend(rates.map(|rate| right(rate.as_ref().map(percent))));
            cells.extend(speedups.map(|speedup| right(speedup.as_ref().map(figures::speedup))));
            grid.add_row(cells);
            label = "";
        }
        for row in PAPER {
            let Some(f) = row.scope(scope) else { continue };
            let tasks = match scope {
                "overall" => 250,
                "level3" => 50,
                _ => 100,
            };
            let mut cells = vec![
                comfy_table::Cell::new(""),
                comfy_table::Cell::new(row.model),
                right(Some(tasks.to_string())),
            ];
            let rates = [f.pass, f.faster_eager, f.faster_compile];
            cells.extend(rates.map(|rate| right(Some(format!("{rate} %")))));
            let speedups = [f.speedup_eager, f.speedup_compile];
            cells.extend(speedups.map(|s| right(Some(format!("{s:.2}x")))));
            grid.add_row(cells);
        }
    }
    format!(
        "{grid}\nCompared with the paper (arXiv 2602.24286), by its convention: best candidate of the \
         trajectory, faster\nis a point estimate above 1, speed-up over verified candidates. Its GPUs \
         (H20), tolerance (1e-2) and\ntiming differ from ours: compare with care."
    )
}
