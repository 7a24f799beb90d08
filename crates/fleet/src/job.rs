//! What is asked, and what comes of it.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use warpwright_record::candidate::Candidate;
use warpwright_record::verdict::{Stage, Verdict};
use warpwright_task::Task;

/// A candidate to judge.
#[derive(Clone, Debug)]
pub struct Job {
    /// The task whose reference it is held against.
    pub task: Task,
    /// Its files.
    pub candidate: Candidate,
    /// How far it is taken.
    pub stage: Stage,
    /// Whether it is run although the same files were judged before.
    pub fresh: bool,
}

/// What becomes of a job.
pub type Answer = Result<Box<Verdict>, Failed>;

/// Why a job has no verdict. Never a reward.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum Failed {
    /// The task cannot be judged against: the caller's mistake.
    #[error("{message}")]
    Task {
        /// What its reference did.
        message: String,
        /// What the caller can do.
        hint: Option<String>,
    },
    /// The judge or its machine failed. Asking again may help.
    #[error("{message}")]
    Infrastructure {
        /// What was attempted and what went wrong.
        message: String,
        /// What the operator can do.
        hint: Option<String>,
    },
    /// Whoever judges is about to end.
    #[error("failed to judge: the server is ending")]
    Ending,
}

impl Failed {
    pub(crate) fn ours(message: impl Into<String>) -> Self {
        Self::Infrastructure { message: message.into(), hint: None }
    }
}
