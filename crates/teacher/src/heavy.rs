//! Operators that are a kernel of their own: matrix products, convolutions, recurrent layers.
//!
//! A family implements [`HeavyOp`] in its own file. Its `Lower` rule puts an [`Op::Heavy`] node
//! into the graph; the planner makes that node a step of its own, decides what follows it in the
//! same kernel (the epilogue), and calls [`HeavyOp::emit`] for the file.
//!
//! | device | product | convolution | what follows |
//! |---|---|---|---|
//! | `cuda` | cuBLAS, large ones from parts on tensor cores (`split.rs`) | cuDNN, bias and ReLU inside where cuDNN has them | one elementwise kernel, in the same launcher |
//! | `cpu` | tiles (`tile.rs`) | the same tiles over gathered windows | in the tiles' store loop |
//!
//! [`Op::Heavy`]: crate::ir::Op::Heavy

mod convolution;
mod cublas;
mod cudnn;
mod epilogue;
mod operand;
mod product;
mod recurrence;
mod recurrence_cudnn;
mod split;
mod tile;
mod window;

use std::fmt::Debug;

pub(crate) use convolution::Convolution;
pub(crate) use operand::{is_memory, offset_of};
pub(crate) use product::{Product, reads_in_place, split_batch};
pub(crate) use recurrence::{Cell, Recurrence};
pub(crate) use split::{DEPTH, SplitProduct};
pub(crate) use window::overlapping;

use crate::emit::{HeavyContext, KernelFile};
use crate::index::Expr;
use crate::ir::{Graph, NodeId};

/// One heavy operator with its static parameters (strides, padding, groups...).
pub(crate) trait HeavyOp: Debug + Send + Sync {
    /// Name for files and messages, e.g. `matmul`.
    fn name(&self) -> &'static str;

    /// Whether argument `position` may be read in place if it is a view whose elements are at
    /// `offset` in its source's memory, in terms of the argument's own axes. Otherwise the planner
    /// first makes a contiguous copy.
    fn takes_view(&self, position: usize, offset: &Expr) -> bool;

    /// Whether [`HeavyOp::emit`] applies an elementwise epilogue while storing.
    fn fuses_epilogue(&self) -> bool;

    /// Writes the kernel file. The context names the operands' memory, evaluates the epilogue at an
    /// index given the accumulated value, and knows the device.
    fn emit(&self, context: &mut HeavyContext<'_>) -> Result<KernelFile, String>;

    /// The dim of the result that has one row of weights per position, and the argument with the
    /// weights; `None` if there is none.
    fn channels(&self, graph: &Graph, args: &[NodeId]) -> Option<Channels>;

    /// For a matrix product: the roles of the dims of its arguments and its result.
    fn as_product(&self) -> Option<&Product> {
        None
    }
}

/// Where the output channels of a heavy operator are: scaling channel `c` of the result is scaling
/// the weights at `c`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Channels {
    /// Dim of the result.
    pub(crate) axis: usize,
    /// Position of the weights among the arguments.
    pub(crate) weights: usize,
    /// The channel of a weight, over the axes of the weights.
    pub(crate) of_weight: Expr,
}
