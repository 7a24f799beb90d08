//! Plain chat with a model behind an endpoint: no tools, no episode.

use std::sync::Arc;

use warpwright_record::message::{Message, StopReason, Usage};

use super::endpoint::{Completed, Endpoint, EndpointError};
use super::policy::RemoteSettings;
use super::wire::{Entry, Request, Sampling};

/// A chat model. Several threads may call it concurrently.
#[derive(Debug)]
pub struct Speaker {
    endpoint: Arc<Endpoint>,
    settings: RemoteSettings,
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A message to the model.
    User(String),
    /// An answer of the model.
    Assistant(String),
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// Its text, without the reasoning.
    pub text: String,
    /// Why it ends.
    pub stop: StopReason,
    /// Token counts of the server; cost if prices are known.
    pub usage: Usage,
    /// Requests sent, the last one included.
    pub attempts: u32,
}

impl Speaker {
    /// A chat model on an endpoint, which may be shared. Token ids are never requested: no training
    /// uses these answers.
    pub fn new(endpoint: Arc<Endpoint>, settings: RemoteSettings) -> Self {
        let sampling = Sampling { token_ids: false, ..settings.sampling };
        Self { endpoint, settings: RemoteSettings { sampling, ..settings } }
    }

    /// Its name in records, e.g. `openai:MODEL`.
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// The model's next answer. Blocks; the endpoint retries and waits.
    pub fn ask(&self, system: &str, conversation: &[Line]) -> Result<Said, EndpointError> {
        let entry = |line: &Line| match line {
            Line::User(text) => Entry::User(text.clone()),
            Line::Assistant(text) => {
                Entry::Said(Message { text: text.clone(), ..Message::default() })
            }
        };
        let entries: Vec<Entry> = conversation.iter().map(entry).collect();
        let request = Request {
            model: &self.settings.model,
            system,
            entries: &entries,
            tools: &[],
            sampling: &self.settings.sampling,
        };
        let Completed { answer, attempts } =
            self.endpoint.complete(&self.endpoint.format().body(&request))?;
        let mut usage = answer.usage.unwrap_or_default();
        usage.dollars = self.settings.prices.map(|prices| prices.dollars(&usage));
        Ok(Said { text: answer.text, stop: answer.stop, usage, attempts })
    }
}
