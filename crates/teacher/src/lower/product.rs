//! Matrix products, and their special cases that are simpler operations.

use std::sync::Arc;

use super::operand::copied;
use super::{CallView, Family, Lowering};
use crate::algebra::{diagonal_of, number};
use crate::dtype::DType;
use crate::heavy::{Product, is_memory, offset_of, reads_in_place, split_batch};
use crate::ir::{Fun, Graph, NodeId, Op, ReduceKind, axes, axis};

/// Products of at most this depth are sums in place, inside an elementwise kernel.
const SHALLOW: i64 = 4;

/// See the module.
pub(super) struct Products;

impl Family for Products {
    fn lower(&self, call: &CallView<'_>, to: &mut Lowering) -> Result<Option<Vec<NodeId>>, String> {
        let (first, added) = match call.base() {
            "mm" | "bmm" | "mv" | "dot" | "vdot" => (0, false),
            "addmm" | "baddbmm" | "addmv" => (1, true),
            "_trilinear" => return bilinear(call, to).map(|id| Some(vec![id])),
            _ => return Ok(None),
        };
        let meta = call.result(0)?;
        let (name, dtype) = (call.name(), meta.dtype);
        let (mut a, mut b) = (to.node(call, first)?, to.node(call, first + 1)?);
        // Vectors are matrices with a side of one.
        if to.graph.shape(a).len() == 1 {
            let k = to.graph.shape(a)[0];
            a = to.graph.reshape(a, &[1, k]);
        }
        if to.graph.shape(b).len() == 1 {
            let k = to.graph.shape(b)[0];
            b = to.graph.reshape(b, &[k, 1]);
        }
        let product = product(&mut to.graph, name, a, b, dtype)?;
        let mut result = to.graph.reshape(product, &meta.shape);
        if added {
            let scaled = |to: &mut Lowering, x: NodeId, key: &str, position: usize| {
                let factor = call.float(position, key).unwrap_or(1.0);
                if (factor - 1.0).abs() > 0.0 {
                    let by = to.graph.scalar(factor, DType::F64);
                    let shape = to.graph.shape(x).to_vec();
                    return to.graph.map(name, Fun::Mul, &[x, by], &shape, dtype);
                }
                x
            };
            let offset = to.node(call, 0)?;
            result = scaled(to, result, "alpha", 4);
            if call.float(3, "beta") != Some(0.0) {
                let offset = scaled(to, offset, "beta", 3);
                result = to.graph.map(name, Fun::Add, &[result, offset], &meta.shape, dtype);
            }
        }
        Ok(Some(vec![result]))
    }
}

/// `a [.., m, k]` times `b [.., k, n]`, rank 2 or 3.
pub(crate) fn product(
    graph: &mut Graph,
    name: &str,
    a: NodeId,
    b: NodeId,
    dtype: DType,
) -> Result<NodeId, String> {
    if !dtype.is_float() {
        return Err(format!("of {}", dtype.torch()));
    }
    let rank = graph.shape(a).len();
    let (m, k) = (graph.shape(a)[rank - 2], graph.shape(a)[rank - 1]);
    let n = graph.shape(b)[rank - 1];
    let batch = if rank == 3 { graph.shape(a)[0] } else { 1 };
    let mut shape: Vec<i64> = graph.shape(a)[..rank - 1].to_vec();
    shape.push(n);
    if m * n * batch == 0 || k == 0 {
        let zero = graph.scalar(0.0, dtype);
        return Ok(graph.broadcast(zero, &shape));
    }
    // A number times an operand is the number times the product.
    let mut factors = Vec::new();
    let (a, b) = (peel(graph, a, &mut factors), peel(graph, b, &mut factors));
    let mut result = plain(graph, name, a, b, &shape, dtype);
    for factor in factors {
        let by = graph.scalar(factor, DType::F64);
        result = graph.map(&format!("{name}_scaled"), Fun::Mul, &[result, by], &shape, dtype);
    }
    Ok(result)
}

