//! The workloads of a task: named argument sets for its `get_inputs`.
//!
//! `get_workloads` is read, never executed: it returns a literal list. A task bound to one of its workloads is a
//! task of its own, whose source has a footer that binds `get_inputs`. So everything that knows a task by its
//! source knows a workload too, and needs to know nothing of the others.

mod bind;
mod defaults;
mod literal;
mod read;

use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::facts::error::TaskError;

pub(crate) use bind::{bind, bound, shown, unbound, with_list};
pub(crate) use defaults::InputDefault;
pub(crate) use read::{NAME, defaults, definition, read};

/// Most workloads of a task.
pub const MAX_WORKLOADS: usize = 64;
/// Most characters of a workload's name.
pub const MAX_WORKLOAD_NAME: usize = 64;

/// A named argument set for `get_inputs`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Unique within its task.
    pub name: String,
    /// What `get_inputs` is called with.
    pub arguments: Arguments,
    /// A result must also satisfy this, besides the judge's own rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<WorkloadTolerance>,
    /// Whether only the final candidate is judged on it, and the agent does not see it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held_out: bool,
}

/// Arguments of `get_inputs`.
#[derive(Clone, Debug, PartialEq)]
pub enum Arguments {
    /// By name.
    Named(Map<String, Value>),
    /// In order.
    Positional(Vec<Value>),
}

impl Arguments {
    /// As JSON: an object or an array.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Named(named) => Value::Object(named.clone()),
            Self::Positional(values) => Value::Array(values.clone()),
        }
    }
}

impl Serialize for Arguments {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_value().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Arguments {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Object(named) => Ok(Self::Named(named)),
            Value::Array(values) => Ok(Self::Positional(values)),
            _ => Err(serde::de::Error::custom("arguments are an object or an array")),
        }
    }
}

/// A result `a` passes if `|a - b| <= atol + rtol * |b|` for the truth `b`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkloadTolerance {
    /// Absolute.
    pub atol: f64,
    /// Relative.
    pub rtol: f64,
}

/// Why workloads cannot be held out. A usage error.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HoldOutError {
    /// The workloads cannot be read.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// More are to be held out than the task can spare.
    #[error(
        "failed to hold out {wanted} workloads of task {task}: it has {of}, and at least one must remain that the agent sees"
    )]
    TooFew {
        /// Task name.
        task: String,
        /// How many are to be held out.
        wanted: usize,
        /// How many it has that are not held out already.
        of: usize,
    },
}

impl HoldOutError {
    /// The cure.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Task(error) => error.hint(),
            Self::TooFew { .. } => {
                "hold out fewer, or give the task more workloads in `get_workloads`"
            }
        }
    }
}

/// A list of workloads, and the place of its function in the source.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkloadList {
    pub(crate) place: Range<usize>,
    pub(crate) workloads: Vec<Workload>,
    /// Of the parameters of `get_inputs`.
    pub(crate) defaults: Vec<InputDefault>,
}

/// Holds out `wanted` more of the workloads, drawn by `seed` and the source.
pub(crate) fn hold_out(workloads: &mut [Workload], wanted: usize, (seed, hash): (u64, &str)) {
    let rank = |name: &str| {
        let mut hasher = blake3::Hasher::new();
        for part in [&seed.to_le_bytes()[..], hash.as_bytes(), name.as_bytes()] {
            hasher.update(part);
        }
        *hasher.finalize().as_bytes()
    };
    let mut seen: Vec<&mut Workload> = workloads.iter_mut().filter(|w| !w.held_out).collect();
    seen.sort_by_key(|workload| rank(&workload.name));
    seen.into_iter().take(wanted).for_each(|workload| workload.held_out = true);
}

#[cfg(test)]
mod tests;
