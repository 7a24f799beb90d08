//! Why training did not begin, or ended early.

use thiserror::Error;
use warpwright_record::error::{ReadError, WriteError};
use warpwright_report::html::ReportError;
use warpwright_rollout::error::{ErrorKind, RolloutError, hint_of_io, kind_of_io, kind_of_read};

/// Why a training run did not begin, or ended before it was done.
#[derive(Debug, Error)]
pub enum TrainError {
    /// Another version of the program started the run.
    #[error("{message}")]
    RunVersion {
        /// Which versions these are.
        message: String,
        /// The cure.
        hint: String,
    },
    /// The configuration is wrong, or devices, policies, files or episodes failed.
    #[error(transparent)]
    Rollout(#[from] RolloutError),
    /// A page could not be written.
    #[error(transparent)]
    Report(ReportError),
}

impl TrainError {
    /// The caller's mistake.
    pub fn usage(message: impl Into<String>, hint: impl Into<Option<String>>) -> Self {
        Self::Rollout(RolloutError::usage(message, hint))
    }

    /// An infrastructure error.
    pub fn infrastructure(message: impl Into<String>, hint: impl Into<Option<String>>) -> Self {
        Self::Rollout(RolloutError::infrastructure(message, hint))
    }

    /// An error of the file system during `attempt`.
    pub fn io(attempt: impl Into<String>, source: std::io::Error) -> Self {
        Self::Rollout(RolloutError::io(attempt, source))
    }

    /// The user interrupted the training.
    pub fn interrupted() -> Self {
        Self::Rollout(RolloutError::Interrupted)
    }

    /// Who can do something about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Report(ReportError::Template(_)) => ErrorKind::Infrastructure,
            Self::RunVersion { .. } => ErrorKind::RecordVersion,
            Self::Rollout(error) => error.kind(),
            Self::Report(ReportError::Read(error)) => kind_of_read(error),
            Self::Report(ReportError::Write { source, .. }) => kind_of_io(source),
        }
    }

    /// The cure, if one is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::RunVersion { hint, .. } => Some(hint.clone()),
            Self::Rollout(error) => error.hint(),
            Self::Report(ReportError::Write { source, .. }) if hint_of_io(source).is_some() => {
                hint_of_io(source)
            }
            Self::Report(error) => error.hint(),
        }
    }
}

impl From<ReadError> for TrainError {
    fn from(error: ReadError) -> Self {
        Self::Rollout(error.into())
    }
}

impl From<WriteError> for TrainError {
    fn from(error: WriteError) -> Self {
        Self::Rollout(error.into())
    }
}

impl From<ReportError> for TrainError {
    fn from(error: ReportError) -> Self {
        match error {
            ReportError::Read(error) => error.into(),
            other => Self::Report(other),
        }
    }
}
