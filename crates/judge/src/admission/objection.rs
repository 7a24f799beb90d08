//! Why a task is unsuitable for judging candidates.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why a task is unsuitable for judging candidates.
#[derive(Clone, Debug, PartialEq, Error, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Objection {
    /// There is nothing to compare with.
    #[error("forward returns no tensor")]
    NoOutput,
    /// Its outputs have no elements.
    #[error("all outputs of forward are empty: the judge has nothing to compare")]
    Empty,
    /// The inputs are constant: a candidate that hard-codes the results would pass.
    #[error(
        "get_inputs returns the same inputs in every call, so a candidate could hard-code the results: \
         sample new inputs in every call, and set no seed"
    )]
    SameInputs,
    /// The inputs contain no tensor.
    #[error("get_inputs returns no tensor: the results are constant, whatever the seed")]
    NoInputs,
    /// Forward computes nothing.
    #[error("forward computes nothing: every output is a view of an input")]
    OnlyViews,
    /// Forward writes to its inputs.
    #[error("the task's forward changes its inputs in place: return the results as new tensors")]
    ChangesInputs,
    /// NaN and infinities only.
    #[error("no element of any output is finite")]
    NothingFinite,
    /// Every element has one value, in every call.
    #[error(
        "the results are constant: all elements are equal to one value, whatever the inputs are"
    )]
    Constant,
    /// The same results on other inputs.
    #[error(
        "the results do not depend on the inputs: two different sets of inputs gave equal results"
    )]
    Independent,
    /// Rounding changes results by as much as their own magnitude.
    #[error(
        "output {output} is discontinuous: summing in another order changes it by {error:.1e} times \
         its root mean square"
    )]
    Discontinuous {
        /// Index of the output.
        output: usize,
        /// Error in units of the output's root mean square.
        error: f64,
    },
    /// There are no float64 results more exact than the reference itself.
    #[error("the reference has no float64 ground truth: {reason}")]
    NoTruth {
        /// Why.
        reason: String,
    },
    /// Some elements are NaN or infinite.
    #[error("output {output} has elements that are NaN or infinite")]
    NotFinite {
        /// Index of the output.
        output: usize,
    },
    /// Nearly all elements have one value.
    #[error("{:.0} % of the elements of output {output} have the same value", 100.0 * share)]
    OneValue {
        /// Index of the output.
        output: usize,
        /// Share of a sample of its elements, 0 to 1.
        share: f64,
    },
    /// An input hardly affects the results.
    #[error("input {input} is ignored: changing it changes only {:.1} % of the results", 100.0 * share)]
    InputIgnored {
        /// Index among the input tensors.
        input: String,
        /// Share of changed elements, 0 to 1, in the output that changes most.
        share: f64,
    },
    /// A parameter hardly affects the results.
    #[error("parameter {name} is ignored: changing it changes only {:.1} % of the results", 100.0 * share)]
    ParameterIgnored {
        /// As `named_parameters` gives it.
        name: String,
        /// Share of changed elements, 0 to 1, in the output that changes most.
        share: f64,
    },
    /// A trivial answer passes verification.
    #[error("a candidate that returns {answer} would pass")]
    Counterfeit {
        /// The trivial answer.
        answer: String,
    },
    /// The output is ill-conditioned: larger rounding errors cause disproportionately large ones.
    #[error(
        "output {output} is ill-conditioned: with amplified rounding errors its error per unit of \
         amplification is {error:.1e}, the tolerance {allowed:.1e}"
    )]
    Brittle {
        /// Index of the output.
        output: usize,
        /// Error of a program with amplified rounding errors, divided by the amplification.
        error: f64,
        /// Tolerance at the largest magnitude of the output.
        allowed: f64,
    },
    /// A correct program (a baseline) would fail verification.
    #[error("baseline {baseline} would fail verification{}", by(*error, *allowed))]
    HonestFails {
        /// The baseline.
        baseline: String,
        /// Largest error; `None` where shapes, integers or finiteness differ.
        error: Option<f64>,
        /// Tolerance where the output is small.
        allowed: f64,
    },
}

fn by(error: Option<f64>, allowed: f64) -> String {
    error.map(|error| format!(": error {error:.1e}, tolerance {allowed:.1e}")).unwrap_or_default()
}

impl Objection {
    /// Whether no candidate could be verified at all.
    pub(crate) fn leaves_nothing(&self) -> bool {
        matches!(self, Self::NoOutput | Self::Empty | Self::SameInputs | Self::NothingFinite)
    }

    /// A stable key for counting.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NoOutput => "no_output",
            Self::Empty => "empty",
            Self::SameInputs => "same_inputs",
            Self::NoInputs => "no_inputs",
            Self::OnlyViews => "only_views",
            Self::ChangesInputs => "changes_inputs",
            Self::NothingFinite => "nothing_finite",
            Self::Constant => "constant",
            Self::Independent => "independent",
            Self::Discontinuous { .. } => "discontinuous",
            Self::NoTruth { .. } => "no_truth",
            Self::NotFinite { .. } => "not_finite",
            Self::OneValue { .. } => "one_value",
            Self::InputIgnored { .. } => "input_ignored",
            Self::ParameterIgnored { .. } => "parameter_ignored",
            Self::Counterfeit { .. } => "counterfeit",
            Self::Brittle { .. } => "brittle",
            Self::HonestFails { .. } => "honest_fails",
        }
    }
}

/// The sentence for verdicts and errors.
pub(crate) fn told(reasons: &[Objection]) -> String {
    let all: Vec<String> = reasons.iter().map(ToString::to_string).collect();
    all.join("; ")
}
