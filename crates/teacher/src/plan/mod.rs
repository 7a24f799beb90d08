//! Decides which kernels there are, and their order.
//!
//! The plan is a list of [`Step`]s. Everything between memory and a step's results is computed
//! inside the step (the graph is a function, so any node can be recomputed anywhere). *Roots* must
//! be in memory between steps: outputs, operands of heavy operators, reductions read by another
//! step, and values that several steps would otherwise recompute at some cost.
//!
//! Reductions over the same rows share a step if each reads the others only in its own row
//! (softmax's maximum and sum). Elementwise results join the step whose rows they need.

mod group;
mod probe;
mod share;

use std::collections::{BTreeMap, BTreeSet};

use warpwright_agent::judge::DeviceFacts;
use warpwright_record::verdict::Profile;

use crate::constant;
use crate::emit::Buffer;
use crate::emit::elementwise::Elementwise;
use crate::emit::rows::{Frame, RowProgram};
use crate::heavy::{self, HeavyOp};
use crate::index::{Expr, numel, strides_of};
use crate::ir::{Graph, NodeId, Op, Split, stem};
use group::{Group, Kind};

/// The device's properties that planning and code depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// CUDA C++ executed on the host.
    pub(crate) cpu: bool,
    /// Multiprocessors or cores.
    pub(crate) processors: i64,
    /// Last-level cache, bytes.
    pub(crate) cache_bytes: i64,
    /// Maximum shared memory of a block, bytes.
    pub(crate) shared_bytes: i64,
    /// How float32 matrices are multiplied.
    pub(crate) products: Products,
}

/// Allowed precision of float32 products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Products {
    /// On float32 units.
    Float32,
    /// Also split into parts on tensor cores, if that is faster and as accurate.
    Split,
    /// Rounded to TF32: the profile allows it to reference and candidate.
    Tf32,
}

/// Architectures whose TF32 tensor cores have at least eight times the throughput of float32 units;
/// NVIDIA's A100, H100 and Blackwell white papers. On consumer cards of the same generations the factor
/// is one or two.
const TENSOR_ARCHES: [&str; 4] = ["sm_80", "sm_90", "sm_100", "sm_103"];

impl Target {
    /// When reductions are split in two steps: so that every processor has some rows.
    pub(crate) fn split(&self) -> Split {
        if self.cpu {
            Split { rows: 4 * self.processors, piece: 8192, across: 1, long: i64::MAX }
        } else {
            // Longer than what a block keeps in registers, with a few rows of float32 a processor.
            let long = (self.cache_bytes / (16 * self.processors)).max(32 << 10) + 1;
            Split { rows: 4 * self.processors, piece: 4096, across: 256, long }
        }
    }

    /// From the device facts that a policy gets.
    pub(crate) fn of(facts: &DeviceFacts, profile: Profile) -> Self {
        let cpu = facts.device == "cpu";
        // A letter at the end stands for further instructions.
        let arch = facts.arch.as_deref().map(|arch| arch.trim_end_matches(['a', 'f']));
        let tensor = arch.is_some_and(|arch| TENSOR_ARCHES.contains(&arch));
        let products = match profile {
            _ if cpu => Products::Float32,
            Profile::Tf32 => Products::Tf32,
            _ if tensor => Products::Split,
            _ => Products::Float32,
        };
        Self {
            cpu,
            processors: i64::from(facts.processors.max(1)),
            cache_bytes: facts.cache_bytes as i64,
            shared_bytes: i64::from(facts.shared_bytes_per_block),
            products,
        }
    }
}

/// A planned kernel.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Elementwise(Elementwise),
    Rows(RowProgram),
    /// A scan along the rows of the program's frame, with its epilogue.
    Scan(RowProgram, NodeId),
    Heavy {
        name: String,
        node: NodeId,
        stores: Vec<NodeId>,
    },
}

/// A plan; see the module.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
    /// Memory that steps may load or store.
    pub(crate) buffers: BTreeMap<NodeId, Buffer>,
}

