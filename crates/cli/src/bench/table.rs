//! The results as text.

use std::fmt::Write as _;

use warpwright_record::verdict::PhaseSeconds;

use super::{Latency, Report, Sustained, median};

/// A stage's name and its seconds.
pub(super) type Stage = (&'static str, fn(&PhaseSeconds) -> f64);

pub(super) const STAGES: [Stage; 9] = [
    ("build", |s| s.build),
    ("start", |s| s.start),
    ("wait", |s| s.wait),
    ("load", |s| s.load),
    ("verify", |s| s.verify),
    ("measure", |s| s.measure),
    ("inputs", |s| s.inputs),
    ("windows", |s| s.windows),
    ("end", |s| s.end),
];

/// The results as tables.
pub(crate) fn render(report: &Report) -> String {
    let mut text = format!("{}: {}, {} cores\n", report.device, report.hardware, report.cores);
    for line in &report.tools {
        let _ = writeln!(text, "  {line}");
    }
    let _ = writeln!(
        text,
        "\nWith an empty cache: open after {:.1} s, the first verdict {:.1} s later",
        report.open_seconds, report.first_seconds
    );
    let how = &report.runners;
    let _ = write!(text, "Runners: {} forked, {} executed", how.forked, how.executed);
    let _ = match &how.reason {
        Some(reason) => writeln!(text, " ({reason})"),
        None => writeln!(text),
    };
    latency(&mut text, report);
    sustained(&mut text, report);
    cold(&mut text, report);
    text
}

fn latency(text: &mut String, report: &Report) {
    let _ = write!(text, "\n{:<38}", "One new candidate, seconds (medians)");
    for (name, _) in STAGES {
        let _ = write!(text, "{name:>9}");
    }
    let _ = writeln!(text, "{:>9}{:>11}", "all", "variation");
    report.latency.iter().for_each(|row| text.push_str(&latency_row(row)));
    text.push_str("  inputs and windows are parts of verify and measure; end is that of the candidate's process\n");
}

/// A row of the latency table.
pub(super) fn latency_row(row: &Latency) -> String {
    let name = format!("  {} ({})", row.form.name(), row.seconds.len());
    let mut text = format!("{name:<38}");
    for (_, of) in STAGES {
        let _ = write!(text, "{:>9.2}", row.stage(of));
    }
    let _ = writeln!(text, "{:>9.2}{:>11}", row.median(), percent(&row.variation));
    text
}

fn sustained(text: &mut String, report: &Report) {
    if report.sustained.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "\n{:<22}{:>12}{:>10}{:>9}{:>9}{:>12}{:>11}{:>11}",
        "Concurrent, .cu only",
        "candidates",
        "per hour",
        "alone",
        "shared",
        "starved",
        "held, s",
        "variation"
    );
    report.sustained.iter().for_each(|row| text.push_str(&sustained_row(row)));
    text.push_str("  starved: a candidate waited to be measured and none was\n");
}

/// A row of the throughput table.
pub(super) fn sustained_row(row: &Sustained) -> String {
    format!(
        "{:<22}{:>12}{:>10.0}{:>8.0}%{:>8.0}%{:>11.0}%{:>11.2}{:>11}\n",
        format!("  {} workers", row.concurrency),
        row.candidates,
        row.candidates_per_hour,
        100.0 * row.alone,
        100.0 * row.shared,
        100.0 * row.starved,
        row.held_seconds,
        percent(&row.variation),
    )
}

fn cold(text: &mut String, report: &Report) {
    let Some(cold) = &report.cold else { return };
    let _ = write!(
        text,
        "\nCold start ({} runs, {}): {:.1} s",
        cold.seconds.len(),
        cold.how,
        cold.median()
    );
    let stages = cold.stages.first().into_iter().flatten();
    for (i, (name, _)) in stages.enumerate() {
        let seconds = median(cold.stages.iter().filter_map(|s| s.get(name).copied()).collect());
        let _ = write!(text, "{} {name} {seconds:.1}", if i == 0 { ", of which" } else { "," });
    }
    text.push('\n');
    if let Some(ratio) = report.ratio {
        let _ = writeln!(text, "  {ratio:.1} times as long as a warm candidate with a binding");
    }
}

fn percent(variation: &[f64]) -> String {
    if variation.is_empty() {
        return "-".to_owned();
    }
    format!("{:.2} %", 100.0 * median(variation.to_vec()))
}
