//! Large float32 products as products of TF32 parts (`heavy/split.rs` says how that is exact).
//!
//! An operand `x` becomes `h = tf32(x)` and `l = tf32(x - h)`, two pointwise functions of it. The
//! planner fuses them into whatever computes `x`, and computes those of weights in `prepare()`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::with_operands;
use crate::dtype::DType;
use crate::heavy::{DEPTH, Product, SplitProduct};
use crate::index::numel;
use crate::ir::{Fun, Graph, NodeId, Op, Source};

/// Terms per second of cuBLAS, in float32 and in TF32, on large products on an H200 (measured: 51 and
/// 350 to 420 times 10^12 operations). Only their ratio matters, and it is like that wherever this
/// form is used.
const FLOAT32: f64 = 51e12;
const TF32: f64 = 350e12;
/// Bytes per second of its memory.
const MEMORY: f64 = 4e12;
/// Seconds of a call beside its work.
const CALL: f64 = 5e-6;
/// The form is used where it is expected to take at most this share of the time.
const WORTH: f64 = 0.8;
/// Rows and columns of the tile that one multiprocessor works on.
const TILE: i64 = 128;
/// Smallest matrices for which tensor cores are worth it, and the elements of 16 bytes.
const LEAST: i64 = 64;
const ALIGNED: i64 = 4;

/// The graph with large products taken apart; `None` if there are none.
pub(crate) fn split_products(old: &Graph, processors: i64) -> Option<Graph> {
    let fixed = fixed(old);
    let mut graph = Graph::default();
    graph.split = old.split;
    let mut to: BTreeMap<NodeId, NodeId> = BTreeMap::new();
    let mut found = false;
    for id in old.reachable() {
        let node = old.node(id);
        let at = |n: &NodeId| to.get(n).copied().unwrap_or(*n);
        let product = match &node.op {
            Op::Heavy { op, args } if node.dtype == DType::F32 => {
                let worth =
                    |p: &&Product| is_worth(p, [0, 1].map(|i| fixed[args[i].0]), processors);
                op.as_product().filter(worth).map(|product| (product.clone(), args))
            }
            _ => None,
        };
        let new = match (product, &node.op) {
            (Some((of, args)), _) => {
                found = true;
                let args = args.iter().flat_map(|arg| parts(&mut graph, at(arg))).collect();
                let op = Op::Heavy { op: Arc::new(SplitProduct { of }), args };
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
    found.then_some(graph)
}

/// Whether nodes depend on weights and numbers only.
fn fixed(graph: &Graph) -> Vec<bool> {
    let mut fixed: Vec<bool> = Vec::with_capacity(graph.nodes.len());
    for (i, node) in graph.nodes.iter().enumerate() {
        let here = match &node.op {
            Op::Leaf(leaf) => matches!(leaf.source, Source::State(_)),
            _ => graph.operands(NodeId(i)).iter().all(|o| fixed[o.0]),
        };
        fixed.push(here);
    }
    fixed
}

/// Whether a product is expected to be faster in parts. Operands that are fixed are taken apart
/// beforehand.
fn is_worth(product: &Product, fixed: [bool; 2], processors: i64) -> bool {
    let &Product { m, n, k, .. } = product;
    if m.min(n) < LEAST || k < LEAST || [m, n, k].iter().any(|side| side % ALIGNED != 0) {
        return false;
    }
    let batch = product.batch();
    let work = 2.0 * (batch * m * n) as f64 * k as f64;
    let tiles = batch * ((m + TILE - 1) / TILE) * ((n + TILE - 1) / TILE);
    let busy = (tiles as f64 / processors.max(1) as f64).min(1.0);
    let calls = (2 + (k + DEPTH - 1) / DEPTH) as f64 * product.split.0 as f64;
    let sums = calls * (CALL + 4.0 * (product.split.1 * m * n) as f64 / MEMORY);
    let sides = [batch * m * k, batch * k * n];
    let taking_apart: f64 = sides
        .iter()
        .zip(fixed)
        .filter(|(_, fixed)| !fixed)
        .map(|(elements, _)| CALL + 12.0 * *elements as f64 / MEMORY)
        .sum();
    3.0 * work / (TF32 * busy) + sums + taking_apart < WORTH * (work / FLOAT32 + CALL)
}

/// High and low part of an operand. Below a view that repeats or turns elements, so that the parts
/// lie in memory as the operand does.
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
    use crate::ir::{Leaf, axis};

    fn product(m: i64, n: i64, k: i64) -> Product {
        Product { rank: 2, split: (1, 1), m, n, k }
    }

    #[test]
    fn large_products_are_worth_it_and_small_or_odd_ones_are_not() {
        assert!(is_worth(&product(4096, 4096, 4096), [false, false], 132));
        assert!(is_worth(&product(8192, 8192, 512), [false, true], 132));
        // Measured: no faster.
        assert!(!is_worth(&product(128, 1024, 32768), [false, true], 132));
        assert!(!is_worth(&product(256, 256, 131_072), [false, false], 132));
        assert!(!is_worth(&product(32768, 256, 64), [false, true], 132));
        // Nothing to gain, or not in steps of 16 bytes.
        assert!(!is_worth(&product(64, 64, 64), [true, true], 132));
        assert!(!is_worth(&product(4096, 4095, 4096), [false, false], 132));
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
    fn parts_lie_in_memory_as_the_operand_does() {
        let split = split_products(&graph(), 132).unwrap();
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

    fn high(x: f32) -> f32 {
        f32::from_bits((x.to_bits() + 0x1000) & 0xffff_e000)
    }

    proptest! {
        /// What the module says of the rest, with the arithmetic of `tf32_high` and `tf32_low`.
        #[test]
        fn two_parts_leave_less_than_a_quarter_of_a_millionth(x in -1e30f32..1e30) {
            prop_assume!(x.abs() > 1e-20);
            let (h, l) = (high(x), high(x - high(x)));
            let rest = (f64::from(x) - f64::from(h) - f64::from(l)).abs();
            prop_assert!(rest <= 2f64.powi(-22) * f64::from(x.abs()));
        }
    }
}
