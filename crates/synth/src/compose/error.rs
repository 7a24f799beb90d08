//! Why a composer gives nothing.

use crate::catalogue::{CatalogueError, ShapeError};

use super::llm::{AnswerError, AuthorError};

/// Why there is no proposal.
#[derive(Debug, thiserror::Error)]
pub enum ComposeError {
    /// No draw fulfilled the wishes.
    #[error("failed to compose a task from seed {seed}: none of {draws} draws met the wishes")]
    Exhausted {
        /// The seed.
        seed: u64,
        /// How many were made.
        draws: usize,
    },
    /// The wishes cannot be met by anything.
    #[error("failed to compose tasks: {0}")]
    Wishes(&'static str),
    /// An operator that is wished for and cannot be composed.
    #[error(
        "failed to compose tasks of {name}: no catalogue has it in a form that can be composed"
    )]
    Unknown {
        /// As it was wished for.
        name: String,
    },
    /// A plan that does not fit the catalogue.
    #[error("failed to build a plan: {0}")]
    Plan(String),
    /// Shapes that do not fit an operator.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The catalogue.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// An author's answer is no task.
    #[error(transparent)]
    Answer(#[from] AnswerError),
    /// An author gives no answer.
    #[error(transparent)]
    Author(#[from] AuthorError),
}

impl ComposeError {
    /// One word for counting.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Answer(error) => error.name(),
            _ => "not_composed",
        }
    }
}
