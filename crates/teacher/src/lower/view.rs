//! Views and rearrangements: everything that is index arithmetic.

use serde_json::Value;

use super::{CallView, Family, Lowering, wrap};
use crate::dtype::DType;
use crate::index::{self, Expr};
use crate::ir::{Bound, Fun, Leaf, NodeId, Op, Source, axes, axis};

const KNOWN: [&str; 24] = [
    "view",
    "_unsafe_view",
    "reshape",
    "unsqueeze",
    "squeeze",
    "split_dim",
    "collapse_view",
    "expand",
    "permute",
    "transpose",
    "t",
    "slice",
    "select",
    "flip",
    "roll",
    "as_strided",
    "broadcast_in_dim",
    "constant_pad_nd",
    "diagonal",
    "repeat",
    "unfold",
    "rev",
    "collapse",
    "view_copy",
];

/// See the module.
pub(super) struct Views;

impl Family for Views {
    fn lower(&self, call: &CallView<'_>, to: &mut Lowering) -> Result<Option<Vec<NodeId>>, String> {
        if matches!(call.base(), "cat" | "concat") {
            return cat(call, to).map(|id| Some(vec![id]));
        }
        if matches!(call.base(), "split_with_sizes" | "split" | "unbind" | "chunk") {
            return pieces(call, to).map(Some);
        }
        if !KNOWN.contains(&call.base()) {
            return Ok(None);
        }
        let src = to.node(call, 0)?;
        let from = to.graph.shape(src).to_vec();
        let shape = call.result(0)?.shape.clone();
        let all = axes(&shape);
        let rank = from.len();
        let map: Vec<Expr> = match call.base() {
            "expand" => return Ok(Some(vec![to.graph.broadcast(src, &shape)])),
            "permute" => invert(&call.dims(1, "dims", rank).ok_or("no dims")?, &all),
            "transpose" if call.is_prim() => {
                invert(&call.dims(1, "permutation", rank).ok_or("no dims")?, &all)
            }
            "transpose" => {
                let (a, b) = (call.int(1, "dim0").unwrap_or(0), call.int(2, "dim1").unwrap_or(1));
                let mut map = all;
                map.swap(wrap(a, rank), wrap(b, rank));
                map
            }
            "t" => all.into_iter().rev().collect(),
            "slice" => {
                let dim = wrap(call.int(1, "dim").unwrap_or(0), rank);
                let extent = from[dim];
                let start = call.int(2, "start").unwrap_or(0);
                let start = if start < 0 { start + extent } else { start }.clamp(0, extent);
                let mut map = all;
                map[dim] = map[dim].mul(call.int(4, "step").unwrap_or(1)).add_const(start);
                map
            }
            "select" => {
                let dim = wrap(call.int(1, "dim").unwrap_or(0), rank);
                let at = call.int(2, "index").ok_or("an index that is not a number")?;
                let mut map = all;
                map.insert(dim, Expr::constant(at.rem_euclid(from[dim].max(1))));
                map
            }
            "flip" | "rev" => {
                let mut map = all;
                for d in call.dims(1, "dims", rank).ok_or("no dims")? {
                    map[d] = map[d].mul(-1).add_const(from[d] - 1);
                }
                map
            }
            "roll" => roll(call, &from, all)?,
            "as_strided" => return as_strided(call, to, src, &shape).map(|id| Some(vec![id])),
            "broadcast_in_dim" => {
                let dims = call.dims(2, "broadcast_dimensions", shape.len()).ok_or("no dims")?;
                dims.iter()
                    .zip(&from)
                    .map(|(d, e)| if *e == 1 { Expr::default() } else { all[*d].clone() })
                    .collect()
            }
            "constant_pad_nd" => return pad(call, to, src, &shape).map(|id| Some(vec![id])),
            "diagonal" => diagonal(call, &shape, rank),
            "repeat" => {
                let lead = shape.len() - rank;
                (0..rank).map(|d| all[lead + d].rem(from[d])).collect()
            }
            "unfold" => {
                let dim = wrap(call.int(1, "dimension").unwrap_or(0), rank);
                let step = call.int(3, "step").unwrap_or(1);
                let mut map = all;
                let window = map.pop().unwrap_or_default();
                map[dim] = map[dim].mul(step).add(&window);
                map
            }
            _ => return Ok(Some(vec![to.graph.reshape(src, &shape)])),
        };
        Ok(Some(vec![to.graph.view(src, map, shape)]))
    }
}

