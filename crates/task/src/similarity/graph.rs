//! Operator graphs, compared without regard to shapes.
//!
//! Labels are refined as by Weisfeiler and Lehman: a node's next label is made of its own, of those of
//! its inputs in order, and of those of its users with the position at which they use it. As many rounds
//! as split any class of nodes, at most 64, give the canonical hash; the labels of the first [`ROUNDS`] rounds are
//! the features of the subtree kernel of Shervashidze et al., "Weisfeiler-Lehman graph kernels", JMLR 12
//! (2011), compared here by Dice's coefficient.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::bag::Bag;
use super::{label_hash, mix, then};

/// Rounds of refinement whose labels are features of the similarity: a node and what is up to three
/// operators away.
const ROUNDS: usize = 3;

/// Most rounds of refinement for the hash. Long chains would take as many as they are long, and after this
/// many only graphs that agree in every neighbourhood of that size are still alike.
const MAX_REFINEMENTS: usize = 64;

/// Most nodes of a graph. The longest graph of KernelBench has some thousands.
const MAX_NODES: usize = 100_000;

/// Kinds of nodes that compute nothing.
const LEAVES: [&str; 4] = ["input", "parameter", "buffer", "constant"];

/// ATen operators whose two tensor operands can change places.
const COMMUTATIVE: [&str; 14] = [
    "add",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "eq",
    "hypot",
    "logaddexp",
    "logical_and",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "mul",
    "ne",
];

/// One operator call, or a leaf.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpNode {
    /// ATen's name with overload, e.g. `aten.add.Tensor`; a leaf's kind: `input`, `parameter`,
    /// `buffer`, `constant`.
    pub op: String,
    /// Indices of its tensor inputs, in the order of the arguments.
    pub inputs: Vec<usize>,
}

/// Which operators are applied to what, without shapes, dtypes and scalar arguments.
///
/// Equality compares the two as they are written; [`OpGraph::same`] does not depend on that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Parts")]
pub struct OpGraph {
    nodes: Vec<OpNode>,
    outputs: Vec<usize>,
}

/// What a graph is read from.
#[derive(Deserialize)]
struct Parts {
    nodes: Vec<OpNode>,
    outputs: Vec<usize>,
}

/// Why nodes are not a graph.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GraphError {
    /// An index without a node.
    #[error("failed to build an operator graph: it refers to node {index}, but has {nodes} nodes")]
    NoSuchNode {
        /// The index.
        index: usize,
        /// Number of nodes.
        nodes: usize,
    },
    /// Over the limit.
    #[error("failed to build an operator graph: its {nodes} nodes exceed the limit of {MAX_NODES}")]
    TooLarge {
        /// Number of nodes.
        nodes: usize,
    },
}

impl TryFrom<Parts> for OpGraph {
    type Error = GraphError;

    fn try_from(parts: Parts) -> Result<Self, GraphError> {
        Self::new(parts.nodes, parts.outputs)
    }
}

impl OpGraph {
    /// From nodes in any order and the results of the model, by index. Nodes that no result needs are
    /// kept, and count for nothing.
    pub fn new(nodes: Vec<OpNode>, outputs: Vec<usize>) -> Result<Self, GraphError> {
        if nodes.len() > MAX_NODES {
            return Err(GraphError::TooLarge { nodes: nodes.len() });
        }
        let references = nodes.iter().flat_map(|node| &node.inputs).chain(&outputs);
        match references.copied().find(|&index| index >= nodes.len()) {
            Some(index) => Err(GraphError::NoSuchNode { index, nodes: nodes.len() }),
            None => Ok(Self { nodes, outputs }),
        }
    }

    /// Nodes, leaves included.
    pub fn nodes(&self) -> &[OpNode] {
        &self.nodes
    }

    /// Results of the model, by index.
    pub fn outputs(&self) -> &[usize] {
        &self.outputs
    }

    /// 128 bits, hexadecimal, equal for graphs that differ only in the order of their nodes and in the
    /// order of operands that may change places. Stable across versions of this program.
    ///
    /// Graphs that refinement cannot tell apart have the same hash too. Those are rare among directed
    /// graphs with ordered inputs, and the cost of one is a task refused without need.
    pub fn canonical_hash(&self) -> String {
        let refined = Refinement::of(self);
        let mut labels = refined.labels.clone();
        let mut classes = count_classes(&labels);
        for _ in 0..MAX_REFINEMENTS {
            let next = refined.next(&labels);
            let split = count_classes(&next);
            labels = next;
            if split <= classes {
                break;
            }
            classes = split;
        }
        labels.sort_unstable();
        let mut hasher = blake3::Hasher::new();
        for label in labels {
            hasher.update(&label.to_le_bytes());
        }
        hasher.finalize().to_hex()[..32].to_owned()
    }

