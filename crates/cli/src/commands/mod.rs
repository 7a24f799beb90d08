//! One file per command.

pub(crate) mod analyze;
pub(crate) mod bench;
pub(crate) mod compare;
pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod eval;
pub(crate) mod experiment;
pub(crate) mod export;
pub(crate) mod judge;
pub(crate) mod man;
pub(crate) mod optimize;
mod optimize_model;
pub(crate) mod rejudge;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod serve;
pub(crate) mod synth;
pub(crate) mod task;
pub(crate) mod train;
pub(crate) mod trajectory;
pub(crate) mod watch;
pub(crate) mod worker;
