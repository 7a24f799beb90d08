//! Why a command failed. Libraries have typed errors; only this crate turns them into text, a hint
//! and an exit code.

use std::error::Error;

use serde::Serialize;
use warpwright_record::error::{ReadError, WriteError};
use warpwright_synth::DataSetError;

use crate::exit;

/// A command's failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Failure {
    /// The exit code as a word: `usage`, `infrastructure`, ...
    pub(crate) kind: &'static str,
    /// What failed and why, with all causes.
    pub(crate) message: String,
    /// The cure.
    pub(crate) hint: Option<String>,
    #[serde(skip)]
    pub(crate) code: u8,
}

impl Failure {
    fn new(code: u8, kind: &'static str, message: String, hint: Option<String>) -> Self {
        Self { kind, message, hint, code }
    }

    /// The caller's mistake.
    pub(crate) fn usage(message: impl Into<String>, hint: impl Into<Option<String>>) -> Self {
        Self::new(exit::USAGE, "usage", message.into(), hint.into())
    }

    /// An infrastructure failure.
    pub(crate) fn infrastructure(
        message: impl Into<String>,
        hint: impl Into<Option<String>>,
    ) -> Self {
        Self::new(exit::INFRASTRUCTURE, "infrastructure", message.into(), hint.into())
    }

    /// This machine does not provide the required isolation.
    pub(crate) fn isolation(message: impl Into<String>, hint: impl Into<Option<String>>) -> Self {
        Self::new(exit::ISOLATION, "isolation", message.into(), hint.into())
    }

    /// The user interrupted a command that cannot be resumed.
    pub(crate) fn interrupted() -> Self {
        Self::new(exit::INTERRUPTED, "interrupted", "interrupted".to_owned(), None)
    }

    /// Another version than this program's wrote the record.
    pub(crate) fn record_version(
        message: impl Into<String>,
        hint: impl Into<Option<String>>,
    ) -> Self {
        Self::new(exit::RECORD_VERSION, "record_version", message.into(), hint.into())
    }

    /// No space left.
    pub(crate) fn disk_full(message: impl Into<String>, hint: impl Into<Option<String>>) -> Self {
        Self::new(exit::DISK_FULL, "disk_full", message.into(), hint.into())
    }

    /// A file-system error during `attempt`.
    pub(crate) fn io(attempt: &str, error: &std::io::Error) -> Self {
        if is_full(error) {
            let hint =
                "free space there, then run the command again, or resume its run with `--resume`";
            return Self::disk_full(format!("failed to {attempt}: {error}"), hint.to_owned());
        }
        Self::infrastructure(format!("failed to {attempt}: {error}"), None)
    }
}

/// The JSON object that `--json` prints for a failure.
#[derive(Serialize)]
pub(crate) struct FailureObject<'a> {
    version: u32,
    error: &'a Failure,
}

impl Failure {
    /// The object for stdout.
    pub(crate) fn object(&self) -> FailureObject<'_> {
        FailureObject { version: crate::contract::VERSION, error: self }
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        let (message, hint) = (chain(&error), error.hint());
        match error {
            WriteError::Exists { .. } => Self::usage(message, hint),
            WriteError::NewerFormat { .. } | WriteError::OtherProgram { .. } => {
                Self::new(exit::RECORD_VERSION, "record_version", message, hint)
            }
            WriteError::Full { .. } => Self::disk_full(message, hint),
            WriteError::Read(error) => error.into(),
            _ => Self::infrastructure(message, hint),
        }
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        let (message, hint) = (chain(&error), error.hint());
        match error {
            ReadError::NotARun { .. } => Self::usage(message, hint),
            ReadError::NewerFormat { .. } => {
                Self::new(exit::RECORD_VERSION, "record_version", message, hint)
            }
            _ => Self::infrastructure(message, hint),
        }
    }
}

impl From<warpwright_task::ReadError> for Failure {
    fn from(error: warpwright_task::ReadError) -> Self {
        Self::usage(chain(&error), error.hint())
    }
}

impl From<DataSetError> for Failure {
    fn from(error: DataSetError) -> Self {
        let (message, hint) = (chain(&error), error.hint());
        match error {
            DataSetError::Full { .. } => Self::disk_full(message, hint),
            DataSetError::Io { source, .. } if is_full(&source) => Self::disk_full(message, hint),
            DataSetError::Newer { .. } => {
                Self::new(exit::RECORD_VERSION, "record_version", message, hint)
            }
            DataSetError::Encode { .. } | DataSetError::BadRow { .. } => {
                Self::infrastructure(message, hint)
            }
            _ => Self::usage(message, hint),
        }
    }
}

/// An error and its causes in one line. Omits a cause that its error already quotes.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}

fn is_full(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}
