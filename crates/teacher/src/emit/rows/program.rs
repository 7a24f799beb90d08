//! A row program: what a kernel computes over rows, and how it is launched.

use crate::emit::frame::Frame;
use crate::ir::NodeId;

/// The work of the kernel.
#[derive(Clone, Debug)]
pub(crate) struct RowProgram {
    pub(crate) name: String,
    pub(crate) purpose: String,
    pub(crate) frame: Frame,
    /// Reductions by pass.
    pub(crate) passes: Vec<Vec<NodeId>>,
    /// Reductions computed in the pass of a reduction that they depend on.
    pub(crate) online: Vec<Online>,
    /// Stored once per row.
    pub(crate) row_stores: Vec<NodeId>,
    /// Stored for every element.
    pub(crate) full_stores: Vec<NodeId>,
}

/// Launch parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowTune {
    /// Threads per row; 1 is the serial form.
    pub(crate) threads: i64,
    /// Rows per block (more than one only with at most a warp per row).
    pub(crate) rows_per_block: i64,
    /// Elements per access, or lanes of the serial form.
    pub(crate) vec: i64,
    /// Keep elements between passes, rather than load and compute them again.
    pub(crate) keep: bool,
    pub(crate) streaming: bool,
    /// Process the last rows first: the previous kernel's most recent data is still in the cache.
    pub(crate) backwards: bool,
    /// Accumulate float sums in double.
    pub(crate) precise: bool,
    /// The launcher takes the number of rows.
    pub(crate) sizes: bool,
}

/// A sum of exponentials in the pass of its maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Online {
    pub(crate) sum: NodeId,
    pub(crate) maximum: NodeId,
    /// Subtract 0 if the maximum is infinite, as in `logsumexp`.
    pub(crate) guarded: bool,
}
