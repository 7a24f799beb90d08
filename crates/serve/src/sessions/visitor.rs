//! A policy whose messages come from elsewhere: from a trainer that speaks to this server.

use tokio::sync::mpsc;
use warpwright_agent::episode::Ended;
use warpwright_agent::policy::{Briefing, Past, Policy, PolicyError, ResumeError};
use warpwright_record::message::{Message, ToolResult};

/// What an episode tells of itself.
#[derive(Debug)]
pub(super) enum News {
    /// It has begun: its workspace is there.
    Began,
    /// What the calls of the last message came to.
    Results(Vec<ToolResult>),
    /// It is over, or could not be kept.
    Ended(Result<Box<Ended>, String>),
}

/// The policy's end of a session.
#[derive(Debug)]
pub(super) struct Visitor {
    pub(super) says: mpsc::Receiver<Message>,
    pub(super) news: mpsc::Sender<News>,
}

impl Visitor {
    fn next_message(&mut self) -> Result<Message, PolicyError> {
        self.says.blocking_recv().ok_or_else(|| PolicyError {
            policy: self.name(),
            message: "whoever played it is gone".to_owned(),
        })
    }

    fn tell(&self, news: News) {
        // Nobody may be there to hear it.
        let _ = self.news.blocking_send(news);
    }
}

impl Policy for Visitor {
    fn name(&self) -> String {
        "visitor".to_owned()
    }

    fn begin(&mut self, _: &Briefing) -> Result<Message, PolicyError> {
        self.tell(News::Began);
        self.next_message()
    }

    fn next(&mut self, results: &[ToolResult]) -> Result<Message, PolicyError> {
        self.tell(News::Results(results.to_vec()));
        self.next_message()
    }

    /// It is not taken up in another process: who played it has lost its place with this one.
    fn resume(&mut self, _: &Briefing, _: &[Past]) -> Result<Message, ResumeError> {
        let message = "sessions end with the process that they were begun in".to_owned();
        Err(PolicyError { policy: self.name(), message }.into())
    }
}
