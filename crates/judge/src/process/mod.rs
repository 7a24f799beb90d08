//! The jailed Python processes: oracle, baselines and runners, and the messages to them. May use `device`, and
//! what `check`, `admission` and `timing` name: dtypes, layouts, input families, objections, kinds of baseline.

pub(crate) mod arena_allocator;
pub(crate) mod baseline;
pub(crate) mod candidate;
pub(crate) mod channel;
pub(crate) mod described;
pub(crate) mod embedded;
pub(crate) mod exchange;
pub(crate) mod failure;
pub(crate) mod forks;
pub(crate) mod host;
pub(crate) mod memory;
pub(crate) mod oracle;
mod placed_plan;
pub(crate) mod plan_file;
pub(crate) mod plan_store;
mod plan_values;
pub(crate) mod played;
pub(crate) mod recorder;
pub(crate) mod recorder_library;
mod replay_trouble;
pub(crate) mod replayer;
pub(crate) mod replayer_pool;
pub(crate) mod role;
pub(crate) mod runner;
pub(crate) mod runner_dirs;
pub(crate) mod runner_pool;
pub(crate) mod slots;
pub(crate) mod wire;
pub(crate) mod worker;
pub(crate) mod worker_reuse;
