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
//! Idle runners wait in a pool (`process/runner_pool`). A runner gets the artifact when it is taken
//! (`process/runner_dirs`), serves one candidate and ends with it.
//!
//! Defences against cheating, by file: `device/arena` (memory the judge created, poisoned before each window),
//! `check/layout` (fresh places for every call), `process/runner` and `process/worker` (frozen outside its
//! windows; order of calls and a nonce with "go"), `check/named` (all results named before the clock stops),
//! `check/claims` (checks a runner's claims about its results), `check/compare` (every element against
//! float64), `check/families` (inputs that the task does not sample), `timing/measure` (interleaved windows,
//! medians of ratios).
//!
//! It knows no policy, no reward scheme beyond calling [`Reward`](warpwright_record::verdict::Reward),
//! and writes no record.

mod admission;
mod check;
mod device;
mod error;
mod judge;
mod process;
mod profiling;
mod session;
#[cfg(test)]
mod testing;
mod timing;

pub use admission::degenerate::Degenerate;
pub use admission::examination::{Bar, Examination, TensorKind};
pub use admission::objection::Objection;
pub use device::device_arbiter::{ModelWork, Neighbour, Purpose, Use, Used};
pub use device::facts::{Device, DeviceFacts};
pub use error::JudgeError;
pub use judge::machine::allowed_by;
pub use judge::voids::is_void;
pub use judge::{BaselineSet, JudgeConfig, LocalJudge, REPEAT_RATE};
pub use process::forks::HowStarted;
pub use process::plan_file::{
    MAX_PLAN_FILE_BYTES, PlanFileError, StoredPlan, TensorForm, TensorForms,
};
pub use process::plan_store::{read_plan_file, stored_plan_file};
pub use process::worker_reuse::Sharing;
pub use session::TaskSession;
pub use session::pool::SessionPool;
pub use session::recording::trial::{RecordingTrial, RecordingTrials};
pub use session::repeat::agree;
pub use session::self_calibration::Effort;
pub use session::single_flight::{Claim, Claimed, SingleFlight};
pub use session::verdict::fit_of;
pub use timing::baseline::Baseline;
pub use timing::calibrate::{Calibration, Kind, Trial};
