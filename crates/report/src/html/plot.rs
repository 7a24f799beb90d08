//! The plots, as inline SVG. Colours come from the page's style sheet by class, so that they
//! follow its light and dark schemes and its print style.

use std::fmt::Write;

use warpwright_record::interval::Interval;
use warpwright_record::verdict::{BASELINES, Verdict};

use crate::axis::{nice_step, tick_label};
use crate::figures;
use crate::summary::baseline_name;
use crate::text::escape;

/// How far beyond the values, as a factor, an interval is drawn; the figures beside it are whole.
const REACH: f64 = 3.0;

/// Logarithms to base 2 from which and to which ratios are drawn: every value, 1, and the
/// intervals as far as they stay within reach.
pub(super) fn reach(intervals: impl Iterator<Item = Interval> + Clone) -> (f64, f64) {
    let shown = intervals.filter(drawable);
    let (low, high) =
        shown.clone().fold((1.0f64, 1.0f64), |(l, h), i| (l.min(i.value), h.max(i.value)));
    let (least, most) = (low / REACH, high * REACH);
    let within =
        |(l, h): (f64, f64), i: Interval| (l.min(i.low.max(least)), h.max(i.high.min(most)));
    let (low, high) = shown.fold((low, high), within);
    (low.log2(), high.log2())
}

/// A ratio that has a logarithm. Its interval may still reach to nothing or to infinity.
fn drawable(interval: &Interval) -> bool {
    interval.value.is_finite() && interval.value > 0.0
}

/// Times per call with their 95 % intervals, the candidate above its baselines, and a line at the
/// time that the unavoidable bytes need. `None` when nothing was timed.
pub(super) fn times(verdict: &Verdict) -> Option<String> {
    let times = &verdict.times_ms;
    let mut rows: Vec<(String, Interval, &str)> = Vec::new();
    if let Some(candidate) = times.candidate {
        rows.push(("this kernel".to_owned(), candidate, "candidate"));
    }
    for key in BASELINES {
        if let Some(time) = times.over(key) {
            rows.push((baseline_name(key), time, "baseline"));
        }
    }
    rows.retain(|(_, t, _)| t.value.is_finite() && t.value >= 0.0);
    let slowest = rows.iter().map(|(_, t, _)| t.value).fold(0.0, f64::max);
    let most = rows.iter().map(|(_, t, _)| t.high).fold(slowest, f64::max);
    // An interval far beyond every value would leave no room for the values: it is cut at the edge.
    let most = most.min(slowest * REACH);
    if most <= 0.0 {
        return None;
    }
    let floor = verdict.floor_ms.filter(|floor| floor.is_finite() && *floor > 0.0);
    let most = most.max(floor.unwrap_or(0.0));
    let (unit, factor) = figures::unit(most);
    let step = nice_step(most * factor / 5.0);
    let end = (most * factor / step).ceil() * step;

    let (left, right, row_height, top) = (132.0, 606.0, 34.0, 26.0);
    let bottom = top + row_height * rows.len() as f64;
    // Also where noise made the lower end of an interval negative.
    let x = |scaled: f64| left + (right - left) * (scaled / end).clamp(0.0, 1.0);
    let mut svg = open(760.0, bottom + 34.0, "Time per call of the kernel and of each baseline");
    let mut tick = 0.0;
    while tick <= end * 1.0001 {
        let at = x(tick);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{top}\" y2=\"{bottom}\"/>\
             <text class=\"tick\" x=\"{at:.1}\" y=\"{:.1}\">{}</text>",
            bottom + 17.0,
            tick_label(tick, step),
        );
        tick += step;
    }
    let _ =
        write!(svg, "<text class=\"tick end\" x=\"752\" y=\"{:.1}\">{unit}</text>", bottom + 17.0);
    for (i, (name, time, class)) in rows.iter().enumerate() {
        let y = top + row_height * (i as f64 + 0.5);
        let (low, value, high) =
            (x(time.low * factor), x(time.value * factor), x(time.high * factor));
        let _ = write!(
            svg,
            "<g class=\"{class}\"><text class=\"label\" x=\"{:.1}\" y=\"{:.1}\">{}</text>\
             <rect class=\"bar\" x=\"{left}\" y=\"{:.1}\" width=\"{:.1}\" height=\"14\" rx=\"2\"/>",
            left - 12.0,
            y + 4.0,
            escape(name),
            y - 7.0,
            (value - left).max(0.5),
        );
        whisker(&mut svg, low, high, y);
        let _ = write!(
            svg,
            "<text class=\"value\" x=\"{:.1}\" y=\"{:.1}\">{} <tspan class=\"range\">{}</tspan></text></g>",
            high + 10.0,
            y + 4.0,
            figures::digits(time.value * factor),
            escape(&format!(
                "{}–{}",
                figures::digits(time.low * factor),
                figures::digits(time.high * factor)
            )),
        );
    }
    if let Some(floor) = floor {
        let at = x(floor * factor);
        let _ = write!(
            svg,
            "<line class=\"floor\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{:.1}\" y2=\"{bottom}\"/>\
             <text class=\"floor-label\" x=\"{at:.1}\" y=\"14\">memory roofline {} {unit}</text>",
            top - 6.0,
            figures::digits(floor * factor),
        );
    }
    svg.push_str("</svg>");
    Some(svg)
}

