//! The plots of an evaluation, as inline SVG: the curve `fast_p`, and every task's speed-up.

use std::fmt::Write;

use warpwright_record::interval::Interval;

use super::plot::reach;
use crate::evaluation::rows::{Row, RowState};
use crate::evaluation::{Evaluation, Scored};
use crate::text::escape;

/// Most policies drawn in one plot; there are as many kinds of line.
const LINES: usize = 4;

/// Edges of the drawing area.
const LEFT: f64 = 46.0;
const RIGHT: f64 = 744.0;

/// Share of attempts that are right with a speed-up over the best baseline above `p`, as a step at
/// each attempt's speed-up; one line for each table. `None` when nothing was timed.
pub(super) fn fast_p(evaluation: &Evaluation) -> Option<String> {
    let tables: Vec<(&Scored, Vec<Interval>, usize)> = evaluation
        .tables
        .iter()
        .take(LINES)
        .map(|table| (table, right(evaluation, table), judged(evaluation, table).count()))
        .filter(|(_, right, judged)| *judged > 0 && !right.is_empty())
        .collect();
    let all: Vec<f64> =
        tables.iter().flat_map(|(_, right, _)| right.iter().map(|i| i.value)).collect();
    let most = all.iter().copied().fold(2.0f64, f64::max).min(1024.0);
    if tables.is_empty() {
        return None;
    }
    let (low, high) = (-2.0, most.log2().ceil());
    let (top, bottom) = (14.0, 236.0);
    let x = |p: f64| LEFT + (RIGHT - LEFT) * ((p.log2() - low) / (high - low)).clamp(0.0, 1.0);
    let y = |share: f64| bottom - (bottom - top) * share;
    let mut svg =
        open(276.0 + 20.0 * tables.len() as f64, "fast_p: share of attempts above each speed-up");
    for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let at = y(share);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text class=\"tick end\" x=\"{:.1}\" y=\"{:.1}\">{:.0} %</text>",
            LEFT - 6.0,
            at + 4.0,
            share * 100.0,
        );
    }
    let mut power = low;
    while power <= high {
        let (p, at) = (power.exp2(), x(power.exp2()));
        let class = if power == 0.0 { "grid one" } else { "grid" };
        let _ = write!(
            svg,
            "<line class=\"{class}\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{top}\" y2=\"{bottom}\"/>\
             <text class=\"tick\" x=\"{at:.1}\" y=\"{:.1}\">{p}×</text>",
            bottom + 17.0,
        );
        power += 1.0;
    }
    for (number, (table, right, judged)) in tables.iter().enumerate() {
        let mut values: Vec<f64> = right.iter().map(|i| i.value).collect();
        values.sort_by(f64::total_cmp);
        let share = |above: usize| above as f64 / *judged as f64;
        let mut path = format!("M{:.1} {:.1}", x(0.25), y(share(values.len())));
        for (i, value) in values.iter().enumerate() {
            let above = share(values.len() - i - 1);
            let _ = write!(path, "H{:.1}V{:.1}", x(*value), y(above));
        }
        let _ = write!(path, "H{RIGHT}");
        let at = bottom + 40.0 + 20.0 * number as f64;
        let _ = write!(
            svg,
            "<path class=\"line l{number}\" d=\"{path}\"/>\
             <line class=\"line l{number}\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            LEFT + 34.0,
            LEFT + 42.0,
            at + 4.0,
            escape(&format!("{}, {}, {}", table.policy, table.rules(), table.device)),
        );
    }
    svg.push_str("</svg>");
    Some(svg)
}

/// Every right attempt's speed-up over the best baseline with its interval, sorted. `None` when
/// nothing was timed.
pub(super) fn speedups(evaluation: &Evaluation, table: &Scored) -> Option<String> {
    let mut right = right(evaluation, table);
    right.sort_by(|a, b| a.value.total_cmp(&b.value));
    if right.is_empty() {
        return None;
    }
    let (low, high) = reach(right.iter().copied());
    let (low, high) = (low.min(-1.0).floor(), high.max(1.0).ceil());
    let (top, bottom) = (14.0, 236.0);
    let y = |s: f64| {
        bottom - (bottom - top) * ((s.max(1e-9).log2() - low) / (high - low)).clamp(0.0, 1.0)
    };
    let step = (RIGHT - LEFT) / right.len() as f64;
    let mut svg = open(262.0, "Speed-up of each verified candidate over the best baseline");
    let every = ((high - low) / 6.0).ceil().max(1.0);
    let mut power = low;
    while power <= high {
        let at = y(power.exp2());
        let class = if power == 0.0 { "grid one" } else { "grid" };
        let _ = write!(
            svg,
            "<line class=\"{class}\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text class=\"tick end\" x=\"{:.1}\" y=\"{:.1}\">{}×</text>",
            LEFT - 6.0,
            at + 4.0,
            power.exp2(),
        );
        power += every;
    }
    for (i, interval) in right.iter().enumerate() {
        let at = LEFT + step * (i as f64 + 0.5);
        let ends =
            [interval.low, interval.high].map(|end| if end.is_finite() { y(end) } else { top });
        let _ = write!(
            svg,
            "<g class=\"candidate\"><line class=\"whisker\" x1=\"{at:.1}\" x2=\"{at:.1}\" \
             y1=\"{:.1}\" y2=\"{:.1}\"/><circle class=\"mark\" cx=\"{at:.1}\" cy=\"{:.1}\" r=\"{:.1}\"/></g>",
            ends[0],
            ends[1],
            y(interval.value),
            (step / 3.0).clamp(1.2, 4.0),
        );
    }
    svg.push_str("</svg>");
    Some(svg)
}

fn judged<'a>(evaluation: &'a Evaluation, table: &'a Scored) -> impl Iterator<Item = &'a Row> {
    evaluation.rows.iter().filter(|row| row.state == RowState::Judged && table.has(row))
}

fn right(evaluation: &Evaluation, table: &Scored) -> Vec<Interval> {
    let best = judged(evaluation, table).filter_map(|row| row.measured.best);
    best.filter(|best| best.value.is_finite() && best.value > 0.0).collect()
}

fn open(height: f64, label: &str) -> String {
    format!(
        "<svg class=\"plot\" viewBox=\"0 0 760 {height}\" role=\"img\" aria-label=\"{}\">",
        escape(label)
    )
}
