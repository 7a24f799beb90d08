//! Why a command failed. Libraries have typed errors; only this crate turns them into text, a hint
//! and an exit code.

use serde::Serialize;
use warpwright_judge::JudgeError;
use warpwright_record::error::{ReadError, WriteError};
use warpwright_report::html::ReportError;
pub(crate) use warpwright_rollout::error::chain;
use warpwright_rollout::error::{ErrorKind, RolloutError, hint_of_io, kind_of_io};
use warpwright_synth::DataSetError;
use warpwright_train::error::TrainError;

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

    /// A file-system error during `attempt`.
    pub(crate) fn io(attempt: &str, error: &std::io::Error) -> Self {
        let message = format!("failed to {attempt}: {error}");
        Self::of_kind(kind_of_io(error), message, hint_of_io(error))
    }

    fn of_kind(kind: ErrorKind, message: String, hint: Option<String>) -> Self {
        Self::new(exit::of(kind), kind.name(), message, hint)
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

impl From<RolloutError> for Failure {
    fn from(error: RolloutError) -> Self {
        Self::of_kind(error.kind(), chain(&error), error.hint())
    }
}

impl From<TrainError> for Failure {
    fn from(error: TrainError) -> Self {
        Self::of_kind(error.kind(), chain(&error), error.hint())
    }
}

/// Errors that a rollout may have too, by the same rules.
macro_rules! by_rollout_error {
    ($($error:ty),+) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                RolloutError::from(error).into()
            }
        })+
    };
}

by_rollout_error!(WriteError, ReadError, JudgeError, DataSetError, warpwright_task::ReadError);

impl From<ReportError> for Failure {
    fn from(error: ReportError) -> Self {
        TrainError::from(error).into()
    }
}
