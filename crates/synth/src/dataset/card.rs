//! The dataset card, generated from the data set.

use std::fmt::Write;

use super::schema::FORMAT_VERSION;
use super::stats::{Device, Quantiles};
use super::{DataSet, Stats};
use crate::decontaminate::{Histogram, Summary};

/// Maximum operators listed; the rest is counted.
const LISTED: usize = 40;
/// Maximum fingerprints listed.
const DEVICES: usize = 8;
/// Maximum characters of a bar.
const BAR: f64 = 40.0;

/// The card of a data set, in Markdown. `copies` is a decontamination summary: of the run, or of
/// the set itself by [`crate::Decontamination::admit_set`].
pub fn card(name: &str, set: &DataSet, copies: Option<&Summary>) -> String {
    let stats = set.stats();
    let mut out = format!("# {name}\n\n");
    // A suite of somebody else's may not say of which operators its tasks are.
    if stats.operators.is_empty() {
        line(&mut out, format_args!("{} tasks in KernelBench form.\n", stats.rows));
        levels(&mut out, &stats);
    } else {
        contents(&mut out, set, &stats);
        levels(&mut out, &stats);
        operators(&mut out, &stats);
    }
    measurements(&mut out, &stats);
    if let Some(summary) = copies {
        decontamination(&mut out, summary);
    }
    provenance(&mut out, &stats);
    out
}

/// Appends a line. Writing to a `String` cannot fail.
fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = writeln!(out, "{text}");
}

/// A table with a heading, or nothing if it has no rows.
fn table(out: &mut String, heading: &str, columns: &[&str], rows: &[Vec<String>]) {
    if rows.is_empty() {
        return;
    }
    line(out, format_args!("## {heading}\n\n| {} |", columns.join(" | ")));
    line(out, format_args!("|{}", "---|".repeat(columns.len())));
    for row in rows {
        let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        line(out, format_args!("| {} |", cells.join(" | ")));
    }
    out.push('\n');
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.1} %", 100.0 * part as f64 / whole as f64) }
}

fn contents(out: &mut String, set: &DataSet, stats: &Stats) {
    line(
        out,
        format_args!(
            "{} tasks in KernelBench form, of {} operators in {} combinations. \
             `docs/reference/data-set.md` documents the columns.\n",
            stats.rows,
            stats.operators.len(),
            stats.combinations
        ),
    );
    let shares = set.shares();
    let splits = stats.splits.iter().map(|split| {
        let share = percent(split.rows, stats.rows);
        vec![split.split.to_string(), split.rows.to_string(), share, split.combinations.to_string()]
    });
    table(out, "Splits", &["split", "tasks", "share", "combinations"], &splits.collect::<Vec<_>>());
    line(
        out,
        format_args!(
            "A combination (the operators without their order) is in one split only, by its hash: \
             {:.1} % of all possible ones in validation, {:.1} % in test. Combinations of the test split \
             that are trained on: {}.\n",
            100.0 * shares.validation(),
            100.0 * shares.test(),
            stats.test_combinations_trained_on
        ),
    );
}

fn levels(out: &mut String, stats: &Stats) {
    let levels = stats.levels.iter().map(|(level, count)| {
        vec![level.to_string(), count.to_string(), percent(*count, stats.rows)]
    });
    table(out, "Levels", &["level", "tasks", "share"], &levels.collect::<Vec<_>>());
}

fn operators(out: &mut String, stats: &Stats) {
    let counts = stats.operator_counts.iter().map(|(operators, count)| {
        vec![operators.to_string(), count.to_string(), percent(*count, stats.rows)]
    });
    table(
        out,
        "Operators of a task",
        &["operators", "tasks", "share"],
        &counts.collect::<Vec<_>>(),
    );
    let narrow = match stats.over_forty_percent {
        None => "No number of operators has more than 40 % of the tasks.".to_owned(),
        Some(count) => {
            format!("More than 40 % of the tasks have {count} operators: the set is narrow.")
        }
    };
    line(out, format_args!("{narrow}\n"));
    let mut operators: Vec<(&String, &u64)> = stats.operators.iter().collect();
    operators.sort_by(|a, b| b.1.cmp(a.1).then_with(|| a.0.cmp(b.0)));
    let rows = operators.iter().take(LISTED).map(|(operator, count)| {
        vec![format!("`{operator}`"), count.to_string(), percent(**count, stats.rows)]
    });
    table(out, "Operators", &["operator", "tasks", "share"], &rows.collect::<Vec<_>>());
    if let Some(more) = operators.len().checked_sub(LISTED).filter(|more| *more > 0) {
        let fewest = operators.last().map_or(0, |(_, count)| **count);
        line(out, format_args!("And {more} more, the rarest in {fewest} tasks.\n"));
    }
}

