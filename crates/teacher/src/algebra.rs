//! Rewriting the graph into one that computes the same with less work.
//!
//! | before | after | where |
//! |---|---|---|
//! | `diag(d) @ b` | `d[i] * b[i, j]` | `lower/product.rs` through [`diagonal_of`] |
//! | `sum_n (a @ b)[m, n]` | `a . sum_n b[:, n]`, through sums, scalings and views | `algebra/sum.rs` |
//! | `(conv(x, w) + b) * s + t`, with `s`, `t` of the weights and per channel | `conv(x, w * s) + ((b * s) + t)` | `algebra/fold.rs` |
//! | a reduction over one element | the element | here |
//! | a large float32 product, where [`split_products`] is asked | a product of TF32 parts | `algebra/split.rs` |
//!
//! Values that depend on weights alone are computed once, in `prepare()` (`constant.rs`).
//!
//! [`simplify`] copies the graph node by node and applies the rules on the way, so a rule sees
//! operands that are already simplified. Nodes that a rewrite makes unused stay in the graph,
//! unreachable. A rule that splits an operator applies only if the operator has one user.

mod fold;
mod split;
mod sum;

use std::collections::BTreeMap;

use crate::dtype::DType;
use crate::index::{Expr, numel};
use crate::ir::{Fun, Graph, NodeId, Op, Pick, ReduceKind, apply, apply_all, axes};
use fold::Affine;
pub(crate) use split::split_products;

/// The graph under construction.
struct Rewriter {
    graph: Graph,
    /// Number of users of a new node, counted in the old graph.
    uses: BTreeMap<NodeId, usize>,
    /// New nodes that are an affine function, per channel, of a heavy node.
    affine: BTreeMap<NodeId, Affine>,
    /// Whether a new node depends on weights and numbers only.
    fixed: BTreeMap<NodeId, bool>,
}

/// Applies the rules.
pub(crate) fn simplify(old: &Graph) -> Graph {
    let mut users = vec![0usize; old.nodes.len()];
    let reachable = old.reachable();
    for id in &reachable {
        old.operands(*id).iter().for_each(|o| users[o.0] += 1);
    }
    old.outputs.iter().for_each(|o| users[o.0] += 1);
    let mut rewriter = Rewriter {
        graph: Graph::default(),
        uses: BTreeMap::new(),
        affine: BTreeMap::new(),
        fixed: BTreeMap::new(),
    };
    let mut to: BTreeMap<NodeId, NodeId> = BTreeMap::new();
    for id in reachable {
        let copy = rewriter.copy(old, id, &to);
        // Uses are known before the rules look at them: a rule may take this very node apart later.
        let node = rewriter.rewrite(copy);
        for n in [copy, node] {
            *rewriter.uses.entry(n).or_insert(0) += users[id.0];
        }
        if copy == node {
            rewriter.uses.insert(node, rewriter.uses[&node] - users[id.0]);
        }
        to.insert(id, node);
    }
    let outputs = old.outputs.iter().filter_map(|o| to.get(o).copied()).collect();
    rewriter.graph.outputs = outputs;
    rewriter.graph
}

impl Rewriter {
    /// The same node with new operands.
    fn copy(&mut self, old: &Graph, id: NodeId, to: &BTreeMap<NodeId, NodeId>) -> NodeId {
        let node = old.node(id);
        let at = |n: &NodeId| to.get(n).copied().unwrap_or(*n);
        if let Op::View { src, map } = &node.op {
            return self.graph.view(at(src), map.clone(), node.shape.clone());
        }
        let op = with_operands(&node.op, &at);
        self.graph.push(&node.name, op, node.shape.clone(), node.dtype)
    }

    /// A cheaper equivalent node, or the node itself.
    fn rewrite(&mut self, id: NodeId) -> NodeId {
        match &self.graph.node(id).op {
            Op::Map { .. } => self.fold(id).unwrap_or(id),
            Op::Reduce { kind, src, dims, .. } => {
                let (kind, src, dims) = (*kind, *src, dims.clone());
                if let Some(node) = self.over_one(id, kind, src, &dims) {
                    return node;
                }
                self.sum_of_product(id).unwrap_or(id)
            }
            _ => id,
        }
    }

