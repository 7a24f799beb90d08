//! Pooling: reductions over windows, in place.

use super::convolution::Windows;
use super::{CallView, Family, Lowering};
use crate::dtype::DType;
use crate::index::{Expr, numel, strides_of};
use crate::ir::{Bound, Fun, NodeId, Op, ReduceKind, axes, axis};

/// Windows with more elements than this are rows of a reduction kernel instead of in-place loops.
const MOST_TAPS: i64 = 256;

/// See the module.
pub(super) struct Pooling;

impl Family for Pooling {
    fn lower(&self, call: &CallView<'_>, to: &mut Lowering) -> Result<Option<Vec<NodeId>>, String> {
        match call.base() {
            "max_pool1d"
            | "max_pool2d"
            | "max_pool3d"
            | "max_pool2d_with_indices"
            | "max_pool3d_with_indices" => maximum(call, to).map(Some),
            "avg_pool1d" | "avg_pool2d" | "avg_pool3d" => {
                average(call, to).map(|id| Some(vec![id]))
            }
            "_adaptive_avg_pool2d" | "_adaptive_avg_pool3d" | "adaptive_avg_pool1d" => {
                adaptive(call, to, ReduceKind::Sum).map(Some)
            }
            "adaptive_max_pool1d" | "adaptive_max_pool2d" | "adaptive_max_pool3d" => {
                adaptive(call, to, ReduceKind::Max).map(Some)
            }
            _ => Ok(None),
        }
    }
}

/// Kernel, stride and padding of a call; the stride defaults to the kernel.
fn parameters(call: &CallView<'_>, rank: usize) -> Result<[Vec<i64>; 3], String> {
    let list = |position: usize, key: &str| {
        let mut values = call.ints(position, key).unwrap_or_default();
        if values.len() == 1 {
            values.resize(rank, values[0]);
        }
        values
    };
    let kernel = list(1, "kernel_size");
    let mut stride = list(2, "stride");
    if stride.is_empty() {
        stride.clone_from(&kernel);
    }
    let mut padding = list(3, "padding");
    padding.resize(rank, 0);
    if kernel.len() == rank && stride.len() == rank {
        Ok([kernel, stride, padding])
    } else {
        Err("its window".to_owned())
    }
}

/// Reduces the last `rank` dims, which are the taps.
fn over_taps(
    to: &mut Lowering,
    name: &str,
    kind: ReduceKind,
    src: NodeId,
    rank: usize,
    dtype: DType,
) -> NodeId {
    let shape = to.graph.shape(src).to_vec();
    let outer = shape.len() - rank;
    let inline = numel(&shape[outer..]) <= MOST_TAPS;
    let op = Op::Reduce { kind, src, dims: (outer..shape.len()).collect(), inline };
    to.graph.push(name, op, shape[..outer].to_vec(), dtype)
}

fn maximum(call: &CallView<'_>, to: &mut Lowering) -> Result<Vec<NodeId>, String> {
    let rank = spatial_rank(call);
    let [kernel, stride, padding] = parameters(call, rank)?;
    let mut dilation = call.ints(4, "dilation").unwrap_or_default();
    dilation.resize(rank, dilation.first().copied().unwrap_or(1));
    let x = to.node(call, 0)?;
    let shape = call.result(0)?.shape.clone();
    let lead = shape.len() - rank;
    let input = to.graph.shape(x)[lead..].to_vec();
    let wide = [shape.clone(), kernel.clone()].concat();
    let all = axes(&wide);
    let name = call.name();
    let dtype = to.graph.dtype(x);
    let windows = Windows { stride: &stride, padding: &padding, dilation: &dilation };
    let read = windows.read(to, name, x, all[..lead].to_vec(), &wide, f64::NEG_INFINITY);
    let values = over_taps(to, name, ReduceKind::Max, read, rank, dtype);
    if !call.base().ends_with("indices") {
        return Ok(vec![values]);
    }
    // Tap in the window, then position in the input plane.
    let tap = over_taps(to, &format!("{name}_tap"), ReduceKind::ArgMax, read, rank, DType::I64);
    let (taps, planes) = (strides_of(&kernel), strides_of(&input));
    let mut place: Option<NodeId> = None;
    let map = |to: &mut Lowering, f, args: &[NodeId]| {
        to.graph.map(&format!("{name}_at"), f, args, &shape, DType::I64)
    };
    for d in 0..rank {
        let number = |to: &mut Lowering, x: i64| to.graph.scalar(x as f64, DType::I64);
        let (unit, extent) = (number(to, taps[d]), number(to, kernel[d]));
        let step = number(to, dilation[d] * planes[d]);
        let along = map(to, Fun::FloorDiv, &[tap, unit]);
        let along = map(to, Fun::Remainder, &[along, extent]);
        let along = map(to, Fun::Mul, &[along, step]);
        let start = all[lead + d].mul(stride[d]).add_const(-padding[d]).mul(planes[d]);
        let start =
            to.graph.push(&format!("{name}_start"), Op::Index(start), shape.clone(), DType::I64);
        let here = map(to, Fun::Add, &[start, along]);
        place = Some(place.map_or(here, |p| map(to, Fun::Add, &[p, here])));
    }
    Ok(vec![values, place.ok_or("no window")?])
}