impl Step {
    /// The same step; this follows its name, unless it is empty.
    pub(crate) fn named(&self, suffix: &str) -> Self {
        let mut step = self.clone();
        if !suffix.is_empty() {
            let (Self::Elementwise(Elementwise { name, .. })
            | Self::Rows(RowProgram { name, .. })
            | Self::Scan(RowProgram { name, .. }, _)
            | Self::Heavy { name, .. }) = &mut step;
            name.push('_');
            name.push_str(suffix);
        }
        step
    }

    /// Nodes the step writes.
    pub(crate) fn stores(&self) -> Vec<NodeId> {
        match self {
            Self::Elementwise(k) => k.stores.clone(),
            Self::Rows(k) | Self::Scan(k, _) => {
                k.full_stores.iter().chain(&k.row_stores).copied().collect()
            }
            Self::Heavy { stores, .. } => stores.clone(),
        }
    }
}

/// How much is fused into a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fusion {
    /// As much as possible.
    Full,
    /// One operator per kernel, for demonstrations.
    None,
}

/// Plans the graph.
pub(crate) fn plan(graph: &Graph, fusion: Fusion) -> Result<Plan, String> {
    let mut forced: BTreeSet<NodeId> = BTreeSet::new();
    for id in graph.reachable() {
        let op = &graph.node(id).op;
        if fusion == Fusion::None
            && matches!(op, Op::Map { .. } | Op::Scan { .. } | Op::Reduce { inline: false, .. })
        {
            forced.insert(id);
        }
        if let Op::Heavy { op, args } = &graph.node(id).op {
            forced.insert(id);
            for (k, arg) in args.iter().enumerate() {
                forced.insert(operand_root(graph, *arg, k, &**op));
            }
        }
    }
    forced.extend(graph.outputs.iter().copied());
    forced.extend(constant::roots(graph));
    forced.extend(heavy::overlapping(graph));
    // Values that several steps share are found by planning, then put into memory, one at a time.
    for _ in 0..200 {
        let groups = group::form(graph, &forced)?;
        let groups = share::absorb(graph, groups, &forced);
        match share::shared(graph, &groups, &forced) {
            Some(node) => _ = forced.insert(node),
            None => return Ok(finish(graph, groups)),
        }
    }
    Err("the graph needs too many shared intermediate values".to_owned())
}

/// The node that must be in memory for an operand: the operand, or the source of its view.
pub(crate) fn operand_root(
    graph: &Graph,
    arg: NodeId,
    position: usize,
    op: &dyn HeavyOp,
) -> NodeId {
    match &graph.node(arg).op {
        Op::View { .. } => {
            let (src, offset) = heavy::offset_of(graph, arg);
            if op.takes_view(position, &offset) { src } else { arg }
        }
        _ => arg,
    }
}

fn finish(graph: &Graph, groups: Vec<Group>) -> Plan {
    let mut buffers = BTreeMap::new();
    for (i, node) in graph.nodes.iter().enumerate() {
        if let Op::Leaf(leaf) = &node.op {
            let buffer = Buffer { strides: leaf.strides.clone(), dtype: node.dtype };
            buffers.insert(NodeId(i), buffer);
        }
    }
    let mut steps = Vec::new();
    // Groups that gave their work away.
    let groups = order(groups).into_iter().filter(|g| !g.stores.is_empty());
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    for group in groups {
        let stores: Vec<NodeId> = group.stores.iter().copied().collect();
        for s in &stores {
            let shape = graph.shape(*s);
            buffers.insert(*s, Buffer { strides: strides_of(shape), dtype: graph.dtype(*s) });
        }
        let (base, purpose) = describe(graph, &group, &stores);
        let count = names.entry(base.clone()).or_insert(0);
        *count += 1;
        let name = if *count == 1 { base } else { format!("{base}_{count}") };
        steps.push(match group.kind {
            Kind::Elementwise { shape } => {
                Step::Elementwise(Elementwise { name, shape, stores, purpose })
            }
            Kind::Rows { frame } => {
                let full = numel(&frame.shape);
                let is_full = |n: &NodeId| numel(graph.shape(*n)) == full && frame.cols() > 1;
                let (full_stores, row_stores) = stores.into_iter().partition(is_full);
                let passes = group.passes;
                let online = vec![];
                Step::Rows(RowProgram {
                    name,
                    purpose,
                    frame,
                    passes,
                    online,
                    row_stores,
                    full_stores,
                })
            }
            Kind::Scan { node, frame } => Step::Scan(
                RowProgram {
                    name,
                    purpose,
                    frame,
                    passes: vec![],
                    online: vec![],
                    row_stores: vec![],
                    full_stores: stores,
                },
                node,
            ),
            Kind::Heavy { node } => Step::Heavy { name, node, stores },
        });
    }
    Plan { steps, buffers }
}

