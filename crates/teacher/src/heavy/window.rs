//! Inputs of overlapping windows that are cheaper to compute once than once per window.

use crate::index::numel;
use crate::ir::{Fun, Graph, NodeId, Op};

/// Computed values that overlapping windows of a short in-place reduction (pooling, depthwise)
/// would recompute: those that are expensive, or that a heavy operator can compute while it stores.
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
    let count = numel(graph.shape(node));
    let fewer = count > 64 && count < reads;
    match &graph.node(node).op {
        Op::View { src, .. } => visit(graph, *src, reads, out),
        // Padding is left to the reader.
        Op::Guard { inside, outside, .. } if is_number(graph, *outside) => {
            visit(graph, *inside, reads, out);
        }
        Op::Guard { inside, outside, .. } => {
            if fewer && (is_dear(graph, node) || is_much(graph, node)) {
                out.push(node);
            } else {
                visit(graph, *inside, reads, out);
                visit(graph, *outside, reads, out);
            }
        }
        Op::Map { args, .. } => {
            let often = reads / count.max(1) >= OFTEN && is_much(graph, node);
            if fewer && (is_dear(graph, node) || often) {
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

/// With this many windows per element, even cheap values are stored.
const OFTEN: i64 = 8;

/// Maximum operations and loads that are cheaper to repeat than to store and load.
const MOST_AGAIN: i64 = 4;

fn is_number(graph: &Graph, node: NodeId) -> bool {
    match &graph.node(node).op {
        Op::Scalar(_) => true,
        Op::View { src, .. } => is_number(graph, *src),
        _ => false,
    }
}

/// Whether one element needs more loads, bounds and functions than `left`, which is decremented.
fn takes_more(graph: &Graph, node: NodeId, left: &mut i64) -> bool {
    let own = match &graph.node(node).op {
        Op::Scalar(_) | Op::Index(_) | Op::View { .. } => 0,
        Op::Guard { .. } => 2,
        Op::Reduce { src, dims, inline: true, .. } => numel(&graph.inner_of(*src, dims)),
        _ => 1,
    };
    *left -= own;
    if *left < 0 {
        return true;
    }
    let below = match &graph.node(node).op {
        Op::View { .. } | Op::Map { .. } | Op::Guard { .. } => graph.operands(node),
        Op::Reduce { src, inline: true, .. } => vec![*src],
        _ => vec![],
    };
    below.into_iter().any(|n| takes_more(graph, n, left))
}

fn is_much(graph: &Graph, node: NodeId) -> bool {
    takes_more(graph, node, &mut MOST_AGAIN.clone())
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
