//! Grouping: which reductions and results share a kernel.

use std::collections::{BTreeMap, BTreeSet};

use super::frame_of;
use super::probe::{Found, from_axes, walk};
use crate::emit::rows::Frame;
use crate::index::{Expr, numel, unflatten};
use crate::ir::{Graph, NodeId, Op, axes};

/// Size of a reduction that takes less time than a launch: such reductions over the same rows share
/// a kernel even if they have no common input.
const SMALL: i64 = 1 << 18;

/// The iteration space of a group.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Elementwise { shape: Vec<i64> },
    Rows { frame: Frame },
    Scan { node: NodeId, frame: Frame },
    Heavy { node: NodeId },
}

/// A kernel under construction.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) kind: Kind,
    /// Reductions by pass.
    pub(crate) passes: Vec<Vec<NodeId>>,
    pub(crate) stores: BTreeSet<NodeId>,
    /// Groups whose results it reads.
    pub(crate) needs: BTreeSet<usize>,
    /// Nodes computed inside, for sharing and for the comment.
    pub(crate) inside: BTreeSet<NodeId>,
}

/// Loop variables of the canonical row index.
pub(super) fn row_col(frame: &Frame) -> (Expr, Expr) {
    (Expr::var("row", frame.rows()), Expr::var("col", frame.cols()))
}

impl Group {
    fn new(kind: Kind) -> Self {
        let (passes, stores) = (vec![], BTreeSet::new());
        Self { kind, passes, stores, needs: BTreeSet::new(), inside: BTreeSet::new() }
    }

    fn frame(&self) -> Option<&Frame> {
        match &self.kind {
            Kind::Rows { frame } | Kind::Scan { frame, .. } => Some(frame),
            _ => None,
        }
    }

    fn reductions(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.passes.iter().flatten().copied()
    }
}

/// Groups under construction.
struct Forming<'g> {
    graph: &'g Graph,
    forced: &'g BTreeSet<NodeId>,
    groups: Vec<Group>,
    /// The group that computes a reduction, heavy node or root.
    home: BTreeMap<NodeId, usize>,
}

/// Forms the groups for a set of nodes that must be in memory.
pub(crate) fn form(graph: &Graph, forced: &BTreeSet<NodeId>) -> Result<Vec<Group>, String> {
    let mut forming = Forming { graph, forced, groups: vec![], home: BTreeMap::new() };
    for id in graph.reachable() {
        match &graph.node(id).op {
            Op::Reduce { inline: false, .. } => forming.place_reduction(id)?,
            Op::Scan { src, dim, .. } => forming.place_scan(id, *src, *dim),
            Op::Heavy { .. } => forming.place_heavy(id),
            Op::Leaf(_) if !graph.outputs.contains(&id) => {}
            _ if forced.contains(&id) => forming.place_root(id),
            _ => {}
        }
        // An output that is a reduction or a scan itself.
        if let (Some(home), true) = (forming.home.get(&id), forced.contains(&id))
            && !matches!(forming.groups[*home].kind, Kind::Heavy { .. })
        {
            forming.groups[*home].stores.insert(id);
        }
    }
    forming.settle();
    Ok(forming.groups)
}

