//! Errors of reading and writing data sets.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use warpwright_task::ReadError;

use super::schema::FORMAT_VERSION;

/// A data set that cannot be read, written or added to.
#[derive(Debug, Error)]
pub enum DataSetError {
    /// The file system refused.
    #[error("failed to {attempt}: {source}")]
    Io {
        /// What was attempted.
        attempt: String,
        /// The cause; names the path.
        source: io::Error,
    },
    /// No space left.
    #[error("failed to write {path}: no space left; the previous file is intact")]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// The file is not Parquet, or damaged.
    #[error("failed to read {path} as Parquet: {reason}")]
    Parquet {
        /// The file.
        path: PathBuf,
        /// The fault.
        reason: String,
    },
    /// The rows could not be encoded.
    #[error("failed to encode {path}: {reason}")]
    Encode {
        /// The file.
        path: PathBuf,
        /// The fault.
        reason: String,
    },
    /// A row of a file is invalid.
    #[error("failed to read row {row} of {path}: {reason}")]
    Row {
        /// The file.
        path: PathBuf,
        /// Row number, from 1.
        row: usize,
        /// The fault.
        reason: String,
    },
    /// A new row is invalid.
    #[error("failed to add task `{name}`: {reason}")]
    BadRow {
        /// Its name.
        name: String,
        /// The fault.
        reason: String,
    },
    /// Written by a later version of this program.
    #[error(
        "failed to read {path}: its format {found} is newer than {FORMAT_VERSION}, which this program reads"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// A foreign file, without splits and measurements.
    #[error("failed to change {path}: it is not a data set written by `synth`")]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The split shares are outside 0 to 1, or sum to more than 1.
    #[error(
        "failed to split: the shares {validation} for validation and {test} for test must be 0 or more and sum to at most 1"
    )]
    Shares {
        /// Requested share for validation, 0 to 1.
        validation: f64,
        /// Requested share for test, 0 to 1.
        test: f64,
    },
    /// The requested shares differ from the file's: rows would change their split.
    #[error("failed to add to {path}: its shares are {found}, but {asked} were requested")]
    OtherShares {
        /// The file.
        path: PathBuf,
        /// `validation/test` of the file.
        found: String,
        /// `validation/test` requested.
        asked: String,
    },
    /// The data set has no such task.
    #[error("failed to find task `{name}` in {path}")]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The requested task.
        name: String,
    },
    /// A foreign table that contains no tasks.
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl DataSetError {
    /// The cure, if one is known.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Newer { .. } => "read it with the version of warpwright that wrote it",
            Self::Full { .. } => "free space and run again: only the rows to be added are lost",
            Self::OtherShares { .. } => {
                "a task must not change its split: use the file's shares, or write a new file"
            }
            Self::Foreign { .. } => "name a data set that `synth` wrote, or a new file",
            Self::Unknown { .. } => {
                "`warpwright task show FILE --json` lists its tasks; nothing was removed"
            }
            Self::Parquet { .. } => "download or create the file again",
            Self::Read(error) => return error.hint(),
            _ => return None,
        };
        Some(hint.to_owned())
    }

    pub(super) fn io(attempt: &str, path: &Path, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => Self::Full { path: path.to_owned() },
            _ => Self::Io { attempt: attempt.to_owned(), source },
        }
    }
}