/// Producers before consumers.
fn order(groups: Vec<Group>) -> Vec<Group> {
    let mut left: Vec<Option<Group>> = groups.into_iter().map(Some).collect();
    let mut done: BTreeSet<usize> = BTreeSet::new();
    let mut out = Vec::new();
    while out.len() < left.len() {
        let ready = (0..left.len()).find(|g| {
            left[*g].as_ref().is_some_and(|group| group.needs.iter().all(|n| done.contains(n)))
        });
        // Groups never depend on each other in a circle: merging checks it.
        let Some(g) = ready else { break };
        done.insert(g);
        out.extend(left[g].take());
        if left.iter().all(Option::is_none) {
            break;
        }
    }
    out
}

/// A file name and a sentence for readers.
fn describe(graph: &Graph, group: &Group, stores: &[NodeId]) -> (String, String) {
    let last = stores.last().map_or("kernel", |s| stem(&graph.node(*s).name));
    let shape = stores.last().map(|s| graph.shape(*s).to_vec()).unwrap_or_default();
    let base = match &group.kind {
        Kind::Elementwise { .. } => format!("pointwise_{last}"),
        Kind::Rows { .. } => format!("rows_{last}"),
        Kind::Scan { .. } => format!("scan_{last}"),
        Kind::Heavy { node } => match &graph.node(*node).op {
            Op::Heavy { op, .. } => format!("{}_{last}", op.name()),
            _ => last.to_owned(),
        },
    };
    let named = |n: &&NodeId| !matches!(graph.node(**n).op, Op::View { .. } | Op::Scalar(_));
    let inside: Vec<&str> =
        group.inside.iter().filter(named).map(|n| stem(&graph.node(*n).name)).collect();
    let mut chain = inside.join(", ");
    if chain.len() > 400 {
        let cut = chain.char_indices().take_while(|(i, _)| *i < 400).last().map_or(0, |(i, _)| i);
        chain.truncate(cut);
        chain.push_str(", ...");
    }
    let purpose = match &group.kind {
        Kind::Elementwise { .. } => {
            format!("Elementwise over {shape:?}, one pass over memory.\nComputes: {chain}.")
        }
        Kind::Rows { frame } => format!(
            "Row program: {} rows of {} elements, {} reduction(s), fused with what surrounds them.\n\
             Computes: {chain}.",
            frame.rows(),
            frame.cols(),
            group.passes.iter().map(Vec::len).sum::<usize>(),
        ),
        Kind::Scan { frame, .. } => format!(
            "Scan along {} rows of {} elements, fused with what surrounds it.\nComputes: {chain}.",
            frame.rows(),
            frame.cols(),
        ),
        Kind::Heavy { .. } => format!("Result {shape:?}.\nComputes: {chain}."),
    };
    (base, purpose)
}

/// The frame of a reduction.
pub(crate) fn frame_of(graph: &Graph, reduction: NodeId) -> Option<Frame> {
    let Op::Reduce { src, dims, .. } = &graph.node(reduction).op else { return None };
    Some(Frame { shape: graph.shape(*src).to_vec(), dims: dims.clone() })
}

/// Number of loads needed to compute `node` at `index`, given the nodes in memory.
pub(crate) fn loads(
    graph: &Graph,
    node: NodeId,
    index: &[Expr],
    buffers: &BTreeMap<NodeId, Buffer>,
) -> Vec<(NodeId, Vec<Expr>)> {
    let mut found = probe::Found::default();
    probe::walk(graph, node, index, &|n, _| buffers.contains_key(&n), &mut found);
    found.stops.into_iter().collect()
}

#[cfg(test)]
mod tests;
