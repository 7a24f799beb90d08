//! Opens devices and judges, makes policies, plans and runs episodes: for campaigns (`optimize`,
//! `eval`), for training and for serving. Examines and synthesises tasks on the same devices.
//!
//! ```text
//! DeviceChoice ─► JudgeHost ─► DeviceContext ─┐
//! Settings ─► plan ─► Campaign ───────────────┼─► EpisodeBuilder ─► the agent's loop ─► record
//! learn's plays ─► RolloutWorkers ────────────┤
//! policies, engine ───────────────────────────┘
//! ```
//!
//! It prints nothing and knows no exit codes: progress is a [`Notice`] or a recorded event, and errors
//! are a [`RolloutError`](error::RolloutError).

pub mod campaign;
pub mod device_choice;
pub mod device_context;
pub mod device_use;
pub mod engine;
pub mod environment;
pub mod episode;
pub mod error;
pub mod examining;
pub mod fit;
pub mod folders;
pub mod gpu;
pub mod judge_host;
pub mod judge_workers;
pub mod natives;
pub mod plan;
pub mod policies;
pub mod pool_judge;
pub mod python;
pub mod regions;
pub mod rejudge;
pub mod remote;
pub mod rollout_workers;
pub mod settings;
pub mod shipped;
pub mod synthesis;
pub mod tasks;
pub mod verdict_cache;
mod voided;

use std::sync::Arc;

/// Receives a line for the user, such as a warning.
pub type Notice = Arc<dyn Fn(&str) + Send + Sync>;
