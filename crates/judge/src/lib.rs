//! The judge: verifies candidates, times them and rewards them. It trusts no claim of a candidate.
//!
//! ```text
//!              inputs, truth, honest error             times of eager and compiled references
//!   oracle ────────────────────────────────► judge ◄──────────────────────────────── baseline
//!   (task code, own jail)                      │  ▲                     (task code, own jail)
//!                    arena: inputs in,         │  │ claims: where results lie
//!                    results read in place     ▼  │
//!                                            runner (candidate code, own jail)
//! ```
//!
//! [`LocalJudge`] holds the jail, the compilers and the device, which all tasks share.
//! [`TaskSession`] is one task with its oracle and its baselines.
//! [`TaskSession::judge`] takes a [`Candidate`](warpwright_record::candidate::Candidate) and returns a
//! [`Verdict`](warpwright_record::verdict::Verdict); a [`JudgeError`] is never the candidate's fault.
//!
//! Idle runners wait in a pool (`runner_pool`). A runner gets the artifact when it is taken (`runner_dirs`),
//! serves one candidate and ends with it.
//!
//! Defences against cheating, by file: `arena` (memory the judge created, poisoned before each window),
//! `layout` (fresh places for every call), `runner` and `process` (frozen outside its windows; order of calls
//! and a nonce with "go"), `named` (all results named before the clock stops), `claims` (checks a runner's
//! claims about its results), `compare` (every element against float64), `families` (inputs that the task does
//! not sample), `measure` (interleaved windows, medians of ratios).
//!
//! It knows no policy, no reward scheme beyond calling [`Reward`](warpwright_record::verdict::Reward),
//! and writes no record.

mod alone;
mod arena;
mod arena_allocator;
mod baseline;
mod baseline_floor;
mod baseline_set;
mod calibrate;
mod channel;
mod claims;
mod compare;
mod cores;
mod degenerate;
mod device;
mod device_arbiter;
mod dtype;
mod embedded;
mod error;
mod examination;
mod failure;
mod families;
mod forks;
mod health;
#[cfg(test)]
mod holding;
mod host;
mod inspect;
mod judge;
mod layout;
mod measure;
mod memory;
mod named;
#[cfg(test)]
mod numerics;
mod oracle;
mod pool;
mod process;
mod queue;
mod runner;
mod runner_dirs;
mod runner_pool;
mod sequential;
mod session;
#[cfg(test)]
mod shortcuts;
mod single_flight;
mod slots;
mod stats;
#[cfg(test)]
mod testing;
mod ties;
mod tolerance;
mod verdict;
mod verify;
mod windows;
mod wire;
mod worker_reuse;

pub use baseline::Baseline;
pub use calibrate::{Calibration, Effort, Kind, Trial};
pub use degenerate::Degenerate;
pub use device::{Device, DeviceFacts};
pub use device_arbiter::{ModelWork, Neighbour, Purpose, Use, Used};
pub use error::JudgeError;
pub use examination::{Bar, Examination, Objection, TensorKind};
pub use forks::HowStarted;
pub use judge::{BaselineSet, JudgeConfig, LocalJudge};
pub use pool::SessionPool;
pub use session::TaskSession;
pub use worker_reuse::Sharing;
