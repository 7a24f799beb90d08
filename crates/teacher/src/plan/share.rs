//! Sharing between groups: values kept in memory for several kernels, and results computed by the
//! kernel that reads them.

use std::collections::BTreeSet;

use super::group::{Group, Kind, row_col};
use super::probe::{Found, from_axes, walk};
use crate::emit::rows::Frame;
use crate::index::{Expr, numel};
use crate::ir::{Graph, NodeId, Op};

/// A window's sum over this many elements is not recomputed in every pass over a row.
const WIDE_WINDOW: i64 = 16;

/// A value that several groups compute from at least two loads or at a high cost: storing it is
/// cheaper. The same holds for a wide window that a row program would recompute in each of several
/// passes.
pub(crate) fn shared(graph: &Graph, groups: &[Group], forced: &BTreeSet<NodeId>) -> Option<NodeId> {
    for id in graph.reachable() {
        if let Op::Reduce { src, dims, inline: true, .. } = &graph.node(id).op
            && !forced.contains(&id)
            && numel(&graph.inner_of(*src, dims)) >= WIDE_WINDOW
            && groups.iter().any(|g| {
                let passes = g.passes.len() + usize::from(!g.stores.is_empty());
                let rows = matches!(g.kind, Kind::Rows { .. } | Kind::Scan { .. });
                rows && passes > 1 && g.inside.contains(&id)
            })
        {
            return Some(id);
        }
        if forced.contains(&id)
            || !matches!(graph.node(id).op, Op::Map { .. } | Op::Guard { .. } | Op::Take { .. })
        {
            continue;
        }
        let users = groups.iter().filter(|g| g.inside.contains(&id)).count();
        if users < 2 {
            continue;
        }
        let found = from_axes(graph, id, &|n, _| forced.contains(&n));
        let size = numel(graph.shape(id));
        let loads: BTreeSet<NodeId> = found
            .stops
            .iter()
            .filter(|(n, _)| numel(graph.shape(*n)) * 2 > size)
            .map(|(n, _)| *n)
            .collect();
        // Only where its users part: not each link of the chain that leads there.
        let parts = graph
            .reachable()
            .iter()
            .filter(|u| graph.operands(**u).contains(&id))
            .any(|u| groups.iter().filter(|g| g.inside.contains(u)).count() < users);
        let dear = found.inside.len() > 12;
        if parts && (loads.len() > 1 || dear) && size > 1 {
            return Some(id);
        }
    }
    None
}

/// Moves an elementwise result into the row program that reads it, if the rows agree. A residual
/// sum that is both normalised and kept is then computed and stored in that kernel.
pub(crate) fn absorb(
    graph: &Graph,
    mut groups: Vec<Group>,
    forced: &BTreeSet<NodeId>,
) -> Vec<Group> {
    for e in 0..groups.len() {
        if !matches!(groups[e].kind, Kind::Elementwise { .. }) || groups[e].stores.len() != 1 {
            continue;
        }
        let Some(store) = groups[e].stores.first().copied() else { continue };
        let reaches = |from: usize, to: usize| {
            let mut stack = vec![from];
            let mut seen = BTreeSet::new();
            while let Some(g) = stack.pop() {
                if g == to {
                    return true;
                }
                if seen.insert(g) {
                    stack.extend(groups[g].needs.iter().copied());
                }
            }
            false
        };
        let host = (0..groups.len()).find(|h| {
            let Kind::Rows { frame } = &groups[*h].kind else { return false };
            groups[*h].needs.contains(&e)
                && numel(graph.shape(store)) == frame.rows() * frame.cols()
                && groups[e].needs.iter().all(|n| !reaches(*n, *h))
                // No other way from the host back to the result.
                && groups[*h].needs.iter().all(|n| *n == e || !reaches(*n, e))
                && reads_in_place(graph, &groups[*h], frame, store, forced)
        });
        let Some(host) = host else { continue };
        let moved = std::mem::take(&mut groups[e].stores);
        let needs = std::mem::take(&mut groups[e].needs);
        let inside = std::mem::take(&mut groups[e].inside);
        groups[host].stores.extend(moved);
        groups[host].needs.extend(needs);
        groups[host].needs.remove(&e);
        groups[host].inside.extend(inside);
        for (_, group) in groups.iter_mut().enumerate().filter(|(g, _)| *g != host) {
            if group.needs.remove(&e) {
                group.needs.insert(host);
            }
        }
    }
    groups
}

/// Whether the first pass of a row program reads `store` at its own element.
fn reads_in_place(
    graph: &Graph,
    group: &Group,
    frame: &Frame,
    store: NodeId,
    forced: &BTreeSet<NodeId>,
) -> bool {
    let (row, col) = row_col(frame);
    let wanted = frame.index_in(graph.shape(store), &row, &col);
    let mut found = Found::default();
    for r in group.passes.iter().flatten() {
        let Op::Reduce { src, .. } = graph.node(*r).op else { continue };
        let Some(at) = frame.source_index(graph, *r, &row, &col) else { return false };
        let stop = |n: NodeId, _: &[Expr]| forced.contains(&n) && !group.stores.contains(&n);
        walk(graph, src, &at, &stop, &mut found);
    }
    let mut reads = found.stops.iter().filter(|(n, _)| *n == store).peekable();
    reads.peek().is_some() && reads.all(|(_, index)| *index == wanted)
}
