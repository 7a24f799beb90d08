//! The half-precision dtype that a task is cast to.
//!
//! A cast task is another task: its source has a footer that casts the module and the inputs. So everything that
//! knows a task by its source (its hash, sessions, stored plans, other hosts, the agent's `model.py`) knows the
//! cast too. Only the candidate's own tensors are cast elsewhere, by the process that loads it.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::backward;

/// Python that defines `_warpwright_cast`.
const FOOTER: &str = include_str!("cast.py");

/// How every version of it begins.
const BEGINNING: &str = "\n# Appended by `warpwright --dtype`";

/// A half-precision dtype that reference, candidate and floating inputs are cast to.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Dtype {
    /// `torch.bfloat16`.
    Bf16,
    /// `torch.float16`.
    Fp16,
}

impl Dtype {
    /// Every dtype.
    pub const ALL: [Self; 2] = [Self::Bf16, Self::Fp16];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
        }
    }

    /// The name in torch.
    pub const fn torch_name(self) -> &'static str {
        match self {
            Self::Bf16 => "bfloat16",
            Self::Fp16 => "float16",
        }
    }

    fn last_line(self) -> String {
        format!("_warpwright_cast(\"{}\")", self.torch_name())
    }

    /// The dtype that a task's source is cast to.
    pub(crate) fn of(source: &str) -> Option<Self> {
        let (source, _) = backward::parts(source).unwrap_or((source, ""));
        let last = source.trim_end().lines().next_back()?;
        let found = Self::ALL.into_iter().find(|dtype| dtype.last_line() == last)?;
        // A task may have a function of that name.
        source.contains(BEGINNING).then_some(found)
    }

    /// The source with the footer. Gradients are those of the module that is cast, so their footer stays last.
    pub(crate) fn cast(self, source: &str) -> String {
        let (source, behind) = backward::parts(source).unwrap_or((source, ""));
        let cast = format!("{}\n\n\n{FOOTER}\n\n{}\n", source.trim_end(), self.last_line());
        if behind.is_empty() { cast } else { format!("{cast}\n{behind}") }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Dtype {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|dtype| dtype.name() == text);
        found.ok_or_else(|| format!("`{text}` is no dtype that tasks are cast to: bf16 or fp16"))
    }
}
