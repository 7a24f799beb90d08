//! Policies that are a language model behind an HTTP endpoint.
//!
//! ```text
//! RemotePolicy ── Context ──► WireFormat::body ──► Endpoint ──► server
//!      ▲                                              │ server-sent events
//!      └────────── Message ◄── Answer ◄── Assembler ◄─┘
//! ```
//!
//! [`policy::RemotePolicy`] keeps one episode's conversation ([`context::Context`]) and turns answers
//! into messages. A [`wire::WireFormat`] knows one API: chat completions, responses or Anthropic's
//! messages. A [`speaker::Speaker`] is a chat model without tools. All episodes of a run share one
//! [`endpoint::Endpoint`]: it limits the concurrent requests, retries, and blocks callers while the server is
//! unavailable.
//!
//! A server's answers are hostile input: every line, event, text and error body is bounded, and nothing in them is
//! executed or followed. The key is read from the environment by the caller and is
//! in no record, no error and no debug output.

pub mod anthropic;
pub mod context;
pub mod endpoint;
mod gate;
pub mod key;
pub mod openai_chat;
pub mod openai_responses;
pub mod policy;
pub mod speaker;
pub mod sse;
pub mod wire;

#[cfg(test)]
mod tests;
