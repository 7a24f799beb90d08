//! Convolutions: as the heavy operator, or as in-place sums if there is only one window.

use std::sync::Arc;

use super::operand::settled;
use super::phases::{has_phases, in_phases};
use super::view::padded;
use super::{CallView, Family, Lowering};
use crate::heavy::Convolution;
use crate::index::{Expr, numel};
use crate::ir::{Fun, NodeId, Op, ReduceKind, axes};

/// Maximum number of taps of a depthwise window that an elementwise kernel sums in place.
const MOST_TAPS: i64 = 128;

/// See the module.
pub(super) struct Convolutions;

impl Family for Convolutions {
    fn lower(&self, call: &CallView<'_>, to: &mut Lowering) -> Result<Option<Vec<NodeId>>, String> {
        if call.base() != "convolution" {
            return Ok(None);
        }
        let meta = call.result(0)?;
        let (name, dtype) = (call.name(), meta.dtype);
        if !dtype.is_float() {
            return Err(format!("of {}", dtype.torch()));
        }
        let (x, w) = (to.node(call, 0)?, to.node(call, 1)?);
        let rank = meta.shape.len().saturating_sub(2);
        let list = |position: usize, key: &str| {
            let mut values = call.ints(position, key).unwrap_or_default();
            if values.len() == 1 {
                values.resize(rank, values[0]);
            }
            values
        };
        let (x_shape, w_shape) = (to.graph.shape(x).to_vec(), to.graph.shape(w).to_vec());
        let op = Convolution {
            batch: meta.shape[0],
            channels_in: x_shape[1],
            channels_out: meta.shape[1],
            groups: call.int(8, "groups").unwrap_or(1),
            input: x_shape[2..].to_vec(),
            output: meta.shape[2..].to_vec(),
            kernel: w_shape[2..].to_vec(),
            stride: list(3, "stride"),
            padding: list(4, "padding"),
            dilation: list(5, "dilation"),
            transposed: call.flag(6, "transposed"),
        };
        if !(1..=3).contains(&rank) || op.stride.len() != rank || op.padding.len() != rank {
            return Err(format!("{rank} spatial dims"));
        }
        let depthwise = !op.transposed && op.groups > 1 && op.groups == op.channels_in;
        let mut result = if depthwise && numel(&op.kernel) <= MOST_TAPS {
            window_sum(to, name, &op, x, w)
        } else if has_phases(&op) {
            in_phases(to, name, &op, (x, w), dtype)
        } else {
            let args = (0..2).map(|k| settled(&mut to.graph, &op, k, [x, w][k], dtype)).collect();
            to.graph.push(name, Op::Heavy { op: Arc::new(op), args }, meta.shape.clone(), dtype)
        };
        if call.arg(2, "bias").is_some() {
            let bias = to.node(call, 2)?;
            let bias = to.graph.view(bias, vec![axes(&meta.shape)[1].clone()], meta.shape.clone());
            result = to.graph.map(
                &format!("{name}_bias"),
                Fun::Add,
                &[result, bias],
                &meta.shape,
                dtype,
            );
        }
        Ok(Some(vec![result]))
    }
}

/// A depthwise convolution as a sum over its window: `[n, c, p.., taps..]` reduced over the taps.
fn window_sum(to: &mut Lowering, name: &str, op: &Convolution, x: NodeId, w: NodeId) -> NodeId {
    let dtype = to.graph.dtype(x);
    let rank = op.rank();
    let shape = op.shape_of(2);
    let mut wide = shape.clone();
    wide.extend(&op.kernel);
    let all = axes(&wide);
    let windows = Windows { stride: &op.stride, padding: &op.padding, dilation: &op.dilation };
    let times = op.channels_out / op.channels_in;
    let lead = vec![all[0].clone(), all[1].div(times)];
    let read = windows.read(to, name, x, lead, &wide, 0.0);
    let mut at = vec![all[1].clone(), Expr::default()];
    at.extend(all[2 + rank..].iter().cloned());
    let weight = to.graph.view(w, at, wide.clone());
    let terms = to.graph.map(&format!("{name}_terms"), Fun::Mul, &[read, weight], &wide, dtype);
    let dims = (2 + rank..2 + 2 * rank).collect();
    let sum = Op::Reduce { kind: ReduceKind::Sum, src: terms, dims, inline: true };
    to.graph.push(name, sum, shape, dtype)
}

/// The position of windows in the spatial dims.
pub(super) struct Windows<'a> {
    pub(super) stride: &'a [i64],
    pub(super) padding: &'a [i64],
    pub(super) dilation: &'a [i64],
}

impl Windows<'_> {
    /// `x` at every position and tap, `fill` outside: a node of shape `wide`, whose last dims are
    /// positions and taps. `lead` is the index in the other dims.
    pub(super) fn read(
        &self,
        to: &mut Lowering,
        name: &str,
        x: NodeId,
        lead: Vec<Expr>,
        wide: &[i64],
        fill: f64,
    ) -> NodeId {
        let rank = self.stride.len();
        let first = wide.len() - 2 * rank;
        let output = &wide[first..first + rank];
        let all = axes(wide);
        let from = to.graph.shape(x).to_vec();
        let before = from.len() - rank;
        // A frame round the input that every window stays in.
        let mut framed = from.clone();
        let mut left = vec![0; from.len()];
        let mut at = lead;
        for d in 0..rank {
            let taps = wide[first + rank + d];
            let reach = (output[d] - 1) * self.stride[d] + (taps - 1) * self.dilation[d] + 1;
            left[before + d] = self.padding[d];
            framed[before + d] = reach.max(from[before + d] + self.padding[d]);
            let position = all[first + d].mul(self.stride[d]);
            at.push(position.add(&all[first + rank + d].mul(self.dilation[d])));
        }
        let source = if framed == from { x } else { padded(to, name, x, &left, &framed, fill) };
        to.graph.view(source, at, wide.to_vec())
    }
}
