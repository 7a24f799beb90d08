//! Who writes: something that can be spoken with.

use thiserror::Error;

/// Something that can be spoken with, such as a language model. Several conversations may be held at
/// once, each by its caller.
pub trait Author: Send + Sync {
    /// What records say of it, e.g. `openai:MODEL`.
    fn name(&self) -> &str;

    /// What it says next. Blocks; whatever can be mended by asking again was.
    fn write(&self, system: &str, conversation: &[Turn]) -> Result<String, AuthorError>;
}

/// One turn of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// What the author is asked.
    Asked(String),
    /// What it answered.
    Answered(String),
}

/// Why a policy can write no tasks, whatever the seed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AuthorError {
    /// It cannot be asked.
    #[error("failed to ask {author}: {reason}")]
    Unreachable {
        /// Its name.
        author: String,
        /// What went wrong.
        reason: String,
        /// What the caller can do.
        cure: String,
    },
    /// Its answers contain no valid task.
    #[error(
        "failed to get tasks from {author}: {answers} answers in a row contained no valid task; the last: {reason}"
    )]
    NoTasks {
        /// Its name.
        author: String,
        /// How many.
        answers: u32,
        /// What was wrong with the last one.
        reason: String,
    },
    /// The user wants to stop.
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
