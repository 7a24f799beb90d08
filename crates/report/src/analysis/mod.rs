//! Analyses of evaluations and training runs: what `warpwright analyze` prints.
//!
//! An analysis takes parsed inputs and returns a table, which has a text form and can be serialised.
//! Scores of kernels ([`crate::evaluation::finals`]), the gap ([`crate::evaluation::gap`]) and
//! intervals ([`crate::evaluation::statistics`]) are those of evaluations.
//!
//! * Evaluations, read by [`stored`] and pooled by [`pool`]: [`gap`], [`best_of`], [`merge`].
//! * The record of a run: [`roofline`], [`verdict_times`], [`step_times`].
//! * The metrics of training steps: [`steps`], [`arms`].

pub mod arms;
pub mod best_of;
pub mod gap;
pub mod merge;
pub mod pool;
pub mod roofline;
#[cfg(test)]
mod sample;
pub mod step_times;
pub mod steps;
pub mod stored;
mod svg;
pub mod verdict_times;

use std::io;
use std::path::PathBuf;

use thiserror::Error;
use warpwright_record::error::ReadError;
use warpwright_record::interval::Interval;

use crate::figures;

/// Version of the serialised form of every table.
pub const VERSION: u32 = 2;

/// The cure for a path that is no evaluation.
const EVALUATION: &str = "name a run folder of `warpwright eval`, or a file with the output of \
                          `warpwright eval --json`";

/// Why an analysis failed.
#[derive(Debug, Error)]
pub enum AnalysisError {
    /// The record of a run cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The file system refused to read a file.
    #[error("failed to read {path}")]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The path is not a run folder. A usage error.
    #[error("failed to read a run from {path}: {reason}")]
    NotARun {
        /// The path.
        path: PathBuf,
        /// Why.
        reason: &'static str,
        /// What to name instead.
        cure: &'static str,
    },
    /// The file is not the output of `eval --json`. A usage error.
    #[error("failed to read the evaluation {path}: {reason}")]
    NotAnEvaluation {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The evaluation has a newer format.
    #[error(
        "failed to read the evaluation {path}: its format is {found}, \
         and this program reads format {supported}"
    )]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The format of this program.
        supported: u32,
    },
    /// Evaluations that cannot be pooled. A usage error.
    #[error("failed to combine the evaluations: they have several {what}: {found}")]
    Mixed {
        /// What differs: `profiles`, `policies`, ...
        what: &'static str,
        /// The values.
        found: String,
    },
    /// No policy, or several, match a name. A usage error.
    #[error("failed to choose a policy: `{name}` matches {count} of {policies}")]
    Policy {
        /// The name, or the end of a name.
        name: String,
        /// Number of policies that match.
        count: usize,
        /// All policies.
        policies: String,
    },
    /// The two policies have no task in common. A usage error.
    #[error("failed to compare {one} with {other}: no task was judged for both")]
    NothingShared {
        /// A policy.
        one: String,
        /// The other.
        other: String,
    },
    /// The runs have nothing to analyse. A usage error.
    #[error("failed to analyse {run}: there is no {what}")]
    Empty {
        /// The run, or several.
        run: String,
        /// What is missing: `measured verdict`, ...
        what: &'static str,
        /// What to name instead.
        cure: &'static str,
    },
    /// No training step has the metric. A usage error.
    #[error("failed to plot {metric}: no training step has it; the steps have {known}")]
    Metric {
        /// The metric.
        metric: String,
        /// The metrics of the steps.
        known: String,
    },
    /// The file system refused to write a file.
    #[error("failed to write {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl AnalysisError {
    /// The cure, if one is known.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Read(ReadError::Damaged { .. }) => {
                "copy the run folder again from where it was written, or name another run"
            }
            Self::Read(error) => return error.hint(),
            Self::Open { .. } | Self::NotAnEvaluation { .. } => EVALUATION,
            Self::NotARun { cure, .. } | Self::Empty { cure, .. } => {
                return Some((*cure).to_owned());
            }
            Self::NewerFormat { .. } => "update warpwright",
            Self::Mixed { .. } => "name evaluations of one kind only",
            Self::Policy { .. } => "name one policy, or the end of its name",
            Self::NothingShared { .. } => "name evaluations over the same suite",
            Self::Metric { .. } => "name one of these with `--metric`",
            Self::Write { .. } => "name another file",
        };
        Some(hint.to_owned())
    }
}

/// A list for a message: sorted, without repetition.
fn list<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let mut texts: Vec<String> =
        texts.into_iter().map(|text| crate::text::one_line(text, 80)).collect();
    texts.sort_unstable();
    texts.dedup();
    if texts.is_empty() { "none".to_owned() } else { texts.join(", ") }
}

/// A speed-up with its interval as a cell; a dash where there is none.
fn speedup_cell(interval: Option<&Interval>) -> comfy_table::Cell {
    crate::table::right(interval.map(figures::speedup))
}
