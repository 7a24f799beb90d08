//! Errors of the builder that the candidate did not cause.

use std::path::PathBuf;

use thiserror::Error;

/// An infrastructure error: it says nothing about the candidate and never becomes a reward.
#[derive(Debug, Error)]
pub enum BuildError {
    /// A tool that this build needs is not installed.
    #[error("failed to find {tool}\nhint: {hint}")]
    MissingTool {
        /// Name of the tool.
        tool: String,
        /// The command or setting that fixes it.
        hint: String,
    },
    /// A tool is installed but does not work.
    #[error("failed to use {tool}: {reason}")]
    BrokenTool {
        /// Name or path of the tool.
        tool: String,
        /// Its message or behaviour.
        reason: String,
    },
    /// The jail could not start or watch a compiler.
    #[error("failed to run {tool} in the jail: {reason}")]
    Jail {
        /// Name of the tool.
        tool: String,
        /// The jail's message.
        reason: String,
    },
    /// A file or folder of the build cache or of a scratch folder could not be used.
    #[error("failed to use the build cache or a scratch folder: {0}")]
    Io(#[from] std::io::Error),
    /// A build manifest could not be written or read.
    #[error("failed to read or write the build manifest {path}: {source}")]
    Json {
        /// The file.
        path: PathBuf,
        /// The parser's message.
        source: serde_json::Error,
    },
}
