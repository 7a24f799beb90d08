//! The judge: says whether a candidate is right and how fast it is, and believes it nothing.
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
//! [`LocalJudge`] holds what is shared: the jail, the compilers, the device.
//! [`TaskSession`] is one task: its oracle, its baselines and what was learnt from them.
//! [`TaskSession::judge`] takes a [`Candidate`](warpwright_record::candidate::Candidate) and gives a
//! [`Verdict`](warpwright_record::verdict::Verdict); a [`JudgeError`] is never the candidate's.
//!
//! Runners are made ahead of need (`nursery`) and given what they need when they are taken
//! (`homes`); each is one candidate's and dies with it.
//!
//! What makes a verdict hard to cheat, by file: `arena` (memory the judge created, poisoned before
//! each window), `layout` (fresh places for every call), `runner` and `process` (frozen outside its windows;
//! order of calls and a nonce with "go"), `named` (all results named before the clock stops), `claims` (what a runner says of its results),
//! `compare` (every element against float64), `families` (other inputs than the task draws), `measure` (interleaved windows, medians of ratios).
//!
//! It knows no policy, no reward scheme beyond calling [`Reward`](warpwright_record::verdict::Reward),
//! and writes no record.

mod alone;
mod arena;
mod baseline;
mod calibrate;
mod channel;
mod claims;
mod compare;
mod contenders;
mod cores;
mod degenerate;
mod device;
mod dtype;
mod embedded;
mod error;
mod examination;
mod failure;
mod families;
mod forks;
mod gate;
mod given;
mod health;
#[cfg(test)]
mod holding;
mod homes;
mod host;
mod inspect;
mod judge;
mod layout;
mod measure;
mod memory;
mod named;
mod native;
#[cfg(test)]
mod numerics;
mod nursery;
mod oracle;
mod pool;
mod process;
mod queue;
mod quiet;
mod reuse;
mod runner;
mod sequential;
mod session;
#[cfg(test)]
mod shortcuts;
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

pub use baseline::Baseline;
pub use calibrate::{Calibration, Effort, Kind, Trial};
pub use degenerate::Degenerate;
pub use device::{Device, DeviceFacts};
pub use error::JudgeError;
pub use examination::{Bar, Examination, Objection, TensorKind};
pub use forks::HowStarted;
pub use gate::{ModelWork, Neighbour, Purpose, Use, Used};
pub use judge::{BaselineSet, JudgeConfig, LocalJudge};
pub use pool::SessionPool;
pub use reuse::Processes;
pub use session::TaskSession;
