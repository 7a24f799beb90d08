//! Why a build ends early.

use warpwright_record::verdict::{Diagnostic, FailureClass};

use crate::error::BuildError;

/// The compiler's or linker's output on failure, or the reason why it was stopped.
#[derive(Clone, Debug)]
pub(crate) struct Rejected {
    pub diagnostics: Vec<Diagnostic>,
    pub raw_tail: String,
}

/// Why a build ended early: a failure of the candidate, or an infrastructure error.
pub(crate) enum Stop {
    Failed(FailureClass, Rejected),
    Error(BuildError),
}

impl<E: Into<BuildError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

pub(crate) fn rejected(class: FailureClass, diagnostics: Vec<Diagnostic>) -> Stop {
    Stop::Failed(class, Rejected { diagnostics, raw_tail: String::new() })
}
