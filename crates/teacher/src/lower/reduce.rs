//! Reductions: sums, means, extrema, products, logical ones, variance, arg-reductions.

use super::{CallView, Family, Lowering};
use crate::dtype::DType;
use crate::index::{Expr, numel};
use crate::ir::{Fun, NodeId, ReduceKind, axes};

/// See the module.
pub(super) struct Reductions;

impl Family for Reductions {
    fn lower(&self, call: &CallView<'_>, to: &mut Lowering) -> Result<Option<Vec<NodeId>>, String> {
        let name = call.name();
        match call.base() {
            "sum" | "mean" | "amax" | "amin" | "var" | "prod" | "any" | "all" | "max" | "min"
            | "argmax" | "argmin" => {}
            "linalg_vector_norm" => return norm(call, to).map(|id| Some(vec![id])),
            _ => return Ok(None),
        }
        let src = to.node(call, 0)?;
        let rank = to.graph.shape(src).len();
        let dtype = call.result(0)?.dtype;
        let dims = call.dims(1, "dim", rank).unwrap_or_default();
        let mut keep = call.flag(2, "keepdim");
        let kind = match call.base() {
            "sum" | "mean" => ReduceKind::Sum,
            "amax" | "max" => ReduceKind::Max,
            "amin" | "min" => ReduceKind::Min,
            "prod" => ReduceKind::Prod,
            "any" => ReduceKind::Any,
            "all" => ReduceKind::All,
            "argmax" => ReduceKind::ArgMax,
            "argmin" => ReduceKind::ArgMin,
            "var" => {
                let (correction, keep) = if call.is_prim() {
                    (call.float(2, "correction"), false)
                } else {
                    (call.float(9, "correction"), call.flag(9, "keepdim"))
                };
                let correction = correction.unwrap_or(1.0);
                return Ok(Some(vec![variance(to, name, src, &dims, correction, keep, dtype)]));
            }
            _ => return Ok(None),
        };
        if call.is_prim() {
            keep = false;
        }
        if matches!(call.base(), "max" | "min") && call.arg(1, "dim").is_some() {
            if call.arg(1, "dim").is_some_and(|v| v.get("n").is_some()) {
                return Err("elementwise form".to_owned());
            }
            let arg = if kind == ReduceKind::Max { ReduceKind::ArgMax } else { ReduceKind::ArgMin };
            let values = to.graph.reduce(name, kind, src, &dims, keep, dtype);
            let places = to.graph.reduce(&format!("{name}_at"), arg, src, &dims, keep, DType::I64);
            return Ok(Some(vec![values, places]));
        }
        if matches!(kind, ReduceKind::ArgMax | ReduceKind::ArgMin) && dims.is_empty() {
            // Over everything: the position in row-major order.
            let count = numel(to.graph.shape(src));
            let flat = to.graph.reshape(src, &[count]);
            let place = to.graph.reduce(name, kind, flat, &[0], false, dtype);
            let shape = call.result(0)?.shape.clone();
            return Ok(Some(vec![to.graph.reshape(place, &shape)]));
        }
        if rank == 0 {
            return Ok(Some(vec![to.graph.map(name, Fun::Cast, &[src], &[], dtype)]));
        }
        if call.base() == "mean" {
            let count = count_of(to, src, &dims);
            let total = to.graph.reduce(name, kind, src, &dims, keep, dtype);
            return Ok(Some(vec![scale(to, name, total, 1.0 / count, count)]));
        }
        Ok(Some(vec![to.graph.reduce(name, kind, src, &dims, keep, dtype)]))
    }
}

fn count_of(to: &Lowering, src: NodeId, dims: &[usize]) -> f64 {
    let shape = to.graph.shape(src);
    let all: Vec<usize> = (0..shape.len()).collect();
    let dims = if dims.is_empty() { &all[..] } else { dims };
    dims.iter().map(|d| shape[*d]).product::<i64>() as f64
}

/// Multiplies by `factor` if that is exact (a power of two), else divides by `count`.
fn scale(to: &mut Lowering, name: &str, total: NodeId, factor: f64, count: f64) -> NodeId {
    let (shape, dtype) = (to.graph.shape(total).to_vec(), to.graph.dtype(total));
    let exact = count.log2().fract() == 0.0;
    let (f, by) = if exact { (Fun::Mul, factor) } else { (Fun::Div, count) };
    let by = to.graph.scalar(by, DType::F64);
    to.graph.map(&format!("{name}_mean"), f, &[total, by], &shape, dtype)
}

