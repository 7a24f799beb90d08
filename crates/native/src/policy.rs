//! The policy of one episode: a growing context, and messages sampled after it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use warpwright_agent::policy::{Briefing, Past, Policy, PolicyError, ResumeError};
use warpwright_learn::engine::{Prompt, Sampled, Sampling};
use warpwright_record::message::{Generation, Message, StopReason, Tokens, ToolResult, Usage};

use crate::batcher::{Draws, NotDrawn};
use crate::dialogue::Dialogue;

/// A model and its sampling parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Name of the model in records.
    pub model: String,
    /// Sampling parameters; `stop` is set to the stop tokens of a message.
    pub sampling: Sampling,
    /// Maximum context length with the answer, in tokens.
    pub positions: usize,
}

/// A native policy in one episode.
pub struct Native {
    draws: Arc<dyn Draws>,
    dialogue: Arc<dyn Dialogue>,
    settings: Settings,
    seed: u64,
    /// All tokens it has read and sampled.
    context: Vec<u32>,
    /// Number of messages it has sampled.
    said: u32,
}

impl Native {
    /// A policy for one episode.
    pub fn new(draws: Arc<dyn Draws>, dialogue: Arc<dyn Dialogue>, mut settings: Settings) -> Self {
        settings.sampling.stop = dialogue.stops();
        Self { draws, dialogue, settings, seed: 0, context: Vec::new(), said: 0 }
    }

    /// Appends `new` to the context and samples an answer. Without room for an answer the policy
    /// ends the episode.
    fn answer(&mut self, new: Vec<u32>) -> Result<Message, PolicyError> {
        let kept = self.context.len() as u64;
        let turn = self.said + 1;
        let room = self.settings.positions.saturating_sub(self.context.len() + new.len());
        if room == 0 {
            return self.fall_silent(kept);
        }
        self.context.extend(&new);
        let prompt = Prompt { ids: self.context.clone(), stream: stream(self.seed, turn) };
        let most = self.settings.sampling.max_new_tokens.min(room.try_into().unwrap_or(u32::MAX));
        let sampling = Sampling { max_new_tokens: most, ..self.settings.sampling.clone() };
        let drawn = self.draws.draw(prompt, &sampling);
        let Sampled { ids, logprobs, is_complete } = drawn.map_err(|error| self.failed(&error))?;
        self.context.extend(&ids);
        self.said = turn;
        let message = self.dialogue.message(&ids, turn, is_complete);
        let (input, output) = (self.context.len() - ids.len(), ids.len());
        let tokens = Tokens { kept, prompt: new, sampled: ids, logprobs };
        Ok(self.generated(message, tokens, (input, output)))
    }

    /// An empty message: the context is full.
    fn fall_silent(&mut self, kept: u64) -> Result<Message, PolicyError> {
        if self.said == 0 {
            let message = format!(
                "the task's prompt fills the model's context of {} tokens",
                self.settings.positions
            );
            return Err(PolicyError { policy: self.name(), message });
        }
        self.said += 1;
        let message = Message { stop: StopReason::Done, ..Message::default() };
        let tokens = Tokens { kept, ..Tokens::default() };
        Ok(self.generated(message, tokens, (0, 0)))
    }

    fn generated(
        &self,
        message: Message,
        tokens: Tokens,
        (input, output): (usize, usize),
    ) -> Message {
        let usage = Usage {
            input_tokens: input as u64,
            cached_tokens: 0,
            output_tokens: output as u64,
            dollars: None,
        };
        let generation = Generation {
            model: self.settings.model.clone(),
            usage,
            attempts: 1,
            tokens: Some(tokens),
            ..Generation::default()
        };
        Message { generation: Some(Box::new(generation)), ..message }
    }

    fn failed(&self, error: &NotDrawn) -> PolicyError {
        PolicyError { policy: self.name(), message: error.to_string() }
    }
}

impl Policy for Native {
    fn name(&self) -> String {
        "native".to_owned()
    }

    fn begin(&mut self, briefing: &Briefing) -> Result<Message, PolicyError> {
        (self.seed, self.said) = (briefing.seed, 0);
        self.context.clear();
        let opening = self.dialogue.briefing(briefing);
        self.answer(opening)
    }

    fn next(&mut self, results: &[ToolResult]) -> Result<Message, PolicyError> {
        let new = self.dialogue.results(results);
        self.answer(new)
    }

    /// Restores the context from the sampled tokens as they were recorded.
    fn resume(&mut self, briefing: &Briefing, past: &[Past]) -> Result<Message, ResumeError> {
        (self.seed, self.said) = (briefing.seed, 0);
        self.context.clear();
        let mut results: Option<&[ToolResult]> = None;
        for (turn, past) in (1..).zip(past) {
            let tokens = past.message.generation.as_ref().and_then(|g| g.tokens.as_ref());
            let tokens = tokens.filter(|tokens| tokens.kept == self.context.len() as u64);
            let tokens = tokens.ok_or(ResumeError::Diverged { turn })?;
            self.context.extend(tokens.prompt.iter().chain(&tokens.sampled));
            self.said = turn;
            results = Some(&past.results);
        }
        let message = match results {
            None => self.begin(briefing),
            Some(results) => self.next(results),
        };
        Ok(message?)
    }
}

