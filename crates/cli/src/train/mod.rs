//! Training: what `warpwright train` wires together. The stages are `stages.rs`; what is learned, and how,
//! is `warpwright_learn`'s.

mod board;
pub(crate) mod config;
pub(crate) mod corpus;
pub(crate) mod dashboard;
pub(crate) mod experiment;
mod figures;
pub(crate) mod folder;
pub(crate) mod launch;
mod online;
pub(crate) mod players;
mod pretrain;
mod progress;
pub(crate) mod report;
pub(crate) mod sources;
pub(crate) mod stage;
pub(crate) mod stages;
mod stored;
pub(crate) mod verdicts;
