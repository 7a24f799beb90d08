//! Small plots of one figure over the steps of a training run, as inline SVG.

use std::fmt::Write;

use super::plot::open;
use crate::axis::{Axes, Frame};
use crate::figures;
use crate::text::escape;
use crate::training::Curve;

const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 176.0;
const FRAME: Frame = Frame { left: 56.0, right: 368.0, top: 26.0, bottom: 146.0 };

/// A figure from its first step on, with a line for each run. Steps without one, and those where it is not
/// finite, are gaps. `None` where there is none at all.
pub(crate) fn curve(curve: &Curve, step: &str) -> Option<String> {
    let Curve { name, values, others, span } = curve;
    let lines: Vec<&Vec<f64>> = std::iter::once(values).chain(others).collect();
    let steps = lines.iter().map(|values| values.len()).max()?;
    let span = span.iter().flat_map(|(low, high)| [*low, *high]);
    let known = lines.iter().flat_map(|values| values.iter().copied()).chain(span);
    let range = known.filter(|value| value.is_finite()).fold(None, |range, value| match range {
        None => Some((value, value)),
        Some((low, high)) => Some((f64::min(low, value), f64::max(high, value))),
    })?;
    let axes = Axes::new(FRAME, steps, range, 3.0);
    let Frame { left, right, bottom, .. } = FRAME;

    let mut svg = open(WIDTH, HEIGHT, &format!("{name} by {step}"));
    // Of one run its last value; of several their mean.
    let latest = lines.iter().filter_map(|v| v.iter().rev().copied().find(|v| v.is_finite()));
    let latest: Vec<f64> = latest.collect();
    let latest = latest.iter().sum::<f64>() / latest.len() as f64;
    let _ = write!(
        svg,
        "<text x=\"{left}\" y=\"14\">{}</text><text class=\"tick end\" x=\"{right}\" y=\"14\">{}</text>",
        escape(name),
        figures::digits(latest)
    );
    for (at, label) in axes.ticks() {
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text class=\"tick end\" x=\"{:.1}\" y=\"{:.1}\">{label}</text>",
            left - 6.0,
            at + 4.0,
        );
    }
    for (i, end) in [(0, ""), (steps - 1, " end")] {
        let _ = write!(
            svg,
            "<text class=\"tick{end}\" x=\"{:.1}\" y=\"{:.1}\">{} {}</text>",
            axes.x(i),
            bottom + 18.0,
            escape(step),
            i + 1
        );
        if steps == 1 {
            break;
        }
    }
    for values in lines {
        let path = path(values, &axes);
        if !path.is_empty() {
            let _ = write!(svg, "<path class=\"line\" stroke-linecap=\"round\" d=\"{path}\"/>");
        }
    }
    svg.push_str("</svg>");
    Some(svg)
}

/// A line with gaps.
fn path(values: &[f64], axes: &Axes) -> String {
    let (mut path, mut is_drawing) = (String::new(), false);
    for (i, value) in values.iter().enumerate() {
        if value.is_finite() {
            let how = if is_drawing { 'L' } else { 'M' };
            let _ = write!(path, "{how}{:.1} {:.1}", axes.x(i), axes.y(*value));
            if !is_drawing {
                // A point between two gaps is a line of no length, which has round ends.
                path.push_str("h0");
            }
        }
        is_drawing = value.is_finite();
    }
    path
}