/// Two passes: the mean, then the mean squared distance from it. The one-pass formula loses digits
/// where the mean is large compared with the deviation. It is used, in double precision, for float
/// rows so long that the second pass would read them from memory again, and on the elements minus
/// the row's first: equal elements then have zero variance, and the relative error is `(distance of
/// the first from the mean / deviation)^2` times 1e-16.
fn variance(
    to: &mut Lowering,
    name: &str,
    src: NodeId,
    dims: &[usize],
    correction: f64,
    keep: bool,
    dtype: DType,
) -> NodeId {
    let shape = to.graph.shape(src).to_vec();
    let count = count_of(to, src, dims);
    let every: Vec<usize> = (0..shape.len()).collect();
    let dims = if dims.is_empty() { &every[..] } else { dims };
    let single = dtype == DType::F32 && to.graph.dtype(src) == dtype;
    let long = to.graph.split.is_some_and(|split| count >= split.long as f64);
    if single && (long || to.graph.pieces(src, dims).is_some()) {
        return one_pass_variance(to, name, src, dims, correction, keep);
    }
    let total = to.graph.reduce(&format!("{name}_sum"), ReduceKind::Sum, src, dims, true, dtype);
    let mean = scale(to, name, total, 1.0 / count, count);
    let centred = to.graph.map(&format!("{name}_centred"), Fun::Sub, &[src, mean], &shape, dtype);
    let squared = to.graph.map(&format!("{name}_squared"), Fun::Square, &[centred], &shape, dtype);
    let sum =
        to.graph.reduce(&format!("{name}_squares"), ReduceKind::Sum, squared, dims, keep, dtype);
    let count = (count - correction).max(0.0);
    scale(to, &format!("{name}_squares"), sum, 1.0 / count, count)
}

/// `(sum d^2 - (sum d)^2 / n) / (n - correction)` of float elements minus the first, in double.
fn one_pass_variance(
    to: &mut Lowering,
    name: &str,
    src: NodeId,
    dims: &[usize],
    correction: f64,
    keep: bool,
) -> NodeId {
    let graph = &mut to.graph;
    let wide = DType::F64;
    let shape = graph.shape(src).to_vec();
    let count: f64 = graph.inner_of(src, dims).iter().product::<i64>() as f64;
    let every = axes(&shape);
    let place = (0..shape.len())
        .map(|d| if dims.contains(&d) { Expr::default() } else { every[d].clone() })
        .collect();
    let first = graph.view(src, place, shape.clone());
    let distance =
        graph.map(&format!("{name}_distance"), Fun::Sub, &[src, first], &shape, DType::F32);
    let x = graph.map(&format!("{name}_wide"), Fun::Cast, &[distance], &shape, wide);
    let square = graph.map(&format!("{name}_square"), Fun::Square, &[x], &shape, wide);
    let total = graph.reduce(&format!("{name}_total"), ReduceKind::Sum, x, dims, keep, wide);
    let squares =
        graph.reduce(&format!("{name}_squares"), ReduceKind::Sum, square, dims, keep, wide);
    let left = graph.shape(total).to_vec();
    let all = graph.scalar(count, wide);
    let zero = graph.scalar(0.0, wide);
    let by = graph.scalar((count - correction).max(0.0), wide);
    let mut map = |what: &str, f: Fun, a: NodeId, b: NodeId| {
        graph.map(&format!("{name}_{what}"), f, &[a, b], &left, wide)
    };
    let product = map("product", Fun::Mul, total, total);
    let mean_square = map("mean_square", Fun::Div, product, all);
    let spread = map("spread", Fun::Sub, squares, mean_square);
    let spread = map("spread", Fun::Max, spread, zero);
    let variance = map("variance", Fun::Div, spread, by);
    graph.map(name, Fun::Cast, &[variance], &left, DType::F32)
}

/// A p-norm over some dims.
fn norm(call: &CallView<'_>, to: &mut Lowering) -> Result<NodeId, String> {
    let (name, src) = (call.name(), to.node(call, 0)?);
    let (shape, dtype) = (to.graph.shape(src).to_vec(), call.result(0)?.dtype);
    let order = call.float(1, "ord").unwrap_or(2.0);
    let dims = call.dims(2, "dim", shape.len()).unwrap_or_default();
    let keep = call.flag(3, "keepdim");
    let is = |x: f64| (order - x).abs() < f64::EPSILON;
    let (of, kind) = match order {
        _ if is(2.0) => (Fun::Square, ReduceKind::Sum),
        _ if order == f64::INFINITY => (Fun::Abs, ReduceKind::Max),
        _ if order == f64::NEG_INFINITY => (Fun::Abs, ReduceKind::Min),
        _ if is(0.0) => (Fun::Ne, ReduceKind::Sum),
        _ => (Fun::Abs, ReduceKind::Sum),
    };
    let zero = to.graph.scalar(0.0, DType::F64);
    let args = if of == Fun::Ne { vec![src, zero] } else { vec![src] };
    let mut each = to.graph.map(&format!("{name}_each"), of, &args, &shape, dtype);
    let power = kind == ReduceKind::Sum && !is(2.0) && !is(1.0) && !is(0.0);
    if power {
        let p = to.graph.scalar(order, DType::F64);
        each = to.graph.map(&format!("{name}_each"), Fun::Pow, &[each, p], &shape, dtype);
    }
    let total = if shape.is_empty() {
        each
    } else {
        to.graph.reduce(&format!("{name}_total"), kind, each, &dims, keep, dtype)
    };
    let left = to.graph.shape(total).to_vec();
    if is(2.0) {
        return Ok(to.graph.map(name, Fun::Sqrt, &[total], &left, dtype));
    }
    if power {
        let root = to.graph.scalar(1.0 / order, DType::F64);
        return Ok(to.graph.map(name, Fun::Pow, &[total, root], &left, dtype));
    }
    Ok(total)
}