/// One judged candidate in the plot over turns.
pub(super) struct Point {
    /// `3`, or `final`.
    pub(super) label: String,
    /// Whether it is the fresh measurement of the final candidate.
    pub(super) fresh: bool,
    /// Over the best baseline and over eager; `None`: not right, or not measured.
    pub(super) speedup: Option<(Interval, Option<Interval>)>,
    /// Whether it was found wrong (and not merely left unmeasured).
    pub(super) wrong: bool,
}

/// Speed-ups over the turns, on a logarithmic scale, with the best so far as a line. `None` when
/// fewer than two candidates were measured.
pub(super) fn progress(points: &[Point]) -> Option<String> {
    let measured: Vec<Option<(Interval, Option<Interval>)>> = points
        .iter()
        .map(|p| p.speedup.filter(|(b, _)| drawable(b)).map(|(b, e)| (b, e.filter(drawable))))
        .collect();
    if measured.iter().flatten().count() < 2 {
        return None;
    }
    let all = measured.iter().flatten().flat_map(|(best, eager)| [Some(*best), *eager]).flatten();
    let (low, high) = reach(all);
    let (low, high) = ((low - 0.15).min(-0.3), (high + 0.15).max(0.3));

    let (left, right, top, bottom) = (56.0, 742.0, 14.0, 186.0);
    // `max` also turns an end that noise made negative into the edge of the plot.
    let part = |ratio: f64| ((ratio.max(1e-9).log2() - low) / (high - low)).clamp(0.0, 1.0);
    let y = |ratio: f64| bottom - (bottom - top) * part(ratio);
    let gap = (right - left) / points.len() as f64;
    let x = |i: usize| left + gap * (i as f64 + 0.5);
    let mut svg = open(760.0, 238.0, "Speed-up of each judged candidate, turn by turn");
    // Every power of two; also the steps between when the range is narrow.
    let steps: &[f64] = if high - low < 2.5 { &[1.0, 1.25, 1.5] } else { &[1.0] };
    for power in (low.floor() as i32)..=(high.ceil() as i32) {
        for step in steps {
            let ratio = step * f64::from(power).exp2();
            if ratio.log2() < low || ratio.log2() > high {
                continue;
            }
            let class = if (ratio - 1.0).abs() < 1e-9 { "grid one" } else { "grid" };
            let _ = write!(
                svg,
                "<line class=\"{class}\" x1=\"{left}\" x2=\"{right}\" y1=\"{0:.1}\" y2=\"{0:.1}\"/>\
                 <text class=\"tick end\" x=\"{1:.1}\" y=\"{2:.1}\">{3}×</text>",
                y(ratio),
                left - 8.0,
                y(ratio) + 4.0,
                trimmed(ratio),
            );
        }
    }
    best_line(&mut svg, points, &measured, x, y, right);
    let every = (points.len() as f64 / 24.0).ceil() as usize;
    let mut last_label = String::new();
    for (i, point) in points.iter().enumerate() {
        let at = x(i);
        if point.label != last_label && (i % every == 0 || point.fresh) {
            let _ = write!(
                svg,
                "<text class=\"tick\" x=\"{at:.1}\" y=\"226\">{}</text>",
                escape(&point.label)
            );
            last_label.clone_from(&point.label);
        }
        match &measured[i] {
            Some((best, eager)) => {
                if let Some(eager) = eager {
                    let _ = write!(svg, "<g class=\"eager\">");
                    vertical(&mut svg, at - 4.0, y(eager.low), y(eager.high));
                    let _ = write!(
                        svg,
                        "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\"/></g>",
                        at - 4.0,
                        y(eager.value)
                    );
                }
                let _ = write!(svg, "<g class=\"candidate\">");
                vertical(&mut svg, at + 4.0, y(best.low), y(best.high));
                let (cx, cy) = (at + 4.0, y(best.value));
                if point.fresh {
                    let _ = write!(
                        svg,
                        "<path class=\"mark\" d=\"M{cx:.1} {:.1}l6.5 6.5l-6.5 6.5l-6.5 -6.5z\"/></g>",
                        cy - 6.5
                    );
                } else {
                    let _ = write!(
                        svg,
                        "<circle class=\"mark\" cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"4\"/></g>"
                    );
                }
            }
            None if point.wrong => {
                let _ = write!(
                    svg,
                    "<path class=\"cross\" d=\"M{0:.1} 198l8 8m0 -8l-8 8\"/>",
                    at - 4.0
                );
            }
            None => {
                let _ =
                    write!(svg, "<circle class=\"unmeasured\" cx=\"{at:.1}\" cy=\"202\" r=\"2\"/>");
            }
        }
    }
    svg.push_str("</svg>");
    Some(svg)
}

