//! Records and evaluations as inputs of an analysis.

use std::path::Path;

use fs_err as fs;
use serde::Deserialize;
use serde::de::IgnoredAny;
use warpwright_record::error::ReadError;
use warpwright_record::reader::RunReader;

use super::{AnalysisError, EVALUATION};
use crate::evaluation::{Evaluation, VERSION};

/// Opens the record of the run in the folder `path`. `cure` is the hint where there is none.
///
/// # Errors
/// [`AnalysisError::NotARun`] and [`AnalysisError::Read`].
pub fn record(path: &Path, cure: &'static str) -> Result<RunReader, AnalysisError> {
    let not_one = |reason| AnalysisError::NotARun { path: path.to_owned(), reason, cure };
    RunReader::open(path).map_err(|error| match error {
        ReadError::NotARun { .. } if path.is_dir() => not_one("the folder has no run.json"),
        ReadError::NotARun { .. } => not_one("there is no such folder"),
        ReadError::Io { .. } if path.is_file() => not_one("it is a file, not a run folder"),
        error => AnalysisError::Read(error),
    })
}

/// Reads the evaluation in `path`: a run folder, or a file with the output of `eval --json` or of
/// `report --json`.
///
/// # Errors
/// [`AnalysisError::Open`], [`AnalysisError::NotARun`], [`AnalysisError::NotAnEvaluation`],
/// [`AnalysisError::NewerFormat`] and [`AnalysisError::Read`].
pub fn evaluation(path: &Path) -> Result<Evaluation, AnalysisError> {
    #[derive(Deserialize)]
    struct Head {
        version: u32,
        /// Tells an evaluation from the other objects with a version.
        #[serde(rename = "rows")]
        _rows: IgnoredAny,
    }
    if path.is_dir() {
        record(path, EVALUATION)?;
        return Ok(Evaluation::read(path)?);
    }
    let bytes =
        fs::read(path).map_err(|source| AnalysisError::Open { path: path.to_owned(), source })?;
    let not_one = |reason| AnalysisError::NotAnEvaluation { path: path.to_owned(), reason };
    if bytes.trim_ascii().is_empty() {
        return Err(not_one("the file is empty".to_owned()));
    }
    let other_kind = |error: serde_json::Error| {
        not_one(format!("it is not the output of `warpwright eval --json`: {error}"))
    };
    let Head { version, .. } = serde_json::from_slice(&bytes).map_err(other_kind)?;
    if version > VERSION {
        let (path, supported) = (path.to_owned(), VERSION);
        return Err(AnalysisError::NewerFormat { path, found: version, supported });
    }
    serde_json::from_slice(&bytes).map_err(other_kind)
}
