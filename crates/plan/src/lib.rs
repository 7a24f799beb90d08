//! Launch plans: what a candidate's `forward` does on the device, as data.
//!
//! ```text
//! recorder (candidate host code, no GPU) ──► Recording ┐
//! recorder, other addresses              ──► Recording ┴─ merge ──► LaunchPlan ──► replayer
//! ```
//!
//! A [`Recording`] is the word of a process in which candidate code runs: hostile input. [`merge()`] accepts what
//! two recordings agree on, resolves every address to a block, and says why anything else cannot be replayed.
//! A [`LaunchPlan`] is checked again by whoever replays it ([`LaunchPlan::check`]): it may come from a file.

mod addresses;
mod convolution;
mod halves;
pub mod image;
mod library_call;
pub mod limits;
mod matmul;
mod merge;
mod plan;
mod products;
mod recording;
mod validate;

pub use convolution::{Convolution, DnnEpilogue, DnnFilter, DnnTensor};
pub use library_call::LibraryCall;
pub use matmul::{LtMatrix, Matmul};
pub use merge::{Code, Content, Merged, NotRecordable, Place, Sources, merge};
pub use plan::{
    Address, Argument, Block, Constant, Copy2d, Fill, Gemm, GemmScalar, GemmType, Kernel, Launch,
    LaunchPlan, Memory, Module, Node, Op, Output, Outputs, PLAN_VERSION, Producer, Relocation,
    Role, TensorMap, Upload,
};
pub use products::Gemv;
pub use recording::{
    Phase, RECORDING_VERSION, RecordedBlock, RecordedKernel, RecordedMemory, RecordedModule,
    RecordedNode, RecordedOp, RecordedOutput, RecordedOutputs, RecordedTensorMap, RecordedWeight,
    Recording, hex,
};
pub use validate::{Invalid, Part};
