//! Errors of composers.

use crate::catalogue::{CatalogueError, ShapeError};

use super::llm::{AnswerError, AuthorError};

/// Why a composer returned no proposal.
#[derive(Debug, thiserror::Error)]
pub enum ComposeError {
    /// No sampled task met the constraints.
    #[error(
        "failed to compose a task from seed {seed}: none of {draws} samples met the constraints"
    )]
    Exhausted {
        /// The seed.
        seed: u64,
        /// Number of samples tried.
        draws: usize,
    },
    /// No task can meet the constraints.
    #[error("failed to compose tasks: {0}")]
    Wishes(&'static str),
    /// A requested operator cannot be composed.
    #[error("failed to compose tasks with {name}: no catalogue has a composable form of it")]
    Unknown {
        /// The operator as requested.
        name: String,
    },
    /// A plan that does not fit the catalogue.
    #[error("failed to build the task's plan: {0}")]
    Plan(String),
    /// Shapes that do not fit an operator.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The catalogue.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// The policy's answer contains no valid task.
    #[error(transparent)]
    Answer(#[from] AnswerError),
    /// The policy gave no answer.
    #[error(transparent)]
    Author(#[from] AuthorError),
}

impl ComposeError {
    /// A stable key for counting.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Answer(error) => error.name(),
            _ => "not_composed",
        }
    }
}
