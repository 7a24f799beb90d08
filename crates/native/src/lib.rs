//! The policy that is a model on this machine, ours or a pretrained one: it speaks token by token, in the loop that every policy works in.
//!
//! ```text
//! Briefing ─► Dialogue ─► tokens ─► Draws (an engine, shared by all episodes) ─► tokens ─► Dialogue ─► Message
//!                           ▲                                                                            │
//!                           └──────────────── Dialogue ◄─ tool results ◄─────────────────────────────────┘
//! ```
//!
//! [`Native`] is a [`Policy`](warpwright_agent::policy::Policy). What it draws is noted in the record with
//! its log-probabilities (`Generation::tokens`): learning takes tokens from there, and no text is made into
//! tokens twice. [`Dialogue`] says how a conversation is told in tokens, both ways: [`Marks`] for models from
//! scratch, whose [`Tokenizer`] is byte-level BPE with marks of turns and calls, [`Chat`] for pretrained ones. [`Batcher`] gathers what many episodes ask of one engine.
//!
//! It computes nothing: that is the engine's, behind `warpwright_learn::engine::Engine`.

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
