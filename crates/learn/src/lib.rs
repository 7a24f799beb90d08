//! Reinforcement learning from trajectories: which tokens are trained on, and with which weight.
//!
//! A trajectory of many turns is one sequence of actions: the tokens that the policy sampled.
//! Prompts and tool results lie between them and are masked. The reward arrives at the end, from
//! the judge's verdict.
//!
//! ```text
//! record::tokens::Sequence ─► Actions ─► advantages ─► whitened ─┐
//!   ids, mask, logprobs       (only      (gae, rloo,             ├─► losses ─► monitor
//!                              actions)   grpo)                  │   (ratio, clip,
//! critic's values ────────────────────────┘      recipe ─────────┘    mismatch)
//! ```
//!
//! - [`update`] makes one training step from episodes (PPO, RLOO, GRPO, rejection sampling).
//! - [`online`] repeats rollouts and training steps; [`fit`] trains on stored episodes.
//! - [`outcome`] gives an episode's reward, and whether it is fit for rejection fine-tuning.
//! - [`actions::Actions`] holds one episode's actions without the masked tokens, so that no
//!   recursion can run through tool tokens by mistake.
//! - [`recipe::Recipe`] names every constant, with the paper's values and ours.
//! - [`losses`] defines the losses. Engines compute the same on their device and are tested against
//!   these definitions.
//! - [`engine::Engine`] computes with weights, [`engine::Sampler`] samples from them; [`remote`] is
//!   a client of both in another process, over a line that the caller opens.
//!
//! Everything else is arithmetic on the host in double precision: no device, no process, no file.
//! `docs/concepts/rl.md` has equations and sources.
//!
//! ```
//! use warpwright_learn::actions::Actions;
//! use warpwright_learn::advantage::gae;
//!
//! // Two turns of one token with a tool result between them; the reward comes at the end.
//! let sequence = warpwright_record::tokens::Sequence {
//!     ids: vec![7, 1, 2, 3, 8],
//!     response_mask: vec![1, 0, 0, 0, 1],
//!     rollout_log_probs: vec![Some(-0.1), None, None, None, Some(-0.2)],
//!     turns: vec![1, 2, 2, 2, 2],
//! };
//! let actions = Actions::of(&[sequence], 1.0)?;
//! let advantages = gae(&actions.rewards(), &[0.0, 0.0], 1.0, 0.5);
//! assert_eq!(advantages, [0.5, 1.0]);
//! # Ok::<(), warpwright_learn::actions::Unsound>(())
//! ```

pub mod actions;
pub mod advantage;
pub mod arm_stats;
pub mod batch;
pub mod collapse;
pub mod engine;
pub mod fit;
pub mod group;
pub mod losses;
pub mod model_config;
mod moments;
pub mod monitor;
pub mod online;
pub mod outcome;
pub mod quoted;
pub mod recipe;
mod regression;
pub mod remote;
mod rollouts;
pub mod run_monitor;
pub mod schedule;
mod step_metrics;
#[cfg(test)]
mod table;
pub mod update;
pub mod whiten;
pub mod wire;
