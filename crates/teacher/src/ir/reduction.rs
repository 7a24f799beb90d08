//! Reductions: the elements of a row, and reductions in two steps.

use super::{Graph, NodeId, Op, ReduceKind, axes};
use crate::dtype::DType;
use crate::index::{self, Expr};

/// A reduction over at most this many elements (coordinates of a point, corners of a box) is
/// computed where it is used, like any pointwise function: as its own row it would take a warp. The
/// limit is low because such reductions may nest, and every user recomputes them.
const MOST_INLINE: i64 = 4;

/// A two-step reduction, first over pieces of each row, then over the pieces' results. Used for few
/// long rows, which would leave most of the device idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Split {
    /// Rows that fill the device.
    pub(crate) rows: i64,
    /// A piece is at least this long.
    pub(crate) piece: i64,
    /// Factor on the number of rows if neighbours in memory belong to different rows: on a GPU a
    /// thread takes such a row, instead of a warp or more.
    pub(crate) across: i64,
    /// Number of elements from which a second pass reads a row from memory again.
    pub(crate) long: i64,
}

impl Split {
    /// Number of pieces into which rows of `cols` elements are split.
    fn pieces(self, rows: i64, cols: i64) -> Option<i64> {
        if rows * 2 > self.rows || cols < 2 * self.piece {
            return None;
        }
        let wanted = (self.rows / rows.max(1)).clamp(2, cols / self.piece);
        (2..=wanted).rev().find(|n| cols % n == 0)
    }
}

impl Graph {
    /// A reduction over `dims` (all of them when empty); `keep` leaves extents of 1.
    pub(crate) fn reduce(
        &mut self,
        name: &str,
        kind: ReduceKind,
        src: NodeId,
        dims: &[usize],
        keep: bool,
        dtype: DType,
    ) -> NodeId {
        let from = self.shape(src).to_vec();
        let mut dims: Vec<usize> =
            if dims.is_empty() { (0..from.len()).collect() } else { dims.to_vec() };
        dims.sort_unstable();
        dims.dedup();
        let left = |keep: bool| -> Vec<i64> {
            let dims = &dims;
            from.iter()
                .enumerate()
                .filter_map(|(d, e)| match (dims.contains(&d), keep) {
                    (false, _) => Some(*e),
                    (true, true) => Some(1),
                    (true, false) => None,
                })
                .collect()
        };
        let (short, kept) = (left(false), left(true));
        let split = self.split_reduction(name, kind, src, &dims, &short, dtype);
        let reduced = split.unwrap_or_else(|| {
            let few = index::numel(&self.inner_of(src, &dims)) <= MOST_INLINE;
            let inline = few && !matches!(kind, ReduceKind::ArgMax | ReduceKind::ArgMin);
            let op = Op::Reduce { kind, src, dims: dims.clone(), inline };
            self.push(name, op, short, dtype)
        });
        if keep { self.reshape(reduced, &kept) } else { reduced }
    }

    /// Number of pieces into which the rows of a reduction are split, if they are, and whether
    /// neighbours in memory belong to different rows.
    pub(crate) fn pieces(&self, src: NodeId, dims: &[usize]) -> Option<(i64, bool)> {
        let mut split = self.split?;
        let shape = self.shape(src);
        let outer: Vec<i64> =
            (0..shape.len()).filter(|d| !dims.contains(d)).map(|d| shape[d]).collect();
        let cols = index::numel(&self.inner_of(src, dims));
        let across = shape.len().checked_sub(1).is_some_and(|last| !dims.contains(&last))
            && outer.last().is_some_and(|extent| *extent >= 32);
        if across {
            split = Split {
                rows: split.rows * split.across,
                piece: split.piece / split.across.min(16),
                ..split
            };
        }
        Some((split.pieces(index::numel(&outer), cols)?, across))
    }

    /// The reduction in two steps, if the graph's [`Split`] requires it.
    fn split_reduction(
        &mut self,
        name: &str,
        kind: ReduceKind,
        src: NodeId,
        dims: &[usize],
        outer: &[i64],
        dtype: DType,
    ) -> Option<NodeId> {
        if matches!(kind, ReduceKind::ArgMax | ReduceKind::ArgMin) {
            return None;
        }
        let inner = self.inner_of(src, dims);
        let cols = index::numel(&inner);
        let (pieces, across) = self.pieces(src, dims)?;
        // [outer.., pieces, cols / pieces], reading the source in place; pieces come first where
        // neighbours in memory belong to different rows, so that they stay neighbours.
        let lead = usize::from(across);
        let piece = if across { 0 } else { outer.len() };
        let mut shape = outer.to_vec();
        shape.insert(piece, pieces);
        shape.push(cols / pieces);
        let all = axes(&shape);
        let last = shape.len() - 1;
        let col = all[piece].mul(cols / pieces).add(&all[last]);
        let at = index::unflatten(&col, &inner);
        let rank = self.shape(src).len();
        let map = reduction_index(rank, dims, &all[lead..lead + outer.len()], &at);
        let cut = self.view(src, map, shape.clone());
        let part = Op::Reduce { kind, src: cut, dims: vec![last], inline: false };
        // Pieces of half-precision sums are kept in float.
        let kept = if dtype.is_float() { dtype.compute() } else { dtype };
        let part = self.push(&format!("{name}_parts"), part, shape[..last].to_vec(), kept);
        let whole = Op::Reduce { kind, src: part, dims: vec![piece], inline: false };
        Some(self.push(name, whole, outer.to_vec(), dtype))
    }

    /// Extents of a reduction's inner dims.
    pub(crate) fn inner_of(&self, src: NodeId, dims: &[usize]) -> Vec<i64> {
        dims.iter().map(|d| self.shape(src)[*d]).collect()
    }
}

/// The source index of a reduction: outer indices in the kept dims, inner ones in `dims`.
pub(crate) fn reduction_index(
    rank: usize,
    dims: &[usize],
    outer: &[Expr],
    inner: &[Expr],
) -> Vec<Expr> {
    let (mut outer, mut inner) = (outer.iter(), inner.iter());
    (0..rank)
        .map(|d| {
            let next = if dims.contains(&d) { inner.next() } else { outer.next() };
            next.cloned().unwrap_or_default()
        })
        .collect()
}
