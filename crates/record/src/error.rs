//! Why a record could not be written or read.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::blob::BlobHash;

/// Why a run could not be begun, resumed or written to.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The folder already contains a run.
    #[error("failed to begin a run in {path}: the folder already contains a run")]
    Exists {
        /// The run folder.
        path: PathBuf,
    },
    /// Another process writes to the run.
    #[error("failed to open the run in {path} for writing: {holder} is writing to it")]
    Locked {
        /// The run folder.
        path: PathBuf,
        /// `process 1234`, or `another process`.
        holder: String,
    },
    /// Written by a newer program.
    #[error(
        "failed to open the run in {path} for writing: its format is {found}, \
         and this program writes format {supported}"
    )]
    NewerFormat {
        /// The run folder.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// Ours.
        supported: u32,
    },
    /// Begun or last resumed by another version of the program.
    #[error(
        "failed to resume the run in {path}: version {recorded} wrote it, \
         and this is version {current}"
    )]
    OtherProgram {
        /// The run folder.
        path: PathBuf,
        /// The version that wrote it.
        recorded: String,
        /// The version that is running.
        current: String,
    },
    /// The disk is full, a quota is used up, or a file size limit is reached.
    #[error(
        "failed to write {path}: no space left; lost: {lost}; \
         the record is intact up to its event {intact}"
    )]
    Full {
        /// The file.
        path: PathBuf,
        /// What could not be stored.
        lost: String,
        /// Number (`seq`) of the last event that is stored; -1 when there is none.
        intact: i64,
    },
    /// An earlier write left part of a line that could not be removed.
    #[error(
        "failed to append to {path}: an earlier event was written in part and could not be removed"
    )]
    Broken {
        /// The file.
        path: PathBuf,
    },
    /// The file system refused.
    #[error("failed to {attempt}")]
    Io {
        /// What was attempted, e.g. `store a blob beneath out/run`.
        attempt: String,
        /// Why; names the path.
        source: io::Error,
    },
    /// The event cannot be written as JSON.
    #[error("failed to encode event {kind}")]
    Encode {
        /// The event's kind.
        kind: &'static str,
        /// Why.
        source: serde_json::Error,
    },
    /// The existing record cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The derived index could not be written.
    #[error("failed to write {path}")]
    Index {
        /// The index.
        path: PathBuf,
        /// Why.
        source: rusqlite::Error,
    },
}

impl WriteError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Exists { path } => Some(format!(
                "continue it with `--resume {}`, or name another folder with `--out`",
                path.display()
            )),
            Self::Locked { .. } => {
                Some("wait for it to end, or name another folder with `--out`".to_owned())
            }
            Self::NewerFormat { .. } => Some("update warpwright".to_owned()),
            Self::OtherProgram { recorded, .. } => Some(format!(
                "resume with version {recorded}, or pass `--force` to mix versions in one record"
            )),
            Self::Full { path, .. } => Some(format!(
                "free space on the file system of {}, then continue with `--resume`",
                path.display()
            )),
            Self::Broken { .. } => Some("continue with `--resume`, which repairs it".to_owned()),
            Self::Read(error) => error.hint(),
            Self::Io { .. } | Self::Encode { .. } | Self::Index { .. } => None,
        }
    }

    pub(crate) fn io(attempt: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let attempt = attempt.into();
        move |source| Self::Io { attempt, source }
    }
}

/// Why a record could not be read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The folder has no `run.json`.
    #[error("failed to read a run from {path}: there is no run.json")]
    NotARun {
        /// The folder.
        path: PathBuf,
    },
    /// Written by a newer program, in a format that this one cannot read.
    #[error("failed to read {path}: format {found} is newer than {supported}, and {reason}")]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// Ours.
        supported: u32,
        /// What could not be understood.
        reason: String,
    },
    /// The file is damaged.
    #[error("failed to read {path}: line {line}: {reason}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// 1-based line.
        line: u64,
        /// What is wrong.
        reason: String,
    },
    /// The store has no such blob.
    #[error("failed to read blob {hash} of {path}: the blob is missing")]
    BlobMissing {
        /// Its name.
        hash: BlobHash,
        /// The run folder.
        path: PathBuf,
    },
    /// The blob's bytes do not match its hash.
    #[error("failed to read blob {path}: the file is damaged, its contents hash to {actual}")]
    BlobDamaged {
        /// The file.
        path: PathBuf,
        /// The hash of the stored bytes.
        actual: BlobHash,
    },
    /// The file system refused.
    #[error("failed to read the run in {path}")]
    Io {
        /// The run folder.
        path: PathBuf,
        /// Why; names the file.
        source: io::Error,
    },
}

impl ReadError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotARun { .. } => Some(
                "name the folder of a run, e.g. the `--out` folder of `warpwright optimize`"
                    .to_owned(),
            ),
            Self::NewerFormat { .. } => Some("update warpwright".to_owned()),
            _ => None,
        }
    }

    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}

/// Whether the error means that no space is left.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}
