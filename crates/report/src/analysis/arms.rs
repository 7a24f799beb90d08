//! A metric of an experiment's arms by training step.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::Path;

use comfy_table::Cell;
use serde::{Deserialize, Serialize};

use super::{AnalysisError, VERSION, list, svg};
use crate::evaluation::statistics::mean;
use crate::figures;
use crate::files;
use crate::table::{right, style, trimmed};
use crate::text::one_line;

/// One run of an arm.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ArmRun {
    /// Name of the arm.
    pub arm: String,
    /// Metrics by name: the values from the first training step on, NaN where a step has none.
    pub curves: Vec<(String, Vec<f64>)>,
}

/// A metric of each arm: the mean and the range over seeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArmTable {
    /// Version of the serialised form.
    pub version: u32,
    /// The metric.
    pub metric: String,
    /// One per arm, sorted by name.
    pub arms: Vec<ArmSeries>,
    /// Arms none of whose runs has the metric.
    pub without: Vec<String>,
}

/// The metric of an arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArmSeries {
    /// Name of the arm.
    pub arm: String,
    /// Its text in the legend.
    pub label: String,
    /// One per training step in which a seed has a value.
    pub points: Vec<ArmPoint>,
}

/// The metric of an arm in a training step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArmPoint {
    /// Number of the step, from 1.
    pub step: u32,
    /// Number of seeds with a value.
    pub seeds: u32,
    /// Mean over seeds.
    pub mean: f64,
    /// Lowest value.
    pub low: f64,
    /// Highest value.
    pub high: f64,
}

impl ArmTable {
    /// The metric of these runs. `labels` has texts for the legend by arm; an arm without one has its
    /// name.
    ///
    /// # Errors
    /// [`AnalysisError::Metric`] if no run has the metric.
    pub fn of(
        runs: &[ArmRun],
        metric: &str,
        labels: &BTreeMap<String, String>,
    ) -> Result<Self, AnalysisError> {
        let mut arms: BTreeMap<&str, BTreeMap<u32, Vec<f64>>> = BTreeMap::new();
        for run in runs {
            let steps = arms.entry(&run.arm).or_default();
            let values = run.curves.iter().find(|(name, _)| name == metric);
            let values = values.map_or(&[][..], |(_, values)| values);
            for (step, value) in (1..).zip(values).filter(|(_, value)| value.is_finite()) {
                steps.entry(step).or_default().push(*value);
            }
        }
        let (without, arms): (Vec<_>, Vec<_>) =
            arms.into_iter().partition(|(_, steps)| steps.is_empty());
        if arms.is_empty() {
            let names = runs.iter().flat_map(|run| &run.curves).map(|(name, _)| name.as_str());
            return Err(AnalysisError::Metric { metric: metric.to_owned(), known: list(names) });
        }
        let series = arms.into_iter().map(|(arm, steps)| ArmSeries {
            arm: arm.to_owned(),
            label: labels.get(arm).map_or(arm, String::as_str).to_owned(),
            points: steps.into_iter().filter_map(|(step, values)| point(step, &values)).collect(),
        });
        Ok(Self {
            version: VERSION,
            metric: metric.to_owned(),
            arms: series.collect(),
            without: without.into_iter().map(|(arm, _)| arm.to_owned()).collect(),
        })
    }

    /// Writes the plot: an SVG with a line for the mean of each arm and a band for the range over
    /// seeds.
    ///
    /// # Errors
    /// [`AnalysisError::Write`] if the file cannot be written.
    pub fn write_svg(&self, out: &Path) -> Result<(), AnalysisError> {
        let text = svg::plot(self);
        files::replace(out, |file| file.write_all(text.as_bytes()))
            .map_err(|source: io::Error| AnalysisError::Write { path: out.to_owned(), source })
    }

    /// The table as text for a terminal `width` columns wide.
    pub fn text(&self, width: Option<u16>) -> String {
        let mut grid = style(width);
        grid.set_header(["arm", "seeds", "steps", "first step", "last step"]);
        for series in &self.arms {
            let point = |point: Option<&ArmPoint>| {
                right(point.map(|p| {
                    let [mean, low, high] = [p.mean, p.low, p.high].map(digits);
                    format!("{mean} [{low}–{high}]")
                }))
            };
            let seeds = series.points.iter().map(|point| point.seeds).max().unwrap_or_default();
            grid.add_row([
                Cell::new(one_line(&series.label, 60)),
                right(Some(seeds.to_string())),
                right(series.points.last().map(|point| point.step.to_string())),
                point(series.points.first()),
                point(series.points.last()),
            ]);
        }
        let mut text = format!("{}\n{grid}\n", one_line(&self.metric, 60));
        let _ = write!(text, "Means over seeds, with the range over seeds in brackets.");
        if !self.without.is_empty() {
            let names = list(self.without.iter().map(String::as_str));
            let _ = write!(text, "\nWithout this metric: {names}.");
        }
        trimmed(&text)
    }
}

