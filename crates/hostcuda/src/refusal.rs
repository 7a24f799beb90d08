//! Constructs that are not accepted, with reasons.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A construct outside the language subset, with its location. It is data, not a program error: the
/// judge shows it to the agent as a build diagnostic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Refusal {
    /// File, as the caller named it.
    pub file: String,
    /// 1-based line.
    pub line: u32,
    /// 1-based column, in bytes.
    pub column: u32,
    /// The construct as written, e.g. `asm`, `wmma::`, `#include <cub/cub.cuh>`.
    pub construct: String,
    /// Why it is refused, and an alternative if there is one.
    pub reason: String,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}:{}:{}: {}: {}",
            self.file, self.line, self.column, self.construct, self.reason
        )
    }
}