    /// Whether the two are the same graph.
    pub fn same(&self, other: &Self) -> bool {
        self.canonical_hash() == other.canonical_hash()
    }

    /// What is compared: for every operator its label in each round of refinement. Leaves have no
    /// features of their own, or convolution and matrix product would be alike for their operands.
    pub fn features(&self) -> Bag {
        let refined = Refinement::of(self);
        let mut labels = refined.labels.clone();
        let mut features = Vec::new();
        for round in 0..=ROUNDS {
            let of_operators = labels.iter().zip(&refined.is_operator).filter(|(_, is)| **is);
            features.extend(of_operators.map(|(label, _)| then(round as u64, *label)));
            labels = refined.next(&labels);
        }
        features.into()
    }

    /// Dice's coefficient of the features, in \[0, 1\]; 1 for the same graph.
    pub fn similarity(&self, other: &Self) -> f64 {
        self.features().dice(&other.features())
    }
}

fn count_classes(labels: &[u64]) -> usize {
    labels.iter().collect::<BTreeSet<_>>().len()
}

/// The part of a graph that its results need, and how labels are refined on it.
struct Refinement {
    /// Of round 0: names.
    labels: Vec<u64>,
    /// Whether a node is an operator of the graph.
    is_operator: Vec<bool>,
    inputs: Vec<Vec<usize>>,
    /// Whether a node's inputs have an order.
    ordered: Vec<bool>,
    /// Users of a node, each with the position at which it uses it.
    users: Vec<Vec<(usize, u64)>>,
}

impl Refinement {
    fn of(graph: &OpGraph) -> Self {
        let mut index = vec![None; graph.nodes.len()];
        let mut kept = Vec::new();
        let mut waiting = graph.outputs.clone();
        while let Some(node) = waiting.pop() {
            if index[node].is_none() {
                index[node] = Some(kept.len());
                kept.push(node);
                waiting.extend(&graph.nodes[node].inputs);
            }
        }
        let place = |nodes: &[usize]| nodes.iter().filter_map(|&n| index[n]).collect::<Vec<_>>();
        let mut labels = Vec::new();
        let (mut is_operator, mut inputs, mut ordered) = (Vec::new(), Vec::new(), Vec::new());
        for &node in &kept {
            let node = &graph.nodes[node];
            labels.push(label_hash(&node.op));
            is_operator.push(!LEAVES.contains(&node.op.as_str()));
            inputs.push(place(&node.inputs));
            ordered.push(!(node.inputs.len() == 2 && is_commutative(&node.op)));
        }
        // The results are what one more node takes, in order.
        labels.push(label_hash("results"));
        is_operator.push(false);
        inputs.push(place(&graph.outputs));
        ordered.push(true);
        let mut users = vec![Vec::new(); labels.len()];
        for (user, taken) in inputs.iter().enumerate() {
            for (position, &node) in taken.iter().enumerate() {
                let position = if ordered[user] { position as u64 } else { 0 };
                users[node].push((user, position));
            }
        }
        Self { labels, is_operator, inputs, ordered, users }
    }

    fn next(&self, labels: &[u64]) -> Vec<u64> {
        (0..labels.len())
            .map(|node| {
                let mut taken: Vec<u64> = self.inputs[node].iter().map(|&n| labels[n]).collect();
                if !self.ordered[node] {
                    taken.sort_unstable();
                }
                let mut used: Vec<u64> =
                    self.users[node].iter().map(|&(n, at)| then(labels[n], at)).collect();
                used.sort_unstable();
                let taken = taken.into_iter().fold(mix(1), then);
                let used = used.into_iter().fold(mix(2), then);
                then(then(labels[node], taken), used)
            })
            .collect()
    }
}

/// `aten.add.Tensor`, whatever its overload.
fn is_commutative(op: &str) -> bool {
    let name = op.split('.').nth(1).unwrap_or(op);
    COMMUTATIVE.contains(&name)
}
