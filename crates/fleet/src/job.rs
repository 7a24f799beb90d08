//! Jobs and their answers.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use warpwright_record::candidate::Candidate;
use warpwright_record::verdict::{Stage, Verdict};
use warpwright_task::Task;

/// A candidate to judge.
#[derive(Clone, Debug)]
pub struct Job {
    /// The task whose reference it is compared with.
    pub task: Task,
    /// The candidate's files.
    pub candidate: Candidate,
    /// The last stage that the judge runs.
    pub stage: Stage,
    /// Judge again even if the same files already have a verdict.
    pub fresh: bool,
}

/// The end of a job.
pub type Answer = Result<Box<Verdict>, Failed>;

/// Why a job has no verdict. Never a reward.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum Failed {
    /// The judge refuses the task: the caller's error.
    #[error("{message}")]
    Task {
        /// Why the judge refuses it.
        message: String,
        /// What the caller can do.
        hint: Option<String>,
    },
    /// The judge or its machine failed. A retry may help.
    #[error("{message}")]
    Infrastructure {
        /// What was attempted and what went wrong.
        message: String,
        /// What the operator can do.
        hint: Option<String>,
    },
    /// The server is shutting down.
    #[error("failed to judge: the server is shutting down")]
    Ending,
}

impl Failed {
    pub(crate) fn ours(message: impl Into<String>) -> Self {
        Self::Infrastructure { message: message.into(), hint: None }
    }
}
