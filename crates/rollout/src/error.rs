//! Why nothing was judged or played. A kernel that is wrong or slow is a verdict, never one of these
//! errors.

use std::error::Error;

use thiserror::Error;
use warpwright_agent::confined_fs::FileError;
use warpwright_agent::episode::EpisodeError;
use warpwright_agent::workspace::WorkspaceError;
use warpwright_jail::JailError;
use warpwright_judge::JudgeError;
use warpwright_record::error::{ReadError, WriteError};
use warpwright_synth::DataSetError;

/// Who can do something about an error. Programs map it to an exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The caller's mistake.
    Usage,
    /// The judge, a compiler, a policy or the machine failed.
    Infrastructure,
    /// This machine does not provide the required isolation.
    Isolation,
    /// Another version of the program wrote the record.
    RecordVersion,
    /// No space is left on the disk.
    DiskFull,
    /// The user interrupted the work.
    Interrupted,
}

impl ErrorKind {
    /// The kind as a word of JSON output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::Infrastructure => "infrastructure",
            Self::Isolation => "isolation",
            Self::RecordVersion => "record_version",
            Self::DiskFull => "disk_full",
            Self::Interrupted => "interrupted",
        }
    }
}

/// Why a device was not opened, a policy was not made or an episode was not played.
#[derive(Debug, Error)]
pub enum RolloutError {
    /// The caller's mistake.
    #[error("{message}")]
    Usage {
        /// What failed, and why.
        message: String,
        /// The cure.
        hint: Option<String>,
    },
    /// A part of this machine failed, or is missing.
    #[error("{message}")]
    Infrastructure {
        /// What failed, and why.
        message: String,
        /// The cure.
        hint: Option<String>,
    },
    /// A file could not be used.
    #[error("failed to {attempt}")]
    Io {
        /// The failed operation, as an infinitive.
        attempt: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// This machine has no usable jail.
    #[error(transparent)]
    Jail(#[from] JailError),
    /// The judge gave no verdict.
    #[error(transparent)]
    Judge(#[from] JudgeError),
    /// An episode was not run or not recorded.
    #[error(transparent)]
    Episode(EpisodeError),
    /// A record could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A record could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A task could not be read.
    #[error(transparent)]
    Task(#[from] warpwright_task::ReadError),
    /// A data set could not be read or written.
    #[error(transparent)]
    DataSet(#[from] DataSetError),
    /// The user interrupted the work.
    #[error("interrupted")]
    Interrupted,
}

impl RolloutError {
    /// The caller's mistake.
    pub fn usage(message: impl Into<String>, hint: impl Into<Option<String>>) -> Self {
        Self::Usage { message: message.into(), hint: hint.into() }
    }

    /// An infrastructure error.
    pub fn infrastructure(message: impl Into<String>, hint: impl Into<Option<String>>) -> Self {
        Self::Infrastructure { message: message.into(), hint: hint.into() }
    }

    /// An error of the file system during `attempt`.
    pub fn io(attempt: impl Into<String>, source: std::io::Error) -> Self {
        Self::Io { attempt: attempt.into(), source }
    }

    /// Who can do something about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Usage { .. } | Self::Task(_) => ErrorKind::Usage,
            Self::Jail(JailError::NotFull { .. }) => ErrorKind::Isolation,
            Self::Infrastructure { .. } | Self::Jail(_) => ErrorKind::Infrastructure,
            Self::Io { source, .. } => kind_of_io(source),
            Self::Judge(error) => kind_of_judge(error),
            Self::Episode(error) => kind_of_episode(error),
            Self::Write(error) => kind_of_write(error),
            Self::Read(error) => kind_of_read(error),
            Self::DataSet(error) => kind_of_data_set(error),
            Self::Interrupted => ErrorKind::Interrupted,
        }
    }

    /// The cure, if one is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Usage { hint, .. } | Self::Infrastructure { hint, .. } => hint.clone(),
            Self::Io { source, .. } => hint_of_io(source),
            Self::Jail(error) => error.hint(),
            Self::Judge(error @ JudgeError::NoDeviceTier { .. }) => {
                let cure = error.hint().map(|hint| format!("{hint}; or "));
                Some(format!("{}pass `--require-tier any`", cure.unwrap_or_default()))
            }
            Self::Judge(error) => error.hint().map(str::to_owned),
            Self::Episode(error) => hint_of_episode(error),
            Self::Write(error) => error.hint(),
            Self::Read(error) => error.hint(),
            Self::Task(error) => error.hint(),
            Self::DataSet(error) => error.hint(),
            Self::Interrupted => None,
        }
    }
}

impl From<EpisodeError> for RolloutError {
    fn from(error: EpisodeError) -> Self {
        match error {
            EpisodeError::Record(error) => Self::Write(error),
            EpisodeError::Read(error) => Self::Read(error),
            other => Self::Episode(other),
        }
    }
}

/// The kind of an error of the file system.
pub fn kind_of_io(error: &std::io::Error) -> ErrorKind {
    use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    match error.kind() {
        StorageFull | QuotaExceeded | FileTooLarge => ErrorKind::DiskFull,
        _ => ErrorKind::Infrastructure,
    }
}

/// The cure of an error of the file system, if one is known.
pub fn hint_of_io(error: &std::io::Error) -> Option<String> {
    let hint = "free space there, then run the command again, or resume its run with `--resume`";
    (kind_of_io(error) == ErrorKind::DiskFull).then(|| hint.to_owned())
}

fn kind_of_judge(error: &JudgeError) -> ErrorKind {
    match error {
        JudgeError::Reference { .. }
        | JudgeError::Degenerate { .. }
        | JudgeError::NotReplayable { .. }
        | JudgeError::TooLarge { .. }
        | JudgeError::Memory { .. } => ErrorKind::Usage,
        JudgeError::Setup { .. }
        | JudgeError::NoDeviceTier { .. }
        | JudgeError::Infrastructure { .. }
        | JudgeError::Unfit { .. }
        | JudgeError::DeviceLost { .. } => ErrorKind::Infrastructure,
    }
}

fn kind_of_write(error: &WriteError) -> ErrorKind {
    match error {
        WriteError::Exists { .. } => ErrorKind::Usage,
        WriteError::NewerFormat { .. } | WriteError::OtherProgram { .. } => {
            ErrorKind::RecordVersion
        }
        WriteError::Full { .. } => ErrorKind::DiskFull,
        WriteError::Read(error) => kind_of_read(error),
        _ => ErrorKind::Infrastructure,
    }
}

/// The kind of an error of reading a record.
pub fn kind_of_read(error: &ReadError) -> ErrorKind {
    match error {
        ReadError::NotARun { .. } => ErrorKind::Usage,
        ReadError::NewerFormat { .. } => ErrorKind::RecordVersion,
        _ => ErrorKind::Infrastructure,
    }
}

fn kind_of_data_set(error: &DataSetError) -> ErrorKind {
    match error {
        DataSetError::Full { .. } => ErrorKind::DiskFull,
        DataSetError::Io { source, .. } if kind_of_io(source) == ErrorKind::DiskFull => {
            ErrorKind::DiskFull
        }
        DataSetError::Newer { .. } => ErrorKind::RecordVersion,
        DataSetError::Encode { .. } | DataSetError::BadRow { .. } => ErrorKind::Infrastructure,
        _ => ErrorKind::Usage,
    }
}

/// The system's error behind an error of a workspace.
fn io_of_workspace(error: &WorkspaceError) -> Option<&std::io::Error> {
    match error {
        WorkspaceError::Make { source, .. }
        | WorkspaceError::File { source: FileError::System { source, .. }, .. } => Some(source),
        WorkspaceError::File { .. } => None,
    }
}

fn kind_of_episode(error: &EpisodeError) -> ErrorKind {
    match error {
        EpisodeError::Record(error) => kind_of_write(error),
        EpisodeError::Read(error) => kind_of_read(error),
        EpisodeError::Workspace(error) => {
            io_of_workspace(error).map_or(ErrorKind::Infrastructure, kind_of_io)
        }
        EpisodeError::Diverged { .. } => ErrorKind::Infrastructure,
    }
}

fn hint_of_episode(error: &EpisodeError) -> Option<String> {
    match error {
        EpisodeError::Record(error) => error.hint(),
        EpisodeError::Read(error) => error.hint(),
        EpisodeError::Workspace(error) => io_of_workspace(error).and_then(hint_of_io),
        EpisodeError::Diverged { .. } => Some(
            "resume with the version of the program that started the run, or start a new run"
                .to_owned(),
        ),
    }
}

/// An error and its causes in one line. Omits a cause that its error already quotes.
pub fn chain(error: &dyn Error) -> String {
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