/// `out[.., i_k, ..] = src`, with `out` dim `k` being `src` dim `order[k]`.
fn invert(order: &[usize], all: &[Expr]) -> Vec<Expr> {
    let mut map = vec![Expr::default(); order.len()];
    for (k, d) in order.iter().enumerate() {
        map[*d] = all[k].clone();
    }
    map
}

fn roll(call: &CallView<'_>, from: &[i64], all: Vec<Expr>) -> Result<Vec<Expr>, String> {
    let shifts = call.ints(1, "shifts").ok_or("no shifts")?;
    let dims = call.dims(2, "dims", from.len()).unwrap_or_default();
    let mut map = all;
    if dims.is_empty() {
        let flat = index::dot(&map, &index::strides_of(from));
        let count = index::numel(from).max(1);
        return Ok(index::unflatten(
            &flat.add_const((-shifts[0]).rem_euclid(count)).rem(count),
            from,
        ));
    }
    for (shift, d) in shifts.iter().zip(dims) {
        let extent = from[d].max(1);
        map[d] = map[d].add_const((-shift).rem_euclid(extent)).rem(extent);
    }
    Ok(map)
}

/// Elements at `offset + index . stride` of the source's storage, which is laid out as traced.
fn as_strided(
    call: &CallView<'_>,
    to: &mut Lowering,
    src: NodeId,
    shape: &[i64],
) -> Result<NodeId, String> {
    let strides = call.ints(2, "stride").ok_or("no strides")?;
    let offset = call.int(3, "storage_offset").unwrap_or(0);
    let from = to.graph.shape(src).to_vec();
    if let Some((slot, traced)) = to.strided_input(src) {
        // Memory itself: all of the input's span as one dim.
        let span = 1 + span_of(&traced);
        let op =
            Op::Leaf(Leaf { source: Source::Input(slot), strides: vec![1], offset: traced.offset });
        let flat = to.graph.push(call.name(), op, vec![span], traced.dtype);
        let at = index::dot(&axes(shape), &strides).add_const(offset - traced.offset);
        let (low, high) = at.range();
        if low < 0 || high >= span {
            return Err("beyond the memory of its source".to_owned());
        }
        return Ok(to.graph.view(flat, vec![at], shape.to_vec()));
    }
    if to.traced_strides(src) != index::strides_of(&from) {
        return Err("of a tensor that is not contiguous".to_owned());
    }
    let flat = index::dot(&axes(shape), &strides).add_const(offset);
    let map = index::unflatten(&flat, &from);
    Ok(to.graph.view(src, map, shape.to_vec()))
}

/// Elements between the first and the last.
fn span_of(meta: &crate::trace::Meta) -> i64 {
    meta.shape.iter().zip(&meta.stride).map(|(e, s)| (e - 1) * s).sum()
}

fn diagonal(call: &CallView<'_>, shape: &[i64], rank: usize) -> Vec<Expr> {
    let offset = call.int(1, "offset").unwrap_or(0);
    let first = wrap(call.int(2, "dim1").unwrap_or(0), rank);
    let second = wrap(call.int(3, "dim2").unwrap_or(1), rank);
    let last = shape.len() - 1;
    let along = axis(last, shape[last]);
    let mut kept = 0;
    (0..rank)
        .map(|d| {
            if d == first {
                along.add_const((-offset).max(0))
            } else if d == second {
                along.add_const(offset.max(0))
            } else {
                kept += 1;
                axis(kept - 1, shape[kept - 1])
            }
        })
        .collect()
}