fn plain(
    graph: &mut Graph,
    name: &str,
    a: NodeId,
    b: NodeId,
    shape: &[i64],
    dtype: DType,
) -> NodeId {
    let rank = shape.len();
    let (row, col) = (rank - 2, rank - 1);
    let (m, n) = (shape[row], shape[col]);
    let k = graph.shape(a)[col];
    let all = axes(shape);
    // A diagonal matrix scales rows or columns.
    if let Some(diagonal) = diagonal_of(graph, a) {
        let at = [&all[..row], &all[row..=row]].concat();
        let scale = graph.view(diagonal, at, shape.to_vec());
        return graph.map(name, Fun::Mul, &[scale, b], shape, dtype);
    }
    if let Some(diagonal) = diagonal_of(graph, b) {
        let at = [&all[..row], &all[col..=col]].concat();
        let scale = graph.view(diagonal, at, shape.to_vec());
        return graph.map(name, Fun::Mul, &[a, scale], shape, dtype);
    }
    let (often_a, often_b) = (n == 1 || is_memory(graph, a), m == 1 || is_memory(graph, b));
    // Bound by memory, at which a matrix product of so few columns is poor. An operand that is dear
    // to compute for every element it goes into is put into memory by the planner.
    let sum_in_place = k <= SHALLOW;
    if sum_in_place || (often_a && often_b && (m == 1 || n == 1)) {
        // One side is a vector: a sum of products, which the planner fuses like any other.
        let mut wide = shape.to_vec();
        wide.push(k);
        let lead = axes(&wide);
        let (batch, inner) = (lead[..row].to_vec(), lead[rank].clone());
        let at_a = [batch.clone(), vec![lead[row].clone(), inner.clone()]].concat();
        let at_b = [batch, vec![inner, lead[col].clone()]].concat();
        let x = graph.view(a, at_a, wide.clone());
        let w = graph.view(b, at_b, wide.clone());
        let terms = graph.map(&format!("{name}_terms"), Fun::Mul, &[x, w], &wide, dtype);
        let op = Op::Reduce {
            kind: ReduceKind::Sum,
            src: terms,
            dims: vec![rank],
            inline: sum_in_place,
        };
        return graph.push(name, op, shape.to_vec(), dtype);
    }
    let batch = if rank == 3 { shape[0] } else { 1 };
    let mut op = Product { rank, split: (1, batch), m, n, k };
    if rank == 3 {
        let place = |graph: &Graph, x: NodeId, rows, cols| (offset_of(graph, x).1, rows, cols);
        op.split = split_batch(batch, &[place(graph, a, m, k), place(graph, b, k, n)]);
    }
    let args = vec![settled(graph, &op, 0, a, dtype), settled(graph, &op, 1, b, dtype)];
    graph.push(name, Op::Heavy { op: Arc::new(op), args }, shape.to_vec(), dtype)
}

/// An operand that the product can read: model inputs in odd layouts are copied first.
fn settled(graph: &mut Graph, op: &Product, position: usize, arg: NodeId, dtype: DType) -> NodeId {
    let odd =
        matches!(graph.node(arg).op, Op::Leaf(_)) && !reads_in_place(graph, op, position, arg);
    if odd || graph.dtype(arg) != dtype { copied(graph, arg, dtype) } else { arg }
}

/// Removes numeric factors from an operand. Not in half precision, where the reference rounds the
/// scaled operand.
fn peel(graph: &mut Graph, arg: NodeId, factors: &mut Vec<f64>) -> NodeId {
    let (src, map) = match &graph.node(arg).op {
        Op::View { src, map } => (*src, Some(map.clone())),
        _ => (arg, None),
    };
    let Op::Map { f: f @ (Fun::Mul | Fun::Div), args } = &graph.node(src).op else { return arg };
    if !matches!(graph.dtype(src), DType::F32 | DType::F64) {
        return arg;
    }
    let (f, x, y) = (*f, args[0], args[1]);
    let (kept, factor) = match (number(graph, x), number(graph, y)) {
        (None, Some(c)) if f == Fun::Mul => (x, c),
        (None, Some(c)) if c.log2().fract() == 0.0 => (x, 1.0 / c),
        (Some(c), None) if f == Fun::Mul => (y, c),
        _ => return arg,
    };
    // A cast hidden in the product would be lost.
    if !factor.is_finite() || graph.dtype(kept) != graph.dtype(src) {
        return arg;
    }
    factors.push(factor);
    let shape = graph.shape(arg).to_vec();
    let inner = map.map_or(kept, |map| graph.view(kept, map, shape));
    peel(graph, inner, factors)
}

/// `sum_ij x[b, i] * w[o, i, j] * y[b, j]`, as `nn.Bilinear` traces it.
fn bilinear(call: &CallView<'_>, to: &mut Lowering) -> Result<NodeId, String> {
    let lists: Vec<Vec<i64>> = (3..7).map(|p| call.ints(p, "").unwrap_or_default()).collect();
    if lists != [vec![1, 3], vec![0], vec![1, 2], vec![2, 3]] {
        return Err("other than a bilinear layer".to_owned());
    }
    let (x, w, y) = (to.node(call, 0)?, to.node(call, 1)?, to.node(call, 2)?);
    let meta = call.result(0)?;
    let (name, dtype) = (call.name(), meta.dtype);
    let graph = &mut to.graph;
    let (rows, first) = (graph.shape(x)[0], graph.shape(x)[1]);
    let (outs, second) = (graph.shape(w)[0], graph.shape(w)[2]);
    // [o, i, j] as [i, (o, j)]
    let flat = axis(1, outs * second);
    let map = vec![flat.div(second), axis(0, first), flat.rem(second)];
    let turned = graph.view(w, map, vec![first, outs * second]);
    let half = product(graph, &format!("{name}_half"), x, turned, dtype)?;
    let half = graph.reshape(half, &[rows, outs, second]);
    let wide = [rows, outs, second];
    let other = graph.view(y, vec![axis(0, rows), axis(2, second)], wide.to_vec());
    let terms = graph.map(&format!("{name}_terms"), Fun::Mul, &[half, other], &wide, dtype);
    Ok(graph.reduce(name, ReduceKind::Sum, terms, &[2], false, dtype))
}
