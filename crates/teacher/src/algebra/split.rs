//! Rewrites large float32 products as products of TF32 parts (`heavy/split.rs` explains their
//! accuracy).
//!
//! An operand `x` becomes `h = tf32(x)` and `l = tf32(x - h)`, two pointwise functions. The planner
//! fuses them into the kernel that computes `x`, and computes those of weights in `prepare()`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::with_operands;
use crate::constant;
use crate::dtype::DType;
use crate::heavy::{DEPTH, Product, SplitProduct, offset_of};
use crate::index::numel;
use crate::ir::{Bound, Fun, Graph, NodeId, Op, axes};

/// Operations per second of cuBLAS on large products on an H200, in float32 and in TF32 (measured:
/// 51 and 350 to 420 times 10^12). Only their ratio matters; it is similar on all devices that use
/// this form.
const FLOAT32: f64 = 51e12;
const TF32: f64 = 350e12;
/// Memory bandwidth in bytes per second.
const MEMORY: f64 = 4e12;
/// Overhead of a call in seconds.
const CALL: f64 = 8e-6;
/// A product is split if the parts are expected to take at most this share of the time.
const MAYBE: f64 = 1.05;
/// The first version uses split products if all of them together take at most this share.
const LIKELY: f64 = 0.85;
/// Rows and columns of the tile that one multiprocessor works on.
const TILE: i64 = 128;
/// Smallest dims for which tensor cores are worth it, and the number of elements in 16 bytes.
const LEAST: i64 = 64;
const ALIGNED: i64 = 4;
/// Maximum depth of a product with joined parts: tensor cores truncate its sums three times as
/// often.
const JOINED: i64 = 512;

/// A graph with products split into parts.
#[derive(Debug)]
pub(crate) struct Apart {
    pub(crate) graph: Graph,
    /// Whether it is expected to be clearly faster.
    pub(crate) likely: bool,
}

/// The graph with large products split into parts; `None` if it has none.
pub(crate) fn split_products(old: &Graph, processors: i64) -> Option<Apart> {
    let weights = constant::weights_of(old);
    let mut graph = Graph::default();
    graph.split = old.split;
    let mut to: BTreeMap<NodeId, NodeId> = BTreeMap::new();
    let (mut before, mut after) = (0.0, 0.0);
    for id in old.reachable() {
        let node = old.node(id);
        let at = |n: &NodeId| to.get(n).copied().unwrap_or(*n);
        let found = match &node.op {
            Op::Heavy { op, args } if node.dtype == DType::F32 => op.as_product().and_then(|of| {
                let fixed = |arg: NodeId| weights[arg.0].is_some();
                let operands = [args[0], args[1]].map(|arg| (offset_of(old, arg).0, fixed(arg)));
                let cost = cost(of, operands, processors)?;
                let worth = cost.apart < MAYBE * cost.whole;
                worth.then(|| (of.clone(), [at(&args[0]), at(&args[1])], cost))
            }),
            _ => None,
        };
        let new = match (found, &node.op) {
            (Some((of, args, cost)), _) => {
                (before, after) = (before + cost.whole, after + cost.apart);
                let (of, args) = if cost.joined {
                    joined(&mut graph, &of, args)
                } else {
                    let args = args.into_iter().flat_map(|arg| parts(&mut graph, arg)).collect();
                    (SplitProduct { of, joined: false }, args)
                };
                let op = Op::Heavy { op: Arc::new(of), args };
                graph.push(&node.name, op, node.shape.clone(), node.dtype)
            }
            (None, Op::View { src, map }) => graph.view(at(src), map.clone(), node.shape.clone()),
            (None, op) => {
                graph.push(&node.name, with_operands(op, &at), node.shape.clone(), node.dtype)
            }
        };
        to.insert(id, new);
    }
    graph.outputs = old.outputs.iter().filter_map(|o| to.get(o).copied()).collect();
    (before > 0.0).then(|| Apart { graph, likely: after < LIKELY * before })
}

/// Estimated seconds of a product.
#[derive(Clone, Copy, Debug)]
struct Cost {
    /// In float32.
    whole: f64,
    /// In the faster of the two split forms, and which one that is.
    apart: f64,
    joined: bool,
}