fn best_line(
    svg: &mut String,
    points: &[Point],
    measured: &[Option<(Interval, Option<Interval>)>],
    x: impl Fn(usize) -> f64,
    y: impl Fn(f64) -> f64,
    right: f64,
) {
    let mut path = String::new();
    let mut best = 0.0;
    let mut end = right;
    for (i, point) in points.iter().enumerate() {
        if point.fresh {
            // A fresh measurement is no search step: the line stops before it.
            end = end.min(x(i) - 8.0);
            continue;
        }
        if let Some((speedup, _)) = &measured[i]
            && speedup.value > best
        {
            best = speedup.value;
            let (at, height) = (x(i) + 4.0, y(best));
            let _ = if path.is_empty() {
                write!(path, "M{at:.1} {height:.1}")
            } else {
                write!(path, "H{at:.1}V{height:.1}")
            };
        }
    }
    if !path.is_empty() {
        let _ = write!(svg, "<path class=\"best\" d=\"{path}H{end:.1}\"/>");
    }
}

/// A small interval plot for one row of a table, on a scale shared by all rows: from the
/// logarithms `low` to `high`.
pub(super) fn spark(speedup: &Interval, low: f64, high: f64) -> Option<String> {
    if !drawable(speedup) {
        return None;
    }
    let (width, y) = (120.0, 10.0);
    let part = |ratio: f64| ((ratio.max(1e-9).log2() - low) / (high - low)).clamp(0.0, 1.0);
    let x = |ratio: f64| 6.0 + (width - 12.0) * part(ratio);
    let mut svg = format!(
        "<svg class=\"spark\" width=\"{width}\" height=\"20\" viewBox=\"0 0 {width} 20\" \
         aria-hidden=\"true\"><line class=\"grid\" x1=\"6\" x2=\"{:.1}\" y1=\"{y}\" y2=\"{y}\"/>\
         <line class=\"grid one\" x1=\"{1:.1}\" x2=\"{1:.1}\" y1=\"2\" y2=\"18\"/>",
        width - 6.0,
        x(1.0)
    );
    let class = if speedup.low > 1.0 { "candidate" } else { "baseline" };
    let _ = write!(svg, "<g class=\"{class}\">");
    whisker(&mut svg, x(speedup.low), x(speedup.high), y);
    let _ = write!(
        svg,
        "<circle class=\"mark\" cx=\"{:.1}\" cy=\"{y}\" r=\"3.5\"/></g></svg>",
        x(speedup.value)
    );
    Some(svg)
}

/// Widths in percent of the parts of a whole, for the bar of phases.
pub(super) fn shares(parts: &[f64]) -> Vec<f64> {
    let sum: f64 = parts.iter().filter(|p| p.is_finite()).sum();
    parts.iter().map(|p| if sum > 0.0 && p.is_finite() { 100.0 * p / sum } else { 0.0 }).collect()
}

pub(super) fn open(width: f64, height: f64, title: &str) -> String {
    format!(
        "<svg class=\"plot\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{0}\">\
         <title>{0}</title>",
        escape(title)
    )
}

fn whisker(svg: &mut String, low: f64, high: f64, y: f64) {
    let (top, bottom) = (y - 4.0, y + 4.0);
    let _ = write!(
        svg,
        "<path class=\"whisker\" d=\"M{low:.1} {top:.1}V{bottom:.1}M{low:.1} {y:.1}H{high:.1}\
         M{high:.1} {top:.1}V{bottom:.1}\"/>"
    );
}

fn vertical(svg: &mut String, x: f64, low: f64, high: f64) {
    let _ = write!(svg, "<path class=\"whisker\" d=\"M{x:.1} {low:.1}V{high:.1}\"/>");
}

fn trimmed(ratio: f64) -> String {
    format!("{ratio:.3}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_have_no_trailing_zeros() {
        assert_eq!([0.125, 1.0, 1.25, 16.0].map(trimmed), ["0.125", "1", "1.25", "16"]);
    }

    #[test]
    fn a_wild_interval_neither_hides_its_value_nor_fills_the_plot() {
        let calm = Interval { value: 2.0, low: 1.9, high: 2.1 };
        let wild = Interval { value: 1.3, low: -0.1, high: f64::INFINITY };
        let (low, high) = reach([calm, wild].into_iter());
        assert!((low.exp2() - 1.0 / 3.0).abs() < 1e-9 && (high.exp2() - 6.0).abs() < 1e-9);
        assert!(spark(&wild, low, high).is_some_and(|svg| !svg.contains("NaN")));
        let point =
            |i| Point { label: "1".into(), fresh: false, speedup: Some((i, None)), wrong: false };
        let svg = progress(&[point(calm), point(wild)]).unwrap();
        assert_eq!(svg.matches("<circle class=\"mark\"").count(), 2);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn one_measurement_is_no_progress() {
        let interval = Interval { value: 2.0, low: 1.9, high: 2.1 };
        let point = |speedup| Point { label: "1".into(), fresh: false, speedup, wrong: false };
        assert!(progress(&[point(Some((interval, None))), point(None)]).is_none());
        assert!(
            progress(&[point(Some((interval, None))), point(Some((interval, None)))]).is_some()
        );
    }
}
