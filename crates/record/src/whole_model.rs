//! What kernels in place of a model's modules do to the whole model. `warpwright optimize --model` writes it to
//! `whole-model.json`.
//!
//! It is no verdict and earns no reward: the figures come from the process that executes the candidates' host code.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::interval::Interval;

/// Version of [`WholeModel`]. A reader refuses a newer one.
pub const WHOLE_MODEL_VERSION: u32 = 1;
/// Name of the file.
pub const WHOLE_MODEL_FILE: &str = "whole-model.json";

/// A model before and after.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WholeModel {
    /// [`WHOLE_MODEL_VERSION`] of the writer.
    pub version: u32,
    /// The model as the user named it.
    pub model: String,
    /// The device.
    pub device: String,
    /// The share of time that was in selected regions.
    pub covered: f64,
    /// The share of time that was in regions whose kernels were kept.
    pub replaced: f64,
    /// The figures of each input set.
    pub input_sets: Vec<InputSetFigures>,
    /// The regions with a verified candidate, in the order in which they were tried.
    pub regions: Vec<RegionGain>,
    /// Calls that are missing, and why: compiled baselines, and `patched_graph`.
    pub missing: BTreeMap<String, String>,
    /// Where the time went.
    pub times: Vec<RegionTimes>,
}

/// The figures of one input set. The keys are `eager`, `compile`, `reduce_overhead`, `patched` (one kernel after the
/// other) and `patched_graph` (in a CUDA graph, inputs copied before each launch).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InputSetFigures {
    /// Its name.
    pub name: String,
    /// The time of one forward pass in milliseconds.
    pub milliseconds: BTreeMap<String, Interval>,
    /// The faster of `patched` and `patched_graph`; null in files of older programs.
    #[serde(default)]
    pub fastest: Option<String>,
    /// How many times faster that one is; `patched` in files of older programs.
    pub speedup: BTreeMap<String, Interval>,
    /// The largest error of a row against float64, relative to the result's root mean square; null where the model has no
    /// result in float64.
    pub error: BTreeMap<String, Option<f64>>,
    /// The most memory of the GPU in one pass, in bytes; null on the cpu device.
    pub peak_bytes: BTreeMap<String, Option<u64>>,
    /// Time of the whole model in milliseconds as the profile of modules has it: eager, and patched.
    pub profiled: BeforeAfter,
}

/// A time before and after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BeforeAfter {
    /// In the eager model, in milliseconds.
    pub before: f64,
    /// In the patched model, in milliseconds.
    pub after: f64,
}

/// Whether a region's kernels stay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RegionGain {
    /// Name of the task.
    pub task: String,
    /// Whether its kernels stay in the model.
    pub kept: bool,
    /// How many times faster the whole model is with them, as a mean over the input sets.
    pub gain: Option<Interval>,
    /// Why they do not stay.
    pub reason: Option<String>,
    /// Calls that took the kernels, of those that were measured.
    #[serde(default)]
    pub replaced_calls: u64,
    /// Calls of the region's modules that took their own `forward`: the region had not seen such arguments.
    #[serde(default)]
    pub fallback_calls: u64,
}

/// The time of a region's modules.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RegionTimes {
    /// Name of the task.
    pub task: String,
    /// In each input set.
    pub times: Vec<BeforeAfter>,
}
