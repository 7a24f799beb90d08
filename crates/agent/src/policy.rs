//! What produces the next message.

use thiserror::Error;
use warpwright_record::message::{Message, ToolResult};
use warpwright_record::verdict::Profile;

use crate::judge::DeviceFacts;

/// What a policy is given at the start of an episode.
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
    /// Messages it may say, if that is bounded. What lies in the workspace after the last is judged.
    pub turns: Option<u32>,
}

/// One policy working on one episode. Policies keep their own state between turns; what they
/// said and saw is recorded by the loop, not by them.
pub trait Policy: Send {
    /// Name for records, e.g. `teacher`.
    fn name(&self) -> String;

    /// The first message.
    fn begin(&mut self, briefing: &Briefing) -> Result<Message, PolicyError>;

    /// The next message, given the results of the last message's calls in order. A message without
    /// calls ends the episode, unless it was cut short
    /// ([`StopReason::Length`](warpwright_record::message::StopReason)): then there are no results.
    fn next(&mut self, results: &[ToolResult]) -> Result<Message, PolicyError>;

    /// Takes an episode up again in another process: brings the policy to where it was after
    /// `past` (finished turns, in order) and gives the next message.
    ///
    /// As it stands it suits deterministic policies: they answer the recorded results again, and
    /// every answer must be the recorded one. A policy that samples takes the past as its context.
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
    /// What the policy said.
    pub message: Message,
    /// What its calls came to, in order.
    pub results: Vec<ToolResult>,
}

/// Why a policy could not take up an episode.
#[derive(Debug, Error)]
pub enum ResumeError {
    /// It could not answer.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// It answered differently from the record: another version, or not deterministic.
    #[error("failed to resume: the answer of turn {turn} differs from the record")]
    Diverged {
        /// The first turn that differs, from 1.
        turn: u32,
    },
}

/// A policy could not answer. Infrastructure, not an outcome of the episode.
#[derive(Debug, Error)]
#[error("failed to get the next message from policy {policy}: {message}")]
pub struct PolicyError {
    /// Which policy.
    pub policy: String,
    /// Why.
    pub message: String,
}
