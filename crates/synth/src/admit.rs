//! Whether a task that was examined is kept, and the log of all that were tried.

mod log;
mod window;

pub use log::{LogError, Outcome, Trial, TrialLog};
pub use window::{TimeRefusal, Window};
