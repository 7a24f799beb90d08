//! Operators that are a kernel of their own: matrix products, convolutions, large windows.
//!
//! A family implements [`HeavyOp`] in its own file. Its `Lower` rule puts an [`Op::Heavy`] node
//! into the graph; the planner makes that node a step of its own, decides what follows it in the
//! same kernel (the epilogue), and calls [`HeavyOp::emit`] for the file.
//!
//! [`Op::Heavy`]: crate::ir::Op::Heavy

use std::fmt::Debug;

use crate::emit::{HeavyContext, KernelFile};

/// One heavy operator with its static parameters (strides, padding, groups...).
pub(crate) trait HeavyOp: Debug + Send + Sync {
    /// Name for files and messages, e.g. `matmul`.
    fn name(&self) -> &'static str;

    /// Whether argument `position` may be any strided view of memory. Otherwise the planner
    /// materialises it contiguously first.
    fn takes_views(&self, position: usize) -> bool;

    /// Whether [`HeavyOp::emit`] applies an elementwise epilogue while storing.
    fn fuses_epilogue(&self) -> bool;

    /// Writes the kernel file. The context names the operands' memory, evaluates the epilogue at an
    /// index given the accumulated value, and knows the device.
    fn emit(&self, context: &mut HeavyContext<'_>) -> Result<KernelFile, String>;
}
