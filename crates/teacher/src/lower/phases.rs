//! Transposed convolutions as plain convolutions of stride 1.
//!
//! Output position `o` of a dim reads input `i` through tap `k` where `o + p = i s + k d`, with
//! stride `s`, dilation `d` and padding `p`. Let `o + p = q s + r` and `g = gcd(d, s)`. A phase `r`
//! that `g` does not divide has no taps, and its outputs are zero. For the others, let `k` be the
//! first tap for which `k d` leaves `r`, and `c = (k d - r) / s`. Then the taps are `k + t s/g` and
//! the inputs `q - c - t d/g`: each phase is a convolution of stride 1 and dilation `d/g`. No tap
//! reads a position between inputs, and the libraries have faster kernels for this form. Consumers
//! of the result combine the phases when they read it.

use std::sync::Arc;

use super::Lowering;
use super::operand::settled;
use crate::dtype::DType;
use crate::heavy::Convolution;
use crate::ir::{Bound, NodeId, Op, axes};

/// Maximum number of phases with taps: each is a pass over the input.
const MOST: i64 = 9;

/// Whether a convolution is faster in phases.
pub(super) fn has_phases(op: &Convolution) -> bool {
    let active = |dim| (0..op.stride[dim]).filter(|r| phase(op, dim, *r).taps > 0).count() as i64;
    op.transposed && (1..=MOST).contains(&(0..op.rank()).map(active).product())
}

/// One phase of one dim.
#[derive(Clone, Copy, Debug)]
struct Phase {
    /// The first tap, and the distance between taps.
    first: i64,
    step: i64,
    /// Number of taps.
    taps: i64,
    /// Distance between the inputs that the taps read.
    dilation: i64,
    /// How much later the phase begins in the input: `c` above.
    later: i64,
    /// Zeros on either side of the input.
    padding: i64,
    /// Positions of its convolution's result.
    results: i64,
    /// Whether the output has positions before or after these, which are zero.
    sticks_out: bool,
}

impl Phase {
    /// The position of its result for quotient `q`, minus `q`.
    fn shift(&self) -> i64 {
        self.padding - (self.taps - 1) * self.dilation - self.later
    }

