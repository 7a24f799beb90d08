//! A policy whose messages come from a model server.

use std::collections::BTreeSet;
use std::sync::Arc;

use warpwright_record::dialogue::first_user_message;
use warpwright_record::message::{Generation, Message, Tokens, ToolCall, ToolResult, Usage};

use super::context::Context;
use super::endpoint::{Completed, Endpoint};
use super::wire::{Answer, AnsweredCall, Request, Sampling, arguments};
use crate::policy::{Briefing, Past, Policy, PolicyError, ResumeError};
use crate::tools::specification::{ToolSpecification, specifications};

/// Fraction of the context reserved for an answer without a token limit.
const ANSWER_SHARE: f64 = 0.15;

/// Settings of a remote policy, without its endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoteSettings {
    /// Its name in records, e.g. `openai:MODEL`.
    pub name: String,
    /// The model's name on its server.
    pub model: String,
    /// Sampling parameters.
    pub sampling: Sampling,
    /// Context length, tokens, answer included.
    pub context_tokens: u64,
    /// Prices, if known.
    pub prices: Option<Prices>,
}

/// Prices, US dollars per million tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    /// Input tokens.
    pub input: f64,
    /// Input tokens in the server's cache.
    pub cached: f64,
    /// Output tokens.
    pub output: f64,
}

impl Prices {
    /// Cost of these tokens, US dollars.
    pub fn dollars(&self, usage: &Usage) -> f64 {
        let fresh = usage.input_tokens.saturating_sub(usage.cached_tokens) as f64;
        let cached = usage.cached_tokens as f64 * self.cached;
        (fresh * self.input + cached + usage.output_tokens as f64 * self.output) / 1e6
    }
}

/// One episode's conversation with a model.
#[derive(Debug)]
pub struct RemotePolicy {
    endpoint: Arc<Endpoint>,
    settings: RemoteSettings,
    tools: Vec<ToolSpecification>,
    system: String,
    context: Context,
    /// Tokens of the last message and its context, if the server returns them.
    tokens: Vec<u32>,
}

impl RemotePolicy {
    /// A policy for one episode. The endpoint may be shared.
    pub fn new(endpoint: Arc<Endpoint>, settings: RemoteSettings) -> Self {
        Self {
            endpoint,
            settings,
            tools: specifications(),
            system: String::new(),
            context: Context::default(),
            tokens: Vec::new(),
        }
    }

    fn start(&mut self, briefing: &Briefing) {
        self.system.clone_from(&briefing.skill);
        let tools: usize = self
            .tools
            .iter()
            .map(|tool| tool.description.len() + tool.parameters.to_string().len())
            .sum();
        self.context = Context::new(
            self.system.len() + tools,
            first_user_message(&briefing.task, &briefing.reference),
        );
        self.tokens.clear();
    }

    fn ask(&mut self) -> Result<Message, PolicyError> {
        let settings = &self.settings;
        let share = (settings.context_tokens as f64 * ANSWER_SHARE) as u64;
        let kept_free = settings.sampling.max_output_tokens.unwrap_or(share);
        let limit = settings.context_tokens.saturating_sub(kept_free);
        let elided = self.context.make_room(limit);
        let entries = self.context.entries();
        let request = Request {
            model: &settings.model,
            system: &self.system,
            entries: &entries,
            tools: &self.tools,
            sampling: &settings.sampling,
        };
        let body = self.endpoint.format().body(&request);
        let completed = self.endpoint.complete(&body).map_err(|error| PolicyError {
            policy: settings.name.clone(),
            message: error.to_string(),
        })?;
        let message = self.message(completed, elided);
        self.remember(message.clone());
        Ok(message)
    }

    /// Appends a new or recorded message to the conversation.
    fn remember(&mut self, message: Message) {
        if let Some(tokens) = message.generation.as_ref().and_then(|g| g.tokens.as_ref()) {
            self.tokens.truncate(tokens.kept as usize);
            self.tokens.extend(tokens.prompt.iter().chain(&tokens.sampled));
        }
        self.context.said(message);
    }

    fn message(&self, completed: Completed, elided: Vec<String>) -> Message {
        let Completed { answer, attempts } = completed;
        let tokens = self.tokens_of(&answer);
        let mut usage = answer.usage.unwrap_or_default();
        usage.dollars = self.settings.prices.map(|prices| prices.dollars(&usage));
        let calls = self.calls(answer.calls);
        let model =
            if answer.model.is_empty() { self.settings.model.clone() } else { answer.model };
        let echo = answer.echo;
        let generation = Generation { model, usage, attempts, elided, echo, tokens };
        Message {
            text: answer.text,
            reasoning: answer.reasoning,
            calls,
            stop: answer.stop,
            generation: Some(Box::new(generation)),
        }
    }

    /// Calls with ids that are unique in the episode, regardless of the server's ids.
    fn calls(&self, answered: Vec<AnsweredCall>) -> Vec<ToolCall> {
        let mut taken = BTreeSet::new();
        let mut calls = Vec::with_capacity(answered.len());
        for call in answered {
            let mut id = call.id.clone();
            let mut number = 1;
            while id.is_empty() || taken.contains(&id) || self.context.has_call(&id) {
                number += 1;
                let stem = if call.id.is_empty() { "call" } else { call.id.as_str() };
                id = format!("{stem}_{number}");
            }
            taken.insert(id.clone());
            calls.push(ToolCall { id, name: call.name, arguments: arguments(&call.arguments) });
        }
        calls
    }

    /// The tokens of an answer, if the server returned the ids of its context and of its tokens.
    /// Log-probabilities are kept only if there is one per token.
    fn tokens_of(&self, answer: &Answer) -> Option<Tokens> {
        let context = answer.prompt_ids.as_ref()?;
        if answer.sampled_ids.is_empty() {
            return None;
        }
        let kept = self.tokens.iter().zip(context).take_while(|(a, b)| a == b).count();
        let sampled = answer.sampled_ids.clone();
        let logprobs = if answer.logprobs.len() == sampled.len() {
            answer.logprobs.clone()
        } else {
            Vec::new()
        };
        Some(Tokens { kept: kept as u64, prompt: context[kept..].to_vec(), sampled, logprobs })
    }
}

impl Policy for RemotePolicy {
    fn name(&self) -> String {
        self.settings.name.clone()
    }

    fn begin(&mut self, briefing: &Briefing) -> Result<Message, PolicyError> {
        self.start(briefing);
        self.ask()
    }

    fn next(&mut self, results: &[ToolResult]) -> Result<Message, PolicyError> {
        self.context.answered(results);
        self.ask()
    }

    /// The past becomes the context; none of it is requested again.
    fn resume(&mut self, briefing: &Briefing, past: &[Past]) -> Result<Message, ResumeError> {
        self.start(briefing);
        for turn in past {
            self.remember(turn.message.clone());
            self.context.answered(&turn.results);
        }
        Ok(self.ask()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_tokens_have_their_own_price() {
        let prices = Prices { input: 2.0, cached: 0.5, output: 10.0 };
        let usage = Usage {
            input_tokens: 1_000_000,
            cached_tokens: 400_000,
            output_tokens: 100_000,
            dollars: None,
        };
        let dollars = prices.dollars(&usage);
        assert!((dollars - (1.2 + 0.2 + 1.0)).abs() < 1e-9, "{dollars}");
    }
}
