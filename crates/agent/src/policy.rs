//! What produces the next message.

use thiserror::Error;
use warpwright_record::message::{Message, ToolResult};

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
    /// Seed of the episode.
    pub seed: u64,
}

/// One policy working on one episode. Policies keep their own state between turns; what they
/// said and saw is recorded by the loop, not by them.
pub trait Policy: Send {
    /// Name for records, e.g. `teacher`.
    fn name(&self) -> String;

    /// The first message.
    fn begin(&mut self, briefing: &Briefing) -> Result<Message, PolicyError>;

    /// The next message, given the results of the last message's calls in order. A message without
    /// calls ends the episode.
    fn next(&mut self, results: &[ToolResult]) -> Result<Message, PolicyError>;
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
