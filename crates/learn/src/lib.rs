//! What is learned from trajectories: which tokens count, and by how much.
//!
//! A trajectory of many turns is one sequence of decisions: the tokens that the policy produced, its
//! *actions*. Prompts and tool results lie between them and are nobody's decision. Its reward comes
//! at its end, when the judge has spoken.
//!
//! ```text
//! record::tokens::Sequence ─► Actions ─► advantages ─► whitened ─┐
//!   ids, mask, logprobs       (only      (gae, rloo,             ├─► losses ─► monitor
//!                              actions)   grpo)                  │   (ratio, clip,
//! critic's values ────────────────────────┘      recipe ─────────┘    mismatch)
//! ```
//!
//! With it, [`update`] makes one update of episodes by a rule (PPO, groups, rejection), and [`fit`] trains
//! on stored ones; [`outcome`] says what an episode's reward is, and whether it is an example to follow.
//!
//! [`actions::Actions`] is one episode without what is nobody's decision, so that nothing here can run
//! a recursion through tool tokens by mistake. [`recipe::Recipe`] names every constant, as the paper has
//! them and as we do. [`losses`] are the definitions: an engine computes the same on its device, and is
//! tested against them.
//!
//! What computes with weights is behind the trait [`engine::Engine`], what draws with them behind
//! [`engine::Sampler`]; [`remote`] speaks to one in another
//! process, over a line that somebody else opens.
//!
//! The rest is arithmetic on the host in double precision: no device, no process, no file. Equations and
//! sources are in `docs/learning.md`.
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
pub mod recipe;
mod regression;
pub mod remote;
pub mod run_monitor;
pub mod schedule;
#[cfg(test)]
mod table;
pub mod update;
pub mod whiten;
pub mod wire;
