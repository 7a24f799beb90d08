//! Policies: produce the next message of an episode.

use thiserror::Error;
use warpwright_record::message::{Message, ToolResult};
use warpwright_record::verdict::Profile;

use crate::judge::DeviceFacts;

/// The input of a policy at the start of an episode.
#[derive(Clone, Debug)]
pub struct Briefing {
    /// Name of the task.
    pub task: String,
    /// The reference's source (`model.py`).
    pub reference: String,
    /// The skill text for this device.
    pub skill: String,
    /// The device.
    pub device: DeviceFacts,
    /// Precision and rules of comparison.
    pub profile: Profile,
    /// Seed of the episode.
    pub seed: u64,
    /// Maximum number of messages, if any. The judge judges the workspace after the last.
    pub turns: Option<u32>,
}

/// A policy in one episode. Policies keep their own state between turns; the loop records their messages and
/// results.
pub trait Policy: Send {
    /// Name for records, e.g. `teacher`.
    fn name(&self) -> String;

    /// The first message.
    fn begin(&mut self, briefing: &Briefing) -> Result<Message, PolicyError>;

    /// The next message, given the results of the last message's calls in order. A message without
    /// calls ends the episode, unless it was cut short
    /// ([`StopReason::Length`](warpwright_record::message::StopReason)): then there are no results.
    fn next(&mut self, results: &[ToolResult]) -> Result<Message, PolicyError>;

    /// Resumes an episode in another process: restores the policy's state after `past` (finished turns, in
    /// order) and returns the next message.
    ///
    /// The default suits deterministic policies: it replays the recorded results, and every answer must equal the
    /// recorded one. A policy that samples takes the past as its context instead.
    fn resume(&mut self, briefing: &Briefing, past: &[Past]) -> Result<Message, ResumeError> {
        let mut message = self.begin(briefing)?;
        for (turn, past) in (1..).zip(past) {
            if message != past.message {
                return Err(ResumeError::Diverged { turn });
            }
            message = self.next(&past.results)?;
        }
        Ok(message)
    }
}

/// A finished turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Past {
    /// The policy's message.
    pub message: Message,
    /// The results of its calls, in order.
    pub results: Vec<ToolResult>,
}

/// Why a policy could not resume an episode.
#[derive(Debug, Error)]
pub enum ResumeError {
    /// It could not answer.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// It answered differently from the record: another version, or not deterministic.
    #[error("failed to resume the episode: the answer of turn {turn} differs from the record")]
    Diverged {
        /// The first turn that differs, from 1.
        turn: u32,
    },
}

/// A policy could not answer: an infrastructure error.
#[derive(Debug, Error)]
#[error("failed to get the next message from policy {policy}: {message}")]
pub struct PolicyError {
    /// The policy's name.
    pub policy: String,
    /// The cause.
    pub message: String,
}
