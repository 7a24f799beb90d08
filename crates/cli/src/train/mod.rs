//! Training: the parts that `warpwright train` connects. `stages.rs` has the stages;
//! `warpwright_learn` has the algorithms.

mod board;
pub(crate) mod config;
mod contents;
pub(crate) mod corpus;
pub(crate) mod dashboard;
pub(crate) mod experiment;
pub(crate) mod figures;
pub(crate) mod folder;
pub(crate) mod launch;
mod online;
mod pretrain;
mod progress;
pub(crate) mod report;
pub(crate) mod rollout_workers;
pub(crate) mod sources;
pub(crate) mod stage;
pub(crate) mod stages;
mod stored;
pub(crate) mod verdicts;
