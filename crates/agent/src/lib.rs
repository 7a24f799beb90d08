//! The agent: a policy works in a workspace, through tools, until it stops or its budget ends.
//!
//! ```text
//! Policy ── Message ──► Toolbox ─┬─ Read, Edit, Grep, ... ─► Workspace (openat2 beneath one folder)
//!   ▲                            └─ Bash ─► one shell in one jail ─ utils/*.py ─┐
//!   │                                                              Unix socket ─┤
//!   └── ToolResult: text and verdicts ◄── service ◄── Judge ◄── snapshot of the candidate
//! ```
//!
//! [`episode::run`] is the loop. It appends every event to a
//! [`RunWriter`](warpwright_record::writer::RunWriter) as it happens and can take an episode up
//! again after a cut at any moment. A policy is anything that implements [`policy::Policy`]; the
//! judge is only seen through [`judge::Judge`].
//!
//! What is trusted: nothing in the workspace. The agent's shell runs in a jail without a network and
//! may do to the workspace what it likes; our own file access cannot be led out of it
//! ([`beneath::Beneath`]); what is judged is a snapshot of the files that count; a request to the
//! judge carries the name of a stage and nothing else.
//!
//! What it is not: it does not build, run or time anything, it opens no model, and it does not decide
//! what a result is worth.

pub mod beneath;
pub mod elide;
pub mod episode;
pub mod feedback;
pub mod judge;
pub mod policy;
pub mod remote;
pub mod replay;
#[cfg(test)]
mod scripted;
pub mod service;
pub mod skill;
pub mod tools;
pub mod tracer;
pub mod workspace;
