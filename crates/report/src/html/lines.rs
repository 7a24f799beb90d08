//! Small plots of one figure over the steps of a training run, as inline SVG.

use std::fmt::Write;

use super::plot::{nice_step, open, tick_label};
use crate::figures;
use crate::text::escape;
use crate::training::Curve;

const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 176.0;
/// Edges of the drawing area.
const LEFT: f64 = 56.0;
const RIGHT: f64 = 368.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 146.0;

/// A figure from its first step on, with a line for each run. Steps without one, and those where it is not
/// finite, are gaps. `None` where there is none at all.
pub(crate) fn curve(curve: &Curve, step: &str) -> Option<String> {
    let Curve { name, values, others, span } = curve;
    let lines: Vec<&Vec<f64>> = std::iter::once(values).chain(others).collect();
    let steps = lines.iter().map(|values| values.len()).max()?;
    let span = span.iter().flat_map(|(low, high)| [*low, *high]);
    let known = lines.iter().flat_map(|values| values.iter().copied()).chain(span);
    let (low, high) =
        known.filter(|value| value.is_finite()).fold(None, |range, value| match range {
            None => Some((value, value)),
            Some((low, high)) => Some((f64::min(low, value), f64::max(high, value))),
        })?;
    // What never changes is drawn on a scale of its own size, not of rounding.
    let size = high.abs().max(low.abs());
    let spread = if high - low > 1e-9 * size { high - low } else { size.max(1.0) };
    let ticks = nice_step(spread / 3.0);
    let (low, high) = ((low / ticks).floor() * ticks, (high / ticks).ceil() * ticks);
    let high = if high > low { high } else { low + ticks };
    let last = steps.saturating_sub(1).max(1) as f64;
    let x = |i: usize| LEFT + (RIGHT - LEFT) * i as f64 / last;
    let y = |value: f64| BOTTOM - (BOTTOM - TOP) * (value - low) / (high - low);

    let mut svg = open(WIDTH, HEIGHT, &format!("{name} by {step}"));
    // Of one run its last value; of several their mean.
    let latest = lines.iter().filter_map(|v| v.iter().rev().copied().find(|v| v.is_finite()));
    let latest: Vec<f64> = latest.collect();
    let latest = latest.iter().sum::<f64>() / latest.len() as f64;
    let _ = write!(
        svg,
        "<text x=\"{LEFT}\" y=\"14\">{}</text><text class=\"tick end\" x=\"{RIGHT}\" y=\"14\">{}</text>",
        escape(name),
        figures::digits(latest)
    );
    let mut tick = low;
    while tick <= high + ticks * 1e-6 {
        let at = y(tick);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text class=\"tick end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            LEFT - 6.0,
            at + 4.0,
            tick_label(tick, ticks),
        );
        tick += ticks;
    }
    for (i, end) in [(0, ""), (steps - 1, " end")] {
        let _ = write!(
            svg,
            "<text class=\"tick{end}\" x=\"{:.1}\" y=\"{:.1}\">{} {}</text>",
            x(i),
            BOTTOM + 18.0,
            escape(step),
            i + 1
        );
        if steps == 1 {
            break;
        }
    }
    for values in lines {
        let path = path(values, &x, &y);
        if !path.is_empty() {
            let _ = write!(svg, "<path class=\"line\" stroke-linecap=\"round\" d=\"{path}\"/>");
        }
    }
    svg.push_str("</svg>");
    Some(svg)
}

/// A line with gaps.
fn path(values: &[f64], x: &dyn Fn(usize) -> f64, y: &dyn Fn(f64) -> f64) -> String {
    let (mut path, mut is_drawing) = (String::new(), false);
    for (i, value) in values.iter().enumerate() {
        if value.is_finite() {
            let how = if is_drawing { 'L' } else { 'M' };
            let _ = write!(path, "{how}{:.1} {:.1}", x(i), y(*value));
            if !is_drawing {
                // A point between two gaps is a line of no length, which has round ends.
                path.push_str("h0");
            }
        }
        is_drawing = value.is_finite();
    }
    path
}
