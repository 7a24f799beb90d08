//! The interface to the language model that writes tasks.

use thiserror::Error;

/// A conversation partner, such as a language model. Several conversations may run concurrently,
/// one per caller.
pub trait Author: Send + Sync {
    /// Name in records, e.g. `openai:MODEL`.
    fn name(&self) -> &str;

    /// The next answer. Blocks; the implementation has already retried transient failures.
    fn write(&self, system: &str, conversation: &[Turn]) -> Result<String, AuthorError>;
}

/// One turn of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// A message to the author.
    Asked(String),
    /// Its answer.
    Answered(String),
}

/// Why an author can write no tasks, for any seed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AuthorError {
    /// It cannot be reached.
    #[error("failed to ask {author}: {reason}")]
    Unreachable {
        /// Its name.
        author: String,
        /// The cause.
        reason: String,
        /// Advice for the caller.
        cure: String,
    },
    /// Its answers contain no valid task.
    #[error(
        "failed to get tasks from {author}: {answers} answers in a row contained no valid task; the last: {reason}"
    )]
    NoTasks {
        /// Its name.
        author: String,
        /// Number of answers.
        answers: u32,
        /// Fault of the last answer.
        reason: String,
    },
    /// The user interrupted.
    #[error("interrupted while waiting for {author}")]
    Interrupted {
        /// Its name.
        author: String,
    },
}

impl AuthorError {
    /// The cure, if one is known.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Unreachable { cure, .. } => Some(cure),
            Self::NoTasks { .. } => Some(
                "try a more capable model, a larger `--max-output-tokens`, or `--composer grammar`; \
                 the log next to the data set has the reason for each answer",
            ),
            Self::Interrupted { .. } => None,
        }
    }
}
