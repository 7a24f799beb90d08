//! The plot of an experiment's arms: a file of its own, so its colours are in the SVG.

use std::fmt::Write;

use super::arms::{ArmPoint, ArmTable};
use crate::axis::{Axes, Frame};
use crate::text::escape;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 380.0;
const FRAME: Frame = Frame { left: 60.0, right: 590.0, top: 20.0, bottom: 340.0 };

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
    let range = if low <= high { (low, high) } else { (0.0, 1.0) };
    let axes = Axes::new(FRAME, last as usize, range, 8.0);
    let Frame { left, right, top, bottom } = FRAME;
    // Steps are numbered from 1.
    let x = |step: u32| axes.x(step.saturating_sub(1) as usize);

    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    for (at, label) in axes.ticks() {
        let _ = writeln!(
            svg,
            "<line x1=\"{left}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            left - 8.0,
            at + 4.0,
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
            bottom + 18.0
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">step</text>",
        f64::midpoint(left, right),
        HEIGHT - 6.0
    );
    for (row, (series, colour)) in (0u32..).zip(table.arms.iter().zip(COLOURS.iter().cycle())) {
        let at =
            |point: &ArmPoint, value: f64| format!("{:.1},{:.1}", x(point.step), axes.y(value));
        let mean: Vec<String> = series.points.iter().map(|p| at(p, p.mean)).collect();
        let mut band: Vec<String> = series.points.iter().map(|p| at(p, p.high)).collect();
        band.extend(series.points.iter().rev().map(|p| at(p, p.low)));
        let top = top + 20.0 * f64::from(row);
        let _ = writeln!(
            svg,
            "<polygon points=\"{}\" fill=\"{colour}\" opacity=\"0.08\"/>\
             <polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\
             <rect x=\"{:.1}\" y=\"{top:.1}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            band.join(" "),
            mean.join(" "),
            right + 16.0,
            right + 34.0,
            top + 11.0,
            escape(&series.label),
        );
    }
    svg.push_str("</svg>\n");
    svg
}
