//! Divides a whole model into regions, and writes each as a task.
//!
//! ```text
//! ModelSource, inputs ──► process (jailed Python: profile, trace, write, compare) ──► answer (checked) ──► folder
//! ```
//!
//! The model's code runs in the jail only, without network. Its answer is hostile data: [`answer`] checks names,
//! sizes and figures, and reads each task as the judge would. [`folder`] writes the tasks and `regions.json`.
//! [`mod@measure`] measures the model with kernels in place of its modules.

mod answer;
mod folder;
mod measure;
mod process;

use std::path::{Path, PathBuf};

pub use answer::Extracted;
pub use folder::{check, write};
pub use measure::{RegionKernels, final_kernels, measure};
use warpwright_jail::Jail;
use warpwright_task::Dtype;

use crate::error::RolloutError;

/// Where the model comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelSource {
    /// A Python file, and the function in it that makes the model.
    File {
        /// The file.
        file: PathBuf,
        /// The function, without parameters.
        function: String,
    },
    /// An installed Python module, or one below the current folder.
    Module {
        /// Its dotted name.
        module: String,
        /// The function, without parameters.
        function: String,
    },
    /// A configuration of transformers; the weights are random.
    Transformers {
        /// The file `config.json`.
        config: PathBuf,
    },
}

impl ModelSource {
    /// Reads `MODULE:FUNCTION`. MODULE is a path with the suffix `.py`, or a dotted name.
    pub fn parse(text: &str) -> Result<Self, RolloutError> {
        let hint = "write MODULE:FUNCTION, e.g. `model.py:build` or `package.models:build`";
        let wrong = |why: &str| {
            RolloutError::usage(
                format!("failed to read the model `{text}`: {why}"),
                hint.to_owned(),
            )
        };
        let (module, function) = text.rsplit_once(':').ok_or_else(|| wrong("it has no `:`"))?;
        if !is_identifier(function) {
            return Err(wrong("what follows `:` is no name of a function"));
        }
        let function = function.to_owned();
        if Path::new(module).extension().is_some_and(|suffix| suffix == "py") {
            return Ok(Self::File { file: module.into(), function });
        }
        if !module.split('.').all(is_identifier) {
            return Err(wrong("what precedes `:` is neither a .py file nor a dotted name"));
        }
        Ok(Self::Module { module: module.to_owned(), function })
    }

    /// The model as people name it.
    pub fn name(&self) -> String {
        match self {
            Self::File { file, function } => format!("{}:{function}", file.display()),
            Self::Module { module, function } => format!("{module}:{function}"),
            Self::Transformers { config } => config.display().to_string(),
        }
    }
}

fn is_identifier(text: &str) -> bool {
    let mut letters = text.chars();
    letters.next().is_some_and(|c| c.is_alphabetic() || c == '_')
        && letters.all(|c| c.is_alphanumeric() || c == '_')
}

/// What to divide, and how.
#[derive(Clone, Debug)]
pub struct RegionRequest {
    /// The model.
    pub model: ModelSource,
    /// The Python file with `get_inputs`; `None` for a sequence of tokens, for transformers only.
    pub inputs: Option<PathBuf>,
    /// The number of the GPU; `None` for the cpu device.
    pub gpu: Option<u32>,
    /// The dtype that the model and its floating inputs are cast to.
    pub dtype: Option<Dtype>,
    /// The share of time that the tasks shall cover.
    pub cover: f64,
    /// A module with more operators is divided.
    pub max_operators: u32,
    /// A module with a smaller share of time is no region.
    pub min_share: f64,
    /// Whether each input set has tasks of its own, where its shapes differ.
    pub separate: bool,
    /// Seed of weights and inputs.
    pub seed: u64,
    /// The interpreter.
    pub python: PathBuf,
    /// Further folders with Python packages.
    pub packages: Vec<PathBuf>,
}

/// Runs the model and divides it. Takes seconds to minutes.
pub fn extract(jail: &Jail, request: &RegionRequest) -> Result<Extracted, RolloutError> {
    let bytes = process::run(jail, request, process::Work::extract())?;
    answer::read(&bytes, request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_names_are_parsed() {
        let file = ModelSource::File { file: "a/b.py".into(), function: "build".into() };
        assert_eq!(ModelSource::parse("a/b.py:build").unwrap(), file);
        let module = ModelSource::Module { module: "a.b".into(), function: "build".into() };
        assert_eq!(ModelSource::parse("a.b:build").unwrap(), module);
        for wrong in ["a.py", "a.py:", "a.py:b()", "a-b:c", "a..b:c", ":c", "a.txt/x:c"] {
            assert!(ModelSource::parse(wrong).is_err(), "{wrong}");
        }
    }
}
