//! Token sequences of an episode, for training: ids as they were sampled, never text that is
//! tokenised again.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::history::Episode;

/// One sequence: a context and what was sampled in it. The four lists have one entry for each token.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sequence {
    /// Token ids.
    pub ids: Vec<u32>,
    /// 1 where the policy produced the token in this sequence; 0 for prompts, tool results, and what
    /// it produced in an earlier sequence. The loss mask.
    pub response_mask: Vec<u8>,
    /// Log-probability (natural) under the distribution the token was drawn from; `null` where
    /// `response_mask` is 0.
    pub rollout_log_probs: Vec<Option<f32>>,
    /// The turn that the token belongs to, from 1: a token of a message to the message's, one of its
    /// context to that of the first message that saw it.
    pub turns: Vec<u32>,
}

/// Why an episode has no sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoTokens {
    /// No message has tokens: the policy has none, or its server does not return them.
    None,
    /// Some messages have them and some do not; the chain is broken where one is missing.
    Some,
    /// The counts do not fit together: a message keeps more than there was, or has more or fewer
    /// log-probabilities than tokens.
    Inconsistent,
}

/// The sequences of an episode in order. A new one begins where the context was changed: where a
/// message keeps less than all tokens before it.
pub fn sequences(episode: &Episode) -> Result<Vec<Sequence>, NoTokens> {
    let of = |turn: &crate::history::Turn| {
        turn.message.generation.as_ref().is_some_and(|g| g.tokens.is_some())
    };
    match episode.turns.iter().filter(|turn| of(turn)).count() {
        0 => return Err(NoTokens::None),
        count if count < episode.turns.len() => return Err(NoTokens::Some),
        _ => {}
    }
    let mut done = Vec::new();
    let mut now = Sequence::default();
    for turn in &episode.turns {
        let Some(tokens) = turn.message.generation.as_ref().and_then(|g| g.tokens.as_ref()) else {
            continue;
        };
        let kept = usize::try_from(tokens.kept).unwrap_or(usize::MAX);
        let is_sound = kept <= now.ids.len() && tokens.logprobs.len() == tokens.sampled.len();
        if !is_sound || tokens.logprobs.iter().any(|p| !p.is_finite()) {
            return Err(NoTokens::Inconsistent);
        }
        if kept < now.ids.len() {
            let next = now.context(kept);
            done.push(std::mem::replace(&mut now, next));
        }
        for id in &tokens.prompt {
            now.push(*id, None, turn.number);
        }
        for (id, logprob) in tokens.sampled.iter().zip(&tokens.logprobs) {
            now.push(*id, Some(*logprob), turn.number);
        }
    }
    done.push(now);
    Ok(done)
}

impl Sequence {
    fn push(&mut self, id: u32, logprob: Option<f32>, turn: u32) {
        self.ids.push(id);
        self.response_mask.push(u8::from(logprob.is_some()));
        self.rollout_log_probs.push(logprob);
        self.turns.push(turn);
    }

    /// The first `kept` tokens as context only.
    fn context(&self, kept: usize) -> Self {
        Self {
            ids: self.ids[..kept].to_vec(),
            response_mask: vec![0; kept],
            rollout_log_probs: vec![None; kept],
            turns: self.turns[..kept].to_vec(),
        }
    }
}
