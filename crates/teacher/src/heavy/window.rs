//! Sources of overlapping windows, which are better computed once than once per window.

use crate::index::numel;
use crate::ir::{Fun, Graph, NodeId, Op};

/// Computed values that a short reduction in place (a pooling or depthwise window) would compute
/// again for every window that holds them, where that is not cheap, or where a heavy operator can
/// compute them while it stores.
pub(crate) fn overlapping(graph: &Graph) -> Vec<NodeId> {
    let mut out = Vec::new();
    for id in graph.reachable() {
        if let Op::Reduce { src, inline: true, .. } = graph.node(id).op {
            visit(graph, src, numel(graph.shape(src)), &mut out);
        }
    }
    out
}

fn visit(graph: &Graph, node: NodeId, reads: i64, out: &mut Vec<NodeId>) {
    match &graph.node(node).op {
        Op::View { src, .. } => visit(graph, *src, reads, out),
        Op::Guard { inside, .. } => visit(graph, *inside, reads, out),
        Op::Map { args, .. } => {
            let count = numel(graph.shape(node));
            if count > 64 && count < reads && is_dear(graph, node) {
                out.push(node);
            } else {
                for a in args {
                    visit(graph, *a, reads, out);
                }
            }
        }
        _ => {}
    }
}

fn is_dear(graph: &Graph, node: NodeId) -> bool {
    match &graph.node(node).op {
        Op::Heavy { .. } => true,
        Op::View { src, .. } => is_dear(graph, *src),
        Op::Guard { inside, .. } => is_dear(graph, *inside),
        Op::Map { f, args } => {
            let cheap = matches!(
                f,
                Fun::Add
                    | Fun::Sub
                    | Fun::Mul
                    | Fun::Neg
                    | Fun::Abs
                    | Fun::Relu
                    | Fun::Max
                    | Fun::Min
                    | Fun::Cast
                    | Fun::Where
                    | Fun::Square
            );
            !cheap || args.iter().any(|a| is_dear(graph, *a))
        }
        _ => false,
    }
}
