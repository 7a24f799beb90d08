//! Why a definition or one of its workloads cannot be read.

use std::fmt;

/// Most characters of a reason.
const MOST_REASON: usize = 400;

/// A reason, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) reason: String,
    pub(super) cure: &'static str,
}

impl Wrong {
    pub(super) fn new(reason: impl Into<String>, cure: &'static str) -> Self {
        // A parser's message may repeat the file.
        Self { reason: super::one_line(&reason.into(), MOST_REASON), cure }
    }

    /// The definition is not what the format says.
    pub(super) fn definition(reason: impl Into<String>) -> Self {
        Self::new(
            reason,
            "a definition has `name`, `axes`, `inputs`, `outputs` and `reference`, Python with a function `run` of the inputs",
        )
    }

    /// A workload does not fit its definition.
    pub(super) fn workload(reason: impl Into<String>) -> Self {
        Self::new(
            reason,
            "a workload has `uuid`, a number for every variable axis, and a source for every input",
        )
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}
