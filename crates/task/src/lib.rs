//! Tasks and suites, read from files and never executed.
//!
//! A [`Task`] is one PyTorch reference in KernelBench form: Python source with a class `Model`, a
//! function `get_inputs` and, where `Model` needs arguments, `get_init_inputs`. A [`Suite`] is a
//! named, ordered set of them: a file, a folder, a KernelBench checkout, JSONL, Parquet, or definitions of
//! SOL-ExecBench and FlashInfer-Bench.
//!
//! [`facts()`] parses a source. It reports errors ([`TaskError`]: line, column, excerpt), imported packages, uses
//! of a GPU and uses of random numbers. Facts that need execution (shapes, whether `forward` raises) are found by
//! the judge, in its jail.
//!
//! ```
//! use warpwright_task::{Mode, Task};
//!
//! let task = Task::from_source(
//!     "relu",
//!     "import torch\n\
//!      class Model(torch.nn.Module):\n\
//!      \x20   def forward(self, x):\n\
//!      \x20       return torch.relu(x)\n\
//!      def get_inputs():\n\
//!      \x20   return [torch.randn(1024)]\n",
//! );
//! let facts = task.facts()?;
//! assert_eq!(facts.required_packages(), ["torch"]);
//! assert!(facts.warnings(Mode::Eval).is_empty());
//! # Ok::<(), warpwright_task::TaskError>(())
//! ```
//!
//! `rollout` reads suites and refuses bad ones before a device is opened; `judge` and `agent` get a [`Task`].
//! There are two error types: [`ReadError`] (the file cannot be read as tasks) and [`TaskError`] (the source is
//! not a task). Both are usage errors with a `hint()`.
//!
//! A task may have several workloads, the argument sets of a function `get_workloads` ([`Task::workloads`]).
//! [`Task::of_workload`] is the task bound to one of them.
//!
//! [`similarity`] compares tasks by source and by operator graph.
//!
//! This crate knows no device, starts no process and imports no torch.

mod backward;
mod constants;
mod definition;
mod dtype;
mod facts;
mod fit;
mod libraries;
mod limits;
mod mode;
mod natural;
mod read_error;
pub mod similarity;
mod suite;
mod table;
mod task;
mod workloads;

pub use dtype::Dtype;
pub use facts::error::{TaskError, TaskErrorKind};
pub use facts::excerpt::{Place, Position};
pub use facts::operators::operators;
pub use facts::{
    DeviceUse, Facts, Import, InitInputs, Presence, RandomUse, RandomWhen, Warning, facts,
};
pub use fit::{Fit, FitError};
pub use limits::MAX_SOURCE_BYTES;
pub use mode::Mode;
pub use natural::natural_cmp;
pub use read_error::ReadError;
pub use suite::Suite;
pub use task::Task;
pub use workloads::{
    Arguments, HoldOutError, MAX_WORKLOAD_NAME, MAX_WORKLOADS, Workload, WorkloadTolerance,
};
