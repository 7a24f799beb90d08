//! Tasks and suites: what is to be made faster, read from files, never executed.
//!
//! A [`Task`] is one PyTorch reference in KernelBench form: Python source with a class `Model`, a
//! function `get_inputs` and, where `Model` needs arguments, `get_init_inputs`. A [`Suite`] is a
//! named, ordered set of them: a file, a folder, a KernelBench checkout, JSONL or Parquet.
//!
//! [`facts()`] reads a source with a parser and says early and precisely what is wrong with it
//! ([`TaskError`]: line, column, excerpt), which packages it imports, whether it asks for a GPU and
//! whether it draws random numbers. What only running could tell (shapes, whether `forward`
//! raises) is the judge's to find out, in its jail.
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
//! Who calls this: `cli` reads suites and refuses bad ones before anything starts; `judge` and
//! `agent` are handed a [`Task`]. Two error types, because the cures differ: [`ReadError`] (the
//! file cannot be read as tasks) and [`TaskError`] (the source is not a task). Both are the
//! caller's errors, and both have a `hint()`.
//!
//! How alike two tasks are, by source and by operator graph, is [`similarity`]'s subject.
//!
//! What it is not: it knows no device, starts no process, imports no torch.

mod facts;
mod natural;
mod read_error;
pub mod similarity;
mod suite;
mod table;
mod task;

pub use facts::error::{TaskError, TaskErrorKind};
pub use facts::excerpt::{Place, Position};
pub use facts::operators::operators;
pub use facts::{
    DeviceUse, Facts, Import, InitInputs, Presence, RandomUse, RandomWhen, Warning, facts,
};
pub use natural::natural_cmp;
pub use read_error::ReadError;
pub use suite::Suite;
pub use task::{MAX_SOURCE_BYTES, Mode, Task};
