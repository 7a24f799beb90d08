//! Why a data set cannot be read or written.

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
        /// Why it failed; names the path.
        source: io::Error,
    },
    /// No space left.
    #[error("failed to write {path}: no space left; what was there before is intact")]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// The file is not Parquet, or damaged.
    #[error("failed to read {path} as Parquet: {reason}")]
    Parquet {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The rows could not be encoded.
    #[error("failed to encode {path}: {reason}")]
    Encode {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A row of a file that cannot be.
    #[error("failed to read row {row} of {path}: {reason}")]
    Row {
        /// The file.
        path: PathBuf,
        /// From 1.
        row: usize,
        /// What is wrong.
        reason: String,
    },
    /// A row that was to be added and cannot be.
    #[error("failed to add task `{name}`: {reason}")]
    BadRow {
        /// Its name.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// Written by a later version of this program.
    #[error("failed to read {path}: its format {found} is newer than {FORMAT_VERSION}")]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// A file of somebody else's, which has no splits and no measurements.
    #[error("failed to change {path}: it is not a data set of this program")]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// Shares that are none.
    #[error(
        "failed to split: shares of {validation} for validation and {test} for test are not parts of 1"
    )]
    Shares {
        /// Asked for validation.
        validation: f64,
        /// Asked for test.
        test: f64,
    },
    /// Other shares than the file has: rows would change their split.
    #[error("failed to add to {path}: its shares are {found}, and {asked} were asked for")]
    OtherShares {
        /// The file.
        path: PathBuf,
        /// `validation/test` of the file.
        found: String,
        /// `validation/test` asked for.
        asked: String,
    },
    /// A task that is not there.
    #[error("failed to find task `{name}` in {path}")]
    Unknown {
        /// The file.
        path: PathBuf,
        /// Which one.
        name: String,
    },
    /// A table of somebody else's that is not one of tasks.
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl DataSetError {
    /// What to do about it, where that is not plain.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Newer { .. } => "read it with the version of this program that wrote it",
            Self::Full { .. } => {
                "free space and run again: nothing is lost but the rows that were to be added"
            }
            Self::OtherShares { .. } => {
                "a task must not move from one split to another: use the file's shares, or a new file"
            }
            Self::Foreign { .. } => "name a data set that `synth` wrote, or a new file",
            Self::Unknown { .. } => {
                "`warpwright task show FILE --json` lists its tasks; none was taken out"
            }
            Self::Parquet { .. } => "fetch or make the file again",
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
