//! A task before rendering: its operators, their inputs and sizes.

use serde::{Deserialize, Serialize};

use crate::catalogue::Sizes;

/// A graph of operators. Value 0 is the first input of `forward`; value `i + 1` is the result of
/// step `i`. The last step's result is the model's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Shape of value 0.
    pub root: Vec<u64>,
    /// Steps in the order of `forward`.
    pub steps: Vec<Step>,
}

/// One operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Name of the catalogue entry.
    pub operator: String,
    /// Index of the form.
    pub form: usize,
    /// Source of each of its tensors.
    pub sources: Vec<Source>,
    /// Sizes that no value determines: `out_features`, the width of another input.
    pub chosen: Sizes,
}

/// Source of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A value, by index.
    Value(usize),
    /// A separate argument of `forward`.
    Input,
    /// A parameter of the model.
    Parameter,
}

impl Plan {
    /// Values that no step uses, except the result.
    pub fn unused(&self) -> Vec<usize> {
        let used = |value: usize| {
            self.steps.iter().any(|step| step.sources.contains(&Source::Value(value)))
        };
        (0..self.steps.len()).filter(|value| !used(*value)).collect()
    }

    /// Names of its operators in the order of `forward`.
    pub fn operators(&self) -> Vec<String> {
        self.steps.iter().map(|step| step.operator.clone()).collect()
    }
}
