//! The memory layout of operands.

use crate::emit::{HeavyContext, address};
use crate::index::{self, Expr, strides_of};
use crate::ir::{Graph, NodeId, Op, axes};

/// An operand: a buffer, and the element's position for an index of the operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Operand {
    pub(crate) buffer: NodeId,
    /// Elements from the buffer's start, over the operand's axes.
    pub(crate) offset: Expr,
}

/// Strides of a node in memory: those of a model input, else row-major.
fn strides(graph: &Graph, node: NodeId) -> Vec<i64> {
    match &graph.node(node).op {
        Op::Leaf(leaf) => leaf.strides.clone(),
        _ => strides_of(graph.shape(node)),
    }
}

/// The node that a view reads, and the offset; a node that is not a view reads itself.
pub(crate) fn offset_of(graph: &Graph, arg: NodeId) -> (NodeId, Expr) {
    match &graph.node(arg).op {
        Op::View { src, map } => (*src, index::dot(map, &strides(graph, *src))),
        _ => (arg, index::dot(&axes(graph.shape(arg)), &strides(graph, arg))),
    }
}

/// Finds an operand of the kernel being written.
pub(crate) fn locate(context: &HeavyContext<'_>, position: usize) -> Result<Operand, String> {
    let arg = *context.args.get(position).ok_or("an operand is missing")?;
    let graph = context.graph;
    if let Some(buffer) = context.buffers.get(&arg) {
        let offset = index::dot(&axes(graph.shape(arg)), &buffer.strides);
        return Ok(Operand { buffer: arg, offset });
    }
    let Op::View { src, map } = &graph.node(arg).op else {
        return Err(format!("{} is not in memory", graph.node(arg).name));
    };
    let buffer = context.buffers.get(src);
    let buffer = buffer.ok_or_else(|| format!("{} is not in memory", graph.node(*src).name))?;
    Ok(Operand { buffer: *src, offset: index::dot(map, &buffer.strides) })
}

/// The start of an operand whose elements are contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) buffer: NodeId,
    /// Elements from the buffer's start.
    pub(super) start: i64,
}

impl Place {
    /// The place of an operand of this shape, if its elements are contiguous and its start is
    /// aligned for cuDNN, whose kernels load 16 bytes at a time.
    pub(super) fn of(operand: &Operand, shape: &[i64]) -> Option<Self> {
        let start = start_of(&operand.offset, shape)?;
        Some(Self { buffer: operand.buffer, start })
    }

    /// The address, for a buffer of this name.
    pub(super) fn address(self, name: &str) -> String {
        address(name, &Expr::constant(self.start))
    }
}

/// The first of the elements at `offset`, over the axes of `shape`; see [`Place::of`].
pub(super) fn start_of(offset: &Expr, shape: &[i64]) -> Option<i64> {
    let start = offset.substitute(&|_| Some(Expr::default())).as_constant()?;
    let rest = offset.add_const(-start);
    let contiguous = rest == index::dot(&axes(shape), &strides_of(shape));
    (start >= 0 && start % 8 == 0 && contiguous).then_some(start)
}

/// Whether a node is in memory, so that repeated reads do not recompute it.
pub(crate) fn is_memory(graph: &Graph, node: NodeId) -> bool {
    match &graph.node(node).op {
        Op::Leaf(_) | Op::Heavy { .. } | Op::Scan { .. } | Op::Reduce { inline: false, .. } => true,
        Op::View { src, .. } => is_memory(graph, *src),
        _ => false,
    }
}

/// A stack of matrices in memory, two levels deep; offsets and strides in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stack {
    pub(crate) base: i64,
    pub(crate) outer: i64,
    pub(crate) inner: i64,
    pub(crate) row: i64,
    pub(crate) col: i64,
}

impl Stack {
    /// Reads strides off an offset over the axes of `[rows, cols]` or `[batch, rows, cols]`, where
    /// the batch is split into `split.0` times `split.1`. `None` if it is not that regular.
    pub(crate) fn of(offset: &Expr, rank: usize, split: (i64, i64)) -> Option<Self> {
        let batch = Expr::var("@outer", split.0).mul(split.1).add(&Expr::var("@inner", split.1));
        let offset = if rank == 3 {
            offset.substitute(&|v| (&*v.name == "#0").then(|| batch.clone()))
        } else {
            offset.clone()
        };
        if !offset.is_linear() {
            return None;
        }
        let base = offset.substitute(&|_| Some(Expr::default())).as_constant()?;
        let stack = Self {
            base,
            outer: offset.stride_of("@outer")?,
            inner: offset.stride_of("@inner")?,
            row: offset.stride_of(&format!("#{}", rank - 2))?,
            col: offset.stride_of(&format!("#{}", rank - 1))?,
        };
        let forward = [stack.outer, stack.inner, stack.row, stack.col].iter().all(|s| *s >= 0);
        forward.then_some(stack)
    }

    /// One matrix in BLAS terms: whether its columns are contiguous, and the distance between
    /// lines. `None` if neither dim is contiguous, or lines overlap.
    pub(crate) fn blas(&self, rows: i64, cols: i64) -> Option<(bool, i64)> {
        match (rows, cols) {
            (1, 1) => Some((false, 1)),
            (1, _) if self.col == 1 => Some((false, cols)),
            (1, _) => (self.col > 0).then_some((true, self.col)),
            (_, 1) if self.row == 1 => Some((true, rows)),
            (_, 1) => (self.row > 0).then_some((false, self.row)),
            _ if self.col == 1 && self.row >= cols => Some((false, self.row)),
            _ if self.row == 1 && self.col >= rows => Some((true, self.col)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::axis;

    #[test]
    fn heads_in_rows_are_a_two_level_stack() {
        // [B, S, H, D] read as [B * H, S, D].
        let (b, s, h, d) = (2, 5, 4, 8);
        let head = axis(0, b * h);
        let at = [head.div(h), axis(1, s), head.rem(h), axis(2, d)];
        let offset = index::dot(&at, &strides_of(&[b, s, h, d]));
        assert_eq!(Stack::of(&offset, 3, (1, b * h)), None);
        let stack = Stack::of(&offset, 3, (b, h)).unwrap();
        assert_eq!(stack, Stack { base: 0, outer: s * h * d, inner: d, row: h * d, col: 1 });
        assert_eq!(stack.blas(s, d), Some((false, h * d)));
    }

    #[test]
    fn a_reshaped_stack_is_one_level() {
        // [2, 3, 16, 64] read as [6, 16, 64].
        let batch = axis(0, 6);
        let at = [batch.div(3), batch.rem(3), axis(1, 16), axis(2, 64)];
        let offset = index::dot(&at, &strides_of(&[2, 3, 16, 64]));
        let stack = Stack::of(&offset, 3, (1, 6)).unwrap();
        assert_eq!((stack.inner, stack.blas(16, 64)), (1024, Some((false, 64))));
    }

    #[test]
    fn strided_columns_are_not_a_blas_operand() {
        let offset = axis(0, 4).mul(20).add(&axis(1, 10).mul(2));
        let stack = Stack::of(&offset, 2, (1, 1)).unwrap();
        assert_eq!(stack.blas(4, 10), None);
    }
}
