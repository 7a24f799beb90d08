//! What a package is made of: verdicts and plans, as the judge stored them.

use serde::Serialize;
use serde_json::Value as Json;
use warpwright_plan::LaunchPlan;

/// All of a package.
#[derive(Clone, Debug)]
pub struct Source<'a> {
    /// Name of the Python package.
    pub package: &'a str,
    /// One or several tasks.
    pub tasks: Vec<TaskSource<'a>>,
}

/// A task with a verified candidate.
#[derive(Clone, Debug)]
pub struct TaskSource<'a> {
    /// The task's name.
    pub name: &'a str,
    /// The verdict, as `judge --json` prints it.
    pub verdict: Json,
    /// BLAKE3 of the candidate's files.
    pub candidate: &'a str,
    /// What the device code was compiled for: `cuda-sm_90a`, `cpu`.
    pub target: &'a str,
    /// Whether the module was judged in training mode.
    pub trains: bool,
    /// Whether a call is a step: outputs, and then gradients.
    pub steps: bool,
    /// Whether full float32 was set for products and convolutions.
    pub strict: bool,
    /// Name of the processor, of the cpu device.
    pub processor: Option<&'a str>,
    /// One per set of shapes that was judged.
    pub workloads: Vec<WorkloadSource<'a>>,
}

/// One set of shapes, with the plan that was judged on it.
#[derive(Clone, Debug)]
pub struct WorkloadSource<'a> {
    /// Name of the workload; empty where the task has one.
    pub name: &'a str,
    /// The reference: Python in KernelBench form.
    pub reference: &'a str,
    /// The plan.
    pub plan: &'a LaunchPlan,
    /// The images of its modules.
    pub images: &'a [Vec<u8>],
    /// The contents of its constants, for each set of weights that was judged.
    pub constants: &'a [Vec<Vec<u8>>],
    /// Structure of the inputs of both recordings, and the numbers among them.
    pub input_trees: &'a [Json; 2],
    /// Tensors among the inputs.
    pub inputs: Vec<TensorForm>,
    /// Entries of the `state_dict`.
    pub state: Vec<TensorForm>,
    /// Positions of the inputs that the reference changes.
    pub changed: Vec<u32>,
}

/// Form of a tensor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TensorForm {
    /// Extent per dimension.
    pub shape: Vec<u64>,
    /// Elements between neighbours, per dimension.
    pub strides: Vec<i64>,
    /// Torch's name without the prefix, e.g. `float32`.
    pub dtype: String,
}
