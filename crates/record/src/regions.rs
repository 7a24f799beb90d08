//! The regions of a whole model: what its forward pass spends time in, which modules became tasks, and where each
//! task came from. `warpwright task extract` writes them to `regions.json`, beside the tasks.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Version of [`ModelRegions`]. A reader refuses a newer one.
pub const REGIONS_VERSION: u32 = 1;
/// Name of the file.
pub const REGIONS_FILE: &str = "regions.json";

/// A model that was divided into regions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelRegions {
    /// [`REGIONS_VERSION`] of the writer.
    pub version: u32,
    /// The model as the user named it: `MODULE:FUNCTION`, or the path of a configuration.
    pub model: String,
    /// The device on which its time was measured.
    pub device: String,
    /// The version of torch.
    pub torch: String,
    /// The share of time that tasks were to cover.
    pub cover: f64,
    /// The share of time in selected regions, as a mean over the input sets.
    pub covered: f64,
    /// The input sets, in the order of the file.
    pub input_sets: Vec<InputSetTime>,
    /// The regions; those with the largest share first.
    pub regions: Vec<Region>,
    /// Modules that did not become a region.
    pub left_out: Vec<LeftOut>,
    /// Places where the model leaves its graph. Regions do not reach over them.
    pub graph_breaks: Vec<GraphBreak>,
}

/// The time of the model on one input set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InputSetTime {
    /// Its name.
    pub name: String,
    /// One eager forward pass in milliseconds. On a GPU only kernels count.
    pub milliseconds: f64,
}

/// A part of the model that is one task: equal modules, once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Region {
    /// Name of the task.
    pub task: String,
    /// The class of its modules.
    pub class: String,
    /// The share of the model's time in all of them, as a mean over the input sets.
    pub share: f64,
    /// Whether its task was written: the regions with the largest shares are, until enough is covered.
    #[serde(default)]
    pub selected: bool,
    /// Paths of the modules, as in the model's `named_modules()`. The model's own path is empty.
    pub modules: Vec<String>,
    /// Number of calls of all of them in one forward pass, by input set.
    pub calls: BTreeMap<String, u64>,
    /// Number of calls in its graph that compute.
    pub operators: u64,
    /// The workloads of the task, named by the input sets that first had them.
    pub workloads: Vec<String>,
    /// The inputs of the task.
    pub inputs: Vec<RegionInput>,
    /// The parameters and buffers of the task.
    pub weights: Vec<RegionWeight>,
    /// The positional arguments of a module's call.
    pub arguments: Vec<Nested>,
    /// The keyword arguments of a module's call.
    pub keywords: BTreeMap<String, Nested>,
    /// What a module returns; its tensors are the results of the task, in order.
    pub outputs: Nested,
}

/// An input of a region's task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RegionInput {
    /// The parameter of the task's `forward`.
    pub name: String,
    /// The number of the tensor in [`Region::arguments`] and [`Region::keywords`].
    pub index: u64,
    /// Its dtype, as torch names it: `bfloat16`.
    pub dtype: String,
    /// Its shape in each workload.
    pub shapes: Vec<Vec<u64>>,
    /// Its strides in each workload.
    pub strides: Vec<Vec<i64>>,
}

/// A parameter or buffer of a region's task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RegionWeight {
    /// Its name in the task's `state_dict()`.
    pub name: String,
    /// Its path below each module of the region.
    pub path: String,
}

/// A value with numbers in place of its tensors. Equal numbers mean the same tensor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Nested {
    /// A tensor.
    Tensor {
        /// Its number.
        index: u64,
    },
    /// A constant, which the task fixes.
    Constant {
        /// Its text in Python.
        value: String,
    },
    /// A tuple.
    Tuple {
        /// Its items.
        items: Vec<Nested>,
    },
    /// A list.
    List {
        /// Its items.
        items: Vec<Nested>,
    },
    /// A dict.
    Dict {
        /// Its keys.
        keys: Vec<String>,
        /// Its values, in the order of the keys.
        items: Vec<Nested>,
    },
}

/// Equal modules that did not become a region.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LeftOut {
    /// Their class.
    pub class: String,
    /// Some of their paths.
    pub modules: Vec<String>,
    /// Their number.
    pub count: u64,
    /// Their share of the model's time, with that of modules in them, which may be regions.
    pub share: f64,
    /// Why.
    pub reason: String,
}

/// A place where the model leaves its graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GraphBreak {
    /// The compiler's reason.
    pub reason: String,
    /// File, line and function.
    #[serde(rename = "where")]
    pub place: String,
}
