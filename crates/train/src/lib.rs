//! Training: configuration, stages, checkpoints, experiments and alarms. The algorithms are in
//! `warpwright_learn`, the rollouts in `warpwright_rollout`.
//!
//! ```text
//! Config ─► Launch ─► Run ─► stages (one file each) ─► StageFolder: record, checkpoint, done.json
//!                      │
//!                      └─► Observer: what happens, as typed events
//! ```
//!
//! It prints nothing and knows no exit codes: the program that trains has an
//! [`Observer`](observer::Observer), and errors are a [`TrainError`](error::TrainError).

mod board;
pub mod config;
mod contents;
mod corpus;
pub mod error;
pub mod experiment;
pub mod figures;
pub mod folder;
pub mod launch;
pub mod observer;
pub mod report;
mod run;
mod sources;
pub mod stage;
mod stages;