/// Each operand comes with a flag: whether it is fixed and can be split in advance. `None` for
/// products that do not suit tensor cores.
fn cost(product: &Product, operands: [(NodeId, bool); 2], processors: i64) -> Option<Cost> {
    let &Product { m, n, k, .. } = product;
    if m.min(n) < LEAST || k < LEAST || [m, n, k].iter().any(|side| side % ALIGNED != 0) {
        return None;
    }
    let batch = product.batch();
    let work = 2.0 * (batch * m * n) as f64 * k as f64;
    let tiles = batch * ((m + TILE - 1) / TILE) * ((n + TILE - 1) / TILE);
    let busy = (tiles as f64 / processors.max(1) as f64).min(1.0);
    let products = 3.0 * work / (TF32 * busy);
    // The first call writes the result, the others read and write it.
    let sums = |calls: f64| {
        calls * product.split.0 as f64 * CALL
            + (8.0 * calls - 4.0) * (batch * m * n) as f64 / MEMORY
    };
    let sides = [batch * m * k, batch * k * n];
    // The same tensor is taken apart once, but not joined with itself the same way twice.
    let again = operands[0].0 == operands[1].0;
    let taking_apart = |bytes: f64, again: bool| -> f64 {
        let free = operands.iter().map(|(_, fixed)| *fixed).zip([false, again]);
        sides
            .iter()
            .zip(free)
            .filter(|(_, (fixed, again))| !fixed && !again)
            .map(|(elements, _)| CALL + bytes * *elements as f64 / MEMORY)
            .sum()
    };
    // Two parts beside what the operand is computed from; or three that are written after it.
    let parts = products + sums((2 + (k + DEPTH - 1) / DEPTH) as f64) + taking_apart(12.0, again);
    let join = products + sums(1.0) + taking_apart(20.0, false);
    let joined = k <= JOINED && join < parts;
    let apart = if joined { join } else { parts };
    Some(Cost { whole: work / FLOAT32 + CALL, apart, joined })
}

/// `[l_a, h_a, h_a]` times `[h_b, l_b, h_b]`: all three products in one call, small terms first.
fn joined(graph: &mut Graph, of: &Product, args: [NodeId; 2]) -> (SplitProduct, Vec<NodeId>) {
    let (rank, k) = (of.rank, of.k);
    let args = args.into_iter().zip([(rank - 1, 0), (rank - 2, 1)]);
    let args = args.map(|(arg, (axis, low))| beside(graph, arg, axis, low)).collect();
    let of = Product { k: 3 * k, split: (1, of.batch()), ..of.clone() };
    (SplitProduct { of, joined: true }, args)
}

/// The high part of an operand three times along `dim`, with the low part at position `low`.
fn beside(graph: &mut Graph, arg: NodeId, dim: usize, low: i64) -> NodeId {
    let shape = graph.shape(arg).to_vec();
    let rank = shape.len();
    let turned = |shape: &[i64]| {
        let mut shape = shape.to_vec();
        shape.swap(rank - 2, rank - 1);
        let mut map = axes(&shape);
        map.swap(rank - 2, rank - 1);
        (map, shape)
    };
    // Written in the order in which the operand lies in memory.
    let last = shape.len() - 1;
    let other = if dim == last { last - 1 } else { last };
    let stride = offset_of(graph, arg).1.stride_of(&format!("#{dim}"));
    let contiguous = stride.map_or(dim == last, |stride| stride == 1);
    if contiguous != (dim == last) {
        let (map, flipped) = turned(&shape);
        let flat = graph.view(arg, map, flipped);
        let made = beside(graph, flat, other, low);
        let made_shape = graph.shape(made).to_vec();
        let (map, back) = turned(&made_shape);
        return graph.view(made, map, back);
    }
    let [high, small] = parts(graph, arg);
    let extent = shape[dim];
    let mut wide = shape;
    wide[dim] = 3 * extent;
    let all = axes(&wide);
    let mut at = all.clone();
    at[dim] = all[dim].rem(extent);
    let bound = Bound { at: all[dim].clone(), low: low * extent, high: (low + 1) * extent };
    let inside = graph.view(small, at.clone(), wide.clone());
    let outside = graph.view(high, at, wide.clone());
    let name = format!("{}_parts", graph.node(arg).name);
    let op = Op::Guard { bounds: vec![bound], inside, outside };
    graph.push(&name, op, wide, DType::F32)
}

