//! The table at the end of a run.

use std::fmt::Write;

use comfy_table::{Cell, CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};
use warpwright_record::verdict::BASELINES;

use crate::figures;
use crate::summary::{Standing, Summary, baseline_name};
use crate::text::one_line;
use crate::workloads;

/// Lines above, below and under the header; none between rows, which are one line each.
const STYLE: TableStyle = TableStyle::new()
    .top_border(LineStyle::none().fill('─').junction('─'))
    .header_separator(LineStyle::none().fill('─').junction('─'))
    .bottom_border(LineStyle::none().fill('─').junction('─'));

/// One row per episode, for a terminal `width` columns wide (`None`: as wide as it needs).
/// Intervals are 95 %. Columns of baselines that nobody measured are left out; figures of
/// different rows are never combined. Below the table stands why a row is not verified.
pub fn table(summaries: &[Summary], width: Option<u16>) -> String {
    let measured: Vec<&str> = BASELINES
        .into_iter()
        .filter(|name| summaries.iter().any(|row| row.speedup.over(name).is_some()))
        .collect();

    let mut table = style(width);
    let mut header = vec!["task".to_owned(), "result".to_owned(), "time".to_owned()];
    header.extend(measured.iter().map(|name| format!("vs {}", baseline_name(name))));
    header.extend(["reward".to_owned(), "turns".to_owned()]);
    table.set_header(header);
    for row in summaries {
        let mut cells = vec![
            Cell::new(row.task_and_variant()),
            Cell::new(row.result()),
            right(row.time_ms.map(|time| {
                // A CPU time must never be taken for a GPU time.
                let device = if row.device == "cpu" { " cpu" } else { "" };
                format!("{}{device}", figures::time(time.value))
            })),
        ];
        cells.extend(
            measured
                .iter()
                .map(|name| right(row.speedup.over(name).as_ref().map(figures::speedup))),
        );
        cells.push(right(row.reward.map(|reward| figures::reward(reward.paper))));
        cells.push(right(Some(row.turns.to_string())));
        table.add_row(cells);
    }
    let verified = summaries.iter().filter(|row| row.standing == Standing::Verified).count();
    let mut text = table.to_string();
    let count = summaries.len();
    let _ = write!(
        text,
        "\n{verified} of {count} verified; speed-ups with 95 % intervals, reward `paper`"
    );
    if summaries.iter().any(|row| row.device == "cpu") {
        text += "\nTimes marked cpu were measured on the host and say nothing about a GPU.";
    }
    for row in summaries {
        if let Some(line) = workloads::line(&row.workloads) {
            let _ = write!(text, "\n{}: {line}", one_line(&row.task, 60));
        }
    }
    for row in summaries {
        if let Some(reason) = &row.reason {
            let task = one_line(&row.task, 60);
            let _ = write!(text, "\n{task}: {reason}");
        }
    }
    trimmed(&text)
}

/// The first line of `text` that says something, at most `width` characters, harmless to a terminal.
pub fn safe_line(text: &str, width: usize) -> String {
    one_line(text, width)
}

/// An empty table for a terminal `width` columns wide.
pub(crate) fn style(width: Option<u16>) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE);
    if let Some(width) = width {
        table.set_width(width).set_content_arrangement(ContentArrangement::Dynamic);
    }
    table
}

/// Without blanks at the ends of lines and of the text.
pub(crate) fn trimmed(text: &str) -> String {
    text.trim_end().lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// A cell of figures.
pub(crate) fn right(text: Option<String>) -> Cell {
    Cell::new(text.unwrap_or_else(|| "—".to_owned())).set_alignment(CellAlignment::Right)
}
