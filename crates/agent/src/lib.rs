//! The agent: a policy works in a workspace, through tools, until it stops or its budget ends.
//!
//! ```text
//! Policy ── Message ──► Toolbox ─┬─ Read, Edit, Grep, ... ─► Workspace (openat2 within one folder)
//!   ▲                            └─ Bash ─► one shell in one jail ─ utils/*.py ─┐
//!   │                                                              Unix socket ─┤
//!   └── ToolResult: text and verdicts ◄── service ◄── Judge ◄── snapshot of the candidate
//! ```
//!
//! [`episode::run`] is the loop. It appends every event to a
//! [`RunWriter`](warpwright_record::writer::RunWriter) as it happens, and can resume an episode after an
//! interruption at any moment. A policy is a type that implements [`policy::Policy`]; the judge is accessed
//! only through [`judge::Judge`].
//!
//! Nothing in the workspace is trusted. The agent's shell runs in a jail without a network and may change
//! the workspace in any way. File access of this crate cannot leave the workspace
//! ([`confined_fs::ConfinedDir`]). The judge gets a snapshot of the candidate's files. A request to the judge
//! names a stage or an inspection and nothing else.
//!
//! This crate does not build, run or time candidates, loads no model, and computes no reward.

pub mod confined_fs;
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