/// High and low part of an operand. The split goes below a view that repeats or transposes
/// elements, so that the parts have the operand's memory layout.
fn parts(graph: &mut Graph, arg: NodeId) -> [NodeId; 2] {
    let node = graph.node(arg).clone();
    if let Op::View { src, map } = node.op
        && numel(graph.shape(src)) <= numel(&node.shape)
    {
        return parts(graph, src).map(|part| graph.view(part, map.clone(), node.shape.clone()));
    }
    [(Fun::Tf32High, "high"), (Fun::Tf32Low, "low")].map(|(f, what)| {
        let op = Op::Map { f, args: vec![arg] };
        graph.push(&format!("{}_{what}", node.name), op, node.shape.clone(), DType::F32)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::index::strides_of;
    use crate::ir::{Leaf, Source, axis};

    fn product(m: i64, n: i64, k: i64) -> Product {
        Product { rank: 2, split: (1, 1), m, n, k }
    }

    #[test]
    fn only_large_regular_products_are_split() {
        let share = |m, n, k, fixed: bool| {
            let operands = [(NodeId(0), false), (NodeId(1), fixed)];
            cost(&product(m, n, k), operands, 132).map(|c| (c.apart / c.whole, c.joined))
        };
        let (faster, joined) = share(4096, 4096, 4096, false).unwrap();
        assert!(faster < 0.6 && !joined, "{faster}");
        let (faster, joined) = share(8192, 8192, 512, true).unwrap();
        assert!(faster < 0.6 && joined, "{faster}");
        // Measured: no faster, whichever way.
        assert!(share(128, 1024, 32768, true).unwrap().0 > MAYBE);
        assert!(share(256, 256, 131_072, false).unwrap().0 > MAYBE);
        // Nothing to gain, or not in steps of 16 bytes.
        assert!(share(64, 64, 64, true).unwrap().0 > MAYBE);
        assert_eq!(share(4096, 4095, 4096, false), None);
    }

    /// `x [512, 1024]` times `w [2048, 1024]` transposed, then times `v`, all large.
    fn graph() -> Graph {
        let mut graph = Graph::default();
        let leaf = |graph: &mut Graph, name: &str, shape: &[i64], source| {
            let op = Op::Leaf(Leaf { source, strides: strides_of(shape), offset: 0 });
            graph.push(name, op, shape.to_vec(), DType::F32)
        };
        let (m, n, k) = (4096, 2048, 2048);
        let x = leaf(&mut graph, "x", &[m, k], Source::Input(0));
        let w = leaf(&mut graph, "w", &[n, k], Source::State("w".into()));
        let w = graph.view(w, vec![axis(1, n), axis(0, k)], vec![k, n]);
        let op = Op::Heavy { op: Arc::new(product(m, n, k)), args: vec![x, w] };
        let h = graph.push("h", op, vec![m, n], DType::F32);
        let h = graph.map("r", Fun::Relu, &[h], &[m, n], DType::F32);
        graph.outputs = vec![h];
        graph
    }

    #[test]
    fn parts_keep_the_operands_layout() {
        let Apart { graph: split, likely } = split_products(&graph(), 132).unwrap();
        assert!(likely);
        let heavy = split.nodes.iter().find_map(|n| match &n.op {
            Op::Heavy { args, .. } => Some(args.clone()),
            _ => None,
        });
        let names: Vec<&str> =
            heavy.unwrap().iter().map(|a| split.node(*a).name.as_str()).collect();
        assert_eq!(names, ["x_high", "x_low", "w_high", "w_low"]);
        let shape = |name: &str| split.nodes.iter().find(|n| n.name == name).unwrap().shape.clone();
        assert_eq!(shape("w_high"), [2048, 2048], "not turned: the view stays above");
        assert!(split_products(&split, 132).is_none(), "once is enough");
    }

    /// Of weights that are read turned, the parts lie along their rows, where the terms are.
    #[test]
    fn adjacent_parts_follow_the_summed_dim() {
        let mut graph = graph();
        let (x, w) = (NodeId(0), NodeId(2));
        assert!(matches!(graph.node(w).op, Op::View { .. }));
        let (of, args) = joined(&mut graph, &product(4096, 2048, 2048), [x, w]);
        assert_eq!((of.joined, of.of.k), (true, 6144));
        let guard = |node: NodeId| match &graph.node(node).op {
            Op::Guard { bounds, inside, outside } => {
                let names = [*inside, *outside].map(|n| graph.node(n).name.clone());
                (graph.shape(node).to_vec(), bounds.clone(), names)
            }
            other => panic!("{other:?}"),
        };
        let (shape, bounds, names) = guard(args[0]);
        assert_eq!((shape, names), (vec![4096, 6144], ["x_low".to_owned(), "x_high".to_owned()]));
        assert_eq!(bounds, [Bound { at: axis(1, 6144), low: 0, high: 2048 }]);
        let Op::View { src, map } = graph.node(args[1]).op.clone() else { panic!("not turned") };
        assert_eq!(map, [axis(1, 2048), axis(0, 6144)]);
        let (shape, bounds, names) = guard(src);
        assert_eq!((shape, names), (vec![2048, 6144], ["w_low".to_owned(), "w_high".to_owned()]));
        assert_eq!(bounds, [Bound { at: axis(1, 6144), low: 2048, high: 4096 }]);
    }

    fn high(x: f32) -> f32 {
        f32::from_bits((x.to_bits() + 0x1000) & 0xffff_e000)
    }

    proptest! {
        /// What the module says of the rest, with the arithmetic of `tf32_high` and `tf32_low`.
        #[test]
        fn two_tf32_parts_leave_small_remainder(x in -1e30f32..1e30) {
            prop_assume!(x.abs() > 1e-20);
            let (h, l) = (high(x), high(x - high(x)));
            let rest = (f64::from(x) - f64::from(h) - f64::from(l)).abs();
            prop_assert!(rest <= 2f64.powi(-22) * f64::from(x.abs()));
        }
    }
}
