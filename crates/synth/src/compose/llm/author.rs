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

/// Why an author writes no more tasks: no seed is worth trying with it.
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
    /// It answers, and never with a task.
    #[error(
        "failed to have tasks written by {author}: {answers} answers in a row were none; the last: {reason}"
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
    #[error("interrupted while asking {author}")]
    Interrupted {
        /// Its name.
        author: String,
    },
}

impl AuthorError {
    /// What the caller can do, if anything.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Unreachable { cure, .. } => Some(cure),
            Self::NoTasks { .. } => Some(
                "try a more capable model, more `--max-output-tokens`, or `--composer grammar`; \
                 the log beside the data set says what was wrong with each answer",
            ),
            Self::Interrupted { .. } => None,
        }
    }
}