/// The sampling stream of each turn of each episode.
fn stream(seed: u64, turn: u32) -> u64 {
    // SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014):
    // seeds that differ in one bit give unrelated streams.
    let mut z = seed.wrapping_add(u64::from(turn).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde_json::json;
    use warpwright_agent::judge::DeviceFacts;
    use warpwright_record::message::{ToolCall, ToolStatus};
    use warpwright_record::verdict::Profile;

    use super::*;
    use crate::batcher::Batcher;
    use crate::batcher::tests::Echo;
    use crate::dialogue::Marks;
    use crate::tokenizer::{Mark, Pretokenizer, Tokenizer};

    fn dialogue() -> Arc<Marks> {
        let tokenizer = Tokenizer::train(["class Model: ...\n"], 280, Pretokenizer::Words).unwrap();
        Arc::new(Marks::new(tokenizer, 4))
    }

    fn briefing(seed: u64) -> Briefing {
        Briefing {
            task: "relu".to_owned(),
            reference: "class Model: ...".to_owned(),
            skill: String::new(),
            device: DeviceFacts::assumed("cpu"),
            profile: Profile::Strict,
            seed,
            turns: None,
        }
    }

    fn result() -> ToolResult {
        let call = "turn-1-call-1".to_owned();
        let (verdicts, findings) = (vec![], vec![]);
        ToolResult { call, status: ToolStatus::Ok, text: "good".to_owned(), verdicts, findings }
    }

    /// A model that says the same each time: one call.
    fn native(positions: usize) -> (Native, Message) {
        let dialogue = dialogue();
        let arguments = json!({ "command": "true" });
        let call = ToolCall { id: "turn-1-call-1".to_owned(), name: "Bash".to_owned(), arguments };
        let message = Message { calls: vec![call], ..Message::default() };
        let ids = dialogue.said(&message);
        let logprobs = (0..ids.len()).map(|n| -0.5 - n as f32).collect();
        let drawn = Sampled { ids, logprobs, is_complete: true };
        let after = dialogue.tokenizer().id(Mark::Policy);
        let echo = Echo { answers: HashMap::from([(after, drawn)]), ..Echo::default() };
        let settings =
            Settings { model: "tiny".to_owned(), sampling: Sampling::default(), positions };
        (Native::new(Arc::new(Batcher::new(echo)), dialogue, settings), message)
    }

    fn tokens(message: &Message) -> Tokens {
        message.generation.as_ref().unwrap().tokens.clone().unwrap()
    }

    #[test]
    fn every_sampled_token_is_recorded_once() {
        let (mut native, message) = native(1000);
        let first = native.begin(&briefing(0)).unwrap();
        assert_eq!(first.calls, message.calls);
        let second = native.next(&[result()]).unwrap();
        let (a, b) = (tokens(&first), tokens(&second));
        assert_eq!((a.kept, b.kept as usize), (0, a.prompt.len() + a.sampled.len()));
        assert_eq!(a.prompt, native.dialogue.briefing(&briefing(0)));
        assert_eq!(b.prompt, native.dialogue.results(&[result()]));
        assert_eq!(a.logprobs.len(), a.sampled.len());
        let all = [a.prompt, a.sampled, b.prompt, b.sampled].concat();
        assert_eq!(native.context, all);
    }

    #[test]
    fn resumed_policy_continues_from_its_context() {
        let (mut one, _) = native(1000);
        let first = one.begin(&briefing(5)).unwrap();
        let second = one.next(&[result()]).unwrap();
        let past = Past { message: first, results: vec![result()] };
        let (mut other, _) = native(1000);
        assert_eq!(other.resume(&briefing(5), std::slice::from_ref(&past)).unwrap(), second);
        assert_eq!(other.context, one.context);
        let untold = Past { message: Message::default(), ..past };
        let error = other.resume(&briefing(5), &[untold]).unwrap_err();
        assert!(matches!(error, ResumeError::Diverged { turn: 1 }));
    }

    #[test]
    fn full_context_ends_and_too_long_task_fails() {
        let opening = dialogue().briefing(&briefing(0)).len();
        let (mut small, message) = native(opening + 12);
        let said = small.dialogue.said(&message).len();
        let first = small.begin(&briefing(0)).unwrap();
        assert_eq!(tokens(&first).sampled.len(), said);
        let last = small.next(&[result()]).unwrap();
        assert!(last.calls.is_empty() && last.stop.is_done());
        assert_eq!(tokens(&last).prompt, [] as [u32; 0]);
        let (mut none, _) = native(opening);
        let error = none.begin(&briefing(0)).unwrap_err().to_string();
        assert!(error.contains("fills the model's context"), "{error}");
    }

    #[test]
    fn streams_of_turns_are_independent() {
        let mut all: Vec<u64> =
            (0..50).flat_map(|seed| (1..20).map(move |turn| stream(seed, turn))).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 50 * 19);
    }
}
