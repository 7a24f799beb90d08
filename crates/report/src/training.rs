//! The page of a training run: curves of its metrics and sample kernels.

use std::path::Path;

use minijinja::value::Serde;
use minijinja::{Value, context};
use serde::Serialize;

use crate::highlight::{Language, highlight};
use crate::html::{ReportError, environment, lines, write_page};

/// Most bytes of one file that are shown.
const ROOM: usize = 64 << 10;

/// A training run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Training {
    /// Title of the page.
    pub title: String,
    /// Facts of the run as name and value: model, seed, device, ...
    pub facts: Vec<(String, String)>,
    /// Whether kernels were timed on the cpu device.
    pub is_cpu: bool,
    /// Stages in order.
    pub stages: Vec<Stage>,
}

/// A stage of a training run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stage {
    /// Name of the stage.
    pub name: String,
    /// Whether the stage is complete.
    pub is_done: bool,
    /// One sentence about the result.
    pub told: Option<String>,
    /// Unit of the curves' x axis: `update`, `epoch`.
    pub step: &'static str,
    /// Metrics by step.
    pub curves: Vec<Curve>,
    /// Sample candidates.
    pub samples: Vec<Sample>,
}

/// One metric by step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// Name of the metric.
    pub name: String,
    /// Values from the first step on; NaN where a step has none.
    pub values: Vec<f64>,
    /// Values of other runs, drawn in the same plot.
    pub others: Vec<Vec<f64>>,
    /// Range of the y axis, to share a scale between plots; `None` fits the values.
    pub span: Option<(f64, f64)>,
}

/// A candidate of an episode.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Step and reward.
    pub title: String,
    /// Path and text of each file.
    pub files: Vec<(String, String)>,
}

#[derive(Serialize)]
struct StageView<'a> {
    name: &'a str,
    is_done: bool,
    told: &'a Option<String>,
    plots: Vec<Value>,
    samples: Vec<SampleView<'a>>,
}

#[derive(Serialize)]
struct SampleView<'a> {
    title: &'a str,
    files: Vec<FileView<'a>>,
}

#[derive(Serialize)]
struct FileView<'a> {
    path: &'a str,
    lines: usize,
    html: Value,
    missing: Option<String>,
}

/// Writes the page: one self-contained HTML file without scripts.
///
/// # Errors
/// [`ReportError::Write`] if the file cannot be written.
pub fn write_training(training: &Training, out: &Path) -> Result<(), ReportError> {
    let stages: Vec<StageView<'_>> = training.stages.iter().map(stage_view).collect();
    let mut environment = environment()?;
    environment.add_template("training.html", include_str!("../templates/training.html"))?;
    let html = environment.get_template("training.html")?.render(context! {
        title => training.title.clone(),
        facts => training.facts.clone(),
        cpu => training.is_cpu,
        stages => Value::from(Serde(&stages)),
    })?;
    write_page(&html, out)
}

fn stage_view(stage: &Stage) -> StageView<'_> {
    let plots = stage
        .curves
        .iter()
        .filter_map(|curve| lines::curve(curve, stage.step).map(Value::from_safe_string));
    StageView {
        name: &stage.name,
        is_done: stage.is_done,
        told: &stage.told,
        plots: plots.collect(),
        samples: stage.samples.iter().map(sample_view).collect(),
    }
}

fn sample_view(sample: &Sample) -> SampleView<'_> {
    let files = sample.files.iter().map(|(path, text)| {
        let (shown, is_cut) = crate::text::cut(text, ROOM);
        FileView {
            path,
            lines: text.lines().count(),
            html: Value::from_safe_string(highlight(shown, Language::of(path))),
            missing: is_cut.then(|| format!("Only the first {} bytes are shown.", shown.len())),
        }
    });
    SampleView { title: &sample.title, files: files.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(training: &Training) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.html");
        write_training(training, &path).unwrap();
        let html = fs_err::read_to_string(path).unwrap();
        // It is well-formed: browsers mend what is not, and nobody notices.
        let body = html.strip_prefix("<!DOCTYPE html>").unwrap();
        roxmltree::Document::parse(body).unwrap();
        html
    }

    fn curve(name: &str, values: &[f64]) -> Curve {
        Curve { name: name.to_owned(), values: values.to_vec(), ..Curve::default() }
    }

    #[test]
    fn a_page_shows_every_curve_and_kernel_and_what_is_hostile_does_nothing() {
        let hostile = "<script>alert(1)</script>";
        let stage = Stage {
            name: "ppo".to_owned(),
            told: Some(format!("ended by {hostile}")),
            step: "update",
            curves: vec![curve("reward", &[-1.0, 0.5, 1.25]), curve(hostile, &[1.0, 2.0])],
            samples: vec![Sample {
                title: "update 3".to_owned(),
                files: vec![("kernels/a.cu".to_owned(), format!("// {hostile}\n"))],
            }],
            ..Stage::default()
        };
        let facts = vec![("seed".to_owned(), "7".to_owned())];
        let training =
            Training { title: "smoke".to_owned(), facts, is_cpu: true, stages: vec![stage] };
        let html = page(&training);
        assert_eq!(html.matches("<svg class=\"plot\"").count(), 2);
        assert!(html.contains("kernels/a.cu") && html.contains("unfinished"), "{html}");
        assert!(!html.contains("<script"), "{html}");
    }

    #[test]
    fn several_runs_are_lines_of_one_plot_and_scales_can_be_the_same() {
        let mut wide = curve("reward", &[0.0, 1.0]);
        wide.others = vec![vec![0.0, 0.5, 0.25], vec![f64::NAN; 3]];
        wide.span = Some((-4.0, 2.0));
        let stage = Stage { step: "update", curves: vec![wide], ..Stage::default() };
        let html = page(&Training { stages: vec![stage], ..Training::default() });
        assert_eq!(html.matches("<svg class=\"plot\"").count(), 1);
        assert_eq!(html.matches("<path class=\"line").count(), 2, "one has nothing to draw");
        assert!(html.contains("update 3") && html.contains(">-4<"), "{html}");
    }

    #[test]
    fn figures_that_are_no_numbers_leave_a_gap_and_one_that_never_is_no_plot() {
        let nan = f64::NAN;
        let curves = vec![
            curve("gap", &[1.0, nan, f64::INFINITY, 3.0, 4.0]),
            curve("never", &[nan, nan]),
            curve("flat", &[2.0, 2.0]),
            curve("one", &[2.0]),
        ];
        let stage = Stage { step: "epoch", curves, ..Stage::default() };
        let html = page(&Training { stages: vec![stage], ..Training::default() });
        assert_eq!(html.matches("<svg class=\"plot\"").count(), 3);
        assert!(!html.contains("NaN") && !html.contains("inf"), "{html}");
    }
}
