//! The plot of an experiment's arms: a file of its own, so its colours are in the SVG.

use std::fmt::Write;

use super::arms::{ArmPoint, ArmTable};
use crate::html::plot::{nice_step, tick_label};
use crate::text::escape;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 380.0;
/// Edges of the drawing area.
const LEFT: f64 = 60.0;
const RIGHT: f64 = 590.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 340.0;

/// Colours of the arms, in pairs of similar ones.
const COLOURS: [&str; 10] = [
    "#0b6e4f", "#08a045", "#a23b72", "#e07a5f", "#1f4e8c", "#6c9bd2", "#555555", "#aaaaaa",
    "#8d6a00", "#d4a017",
];

/// The mean of each arm as a line, the range over seeds as a band, and a legend.
pub(super) fn plot(table: &ArmTable) -> String {
    let points = || table.arms.iter().flat_map(|series| &series.points);
    let last = points().map(|point| point.step).max().unwrap_or(1);
    let low = points().map(|point| point.low).fold(f64::INFINITY, f64::min);
    let high = points().map(|point| point.high).fold(f64::NEG_INFINITY, f64::max);
    let (low, high) = if low <= high { (low, high) } else { (0.0, 1.0) };
    // What never changes is drawn on a scale of its own size, not of rounding.
    let size = high.abs().max(low.abs());
    let spread = if high - low > 1e-9 * size { high - low } else { size.max(1.0) };
    let tick = nice_step(spread / 8.0);
    let (first_tick, last_tick) = ((low / tick).floor(), (high / tick).ceil());
    let last_tick = last_tick.max(first_tick + 1.0);
    let x = |step: u32| {
        let part = f64::from(step.saturating_sub(1)) / f64::from(last.saturating_sub(1).max(1));
        LEFT + (RIGHT - LEFT) * part
    };
    let y = |value: f64| {
        let part = (value / tick - first_tick) / (last_tick - first_tick);
        BOTTOM - (BOTTOM - TOP) * part
    };

    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    let ticks = (last_tick - first_tick).round() as u32;
    for number in 0..=ticks {
        let value = (first_tick + f64::from(number)) * tick;
        let at = y(value);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            at + 4.0,
            tick_label(value, tick),
        );
    }
    let mut steps = vec![1, last / 4, last / 2, last * 3 / 4, last];
    steps.retain(|step| *step > 0);
    steps.sort_unstable();
    steps.dedup();
    for step in steps {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{step}</text>",
            x(step),
            BOTTOM + 18.0
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">step</text>",
        f64::midpoint(LEFT, RIGHT),
        HEIGHT - 6.0
    );
    for (row, (series, colour)) in (0u32..).zip(table.arms.iter().zip(COLOURS.iter().cycle())) {
        let at = |point: &ArmPoint, value: f64| format!("{:.1},{:.1}", x(point.step), y(value));
        let mean: Vec<String> = series.points.iter().map(|p| at(p, p.mean)).collect();
        let mut band: Vec<String> = series.points.iter().map(|p| at(p, p.high)).collect();
        band.extend(series.points.iter().rev().map(|p| at(p, p.low)));
        let top = TOP + 20.0 * f64::from(row);
        let _ = writeln!(
            svg,
            "<polygon points=\"{}\" fill=\"{colour}\" opacity=\"0.08\"/>\
             <polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\
             <rect x=\"{:.1}\" y=\"{top:.1}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            band.join(" "),
            mean.join(" "),
            RIGHT + 16.0,
            RIGHT + 34.0,
            top + 11.0,
            escape(&series.label),
        );
    }
    svg.push_str("</svg>\n");
    svg
}
