//! The page of a whole model: end-to-end figures, and where the time went before and after.

use std::path::Path;

use minijinja::{Value, context, value::Serde};
use serde::Serialize;
use warpwright_record::interval::Interval;
use warpwright_record::whole_model::{InputSetFigures, WholeModel};

use super::{ReportError, environment, write_page};

/// Width of a bar, in the units of its drawing.
const WIDTH: f64 = 800.0;
/// Opacities of the segments in turn.
const SHADES: [f64; 4] = [0.9, 0.65, 0.45, 0.3];

#[derive(Serialize)]
struct SetView {
    name: String,
    calls: Vec<CallView>,
    bars: Vec<BarView>,
}

#[derive(Serialize)]
struct CallView {
    name: &'static str,
    time: String,
    range: String,
    speedup: Option<String>,
    speedup_range: Option<String>,
    error: Option<String>,
    peak: Option<String>,
}

#[derive(Serialize)]
struct BarView {
    name: &'static str,
    milliseconds: String,
    segments: Vec<Segment>,
}

/// A region's part of a bar.
#[derive(Serialize)]
struct Segment {
    label: String,
    x: String,
    width: String,
    shade: f64,
}

#[derive(Serialize)]
struct GainView {
    task: String,
    kept: bool,
    gain: Option<[String; 2]>,
    reason: String,
    replaced: u64,
    fallback: u64,
}

/// Writes a page about a whole model to `out`.
pub fn write_whole_model(found: &WholeModel, out: &Path) -> Result<(), ReportError> {
    let mut environment = environment()?;
    let template = include_str!("../../templates/whole_model.html");
    environment.add_template("whole_model.html", template)?;
    let sets: Vec<SetView> =
        found.input_sets.iter().enumerate().map(|(at, set)| set_view(found, at, set)).collect();
    let gains: Vec<GainView> = found
        .regions
        .iter()
        .map(|region| GainView {
            task: region.task.clone(),
            kept: region.kept,
            gain: region.gain.map(|gain| [format!("{:.3}x", gain.value), range(gain)]),
            reason: region.reason.clone().unwrap_or_default(),
            replaced: region.replaced_calls,
            fallback: region.fallback_calls,
        })
        .collect();
    let html = environment.get_template("whole_model.html")?.render(context! {
        model => found.model.clone(),
        device => found.device.clone(),
        is_cpu => found.device == "cpu",
        covered => format!("{:.1} %", found.covered * 100.0),
        replaced => format!("{:.1} %", found.replaced * 100.0),
        sets => Value::from(Serde(&sets)),
        gains => Value::from(Serde(&gains)),
        missing => found.missing.iter().map(|(name, why)| format!("{name}: {why}")).collect::<Vec<_>>(),
    })?;
    write_page(&html, out)
}

fn range(figure: Interval) -> String {
    format!("{:.3}–{:.3}", figure.low, figure.high)
}

/// The columns, in order, with the names of people.
const CALLS: [(&str, &str); 5] = [
    ("eager", "eager"),
    ("compile", "torch.compile"),
    ("reduce_overhead", "reduce-overhead"),
    ("patched", "with the kernels"),
    ("patched_graph", "with the kernels, in a CUDA graph"),
];

fn set_view(found: &WholeModel, at: usize, set: &InputSetFigures) -> SetView {
    let calls = CALLS.iter().filter_map(|(key, name)| {
        let time = *set.milliseconds.get(*key)?;
        let speedup = set.speedup.get(*key).copied();
        let error = set.error.get(*key).copied().flatten();
        let peak = set.peak_bytes.get(*key).copied().flatten();
        Some(CallView {
            name,
            time: format!("{:.3} ms", time.value),
            range: range(time),
            speedup: speedup.map(|s| format!("{:.3}x", s.value)),
            speedup_range: speedup.map(range),
            error: error.map(|error| format!("{error:.1e}")),
            peak: peak.map(|bytes| format!("{} MiB", bytes >> 20)),
        })
    });
    let longest = set.profiled.before.max(set.profiled.after);
    let bars = [("before", 0), ("after", 1)].map(|(name, when)| {
        let of = |times: warpwright_record::whole_model::BeforeAfter| {
            if when == 0 { times.before } else { times.after }
        };
        let (mut x, mut segments) = (0.0, Vec::new());
        for (region, shade) in found.times.iter().zip(SHADES.iter().cycle()) {
            let time = region.times.get(at).map_or(0.0, |times| of(*times)).max(0.0);
            let width = if longest > 0.0 { (time / longest * WIDTH).min(WIDTH - x) } else { 0.0 };
            segments.push(Segment {
                label: format!("{}: {time:.3} ms", region.task),
                x: format!("{x:.2}"),
                width: format!("{:.2}", width.max(0.0)),
                shade: *shade,
            });
            x += width.max(0.0);
        }
        let whole = of(set.profiled);
        let rest = if longest > 0.0 { (whole / longest * WIDTH - x).max(0.0) } else { 0.0 };
        segments.push(Segment {
            label: "the rest".to_owned(),
            x: format!("{x:.2}"),
            width: format!("{rest:.2}"),
            shade: 0.12,
        });
        BarView { name, milliseconds: format!("{whole:.3} ms"), segments }
    });
    SetView { name: set.name.clone(), calls: calls.collect(), bars: bars.into() }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use warpwright_record::whole_model::{BeforeAfter, RegionGain, RegionTimes};

    use super::*;

    #[test]
    fn page_has_figures_and_escapes_names() {
        let figure = Interval { value: 2.0, low: 1.5, high: 2.5 };
        let times = BeforeAfter { before: 3.0, after: 1.0 };
        let set = InputSetFigures {
            name: "<prefill>".to_owned(),
            milliseconds: ["eager", "patched"].map(|name| (name.to_owned(), figure)).into(),
            speedup: [("eager".to_owned(), figure)].into(),
            error: [("eager".to_owned(), Some(1e-6))].into(),
            fastest: Some("patched".to_owned()),
            peak_bytes: BTreeMap::new(),
            profiled: BeforeAfter { before: 4.0, after: 2.0 },
        };
        let found = WholeModel {
            version: 1,
            model: "model.py:build".to_owned(),
            device: "cpu".to_owned(),
            covered: 0.9,
            replaced: 0.75,
            input_sets: vec![set],
            regions: vec![RegionGain {
                task: "block".to_owned(),
                kept: true,
                gain: Some(figure),
                reason: None,
                replaced_calls: 4,
                fallback_calls: 0,
            }],
            missing: BTreeMap::new(),
            times: vec![RegionTimes { task: "block".to_owned(), times: vec![times] }],
        };
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("page.html");
        write_whole_model(&found, &out).unwrap();
        let page = fs_err::read_to_string(out).unwrap();
        assert!(page.contains("&lt;prefill&gt;") && !page.contains("<prefill>"));
        assert!(page.contains("75.0 %") && page.contains("block: 3.000 ms"));
        assert!(page.contains("width=\"600.00\"") && page.contains("width=\"200.00\""));
    }
}
