//! Rows: which elements of which tensors are reduced together.

use crate::index::{self, Expr, numel, strides_of, unflatten};
use crate::ir::{Graph, NodeId, Op, reduction_index};

/// The elements of a row: a shape and the reduced dims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) shape: Vec<i64>,
    pub(crate) dims: Vec<usize>,
}

impl Frame {
    pub(crate) fn outer(&self) -> Vec<i64> {
        let kept = self.shape.iter().enumerate().filter(|(d, _)| !self.dims.contains(d));
        kept.map(|(_, e)| *e).collect()
    }

    pub(crate) fn inner(&self) -> Vec<i64> {
        self.dims.iter().map(|d| self.shape[*d]).collect()
    }

    pub(crate) fn rows(&self) -> i64 {
        numel(&self.outer())
    }

    pub(crate) fn cols(&self) -> i64 {
        numel(&self.inner())
    }

    /// Index in the frame's shape.
    pub(crate) fn index(&self, row: &Expr, col: &Expr) -> Vec<Expr> {
        let outer = unflatten(row, &self.outer());
        let inner = unflatten(col, &self.inner());
        reduction_index(self.shape.len(), &self.dims, &outer, &inner)
    }

    /// Index in a shape with the same number of elements, in the same row-major order.
    pub(crate) fn index_in(&self, shape: &[i64], row: &Expr, col: &Expr) -> Vec<Expr> {
        let at = self.index(row, col);
        if shape == self.shape {
            return at;
        }
        unflatten(&index::dot(&at, &strides_of(&self.shape)), shape)
    }

    /// Index of a reduction's source, if the reduction has these rows.
    pub(crate) fn source_index(
        &self,
        graph: &Graph,
        reduction: NodeId,
        row: &Expr,
        col: &Expr,
    ) -> Option<Vec<Expr>> {
        let Op::Reduce { src, dims, .. } = &graph.node(reduction).op else { return None };
        let shape = graph.shape(*src);
        let other = Self { shape: shape.to_vec(), dims: dims.clone() };
        if other == *self {
            return Some(self.index(row, col));
        }
        let trailing =
            |f: &Self| f.dims.iter().rev().enumerate().all(|(k, d)| *d == f.shape.len() - 1 - k);
        let same = other.rows() == self.rows() && other.cols() == self.cols();
        (same && trailing(self) && trailing(&other)).then(|| other.index(row, col))
    }
}