/// The list counts from the last dim: `[left, right, left, right, ...]`.
fn pad(
    call: &CallView<'_>,
    to: &mut Lowering,
    src: NodeId,
    shape: &[i64],
) -> Result<NodeId, String> {
    let amounts = call.ints(1, "pad").ok_or("no amounts")?;
    let value = call.float(2, "value").unwrap_or(0.0);
    let mut left = vec![0; shape.len()];
    for (k, amount) in amounts.iter().step_by(2).enumerate() {
        let d = shape.len() - 1 - k;
        left[d] = *amount;
    }
    Ok(padded(to, call.name(), src, &left, shape, value))
}

/// `src` placed at `left` in a tensor of `shape` filled with `value`.
pub(crate) fn padded(
    to: &mut Lowering,
    name: &str,
    src: NodeId,
    left: &[i64],
    shape: &[i64],
    value: f64,
) -> NodeId {
    let from = to.graph.shape(src).to_vec();
    let dtype = to.graph.dtype(src);
    let map: Vec<Expr> = axes(shape).iter().zip(left).map(|(e, l)| e.add_const(-l)).collect();
    let bounds = map
        .iter()
        .zip(&from)
        .filter(|(e, extent)| {
            let (low, high) = e.range();
            low < 0 || high >= **extent
        })
        .map(|(e, extent)| Bound { at: e.clone(), low: 0, high: *extent })
        .collect();
    let inside = to.graph.view(src, map, shape.to_vec());
    let fill = to.graph.scalar(value, dtype);
    let outside = to.graph.broadcast(fill, shape);
    to.graph.push(name, Op::Guard { bounds, inside, outside }, shape.to_vec(), dtype)
}

fn cat(call: &CallView<'_>, to: &mut Lowering) -> Result<NodeId, String> {
    let meta = call.result(0)?;
    let (shape, dtype): (Vec<i64>, DType) = (meta.shape.clone(), meta.dtype);
    let dim = wrap(call.int(1, "dim").unwrap_or(0), shape.len());
    let list = call.arg(0, "tensors").and_then(Value::as_array).ok_or("no list")?.clone();
    let mut parts = Vec::new();
    for value in &list {
        let id = to.operand(Some(value))?;
        // torch lets empty one-dim tensors take part whatever the other shapes are.
        if index::numel(to.graph.shape(id)) > 0 {
            let whole = to.graph.shape(id).to_vec();
            parts.push(to.graph.map(call.name(), Fun::Cast, &[id], &whole, dtype));
        }
    }
    let mut start = shape[dim];
    let mut whole = None;
    // From the last piece to the first: each guard falls through to what lies behind it.
    for id in parts.into_iter().rev() {
        start -= to.graph.shape(id)[dim];
        let mut map = axes(&shape);
        map[dim] = map[dim].add_const(-start);
        let piece = to.graph.view(id, map, shape.clone());
        whole = Some(match whole {
            None => piece,
            Some(behind) => {
                let bound = Bound {
                    at: axis(dim, shape[dim]),
                    low: start,
                    high: start + to.graph.shape(id)[dim],
                };
                let op = Op::Guard { bounds: vec![bound], inside: piece, outside: behind };
                to.graph.push(call.name(), op, shape.clone(), dtype)
            }
        });
    }
    whole.ok_or_else(|| "nothing to join".to_owned())
}

/// Consecutive pieces along a dim.
fn pieces(call: &CallView<'_>, to: &mut Lowering) -> Result<Vec<NodeId>, String> {
    let src = to.node(call, 0)?;
    let unbind = call.base() == "unbind";
    let from = to.graph.shape(src).to_vec();
    let dim = call.int(if unbind { 1 } else { 2 }, "dim").unwrap_or(0);
    let dim = wrap(dim, from.len());
    let mut start = 0;
    let mut out = Vec::new();
    for meta in call.call.out.iter().flatten() {
        let mut map = axes(&meta.shape);
        if unbind {
            map.insert(dim, Expr::constant(start));
            start += 1;
        } else {
            map[dim] = map[dim].add_const(start);
            start += meta.shape[dim];
        }
        out.push(to.graph.view(src, map, meta.shape.clone()));
    }
    Ok(out)
}
