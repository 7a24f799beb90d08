//! Formats of conversations as tokens, in both directions: one per kind of model.

mod chat;
mod json;
mod marks;

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use thiserror::Error;
use warpwright_agent::judge::DeviceFacts;
use warpwright_agent::policy::Briefing;
use warpwright_record::message::{Message, ToolResult};
use warpwright_record::tokens::Sequence;

pub use self::chat::{Chat, ChatError};
pub use self::marks::Marks;
use crate::tokenizer::{Tokenizer, TokenizerError};

/// Why a tokenizer has no known format.
#[derive(Debug, Error)]
pub enum DialogueError {
    /// It could not be read.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// It is neither one that `warpwright train` wrote nor a chat model's.
    #[error("{0}; it is not a tokenizer that `warpwright train` wrote either")]
    Chat(#[from] ChatError),
}

/// Chooses the format of a `tokenizer.json`: ours, or a chat model's. `result_tokens` limits the
/// tokens of a tool's result.
pub fn load(path: &Path, result_tokens: usize) -> Result<Arc<dyn Dialogue>, DialogueError> {
    match Tokenizer::load(path) {
        Ok(tokenizer) => Ok(Arc::new(Marks::new(tokenizer, result_tokens))),
        // Ours is one kind of BPE; another kind may be a chat model's.
        Err(_) if path.is_file() => Ok(Arc::new(Chat::load(path, result_tokens)?)),
        Err(error) => Err(error.into()),
    }
}

/// Renders conversations as the tokens of one model, and parses the model's tokens. Tokens are
/// parsed as they were sampled; text is never tokenised again.
pub trait Dialogue: Debug + Send + Sync {
    /// Stop tokens of a message.
    fn stops(&self) -> Vec<u32>;

    /// Tokens of the briefing, the policy's first prompt.
    fn briefing(&self, briefing: &Briefing) -> Vec<u32>;

    /// Tokens of the results of the policy's calls. No results mean that its message was truncated.
    fn results(&self, results: &[ToolResult]) -> Vec<u32>;

    /// Tokens of a message that another policy wrote.
    fn said(&self, message: &Message) -> Vec<u32>;

    /// Parses sampled tokens. `turn` makes the ids of calls unique. A malformed call has a text for
    /// arguments, so that its tool reports the error; a truncated call is dropped.
    fn message(&self, ids: &[u32], turn: u32, is_complete: bool) -> Message;

    /// A demonstration as a token sequence to train on: its messages are the actions. Their
    /// log-probabilities are unknown.
    fn sequence(&self, briefing: &Briefing, turns: &[(Message, Vec<ToolResult>)]) -> Sequence {
        let mut sequence = Sequence::default();
        let mut context = self.briefing(briefing);
        for ((message, results), turn) in turns.iter().zip(1..) {
            push(&mut sequence, &context, false, turn);
            push(&mut sequence, &self.said(message), true, turn);
            context = self.results(results);
        }
        sequence
    }
}

/// Name of a device in a prompt: `cpu`, or the compute architecture without its suffix letter
/// (`sm_90`). Policies were trained with these names.
fn target(device: &DeviceFacts) -> &str {
    let arch = device.arch.as_deref().filter(|_| device.device != "cpu");
    arch.map_or("cpu", |arch| arch.trim_end_matches(['a', 'f']))
}

fn push(sequence: &mut Sequence, ids: &[u32], response_mask: bool, turn: u32) {
    let count = ids.len();
    sequence.ids.extend(ids);
    sequence.response_mask.extend(std::iter::repeat_n(u8::from(response_mask), count));
    let logprob = response_mask.then_some(0.0);
    sequence.rollout_log_probs.extend(std::iter::repeat_n(logprob, count));
    sequence.turns.extend(std::iter::repeat_n(turn, count));
}

/// The id of a message's call.
fn call_name(turn: u32, number: usize) -> String {
    format!("turn-{turn}-call-{number}")
}
