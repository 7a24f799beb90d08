//! Times candidates and baselines in interleaved windows, and evaluates the times. May use the judge's machine
//! and processes, `device`, `process` and `check`.

pub(crate) mod baseline;
pub(crate) mod baseline_floor;
pub(crate) mod baseline_set;
pub(crate) mod calibrate;
pub(crate) mod measure;
pub(crate) mod measurement;
pub(crate) mod plan;
pub(crate) mod sequential;
pub(crate) mod series;
pub(crate) mod shared_rounds;
mod single_calls;
pub(crate) mod stats;
pub(crate) mod windows;