    /// A reduction over a single element.
    fn over_one(
        &mut self,
        id: NodeId,
        kind: ReduceKind,
        src: NodeId,
        dims: &[usize],
    ) -> Option<NodeId> {
        let inner = self.graph.inner_of(src, dims);
        let (shape, dtype) = (self.graph.shape(id).to_vec(), self.graph.dtype(id));
        if numel(&inner) != 1 {
            return None;
        }
        match kind {
            ReduceKind::Sum | ReduceKind::Prod | ReduceKind::Max | ReduceKind::Min => {
                let same = self.graph.reshape(src, &shape);
                let name = self.graph.node(id).name.clone();
                Some(self.graph.map(&name, Fun::Cast, &[same], &shape, dtype))
            }
            ReduceKind::ArgMax | ReduceKind::ArgMin => {
                let zero = self.graph.scalar(0.0, DType::I64);
                Some(self.graph.broadcast(zero, &shape))
            }
            ReduceKind::Any | ReduceKind::All => None,
        }
    }

    /// Whether only the node being rewritten uses this one.
    fn used_once(&self, id: NodeId) -> bool {
        self.uses.get(&id).is_none_or(|u| *u <= 1)
    }

    /// Whether a node depends on weights and numbers only.
    fn is_fixed(&mut self, id: NodeId) -> bool {
        if let Some(known) = self.fixed.get(&id) {
            return *known;
        }
        let is_input = matches!(&self.graph.node(id).op, Op::Leaf(l) if matches!(l.source, crate::ir::Source::Input(_)));
        let fixed = !is_input && self.graph.operands(id).into_iter().all(|o| self.is_fixed(o));
        self.fixed.insert(id, fixed);
        fixed
    }

    /// `node` as a function of the dims that remain without `dims`; `None` if it depends on `dims`.
    fn without(&mut self, node: NodeId, dims: &[usize]) -> Option<NodeId> {
        let shape = self.graph.shape(node).to_vec();
        let Op::View { src, map } = &self.graph.node(node).op else { return None };
        let (src, map) = (*src, map.clone());
        if dims.iter().any(|d| map.iter().any(|e| e.mentions(&format!("#{d}")))) {
            return None;
        }
        let (left, place) = drop_dims(&shape, dims);
        let map = map.iter().map(|e| apply(e, &place)).collect();
        Some(self.graph.view(src, map, left))
    }
}

/// A shape without some dims, and the position of each old axis among the new ones (0 for dropped
/// axes).
fn drop_dims(shape: &[i64], dims: &[usize]) -> (Vec<i64>, Vec<Expr>) {
    let left: Vec<i64> =
        shape.iter().enumerate().filter(|(d, _)| !dims.contains(d)).map(|(_, e)| *e).collect();
    let mut next = axes(&left).into_iter();
    let place = (0..shape.len())
        .map(|d| if dims.contains(&d) { Expr::default() } else { next.next().unwrap_or_default() })
        .collect();
    (left, place)
}

/// The diagonal `[.., n]` of a node `[.., n, n]` that is zero elsewhere by construction: a
/// selection between values and zero on the condition that row and column are equal.
pub(crate) fn diagonal_of(graph: &mut Graph, node: NodeId) -> Option<NodeId> {
    let shape = graph.shape(node).to_vec();
    let rank = shape.len();
    if rank < 2 || shape[rank - 1] != shape[rank - 2] || shape[rank - 1] < 2 {
        return None;
    }
    let all = axes(&shape);
    let (row, col) = (all[rank - 2].clone(), all[rank - 1].clone());
    let on_diagonal = [&all[..rank - 1], &all[rank - 2..rank - 1]].concat();
    let short = shape[..rank - 1].to_vec();
    match &graph.node(node).op {
        Op::View { src, map } => {
            let (src, map) = (*src, map.clone());
            let inner = map.len();
            let whole = inner >= 2 && map[inner - 2] == row && map[inner - 1] == col;
            let lead = map.get(..inner.saturating_sub(2))?.to_vec();
            let side = |e: &Expr| {
                e.mentions(&format!("#{}", rank - 1)) || e.mentions(&format!("#{}", rank - 2))
            };
            if !whole || lead.iter().any(side) {
                return None;
            }
            let diagonal = diagonal_of(graph, src)?;
            let at = [lead, vec![row]].concat();
            Some(graph.view(diagonal, at, short))
        }
        Op::Map { f: Fun::Where, args } => {
            let (test, kept, other) = (args[0], args[1], args[2]);
            if number(graph, other) != Some(0.0) {
                return None;
            }
            is_diagonal(graph, test, &all, &all).then(|| graph.view(kept, on_diagonal, short))
        }
        // A mask as numbers: the unit matrix.
        Op::Map { f: Fun::Cast, args } => {
            let (mask, dtype) = (args[0], graph.dtype(node));
            let one = graph.scalar(1.0, dtype);
            is_diagonal(graph, mask, &all, &all).then(|| graph.broadcast(one, &short))
        }
        _ => None,
    }
}

