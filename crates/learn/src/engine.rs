//! The interface between the training algorithms and an engine, which computes with a model's
//! weights.
//!
//! It has the shape of the Tinker API: scores, gradients of a named loss, an optimizer step,
//! samples, checkpoints. The engine decides what costs memory: packing, micro-batch size,
//! precision. The rows decide what is trained: which tokens are actions, their advantages, the loss
//! and the number of actions it is averaged over.

use std::path::Path;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::losses::PolicyLoss;

/// One token sequence and its training signals. A list of signals has one entry per action, or is
/// empty if the loss does not use it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Token ids.
    pub ids: Vec<u32>,
    /// Indices of the action tokens, ascending, from 1: the first token of a sequence has no token
    /// to condition on.
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

/// The loss to minimise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// Negative log-likelihood of the actions: supervised training, rejection fine-tuning.
    Likelihood,
    /// The policy's clipped surrogate. Needs `advantages`, `old_log_probs` and `rollout_log_probs`.
    Policy(PolicyLoss),
    /// Half the squared error of the critic's values. Needs `returns`, and `values` if a clip is
    /// set.
    Value {
        /// A value may differ from its old value by at most this (value clipping).
        clip: Option<f64>,
    },
}

/// An engine's figures for a row's actions; each list has one entry per action.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// Log-probability (natural) of each action.
    pub logprobs: Vec<f32>,
    /// Entropy of the distribution at each action, in nats.
    pub entropies: Vec<f32>,
    /// The critic's value at each action; empty without a critic.
    pub values: Vec<f32>,
}

/// Result of a backward pass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Passed {
    /// Sum of the actions' losses, divided by `over` of [`Engine::backward`].
    pub loss: f64,
    /// Scores of each row's actions from the forward pass.
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

/// Which weights a step updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Which {
    /// The policy's weights.
    Policy,
    /// The critic's weights, if it does not share the policy's.
    Critic,
}

/// A prompt to sample a continuation of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prompt {
    /// Token ids, at least one.
    pub ids: Vec<u32>,
    /// Seed of the sampling. Equal streams give equal tokens, whatever else is in the batch.
    pub stream: u64,
}

impl Prompt {
    /// Prompts with a stream each, derived from `seed` and the prompt's number.
    pub fn numbered(ids: impl IntoIterator<Item = Vec<u32>>, seed: u64) -> Vec<Self> {
        let numbered = ids.into_iter().zip(1u64..);
        // An odd multiplier maps different numbers to different streams.
        let stream = |number: u64| seed ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        numbered.map(|(ids, number)| Self { ids, stream: stream(number) }).collect()
    }
}

/// Sampling parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sampling {
    /// Divides the logits; 0 is greedy decoding.
    pub temperature: f64,
    /// Nucleus sampling: only the most probable tokens that together have this probability.
    pub top_p: f64,
    /// Maximum number of tokens to sample.
    pub max_new_tokens: u32,
    /// Stop tokens.
    pub stop: Vec<u32>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 1.0, top_p: 1.0, max_new_tokens: 1024, stop: Vec::new() }
    }
}

/// The tokens that were sampled for a prompt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sampled {
    /// Token ids, including a stop token.
    pub ids: Vec<u32>,
    /// Log-probability (natural) of each token under the distribution it was sampled from: after
    /// temperature and `top_p`.
    pub logprobs: Vec<f32>,
    /// Whether a stop token ended it. `false` if it reached `max_new_tokens` or the model's maximum
    /// sequence length.
    pub is_complete: bool,
}

/// Why an engine refused a request.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct Refusal {
    /// Whether the device is out of memory.
    pub is_memory: bool,
    /// The reason, for people.
    pub message: String,
}

/// A sampling request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampleRequest {
    /// Identifies the request until it completes. It must differ from those of all other requests
    /// in flight.
    pub ticket: u64,
    /// The prompt.
    pub prompt: Prompt,
    /// The sampling parameters.
    pub sampling: Sampling,
}

/// Completion of a [`SampleRequest`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Completion {
    /// `ticket` of the request.
    pub ticket: u64,
    /// The sampled tokens, or why the engine refuses the prompt.
    pub sampled: Result<Sampled, Refusal>,
}

/// Description of an engine's model and device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// Vocabulary size.
    pub vocabulary: u32,
    /// Maximum sequence length in tokens.
    pub positions: u32,
    /// Number of parameters of the policy.
    pub parameters: u64,
    /// Whether the engine computes values.
    pub has_values: bool,
    /// Whether the critic has weights of its own.
    pub has_critic: bool,
    /// The device, for people.
    pub device: String,
}

/// Computes with a model's weights. Gradients accumulate over calls of [`Engine::backward`] until
/// [`Engine::step`] applies and clears them. If a call fails, the engine discards all accumulated
/// gradients.
pub trait Engine {
    /// Error of the engine.
    type Error: std::error::Error;

    /// Describes the loaded model.
    fn describe(&mut self) -> Result<Description, Self::Error>;

    /// Creates a critic with weights of its own: a copy of the policy's with a new value head,
    /// whose values are 0.
    fn begin_critic(&mut self) -> Result<(), Self::Error>;

    /// Scores every row's actions, without gradients.
    fn score(&mut self, rows: &[Row]) -> Result<Vec<Scores>, Self::Error>;

    /// Accumulates gradients of the rows' losses: their sum over all actions, divided by `over`.
    /// `over` is the number of actions of the whole global batch, however many calls it takes.
    fn backward(&mut self, rows: &[Row], loss: &Loss, over: f64) -> Result<Passed, Self::Error>;

    /// Takes an optimizer step. Returns the norm of the gradients before clipping.
    fn step(&mut self, which: Which, step: &Step) -> Result<f64, Self::Error>;

    /// Writes a checkpoint from which training can resume into `folder`. The write is not atomic:
    /// an interrupted save leaves some of the files. Write to a new folder and rename it.
    fn save(&mut self, folder: &Path) -> Result<(), Self::Error>;
}

/// Samples tokens for many sequences at once. Requests may join a running batch (continuous
/// batching, as iteration-level scheduling in Orca, Yu et al., OSDI 2022). If the policy's weights
/// are updated meanwhile, running sequences continue under the new weights, as if these had been
/// given the tokens so far.
pub trait Sampler {
    /// Error of the sampler.
    type Error: std::error::Error + From<Refusal>;

    /// Adds `requests` to the running batch and takes `steps` decoding steps; each samples one
    /// token of every running sequence. Returns the requests that completed since the last call. A
    /// new request samples its first token before its first step. After an error no request is
    /// running.
    fn draw(
        &mut self,
        requests: Vec<SampleRequest>,
        steps: u32,
    ) -> Result<Vec<Completion>, Self::Error>;

    /// Samples each prompt to completion, in the prompts' order. No other request may be running.
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
