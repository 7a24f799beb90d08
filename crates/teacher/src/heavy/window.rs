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
    let count = numel(graph.shape(node));
    let fewer = count > 64 && count < reads;
    match &graph.node(node).op {
        Op::View { src, .. } => visit(graph, *src, reads, out),
        // Padding is left to the reader.
        Op::Guard { inside, outside, .. } if is_number(graph, *outside) => {
            visit(graph, *inside, reads, out);
        }
        Op::Guard { inside, outside, .. } => {
            if fewer && (is_dear(graph, node) || work(graph, node) > MOST_AGAIN) {
                out.push(node);
            } else {
                visit(graph, *inside, reads, out);
                visit(graph, *outside, reads, out);
            }
        }
        Op::Map { args, .. } => {
            let often = reads / count.max(1) >= OFTEN && work(graph, node) > MOST_AGAIN;
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

/// From so many windows over one element, what is cheap is no longer cheap.
const OFTEN: i64 = 8;

/// Operations and loads that are cheaper done again than stored and loaded.
const MOST_AGAIN: i64 = 4;

fn is_number(graph: &Graph, node: NodeId) -> bool {
    match &graph.node(node).op {
        Op::Scalar(_) => true,
        Op::View { src, .. } => is_number(graph, *src),
        _ => false,
    }
}

/// Loads, bounds and functions that one element takes.
fn work(graph: &Graph, node: NodeId) -> i64 {
    match &graph.node(node).op {
        Op::Scalar(_) | Op::Index(_) => 0,
        Op::View { src, .. } => work(graph, *src),
        Op::Guard { inside, outside, .. } => 2 + work(graph, *inside) + work(graph, *outside),
        Op::Map { args, .. } => 1 + args.iter().map(|a| work(graph, *a)).sum::<i64>(),
        Op::Reduce { src, dims, inline: true, .. } => {
            numel(&graph.inner_of(*src, dims)).saturating_mul(work(graph, *src))
        }
        _ => 1,
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