fn measurements(out: &mut String, stats: &Stats) {
    let measured: u64 = stats.devices.iter().map(|device| device.rows).sum();
    if measured == 0 {
        return;
    }
    line(
        out,
        format_args!(
            "## Times\n\n{measured} tasks were measured. Figures under different fingerprints are never \
             averaged. The floor is the unavoidable memory traffic divided by the measured bandwidth. \
             Head-room is the time of the best baseline divided by the floor.\n"
        ),
    );
    for device in stats.devices.iter().take(DEVICES) {
        measured_on(out, device);
    }
    if let Some(more) = stats.devices.len().checked_sub(DEVICES).filter(|more| *more > 0) {
        line(out, format_args!("And {more} more fingerprints.\n"));
    }
}

fn measured_on(out: &mut String, device: &Device) {
    line(
        out,
        format_args!("{} tasks under\n\n```json\n{}\n```\n", device.rows, device.fingerprint),
    );
    line(out, format_args!("| | least | 10 % | median | 90 % | most |\n|---|---|---|---|---|---|"));
    let figures: [(&str, &Quantiles); 4] = [
        ("eager, ms", &device.eager_ms),
        ("compiled, ms", &device.compile_ms),
        ("floor, ms", &device.floor_ms),
        ("head-room", &device.head_room),
    ];
    for (name, q) in figures {
        let cells = [q.min, q.p10, q.median, q.p90, q.max].map(short).join(" | ");
        line(out, format_args!("| {name} | {cells} |"));
    }
    out.push('\n');
}

/// Three significant digits.
fn short(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let digits = (2.0 - value.abs().log10().floor()).clamp(0.0, 9.0) as usize;
    format!("{value:.digits$}")
}

fn decontamination(out: &mut String, summary: &Summary) {
    let suites: Vec<String> = summary
        .suites
        .iter()
        .map(|suite| format!("{} ({} tasks, {} traced)", suite.name, suite.tasks, suite.with_graph))
        .collect();
    let suites = if suites.is_empty() { "no suite".to_owned() } else { suites.join(", ") };
    line(
        out,
        format_args!(
            "## Decontamination\n\nCompared with {suites}. Refused: a source over {:.2}, the same operator \
             graph whatever its shapes{}. `docs/concepts/decontamination.md` defines both.\n\n{} tasks were compared, {} of \
             them with a traced graph; {} were kept.\n",
            summary.thresholds.ast,
            match summary.thresholds.graph {
                all if all >= 1.0 => String::new(),
                graph => format!(", a graph over {graph:.2}"),
            },
            summary.checked,
            summary.with_graph,
            summary.kept
        ),
    );
    let refused = summary.refused.iter().map(|(reason, count)| {
        vec![reason.clone(), count.to_string(), percent(*count, summary.checked)]
    });
    table(out, "Refused copies", &["reason", "tasks", "share"], &refused.collect::<Vec<_>>());
    histogram(out, "Nearest source of any suite, of kept tasks", &summary.kept_ast);
    histogram(out, "Nearest graph of any suite, of kept tasks", &summary.kept_graph);
}

fn histogram(out: &mut String, heading: &str, histogram: &Histogram) {
    let most = histogram.bins.iter().copied().max().unwrap_or(0);
    if most == 0 {
        return;
    }
    line(out, format_args!("## {heading}\n\nHighest: {:.3}.\n\n```text", histogram.highest));
    for (bin, count) in histogram.bins.iter().enumerate() {
        let (from, to) = Histogram::range(bin);
        let bar = "#".repeat((*count as f64 / most as f64 * BAR).ceil() as usize);
        let text = format!("{from:.2}-{to:.2} {count:>7} {bar}");
        line(out, format_args!("{}", text.trim_end()));
    }
    line(out, format_args!("```\n"));
}

fn provenance(out: &mut String, stats: &Stats) {
    let counts = |counts: &std::collections::BTreeMap<String, u64>| -> Vec<Vec<String>> {
        counts.iter().map(|(key, count)| vec![format!("`{key}`"), count.to_string()]).collect()
    };
    table(out, "Composers", &["composer", "tasks"], &counts(&stats.composers));
    if stats.mutated > 0 {
        line(out, format_args!("{} tasks are mutations of others.\n", stats.mutated));
    }
    table(out, "Catalogues", &["BLAKE3 of the catalogue", "tasks"], &counts(&stats.catalogues));
    table(out, "Sources", &["data_source", "tasks"], &counts(&stats.data_sources));
    line(
        out,
        format_args!(
            "## Versions\n\nMade from the data by warpwright {}, format {FORMAT_VERSION}. Versions of torch, \
             of the driver and of the device are in the fingerprints above.",
            env!("CARGO_PKG_VERSION")
        ),
    );
}
