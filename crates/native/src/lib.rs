//! The native policy: a language model on this machine, trained from scratch or pretrained. It
//! generates token by token in the agent loop that every policy uses.
//!
//! ```text
//! Briefing ─► Dialogue ─► tokens ─► Draws (an engine, shared by all episodes) ─► tokens ─► Dialogue ─► Message
//!                           ▲                                                                            │
//!                           └──────────────── Dialogue ◄─ tool results ◄─────────────────────────────────┘
//! ```
//!
//! - [`Native`] is a [`Policy`](warpwright_agent::policy::Policy). It records its sampled tokens
//!   with their log-probabilities (`Generation::tokens`). Training uses these tokens; text is never
//!   tokenised a second time.
//! - [`Dialogue`] renders a conversation as tokens and parses the model's tokens. [`Marks`] is for
//!   models trained from scratch, whose [`Tokenizer`] is byte-level BPE with marks of turns and
//!   calls. [`Chat`] is for pretrained models.
//! - [`Batcher`] batches the requests of many episodes to one engine.
//!
//! This crate computes nothing: the engine behind `warpwright_learn::engine::Engine` does.

mod batcher;
mod dialogue;
mod policy;
mod sampling;
mod tokenizer;

pub use batcher::{Batcher, Draws, NotDrawn};
pub use dialogue::{Chat, ChatError, Dialogue, DialogueError, Marks, load};
pub use policy::{Native, Settings};
pub use sampling::{SamplingConfig, SamplingConfigError};
pub use tokenizer::{Mark, Pretokenizer, Tokenizer, TokenizerError};