fn spatial_rank(call: &CallView<'_>) -> usize {
    call.base().chars().find_map(|c| c.to_digit(10)).unwrap_or(2) as usize
}

fn average(call: &CallView<'_>, to: &mut Lowering) -> Result<NodeId, String> {
    let rank = spatial_rank(call);
    let [kernel, stride, padding] = parameters(call, rank)?;
    let counts_padding =
        call.arg(5, "count_include_pad").and_then(serde_json::Value::as_bool).unwrap_or(true);
    let x = to.node(call, 0)?;
    let shape = call.result(0)?.shape.clone();
    let lead = shape.len() - rank;
    let output = shape[lead..].to_vec();
    let input = to.graph.shape(x)[lead..].to_vec();
    let wide = [shape.clone(), kernel.clone()].concat();
    let name = call.name();
    let dtype = to.graph.dtype(x);
    let ones = vec![1; rank];
    let windows = Windows { stride: &stride, padding: &padding, dilation: &ones };
    let read = windows.read(to, name, x, axes(&wide)[..lead].to_vec(), &wide, 0.0);
    let total = over_taps(to, &format!("{name}_sum"), ReduceKind::Sum, read, rank, dtype);
    if let Some(divisor) = call.float(6, "divisor_override") {
        let by = to.graph.scalar(divisor, DType::F64);
        return Ok(to.graph.map(name, Fun::Div, &[total, by], &shape, dtype));
    }
    // Elements that count: those in the input, or in the input with its padding.
    let (low, high): (Vec<i64>, Vec<i64>) = (0..rank)
        .map(|d| if counts_padding { (-padding[d], input[d] + padding[d]) } else { (0, input[d]) })
        .unzip();
    let start = |d: usize, e: &Expr| e.mul(stride[d]).add_const(-padding[d]);
    let mut result = total;
    let mut constant = 1;
    for d in 0..rank {
        let last = (output[d] - 1) * stride[d] - padding[d] + kernel[d];
        if -padding[d] >= low[d] && last <= high[d] {
            constant *= kernel[d];
            continue;
        }
        let begin = start(d, &axis(0, output[d]));
        let window = Side { begin, low: low[d], high: high[d], taps: kernel[d], output: output[d] };
        let count = window.count(to, &format!("{name}_count"), dtype);
        let along = to.graph.view(count, vec![axis(lead + d, output[d])], shape.clone());
        result = to.graph.map(name, Fun::Div, &[result, along], &shape, dtype);
    }
    if constant > 1 {
        let by = to.graph.scalar(constant as f64, DType::F64);
        result = to.graph.map(name, Fun::Div, &[result, by], &shape, dtype);
    }
    Ok(result)
}

/// Windows along one dim: `taps` elements from `begin`, of which those in `low..high` count.
struct Side {
    begin: Expr,
    low: i64,
    high: i64,
    taps: i64,
    output: i64,
}

impl Side {
    /// How many elements of each window count, as a vector over positions.
    fn count(&self, to: &mut Lowering, name: &str, dtype: DType) -> NodeId {
        let wide = [self.output, self.taps];
        let at = self.begin.add(&axis(1, self.taps));
        let (one, none) = (to.graph.scalar(1.0, dtype), to.graph.scalar(0.0, dtype));
        let (inside, outside) = (to.graph.broadcast(one, &wide), to.graph.broadcast(none, &wide));
        let bounds = vec![Bound { at, low: self.low, high: self.high }];
        let guard =
            to.graph.push(name, Op::Guard { bounds, inside, outside }, wide.to_vec(), dtype);
        over_taps(to, name, ReduceKind::Sum, guard, 1, dtype)
    }
}