    /// The phase's last tap. Tap `u` of the phase's convolution is tap `last - u * step` of the
    /// transposed convolution.
    fn last(&self) -> i64 {
        self.first + (self.taps - 1) * self.step
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn phase(op: &Convolution, dim: usize, remainder: i64) -> Phase {
    let (stride, kernel, dilated) = (op.stride[dim], op.kernel[dim], op.dilation[dim]);
    let (padding, input) = (op.padding[dim], op.input[dim]);
    let common = gcd(dilated, stride);
    let (step, dilation) = (stride / common, dilated / common);
    // After `step` taps the remainders repeat.
    let first = (0..step.min(kernel)).find(|k| (k * dilated) % stride == remainder);
    let taps = first.map_or(0, |first| (kernel - 1 - first) / step + 1);
    let first = first.unwrap_or(0);
    let later = if taps > 0 { (first * dilated - remainder) / stride } else { 0 };
    let reach = (taps - 1).max(0) * dilation;
    // The first and the last input that an output of this phase would take from lie so far outside.
    let from = (padding - remainder + stride - 1).div_euclid(stride).max(0);
    let to = (op.output[dim] - 1 + padding - remainder).div_euclid(stride);
    let (before, beyond) = (reach + later - from, to - later - (input - 1));
    let zeros = before.max(beyond).clamp(0, reach);
    Phase {
        first,
        step,
        taps,
        dilation,
        later,
        padding: zeros,
        results: input + 2 * zeros - reach,
        sticks_out: before.max(beyond) > zeros,
    }
}

/// The transposed convolution of `x` with `w`, of shape `shape`.
pub(super) fn in_phases(
    to: &mut Lowering,
    name: &str,
    op: &Convolution,
    (x, w): (NodeId, NodeId),
    dtype: DType,
) -> NodeId {
    choose(to, name, op, (x, w), dtype, &mut Vec::new())
}

/// Chooses the phase of the next dim by the position in it.
fn choose(
    to: &mut Lowering,
    name: &str,
    op: &Convolution,
    operands: (NodeId, NodeId),
    dtype: DType,
    chosen: &mut Vec<Phase>,
) -> NodeId {
    let dim = chosen.len();
    if dim == op.rank() {
        return one(to, name, op, operands, dtype, chosen);
    }
    let shape = op.shape_of(2);
    let place = axes(&shape)[2 + dim].add_const(op.padding[dim]).rem(op.stride[dim]);
    let all = (0..op.stride[dim]).map(|r| (r, phase(op, dim, r)));
    let (active, none): (Vec<_>, Vec<_>) = all.partition(|(_, phase)| phase.taps > 0);
    let mut result = (!none.is_empty()).then(|| zeros(to, &shape, dtype));
    for (remainder, phase) in active {
        chosen.push(phase);
        let here = choose(to, name, op, operands, dtype, chosen);
        chosen.pop();
        result = Some(match result {
            None => here,
            Some(outside) => {
                let bounds = vec![Bound { at: place.clone(), low: remainder, high: remainder + 1 }];
                let guard = Op::Guard { bounds, inside: here, outside };
                to.graph.push(&format!("{name}_phases"), guard, shape.clone(), dtype)
            }
        });
    }
    result.unwrap_or(operands.0)
}

fn zeros(to: &mut Lowering, shape: &[i64], dtype: DType) -> NodeId {
    let zero = to.graph.scalar(0.0, dtype);
    to.graph.broadcast(zero, shape)
}

/// The outputs of one phase, at the positions of the whole result.
fn one(
    to: &mut Lowering,
    name: &str,
    op: &Convolution,
    (x, w): (NodeId, NodeId),
    dtype: DType,
    phases: &[Phase],
) -> NodeId {
    let shape = op.shape_of(2);
    if phases.iter().any(|phase| phase.results < 1) {
        return zeros(to, &shape, dtype);
    }
    let list = |of: fn(&Phase) -> i64| phases.iter().map(of).collect::<Vec<i64>>();
    let part = Convolution {
        output: list(|phase| phase.results),
        kernel: list(|phase| phase.taps),
        stride: vec![1; phases.len()],
        padding: list(|phase| phase.padding),
        dilation: list(|phase| phase.dilation),
        transposed: false,
        ..op.clone()
    };
    // Its weights: in each group channels the other way round, the phase's taps, backwards.
    let taps = part.shape_of(1);
    let all = axes(&taps);
    let (ins, outs) = (op.channels_in / op.groups, op.channels_out / op.groups);
    let mut at = vec![all[0].div(outs).mul(ins).add(&all[1]), all[0].rem(outs)];
    for (d, phase) in phases.iter().enumerate() {
        at.push(all[2 + d].mul(-phase.step).add_const(phase.last()));
    }
    let weights = to.graph.view(w, at, taps);
    let args = (0..2).map(|k| settled(&mut to.graph, &part, k, [x, weights][k], dtype)).collect();
    let part_shape = part.shape_of(2);
    let heavy = Op::Heavy { op: Arc::new(part), args };
    let result = to.graph.push(&format!("{name}_phase"), heavy, part_shape, dtype);
    // Read where the whole result's positions find it.
    let all = axes(&shape);
    let mut at = all[..2].to_vec();
    let mut bounds = Vec::new();
    for (d, phase) in phases.iter().enumerate() {
        let quotient = all[2 + d].add_const(op.padding[d]).div(op.stride[d]);
        let place = quotient.add_const(phase.shift());
        if phase.sticks_out {
            bounds.push(Bound { at: place.clone(), low: 0, high: phase.results });
        }
        at.push(place);
    }
    let read = to.graph.view(result, at, shape.clone());
    if bounds.is_empty() {
        return read;
    }
    let outside = zeros(to, &shape, dtype);
    let guard = Op::Guard { bounds, inside: read, outside };
    to.graph.push(&format!("{name}_phase_ends"), guard, shape, dtype)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The module's definition, in one dim and one channel.
    fn transposed(op: &Convolution, x: &[i64], w: &[i64]) -> Vec<i64> {
        let mut out = vec![0; op.output[0] as usize];
        for (i, x) in x.iter().enumerate() {
            for (k, w) in w.iter().enumerate() {
                let o = i as i64 * op.stride[0] + k as i64 * op.dilation[0] - op.padding[0];
                if (0..op.output[0]).contains(&o) {
                    out[o as usize] += x * w;
                }
            }
        }
        out
    }

    /// The same by phases, as `one` reads them.
    fn by_phases(op: &Convolution, x: &[i64], w: &[i64]) -> Vec<i64> {
        let (stride, padding) = (op.stride[0], op.padding[0]);
        let at = |o: i64| {
            let (q, r) = ((o + padding) / stride, (o + padding) % stride);
            let phase = phase(op, 0, r);
            let place = q + phase.shift();
            let there = (0..phase.results).contains(&place);
            if phase.taps == 0 || phase.results < 1 || (phase.sticks_out && !there) {
                return 0;
            }
            assert!(there, "{op:?} {phase:?} {place}");
            let tap = |u: i64| w[(phase.last() - u * phase.step) as usize];
            let input = |i: i64| if i < 0 { None } else { x.get(i as usize).copied() };
            (0..phase.taps)
                .map(|u| {
                    input(place + u * phase.dilation - phase.padding).map_or(0, |x| x * tap(u))
                })
                .sum()
        };
        (0..op.output[0]).map(at).collect()
    }

    proptest! {
        #[test]
        fn combined_phases_equal_the_transposed_convolution(
            input in 1i64..7, kernel in 1i64..7, stride in 1i64..7, padding in 0i64..4, more in 0i64..4,
            dilation in 1i64..7,
        ) {
            let more = more % stride.max(dilation);
            let output = (input - 1) * stride - 2 * padding + (kernel - 1) * dilation + 1 + more;
            prop_assume!(output > 0);
            let op = Convolution {
                batch: 1, channels_in: 1, channels_out: 1, groups: 1,
                input: vec![input], output: vec![output], kernel: vec![kernel], stride: vec![stride],
                padding: vec![padding], dilation: vec![dilation], transposed: true,
            };
            let x: Vec<i64> = (0..input).map(|i| 1 + i * i).collect();
            let w: Vec<i64> = (0..kernel).map(|k| 1 + 10 * k).collect();
            prop_assert_eq!(transposed(&op, &x, &w), by_phases(&op, &x, &w));
        }
    }
}
