//! Why a record could not be written or read.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::blob::BlobHash;

/// Why a run could not be begun, taken up again or written to.
#[derive(Debug, Error)]
pub enum WriteError {
    /// There is a run in this folder.
    #[error("failed to begin a run in {path}: there is one already")]
    Exists {
        /// The run folder.
        path: PathBuf,
    },
    /// Another process writes to it.
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
         this program writes {supported}"
    )]
    NewerFormat {
        /// The run folder.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// Ours.
        supported: u32,
    },
    /// Begun or last taken up by another version of the program.
    #[error(
        "failed to resume the run in {path}: it was written by version {recorded}, \
         this is version {current}"
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
    /// An earlier write left half a line that could not be taken back.
    #[error(
        "failed to append to {path}: an earlier event was half written and could not be undone"
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
    /// What is there already cannot be read.
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
    /// No `run.json` there.
    #[error("failed to read a run from {path}: there is no run.json")]
    NotARun {
        /// The folder.
        path: PathBuf,
    },
    /// Written by a newer program, in a form that cannot be understood.
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
    /// Not what was written.
    #[error("failed to read {path}: line {line}: {reason}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// 1-based line.
        line: u64,
        /// What is wrong.
        reason: String,
    },
    /// Not in the store.
    #[error("failed to read blob {hash} of {path}: it is not there")]
    BlobMissing {
        /// Its name.
        hash: BlobHash,
        /// The run folder.
        path: PathBuf,
    },
    /// Its bytes are not those it is named by.
    #[error("failed to read blob {path}: its contents hash to {actual}")]
    BlobDamaged {
        /// The file.
        path: PathBuf,
        /// The hash of what is there.
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
            Self::NotARun { .. } => {
                Some("name the folder of a run, e.g. what `--out` named".to_owned())
            }
            Self::NewerFormat { .. } => Some("update warpwright".to_owned()),
            _ => None,
        }
    }

    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}

/// Whether there is no room, as opposed to any other refusal.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}
