//! Operands of heavy operators: in memory, as the operator can read them.

use crate::dtype::DType;
use crate::heavy::{HeavyOp, offset_of};
use crate::ir::{Fun, Graph, NodeId, Op};

/// An operand that the operator can read: inputs with unsupported layout or alignment are copied
/// first.
pub(super) fn settled(
    graph: &mut Graph,
    op: &dyn HeavyOp,
    position: usize,
    arg: NodeId,
    dtype: DType,
) -> NodeId {
    let odd = match &graph.node(arg).op {
        Op::Leaf(leaf) => {
            leaf.offset % 8 != 0 || !op.takes_view(position, &offset_of(graph, arg).1)
        }
        Op::View { src, .. } => {
            matches!(&graph.node(*src).op, Op::Leaf(leaf) if leaf.offset % 8 != 0)
        }
        _ => false,
    };
    if odd || graph.dtype(arg) != dtype { copied(graph, arg, dtype) } else { arg }
}

/// A computed node with the same values, which therefore gets its own memory if it must be in
/// memory.
pub(crate) fn copied(graph: &mut Graph, arg: NodeId, dtype: DType) -> NodeId {
    let (name, shape) = (graph.node(arg).name.clone(), graph.shape(arg).to_vec());
    graph.push(&format!("{name}_copy"), Op::Map { f: Fun::Cast, args: vec![arg] }, shape, dtype)
}