/// Whether a mask, read at `index`, is true exactly where the last two axes of `all` are equal.
fn is_diagonal(graph: &Graph, mask: NodeId, index: &[Expr], all: &[Expr]) -> bool {
    match &graph.node(mask).op {
        Op::View { src, map } => is_diagonal(graph, *src, &apply_all(map, index), all),
        Op::Map { f: Fun::Eq, args } => {
            let (a, b) = (position(graph, args[0], index), position(graph, args[1], index));
            let (Some(a), Some(b)) = (a, b) else { return false };
            let (apart, rank) = (a.add(&b.mul(-1)), all.len());
            let sides = all[rank - 2].add(&all[rank - 1].mul(-1));
            apart == sides || apart == sides.mul(-1)
        }
        _ => false,
    }
}

/// The integer expression that gives a node's value at an index, if the node is index arithmetic.
fn position(graph: &Graph, node: NodeId, index: &[Expr]) -> Option<Expr> {
    match &graph.node(node).op {
        Op::Index(e) => Some(apply(e, index)),
        Op::View { src, map } => position(graph, *src, &apply_all(map, index)),
        Op::Scalar(x) => (x.fract() == 0.0 && x.abs() < 1e15).then(|| Expr::constant(*x as i64)),
        Op::Map { f, args } => {
            let a = position(graph, args[0], index)?;
            match f {
                Fun::Cast => Some(a),
                Fun::Add => Some(a.add(&position(graph, args[1], index)?)),
                Fun::Sub => Some(a.add(&position(graph, args[1], index)?.mul(-1))),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The same operator with other operands.
fn with_operands(op: &Op, at: &dyn Fn(&NodeId) -> NodeId) -> Op {
    match op {
        Op::View { src, map } => Op::View { src: at(src), map: map.clone() },
        Op::Leaf(_) | Op::Scalar(_) | Op::Index(_) => op.clone(),
        Op::Map { f, args } => Op::Map { f: *f, args: args.iter().map(at).collect() },
        Op::Heavy { op, args } => Op::Heavy { op: op.clone(), args: args.iter().map(at).collect() },
        Op::Guard { bounds, inside, outside } => {
            Op::Guard { bounds: bounds.clone(), inside: at(inside), outside: at(outside) }
        }
        Op::Take { src, picks } => {
            let picks = picks.iter().map(|p| match p {
                Pick::At(e) => Pick::At(e.clone()),
                Pick::Loaded { index, map } => Pick::Loaded { index: at(index), map: map.clone() },
            });
            Op::Take { src: at(src), picks: picks.collect() }
        }
        Op::Reduce { kind, src, dims, inline } => {
            Op::Reduce { kind: *kind, src: at(src), dims: dims.clone(), inline: *inline }
        }
        Op::Scan { kind, src, dim } => Op::Scan { kind: *kind, src: at(src), dim: *dim },
    }
}

/// The value of a node that is the same number everywhere.
pub(crate) fn number(graph: &Graph, node: NodeId) -> Option<f64> {
    match &graph.node(node).op {
        Op::Scalar(x) => Some(*x),
        Op::View { src, .. } => number(graph, *src),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::heavy::Product;
    use crate::index::strides_of;
    use crate::ir::{Leaf, Source, axis};

    fn leaf(graph: &mut Graph, name: &str, shape: &[i64], input: bool) -> NodeId {
        let source = if input { Source::Input(0) } else { Source::State(name.to_owned()) };
        let op = Op::Leaf(Leaf { source, strides: strides_of(shape), offset: 0 });
        graph.push(name, op, shape.to_vec(), DType::F32)
    }

    /// `x [4, 8]` times `w [8, 6]`, and a bias along the columns.
    fn linear(graph: &mut Graph) -> NodeId {
        let x = leaf(graph, "x", &[4, 8], true);
        let w = leaf(graph, "w", &[8, 6], false);
        let b = leaf(graph, "b", &[6], false);
        let op = Product { rank: 2, split: (1, 1), m: 4, n: 6, k: 8 };
        let op = Op::Heavy { op: Arc::new(op), args: vec![x, w] };
        let product = graph.push("product", op, vec![4, 6], DType::F32);
        graph.map("sum", Fun::Add, &[product, b], &[4, 6], DType::F32)
    }

    fn products(graph: &Graph) -> usize {
        let heavy = |n: &&NodeId| matches!(graph.node(**n).op, Op::Heavy { .. });
        graph.reachable().iter().filter(heavy).count()
    }

    #[test]
    fn a_sum_over_columns_needs_no_product() {
        let mut graph = Graph::default();
        let y = linear(&mut graph);
        let half = graph.scalar(0.5, DType::F64);
        let y = graph.map("half", Fun::Mul, &[y, half], &[4, 6], DType::F32);
        let total = graph.reduce("total", ReduceKind::Sum, y, &[1], true, DType::F32);
        graph.outputs.push(total);
        let simple = simplify(&graph);
        assert_eq!(products(&simple), 0);
        assert_eq!(simple.shape(simple.outputs[0]), [4, 1]);
    }

    #[test]
    fn product_used_elsewhere_is_not_rewritten() {
        let mut graph = Graph::default();
        let y = linear(&mut graph);
        let total = graph.reduce("total", ReduceKind::Sum, y, &[1], true, DType::F32);
        graph.outputs.extend([total, y]);
        let simple = simplify(&graph);
        assert_eq!(products(&simple), 1);
        assert!(matches!(simple.node(simple.outputs[0]).op, Op::View { .. }));
    }

    #[test]
    fn scale_per_column_is_folded_into_weights() {
        let mut graph = Graph::default();
        let y = linear(&mut graph);
        let s = leaf(&mut graph, "s", &[6], false);
        let y = graph.map("scaled", Fun::Mul, &[y, s], &[4, 6], DType::F32);
        graph.outputs.push(y);
        let simple = simplify(&graph);
        // What is left to do with every element is one addition.
        let Op::Map { f: Fun::Add, args } = &simple.node(simple.outputs[0]).op else {
            panic!("{:?}", simple.node(simple.outputs[0]));
        };
        let Op::Heavy { args, .. } = &simple.node(args[0]).op else { panic!("not the product") };
        assert!(matches!(simple.node(args[1]).op, Op::Map { f: Fun::Mul, .. }));
        assert_eq!(crate::constant::roots(&simple).len(), 2, "weights and shift are prepared");
    }

    #[test]
    fn scale_per_row_is_not_folded() {
        let mut graph = Graph::default();
        let y = linear(&mut graph);
        let s = leaf(&mut graph, "s", &[4, 1], false);
        let y = graph.map("scaled", Fun::Mul, &[y, s], &[4, 6], DType::F32);
        graph.outputs.push(y);
        let simple = simplify(&graph);
        assert!(matches!(simple.node(simple.outputs[0]).op, Op::Map { f: Fun::Mul, .. }));
    }

    #[test]
    fn selection_by_row_and_column_is_diagonal() {
        let mut graph = Graph::default();
        let d = leaf(&mut graph, "d", &[5], true);
        let (row, col) = (axis(0, 5), axis(1, 5));
        let rows = graph.push("rows", Op::Index(row), vec![5, 5], DType::I64);
        let cols = graph.push("cols", Op::Index(col.clone()), vec![5, 5], DType::I64);
        let values = graph.view(d, vec![col], vec![5, 5]);
        let zero = graph.scalar(0.0, DType::F32);
        for (f, found) in [(Fun::Eq, true), (Fun::Le, false)] {
            let test = graph.map("test", f, &[rows, cols], &[5, 5], DType::Bool);
            let args = [test, values, zero];
            let matrix = graph.map("matrix", Fun::Where, &args, &[5, 5], DType::F32);
            assert_eq!(diagonal_of(&mut graph, matrix), found.then_some(d));
        }
    }
}
