//! What learning asks of whatever computes with a model's weights.
//!
//! The shape is that of the Tinker API, which trainers of many machines already serve: scores, gradients
//! of a named loss, a step, samples, checkpoints. Everything that costs memory (how rows are packed, how
//! many at a time, in which precision) is the engine's; everything that decides what is learned (which
//! tokens are actions, advantages, which loss, over how many actions) comes with the rows.

use std::path::Path;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::losses::PolicyLoss;

/// One sequence to compute with, and what is to be learned from it. Lists of signals have one entry for
/// each action, or none where the loss does not ask for them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Token ids.
    pub ids: Vec<u32>,
    /// Numbers of the tokens that are actions, from 1, rising: the first token of a sequence has nothing
    /// before it that could have chosen it.
    pub actions: Vec<u32>,
    /// Advantage of each action.
    pub advantages: Vec<f32>,
    /// Log-probability (natural) of each action under the trainer's weights before the step.
    pub old_log_probs: Vec<f32>,
    /// Log-probability (natural) of each action under the distribution that it was sampled from.
    pub rollout_log_probs: Vec<f32>,
    /// Return of each action: the critic's target.
    pub returns: Vec<f32>,
    /// The critic's value of each action before the step.
    pub values: Vec<f32>,
}

/// What is made small.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// Negative log-likelihood of the actions: supervised training, rejection fine-tuning.
    Likelihood,
    /// The policy's clipped surrogate; asks for `advantages`, `old_log_probs` and `rollout_log_probs`.
    Policy(PolicyLoss),
    /// Half the squared error of the critic's values; asks for `returns`, and with a clip for `values`.
    Value {
        /// How far a value may move from what it was.
        clip: Option<f64>,
    },
}

/// What an engine says of a row's actions; each list has one entry for each of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// Natural logarithm of the action's probability.
    pub logprobs: Vec<f32>,
    /// Entropy of what it was chosen from, in nats.
    pub entropies: Vec<f32>,
    /// What is expected to come of it; nothing where there is no critic.
    pub values: Vec<f32>,
}

/// What a pass backwards came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Passed {
    /// Sum of the actions' losses over the number that was named.
    pub loss: f64,
    /// What each row's actions scored on the way.
    pub scores: Vec<Scores>,
}

/// One step of AdamW (arXiv 1711.05101).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Learning rate.
    pub lr: f64,
    /// Decay rates of the first and the second moment.
    pub adam_betas: (f64, f64),
    /// Weight decay; it applies to matrices only.
    pub weight_decay: f64,
    /// Gradients with a larger norm are scaled down to it.
    pub max_grad_norm: f64,
}

impl Default for Step {
    fn default() -> Self {
        Self { lr: 1e-4, adam_betas: (0.9, 0.95), weight_decay: 0.1, max_grad_norm: 1.0 }
    }
}

/// Whose weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Which {
    /// What chooses actions.
    Policy,
    /// What says what to expect, where it has weights of its own.
    Critic,
}

/// What tokens are drawn after.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prompt {
    /// Token ids, at least one.
    pub ids: Vec<u32>,
    /// What decides the draws: equal streams draw alike, whatever is drawn beside them.
    pub stream: u64,
}

impl Prompt {
    /// Several, each with a stream of its own for every seed.
    pub fn numbered(ids: impl IntoIterator<Item = Vec<u32>>, seed: u64) -> Vec<Self> {
        let numbered = ids.into_iter().zip(1u64..);
        // An odd multiplier takes different numbers to different streams.
        let stream = |number: u64| seed ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        numbered.map(|(ids, number)| Self { ids, stream: stream(number) }).collect()
    }
}

/// How tokens are drawn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sampling {
    /// Odds are taken to the power of one over this; 0 takes the likeliest token.
    pub temperature: f64,
    /// Only the likeliest tokens that together have this probability.
    pub top_p: f64,
    /// Most tokens to draw.
    pub max_new_tokens: u32,
    /// Tokens after which nothing is drawn.
    pub stop: Vec<u32>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 1.0, top_p: 1.0, max_new_tokens: 1024, stop: Vec::new() }
    }
}

