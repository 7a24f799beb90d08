//! How a conversation is told in tokens, and what a model's tokens say: a form for each kind of model.

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

/// Why a tokenizer is of no known form.
#[derive(Debug, Error)]
pub enum DialogueError {
    /// It could not be read.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// It is neither ours nor a chat model's.
    #[error("{0}, nor is it one that `warpwright train` made")]
    Chat(#[from] ChatError),
}

/// The form that a `tokenizer.json` is for: ours, or a chat model's.
pub fn load(path: &Path, result_tokens: usize) -> Result<Arc<dyn Dialogue>, DialogueError> {
    match Tokenizer::load(path) {
        Ok(tokenizer) => Ok(Arc::new(Marks::new(tokenizer, result_tokens))),
        // Ours is BPE of one kind; what is another kind may be a chat model's.
        Err(_) if path.is_file() => Ok(Arc::new(Chat::load(path, result_tokens)?)),
        Err(error) => Err(error.into()),
    }
}

/// Tells conversations with the tokens of one model. Tokens are read as they were drawn, and never made
/// anew from the text that they gave.
pub trait Dialogue: Debug + Send + Sync {
    /// Tokens that end a message.
    fn stops(&self) -> Vec<u32>;

    /// What a policy reads first.
    fn briefing(&self, briefing: &Briefing) -> Vec<u32>;

    /// What a policy reads after its calls; without calls it was cut short.
    fn results(&self, results: &[ToolResult]) -> Vec<u32>;

    /// The tokens of a message that somebody else said.
    fn said(&self, message: &Message) -> Vec<u32>;

    /// What drawn tokens say. `turn` makes the names of calls unique. A call whose tokens make no sense
    /// has a text for arguments, so that its tool says so; one that was cut short is none.
    fn message(&self, ids: &[u32], turn: u32, is_complete: bool) -> Message;

    /// A conversation of somebody else, to learn it by heart: the messages are the actions, and nothing
    /// is known of how likely they were.
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

/// What a device is called: `cpu`, or an architecture, without the letter for its own instructions: policies
/// have learned the name without.
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

/// The name of a message's call.
fn call_name(turn: u32, number: usize) -> String {
    format!("turn-{turn}-call-{number}")
}
