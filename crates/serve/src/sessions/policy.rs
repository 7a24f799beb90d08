//! A policy whose messages come from a client of this server.

use tokio::sync::mpsc;
use warpwright_agent::episode::Ended;
use warpwright_agent::policy::{Briefing, Past, Policy, PolicyError, ResumeError};
use warpwright_record::message::{Message, ToolResult};

/// An event of an episode.
#[derive(Debug)]
pub(super) enum SessionEvent {
    /// It has begun: its workspace exists.
    Began,
    /// The tool results of the last message.
    Results(Vec<ToolResult>),
    /// It has ended, or failed.
    Ended(Result<Box<Ended>, String>),
}

/// The policy's end of a session.
#[derive(Debug)]
pub(super) struct SessionPolicy {
    pub(super) says: mpsc::Receiver<Message>,
    pub(super) events: mpsc::Sender<SessionEvent>,
}

impl SessionPolicy {
    fn next_message(&mut self) -> Result<Message, PolicyError> {
        self.says.blocking_recv().ok_or_else(|| PolicyError {
            policy: self.name(),
            message: "the client closed the session".to_owned(),
        })
    }

    fn tell(&self, event: SessionEvent) {
        // The session may be closed.
        let _ = self.events.blocking_send(event);
    }
}

impl Policy for SessionPolicy {
    fn name(&self) -> String {
        "session-client".to_owned()
    }

    fn begin(&mut self, _: &Briefing) -> Result<Message, PolicyError> {
        self.tell(SessionEvent::Began);
        self.next_message()
    }

    fn next(&mut self, results: &[ToolResult]) -> Result<Message, PolicyError> {
        self.tell(SessionEvent::Results(results.to_vec()));
        self.next_message()
    }

    /// A session cannot be resumed: its client was connected to the process that has ended.
    fn resume(&mut self, _: &Briefing, _: &[Past]) -> Result<Message, ResumeError> {
        let message = "a session ends with its server process".to_owned();
        Err(PolicyError { policy: self.name(), message }.into())
    }
}