/// What was drawn after a prompt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sampled {
    /// Token ids, a stop token included.
    pub ids: Vec<u32>,
    /// Natural logarithm of the probability that each was drawn with, after temperature and `top_p`.
    pub logprobs: Vec<f32>,
    /// Whether a stop token ended it, rather than the bound or the model's longest sequence.
    pub is_complete: bool,
}

/// Why an engine could not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct Refusal {
    /// Whether the device's memory is too small.
    pub is_memory: bool,
    /// In words.
    pub message: String,
}

/// A prompt that somebody waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampleRequest {
    /// What it is called until it is over: no other that is under way may be called so.
    pub ticket: u64,
    /// What is to be gone on with.
    pub prompt: Prompt,
    /// How.
    pub sampling: Sampling,
}

/// What became of a [`SampleRequest`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Completion {
    /// Which it was.
    pub ticket: u64,
    /// What was drawn, or why such a prompt cannot be gone on with.
    pub sampled: Result<Sampled, Refusal>,
}

/// What an engine has loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// Tokens that there are.
    pub vocabulary: u32,
    /// Tokens of the longest sequence.
    pub positions: u32,
    /// Numbers in the policy's weights.
    pub parameters: u64,
    /// Whether values can be asked for.
    pub has_values: bool,
    /// Whether the critic has weights of its own.
    pub has_critic: bool,
    /// Where it computes, for people.
    pub device: String,
}

/// Computes with a model's weights. Gradients gather over calls of [`Engine::backward`] until
/// [`Engine::step`] uses them up; where one of these fails to
/// compute, all that were gathered are given up.
pub trait Engine {
    /// Why it could not.
    type Error: std::error::Error;

    /// What it has loaded.
    fn describe(&mut self) -> Result<Description, Self::Error>;

    /// Begins a critic with weights of its own: a copy of the policy's, with a head that knows nothing.
    fn begin_critic(&mut self) -> Result<(), Self::Error>;

    /// Scores of every row's actions, without gradients.
    fn score(&mut self, rows: &[Row]) -> Result<Vec<Scores>, Self::Error>;

    /// Adds the gradients of the rows' losses: their sum over all actions, divided by `over`, which is
    /// the number of actions of the whole batch, however many calls it takes.
    fn backward(&mut self, rows: &[Row], loss: &Loss, over: f64) -> Result<Passed, Self::Error>;

    /// Moves the weights; the norm of the gradients before they were clipped.
    fn step(&mut self, which: Which, step: &Step) -> Result<f64, Self::Error>;

    /// Writes everything that is needed to go on into a folder. One that was cut short may have some of
    /// the files: write beside what is to be replaced, and rename.
    fn save(&mut self, folder: &Path) -> Result<(), Self::Error>;
}

/// Draws tokens, for many sequences at once; others may join those that are under way (continuous batching, as
/// iteration-level scheduling in Orca, Yu et al., OSDI 2022). Where the policy moves meanwhile, those under way are gone
/// on with by what it is then, as if it had been given what they have.
pub trait Sampler {
    /// Why it could not.
    type Error: std::error::Error + From<Refusal>;

    /// Takes these on, goes so many steps, each of which draws a token of every sequence that is under way, and gives
    /// those that are over since; one that begins has its first token before its first step. After an error none is
    /// under way.
    fn draw(
        &mut self,
        requests: Vec<SampleRequest>,
        steps: u32,
    ) -> Result<Vec<Completion>, Self::Error>;

    /// Draws after each prompt to the end; in the prompts' order. Nothing else may be under way.
    fn sample(
        &mut self,
        prompts: &[Prompt],
        sampling: &Sampling,
    ) -> Result<Vec<Sampled>, Self::Error> {
        let request = |(prompt, ticket): (&Prompt, u64)| SampleRequest {
            ticket,
            prompt: prompt.clone(),
            sampling: sampling.clone(),
        };
        let mut over = self.draw(prompts.iter().zip(0..).map(request).collect(), u32::MAX)?;
        over.sort_by_key(|completion| completion.ticket);
        let mut all = Vec::with_capacity(over.len());
        for completion in over {
            all.push(completion.sampled?);
        }
        Ok(all)
    }
}