/// Position `i` of `output` covers `floor(i * n / o) .. ceil((i + 1) * n / o)`.
fn adaptive(
    call: &CallView<'_>,
    to: &mut Lowering,
    kind: ReduceKind,
) -> Result<Vec<NodeId>, String> {
    let x = to.node(call, 0)?;
    let shape = call.result(0)?.shape.clone();
    let rank = spatial_rank(call);
    let lead = shape.len() - rank;
    let from = to.graph.shape(x).to_vec();
    let name = call.name();
    let dtype = to.graph.dtype(x);
    let (output, input) = (shape[lead..].to_vec(), from[lead..].to_vec());
    let span = |d: usize, i: &Expr| {
        let (n, o) = (input[d], output[d]);
        (i.mul(n).div(o), i.mul(n).add_const(n + o - 1).div(o))
    };
    let taps: Vec<i64> = (0..rank)
        .map(|d| {
            let (n, o) = (input[d], output[d]);
            (0..o).map(|i| ((i + 1) * n + o - 1) / o - i * n / o).max().unwrap_or(1)
        })
        .collect();
    let wide = [shape.clone(), taps.clone()].concat();
    let all = axes(&wide);
    let mut at = all[..lead].to_vec();
    let mut bounds = Vec::new();
    let even = |d: usize| input[d] % output[d] == 0;
    for d in 0..rank {
        let (begin, end) = span(d, &all[lead + d]);
        let here = begin.add(&all[lead + rank + d]);
        if !even(d) {
            // Before the window's end; the shorter windows leave their last tap out.
            let past = here.add(&end.mul(-1));
            bounds.push(Bound { at: past, low: i64::MIN / 4, high: 0 });
        }
        at.push(here);
    }
    let mut read = to.graph.view(x, at, wide.clone());
    if !bounds.is_empty() {
        let fill = if kind == ReduceKind::Max { f64::NEG_INFINITY } else { 0.0 };
        let fill = to.graph.scalar(fill, dtype);
        let outside = to.graph.broadcast(fill, &wide);
        read =
            to.graph.push(name, Op::Guard { bounds, inside: read, outside }, wide.clone(), dtype);
    }
    let total = over_taps(to, name, kind, read, rank, dtype);
    if kind == ReduceKind::Max {
        let tap = over_taps(to, &format!("{name}_tap"), ReduceKind::ArgMax, read, rank, DType::I64);
        let (units, planes) = (strides_of(&taps), strides_of(&input));
        let label = format!("{name}_at");
        let map = |to: &mut Lowering, f, args: &[NodeId]| {
            to.graph.map(&label, f, args, &shape, DType::I64)
        };
        let mut place: Option<NodeId> = None;
        for d in 0..rank {
            let unit = to.graph.scalar(units[d] as f64, DType::I64);
            let extent = to.graph.scalar(taps[d] as f64, DType::I64);
            let plane = to.graph.scalar(planes[d] as f64, DType::I64);
            let along = map(to, Fun::FloorDiv, &[tap, unit]);
            let along = map(to, Fun::Remainder, &[along, extent]);
            let start = span(d, &axes(&shape)[lead + d]).0;
            let start = to.graph.push(&label, Op::Index(start), shape.clone(), DType::I64);
            let here = map(to, Fun::Add, &[start, along]);
            let here = map(to, Fun::Mul, &[here, plane]);
            place = Some(place.map_or(here, |p| map(to, Fun::Add, &[p, here])));
        }
        return Ok(vec![total, place.ok_or("no window")?]);
    }
    let mut result = total;
    let mut constant = 1;
    for d in 0..rank {
        if even(d) {
            constant *= taps[d];
            continue;
        }
        let (begin, end) = span(d, &axis(0, output[d]));
        let count = Op::Index(end.add(&begin.mul(-1)));
        let count = to.graph.push(&format!("{name}_count"), count, vec![output[d]], DType::I64);
        let along = to.graph.view(count, vec![axis(lead + d, output[d])], shape.clone());
        result = to.graph.map(name, Fun::Div, &[result, along], &shape, dtype);
    }
    if constant > 1 {
        let by = to.graph.scalar(constant as f64, DType::F64);
        result = to.graph.map(name, Fun::Div, &[result, by], &shape, dtype);
    }
    Ok(vec![result])
}
