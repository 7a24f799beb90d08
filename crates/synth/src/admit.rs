//! Admission of measured tasks: the accepted range of times, and the log of all tried seeds.

mod log;
mod window;

pub use log::{LogError, Outcome, Trial, TrialLog};
pub use window::{TimeRefusal, Window};
