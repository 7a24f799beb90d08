//! The inputs of a value: walks the graph like the emitter, without writing code.

use std::collections::BTreeSet;

use crate::index::Expr;
use crate::ir::{Graph, NodeId, Op, Pick, apply, apply_all, axes, reduction_index};

/// The result of a walk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    /// Where the walk stopped: memory, reductions, heavy operators, each at an index.
    pub(crate) stops: BTreeSet<(NodeId, Vec<Expr>)>,
    /// Nodes walked through.
    pub(crate) inside: BTreeSet<NodeId>,
    seen: BTreeSet<(NodeId, Vec<Expr>)>,
}

/// Walks from `node` at `index`. `stop` decides which nodes end the walk at which index; leaves,
/// heavy operators, scans and long reductions always end it.
pub(crate) fn walk(
    graph: &Graph,
    node: NodeId,
    index: &[Expr],
    stop: &dyn Fn(NodeId, &[Expr]) -> bool,
    found: &mut Found,
) {
    let key = (node, index.to_vec());
    if !found.seen.insert(key.clone()) {
        return;
    }
    let op = &graph.node(node).op;
    let always = match op {
        Op::Leaf(_) | Op::Heavy { .. } | Op::Scan { .. } => true,
        Op::Reduce { inline, .. } => !inline,
        _ => false,
    };
    if always || stop(node, index) {
        found.stops.insert(key);
        return;
    }
    found.inside.insert(node);
    match op {
        Op::View { src, map } => walk(graph, *src, &apply_all(map, index), stop, found),
        Op::Map { args, .. } => args.iter().for_each(|a| walk(graph, *a, index, stop, found)),
        Op::Guard { inside, outside, .. } => {
            walk(graph, *inside, index, stop, found);
            walk(graph, *outside, index, stop, found);
        }
        Op::Take { src, picks } => {
            let mut at = Vec::new();
            for (d, pick) in picks.iter().enumerate() {
                at.push(match pick {
                    Pick::At(e) => apply(e, index),
                    Pick::Loaded { index: from, map } => {
                        let map = apply_all(map, index);
                        let name = format!("@{}{map:?}", from.0);
                        walk(graph, *from, &map, stop, found);
                        Expr::var(&name, graph.shape(*src)[d].max(2))
                    }
                });
            }
            walk(graph, *src, &at, stop, found);
        }
        Op::Reduce { src, dims, .. } => {
            let inner = graph.inner_of(*src, dims);
            let vars: Vec<Expr> = inner
                .iter()
                .enumerate()
                .map(|(d, e)| Expr::var(&format!("~{}_{d}", node.0), *e))
                .collect();
            let at = reduction_index(graph.shape(*src).len(), dims, index, &vars);
            walk(graph, *src, &at, stop, found);
        }
        Op::Leaf(_) | Op::Scalar(_) | Op::Index(_) | Op::Scan { .. } | Op::Heavy { .. } => {}
    }
}

/// Walks from a node at its own axes.
pub(crate) fn from_axes(
    graph: &Graph,
    node: NodeId,
    stop: &dyn Fn(NodeId, &[Expr]) -> bool,
) -> Found {
    let mut found = Found::default();
    walk(graph, node, &axes(graph.shape(node)), stop, &mut found);
    found
}
