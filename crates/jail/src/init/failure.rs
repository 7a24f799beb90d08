//! A step of the set-up that failed, and how a system call is given the name of its step.

use std::io;
use std::path::Path;

/// A step of the set-up that failed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) step: String,
    pub(super) message: String,
}

impl Failure {
    pub(super) fn new(step: impl Into<String>, error: &io::Error) -> Self {
        Self { step: step.into(), message: error.to_string() }
    }

    pub(super) fn said(step: &str, message: &str) -> Self {
        Self { step: step.into(), message: message.into() }
    }
}

/// Names the step in which a system call failed.
pub(super) trait Step<T> {
    fn step(self, step: &str) -> Result<T, Failure>;
    fn step_on(self, step: &str, path: &Path) -> Result<T, Failure>;
}

impl<T> Step<T> for io::Result<T> {
    fn step(self, step: &str) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(step, &error))
    }

    fn step_on(self, step: &str, path: &Path) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(format!("{step} {}", path.display()), &error))
    }
}