impl Forming<'_> {
    /// Whether a walk for group `host` ends at a node: it is in memory by then.
    fn stops(&self, host: Option<usize>, node: NodeId) -> bool {
        let here = host.is_some_and(|h| self.groups[h].stores.contains(&node));
        self.forced.contains(&node) && !here
    }

    /// Everything `node` at `index` needs, as seen from group `host`.
    fn needs_of(&self, host: Option<usize>, node: NodeId, index: &[Expr]) -> Found {
        let mut found = Found::default();
        // The node itself is what is computed.
        let stop = |n: NodeId, _: &[Expr]| n != node && self.stops(host, n);
        walk(self.graph, node, index, &stop, &mut found);
        found
    }

    /// Whether group `a` needs group `b`, directly or not.
    fn reaches(&self, a: usize, b: usize) -> bool {
        let mut stack = vec![a];
        let mut seen = BTreeSet::new();
        while let Some(group) = stack.pop() {
            if group == b {
                return true;
            }
            if seen.insert(group) {
                stack.extend(self.groups[group].needs.iter().copied());
            }
        }
        false
    }

    /// The groups that compute the stops of a walk, except `host`'s own reductions in their own
    /// row. `None` if the host would read one of its own reductions in another row, or itself
    /// through another group.
    fn outside(&self, host: usize, found: &Found) -> Option<BTreeSet<usize>> {
        let frame = self.groups[host].frame().cloned();
        let mut needs = BTreeSet::new();
        for (node, index) in &found.stops {
            let Some(home) = self.home.get(node).copied() else { continue };
            if home == host {
                let own_row = frame.as_ref().is_some_and(|f| {
                    let (row, col) = row_col(f);
                    if matches!(self.groups[host].kind, Kind::Scan { node: scan, .. } if scan == *node) {
                        return *index == f.index(&row, &col);
                    }
                    self.groups[host].reductions().any(|r| r == *node)
                        && *index == unflatten(&row, self.graph.shape(*node))
                });
                if !own_row {
                    return None;
                }
            } else {
                if self.reaches(home, host) {
                    return None;
                }
                needs.insert(home);
            }
        }
        Some(needs)
    }

    fn place_reduction(&mut self, id: NodeId) -> Result<(), String> {
        let graph = self.graph;
        let Op::Reduce { src, .. } = graph.node(id).op else { return Ok(()) };
        let frame = frame_of(graph, id).ok_or("not a reduction")?;
        // Into the newest group with the same rows that it depends on, or shares a load with.
        for host in (0..self.groups.len()).rev() {
            let Kind::Rows { frame: theirs } = self.groups[host].kind.clone() else { continue };
            let (row, col) = row_col(&theirs);
            let Some(at) = theirs.source_index(graph, id, &row, &col) else { continue };
            let found = self.needs_of(Some(host), src, &at);
            let found = self.at_source(Some(host), src, &at, found);
            let Some(needs) = self.outside(host, &found) else { continue };
            let depends = found.stops.iter().any(|(n, _)| self.home.get(n) == Some(&host));
            let small = theirs.rows() * theirs.cols() <= SMALL;
            if !depends && !small && !self.shares_loads(host, &found) {
                continue;
            }
            // After the last pass that it reads a reduction of.
            let group = &mut self.groups[host];
            let pass = group
                .passes
                .iter()
                .rposition(|p| p.iter().any(|r| found.stops.iter().any(|(n, _)| n == r)))
                .map_or(0, |p| p + 1);
            if pass == group.passes.len() {
                group.passes.push(vec![]);
            }
            group.passes[pass].push(id);
            group.needs.extend(needs);
            group.inside.extend(found.inside);
            group.inside.insert(id);
            self.home.insert(id, host);
            return Ok(());
        }
        let (row, col) = row_col(&frame);
        let mut group = Group::new(Kind::Rows { frame: frame.clone() });
        group.passes.push(vec![id]);
        let at = frame.index(&row, &col);
        let found = self.needs_of(None, src, &at);
        let found = self.at_source(None, src, &at, found);
        group.needs = found.stops.iter().filter_map(|(n, _)| self.home.get(n).copied()).collect();
        group.inside = found.inside;
        group.inside.insert(id);
        self.groups.push(group);
        self.home.insert(id, self.groups.len() - 1);
        Ok(())
    }

    /// A reduction's source that is itself in memory is read, not recomputed.
    fn at_source(&self, host: Option<usize>, src: NodeId, at: &[Expr], found: Found) -> Found {
        if self.stops(host, src) {
            let mut found = Found::default();
            found.stops.insert((src, at.to_vec()));
            return found;
        }
        found
    }

    fn shares_loads(&self, host: usize, found: &Found) -> bool {
        let graph = self.graph;
        let Some(frame) = self.groups[host].frame().cloned() else { return false };
        let (row, col) = row_col(&frame);
        let mut theirs = Found::default();
        for r in self.groups[host].reductions() {
            let Op::Reduce { src, .. } = graph.node(r).op else { continue };
            if let Some(at) = frame.source_index(graph, r, &row, &col) {
                let stop = |n: NodeId, _: &[Expr]| self.stops(Some(host), n);
                walk(graph, src, &at, &stop, &mut theirs);
            }
        }
        let big = |n: &NodeId| numel(graph.shape(*n)) >= frame.rows() * frame.cols() / 2;
        theirs.stops.iter().any(|s| big(&s.0) && found.stops.contains(s))
    }

    fn place_scan(&mut self, id: NodeId, src: NodeId, dim: usize) {
        let frame = Frame { shape: self.graph.shape(src).to_vec(), dims: vec![dim] };
        let (row, col) = row_col(&frame);
        let at = frame.index(&row, &col);
        let mut group = Group::new(Kind::Scan { node: id, frame });
        let found = self.needs_of(None, src, &at);
        let found = self.at_source(None, src, &at, found);
        group.needs = found.stops.iter().filter_map(|(n, _)| self.home.get(n).copied()).collect();
        group.inside = found.inside;
        group.inside.insert(id);
        self.groups.push(group);
        self.home.insert(id, self.groups.len() - 1);
    }

    fn place_heavy(&mut self, id: NodeId) {
        let mut group = Group::new(Kind::Heavy { node: id });
        group.stores.insert(id);
        group.inside.insert(id);
        for arg in self.graph.operands(id) {
            let found = from_axes(self.graph, arg, &|n, _| self.forced.contains(&n));
            group.needs.extend(found.stops.iter().filter_map(|(n, _)| self.home.get(n).copied()));
        }
        self.groups.push(group);
        self.home.insert(id, self.groups.len() - 1);
    }

    fn place_root(&mut self, id: NodeId) {
        let graph = self.graph;
        let count = numel(graph.shape(id));
        // Row groups whose rows this value needs, newest first; then those that will read it.
        for host in (0..self.groups.len()).rev() {
            let Some(frame) = self.groups[host].frame().cloned() else {
                if self.join_heavy(host, id) {
                    return;
                }
                continue;
            };
            let (row, col) = row_col(&frame);
            let at = if count == frame.rows() * frame.cols() {
                frame.index_in(graph.shape(id), &row, &col)
            } else if count == frame.rows() && matches!(self.groups[host].kind, Kind::Rows { .. }) {
                unflatten(&row, graph.shape(id))
            } else {
                continue;
            };
            let found = self.needs_of(Some(host), id, &at);
            if !found.stops.iter().any(|(n, _)| self.home.get(n) == Some(&host)) {
                continue;
            }
            let Some(needs) = self.outside(host, &found) else { continue };
            let group = &mut self.groups[host];
            group.stores.insert(id);
            group.needs.extend(needs);
            group.inside.extend(found.inside);
            self.home.insert(id, host);
            return;
        }
        let found = self.needs_of(None, id, &axes(graph.shape(id)));
        let needs: BTreeSet<usize> =
            found.stops.iter().filter_map(|(n, _)| self.home.get(n).copied()).collect();
        // With another elementwise kernel of the same shape and a common load.
        for host in (0..self.groups.len()).rev() {
            let Kind::Elementwise { shape } = &self.groups[host].kind else { continue };
            let same = numel(shape) == count
                && needs.iter().all(|n| !self.reaches(*n, host) || *n == host);
            let reads = needs.contains(&host);
            // What it reads of the host elsewhere would be computed there once more.
            let here = axes(graph.shape(id));
            let elsewhere =
                found.stops.iter().any(|(n, at)| self.home.get(n) == Some(&host) && *at != here);
            if elsewhere {
                continue;
            }
            if same && (reads || self.common_load(host, &found)) {
                let aligned = graph.shape(id) == &shape[..];
                if !aligned {
                    continue;
                }
                let group = &mut self.groups[host];
                group.stores.insert(id);
                group.needs.extend(needs.iter().filter(|n| **n != host));
                group.inside.extend(found.inside);
                self.home.insert(id, host);
                return;
            }
        }
        let shape = graph.shape(id).to_vec();
        let mut group = Group::new(Kind::Elementwise { shape });
        group.stores.insert(id);
        group.needs = needs;
        group.inside = found.inside;
        self.groups.push(group);
        self.home.insert(id, self.groups.len() - 1);
    }

    fn common_load(&self, host: usize, found: &Found) -> bool {
        self.groups[host].stores.iter().any(|s| {
            let stop = |n: NodeId, _: &[Expr]| n != *s && self.stops(Some(host), n);
            let theirs = from_axes(self.graph, *s, &stop);
            theirs.stops.intersection(&found.stops).next().is_some()
        })
    }

    /// The epilogue of a heavy operator: an elementwise result that reads it element by element.
    fn join_heavy(&mut self, host: usize, id: NodeId) -> bool {
        let graph = self.graph;
        let Kind::Heavy { node } = self.groups[host].kind else { return false };
        let Op::Heavy { op, .. } = &graph.node(node).op else { return false };
        if !op.fuses_epilogue() || numel(graph.shape(id)) != numel(graph.shape(node)) {
            return false;
        }
        let flat = Expr::var("flat", numel(graph.shape(node)));
        let mine = unflatten(&flat, graph.shape(id));
        let stop = |n: NodeId, _: &[Expr]| n != id && n != node && self.stops(Some(host), n);
        let mut found = Found::default();
        walk(graph, id, &mine, &stop, &mut found);
        let wanted = unflatten(&flat, graph.shape(node));
        let mut needs = BTreeSet::new();
        let mut reads = false;
        for (n, index) in &found.stops {
            if *n == node {
                reads = true;
                if *index != wanted {
                    return false;
                }
            } else if let Some(home) = self.home.get(n) {
                if self.reaches(*home, host) {
                    return false;
                }
                needs.insert(*home);
            }
        }
        // Someone else who needs the raw result keeps it in memory: then it is read from there.
        let elsewhere = graph
            .reachable()
            .iter()
            .any(|user| !found.inside.contains(user) && graph.operands(*user).contains(&node));
        if !reads || elsewhere || graph.outputs.contains(&node) {
            return false;
        }
        let group = &mut self.groups[host];
        group.stores.remove(&node);
        group.stores.insert(id);
        group.needs.extend(needs);
        group.inside.extend(found.inside);
        self.home.insert(id, host);
        true
    }

    /// Stores every reduction that another group reads.
    fn settle(&mut self) {
        let mut wanted: BTreeSet<(usize, NodeId)> = BTreeSet::new();
        for host in 0..self.groups.len() {
            for found in self.walks(host) {
                for (node, _) in &found.stops {
                    if let Some(home) = self.home.get(node)
                        && *home != host
                    {
                        wanted.insert((*home, *node));
                    }
                }
            }
        }
        for (home, node) in wanted {
            self.groups[home].stores.insert(node);
        }
        self.groups.iter_mut().enumerate().for_each(|(i, g)| _ = g.needs.remove(&i));
    }

    /// The inputs of each store and reduction of a group.
    fn walks(&self, host: usize) -> Vec<Found> {
        let (graph, group) = (self.graph, &self.groups[host]);
        let mut out = Vec::new();
        for r in group.reductions() {
            let Op::Reduce { src, .. } = graph.node(r).op else { continue };
            out.push(from_axes(graph, src, &|n, _| self.stops(Some(host), n)));
        }
        for s in &group.stores {
            if matches!(
                graph.node(*s).op,
                Op::Reduce { inline: false, .. } | Op::Heavy { .. } | Op::Scan { .. }
            ) {
                continue;
            }
            let stop = |n: NodeId, _: &[Expr]| n != *s && self.stops(Some(host), n);
            out.push(from_axes(graph, *s, &stop));
        }
        if let Kind::Scan { node, .. } = group.kind
            && let Op::Scan { src, .. } = graph.node(node).op
        {
            out.push(from_axes(graph, src, &|n, _| self.stops(Some(host), n)));
        }
        if let Kind::Heavy { node } = group.kind {
            for arg in graph.operands(node) {
                out.push(from_axes(graph, arg, &|n, _| self.forced.contains(&n)));
            }
        }
        out
    }
}
