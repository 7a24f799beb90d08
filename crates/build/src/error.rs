//! What can go wrong here that is not the candidate's doing.

use std::path::PathBuf;

use thiserror::Error;

/// An infrastructure error: the candidate is not judged by it, and earns no reward from it.
#[derive(Debug, Error)]
pub enum BuildError {
    /// A tool that this build needs is not installed.
    #[error("failed to find {tool}\nhint: {hint}")]
    MissingTool {
        /// Which.
        tool: String,
        /// The command or setting that cures it.
        hint: String,
    },
    /// A tool is there and does not work.
    #[error("failed to use {tool}: {reason}")]
    BrokenTool {
        /// Which, with its path.
        tool: String,
        /// What it said or did.
        reason: String,
    },
    /// The jail could not start or watch a compiler.
    #[error("failed to run {tool} in the jail: {reason}")]
    Jail {
        /// Which.
        tool: String,
        /// The jail's message.
        reason: String,
    },
    /// A file or folder of the cache or of a scratch folder.
    #[error("failed to keep a build: {0}")]
    Io(#[from] std::io::Error),
    /// A description of ours could not be written or read.
    #[error("failed to describe a build in {path}: {source}")]
    Json {
        /// The file.
        path: PathBuf,
        /// The parser's message.
        source: serde_json::Error,
    },
}
