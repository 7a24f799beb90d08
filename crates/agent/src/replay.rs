//! A policy that replays the messages of a recorded episode.

use std::path::{Path, PathBuf};

use thiserror::Error;
use warpwright_record::error::ReadError;
use warpwright_record::history::{Episode, History};
use warpwright_record::message::{Message, ToolResult};
use warpwright_record::reader::RunReader;

use crate::policy::{Briefing, Policy, PolicyError};

/// Replays messages in order and stops after the last. It ignores the tools' results, which may differ from the
/// recorded ones.
#[derive(Clone, Debug)]
pub struct Replay {
    messages: std::vec::IntoIter<Message>,
}

/// Why a trajectory cannot be replayed.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// The record cannot be read.
    #[error("failed to read the trajectory to replay")]
    Read(#[from] ReadError),
    /// No episode of this task.
    #[error(
        "failed to find a trajectory to replay in {path}: none of its {episodes} episodes is of task {task}"
    )]
    NoEpisode {
        /// The run.
        path: PathBuf,
        /// The requested task.
        task: String,
        /// Episodes in the run.
        episodes: usize,
    },
}

impl Replay {
    /// A policy that replays these messages.
    pub fn new(messages: Vec<Message>) -> Self {
        Self { messages: messages.into_iter() }
    }

    /// A policy that replays the first episode of `task` in the run at `path`. A run with a single
    /// episode matches any task name.
    pub fn from_run(path: &Path, task: &str) -> Result<Self, ReplayError> {
        let history = History::read(&RunReader::open(path)?)?;
        let mut episodes: Vec<Episode> = history.episodes.into_values().collect();
        let found = episodes.iter().position(|e| e.setup.task == task);
        let chosen = match found {
            Some(index) => episodes.swap_remove(index),
            None if episodes.len() == 1 => episodes.swap_remove(0),
            None => {
                let (path, task) = (path.to_owned(), task.to_owned());
                return Err(ReplayError::NoEpisode { path, task, episodes: episodes.len() });
            }
        };
        Ok(Self::new(chosen.turns.into_iter().map(|turn| turn.message).collect()))
    }

    fn say(&mut self) -> Message {
        self.messages.next().unwrap_or_default()
    }
}

impl Policy for Replay {
    fn name(&self) -> String {
        "replay".to_owned()
    }

    fn begin(&mut self, _: &Briefing) -> Result<Message, PolicyError> {
        Ok(self.say())
    }

    fn next(&mut self, _: &[ToolResult]) -> Result<Message, PolicyError> {
        Ok(self.say())
    }
}