/// A value in the table. Learning rates and KL divergences are far below 0.01.
fn digits(value: f64) -> String {
    if value != 0.0 && value.abs() < 0.1 { format!("{value:.2e}") } else { figures::digits(value) }
}

/// `None` without values.
fn point(step: u32, values: &[f64]) -> Option<ArmPoint> {
    Some(ArmPoint {
        step,
        seeds: values.len() as u32,
        mean: mean(values)?,
        low: values.iter().copied().min_by(f64::total_cmp)?,
        high: values.iter().copied().max_by(f64::total_cmp)?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(arm: &str, values: &[f64]) -> ArmRun {
        let curves = vec![("critic/rewards/mean".to_owned(), values.to_vec())];
        ArmRun { arm: arm.to_owned(), curves }
    }

    fn table(runs: &[ArmRun]) -> ArmTable {
        let labels = BTreeMap::from([("b".to_owned(), "<b> & more".to_owned())]);
        ArmTable::of(runs, "critic/rewards/mean", &labels).unwrap()
    }

    #[test]
    fn arms_have_means_and_ranges_over_seeds() {
        let runs = [
            run("b", &[1.0, f64::NAN, 4.0]),
            run("a", &[0.5]),
            run("b", &[3.0, 2.0]),
            run("c", &[]),
        ];
        let table = table(&runs);
        let names: Vec<&str> = table.arms.iter().map(|series| series.arm.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(table.without, ["c"]);
        let point = |step, seeds, mean, low, high| ArmPoint { step, seeds, mean, low, high };
        let expected =
            [point(1, 2, 2.0, 1.0, 3.0), point(2, 1, 2.0, 2.0, 2.0), point(3, 1, 4.0, 4.0, 4.0)];
        assert_eq!(table.arms[1].points, expected);
        let text = table.text(None);
        assert!(text.contains("2.00 [1.00–3.00]"), "{text}");
        assert!(text.contains("Without this metric: c."), "{text}");
    }

    #[test]
    fn unknown_metric_is_refused_with_the_known_ones() {
        let error = ArmTable::of(&[run("a", &[1.0])], "reward", &BTreeMap::new()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "failed to plot reward: no training step has it; the steps have critic/rewards/mean"
        );
        assert_eq!(error.hint().as_deref(), Some("name one of these with `--metric`"));
    }

    #[test]
    fn plot_is_well_formed_and_has_every_arm() {
        let table = table(&[run("a", &[0.5, 1.5, 1.0]), run("b", &[2.0, 2.5, 3.0])]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plot.svg");
        table.write_svg(&path).unwrap();
        let text = fs_err::read_to_string(path).unwrap();
        let document = roxmltree::Document::parse(&text).unwrap();
        let count =
            |name: &str| document.descendants().filter(|n| n.tag_name().name() == name).count();
        assert_eq!((count("polyline"), count("polygon")), (2, 2), "{text}");
        assert!(text.contains("&lt;b&gt; &amp; more"), "{text}");
        let missing = folder.path().join("no/such/folder.svg");
        let error = table.write_svg(&missing).unwrap_err();
        assert!(error.to_string().starts_with("failed to write "), "{error}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// The mean lies in the range, and the plot has numbers only, also for equal values.
        #[test]
        fn plots_of_any_values_have_finite_coordinates(
            values in prop::collection::vec(-1e6f64..1e6, 1..20), is_flat in any::<bool>()
        ) {
            let values: Vec<f64> =
                values.iter().map(|value| if is_flat { values[0] } else { *value }).collect();
            let table = table(&[run("a", &values), run("a", &values[..1])]);
            let holds = |p: &ArmPoint| p.low - 1e-6 <= p.mean && p.mean <= p.high + 1e-6;
            prop_assert!(table.arms[0].points.iter().all(holds));
            let text = svg::plot(&table);
            prop_assert!(!text.contains("NaN") && !text.contains("inf"), "{}", text);
            prop_assert!(roxmltree::Document::parse(&text).is_ok());
        }
    }
}
