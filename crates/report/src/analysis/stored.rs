//! Evaluations as inputs of an analysis.

use std::path::Path;

use fs_err as fs;
use serde::Deserialize;

use super::AnalysisError;
use crate::evaluation::{Evaluation, VERSION};

/// Reads the evaluation in `path`: a run folder, or a file with the output of `eval --json` or of
/// `report --json`.
pub fn evaluation(path: &Path) -> Result<Evaluation, AnalysisError> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    if path.is_dir() {
        return Ok(Evaluation::read(path)?);
    }
    let bytes =
        fs::read(path).map_err(|source| AnalysisError::Open { path: path.to_owned(), source })?;
    let not_one = |source| AnalysisError::NotAnEvaluation { path: path.to_owned(), source };
    let Versioned { version } = serde_json::from_slice(&bytes).map_err(not_one)?;
    if version > VERSION {
        let (path, supported) = (path.to_owned(), VERSION);
        return Err(AnalysisError::NewerFormat { path, found: version, supported });
    }
    serde_json::from_slice(&bytes).map_err(not_one)
}
