//! Transposed convolutions, as convolutions that are not, and have no strides.
//!
//! Output position `o` of a dim takes from input `i` through tap `k` where `o + p = i s + k`. With
//! `o + p = q s + r` that leaves the taps `k = r + t s` and the inputs `i = q - t`: for each phase `r`
//! a convolution of stride 1 with every `s`-th tap. No tap meets a position between inputs, and the
//! libraries have better kernels for it. The phases are put together again where the result is read,
//! by what follows.

use std::sync::Arc;

use super::Lowering;
use super::convolution::settled;
use crate::dtype::DType;
use crate::heavy::Convolution;
use crate::ir::{Bound, NodeId, Op, axes};

/// Most phases: each is a pass over the input.
const MOST: i64 = 8;

/// Whether a convolution is better done in phases.
pub(super) fn has_phases(op: &Convolution) -> bool {
    let phases: i64 = op.stride.iter().product();
    op.transposed
        && op.groups == 1
        && (1..=MOST).contains(&phases)
        && op.dilation.iter().all(|d| *d == 1)
}

/// One phase of one dim.
#[derive(Clone, Copy, Debug)]
struct Phase {
    /// The first tap.
    first: i64,
    /// How many taps it has.
    taps: i64,
    /// Zeros on either side of the input.
    padding: i64,
    /// Positions of its convolution's result.
    results: i64,
    /// Whether the output goes on behind these, with zeros.
    ends: bool,
}

fn phase(op: &Convolution, dim: usize, first: i64) -> Phase {
    let (stride, kernel) = (op.stride[dim], op.kernel[dim]);
    let (padding, input) = (op.padding[dim], op.input[dim]);
    let taps = if first < kernel { (kernel - 1 - first) / stride + 1 } else { 0 };
    // The last input that an output of this phase would take from; the first is the one at zero, or
    // one that is cropped.
    let beyond = (op.output[dim] - 1 + padding - first).div_euclid(stride) - (input - 1);
    let before = taps - 1 - (padding - first + stride - 1).div_euclid(stride).max(0);
    let zeros = before.max(beyond).clamp(0, (taps - 1).max(0));
    Phase {
        first,
        taps,
        padding: zeros,
        results: input + 2 * zeros - taps + 1,
        ends: beyond > zeros,
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
    let mut result = None;
    for first in 0..op.stride[dim] {
        chosen.push(phase(op, dim, first));
        let here = choose(to, name, op, operands, dtype, chosen);
        chosen.pop();
        result = Some(match result {
            None => here,
            Some(outside) => {
                let bounds = vec![Bound { at: place.clone(), low: first, high: first + 1 }];
                let guard = Op::Guard { bounds, inside: here, outside };
                to.graph.push(&format!("{name}_phases"), guard, shape.clone(), dtype)
            }
        });
    }
    result.unwrap_or(operands.0)
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
    let zero = to.graph.scalar(0.0, dtype);
    let zero = to.graph.broadcast(zero, &shape);
    if phases.iter().any(|phase| phase.taps == 0 || phase.results < 1) {
        return zero;
    }
    let list = |of: fn(&Phase) -> i64| phases.iter().map(of).collect::<Vec<i64>>();
    let part = Convolution {
        output: list(|phase| phase.results),
        kernel: list(|phase| phase.taps),
        stride: vec![1; phases.len()],
        padding: list(|phase| phase.padding),
        transposed: false,
        ..op.clone()
    };
    // Its weights: channels the other way round, every s-th tap, backwards.
    let taps = part.shape_of(1);
    let all = axes(&taps);
    let mut at = vec![all[1].clone(), all[0].clone()];
    for (d, phase) in phases.iter().enumerate() {
        let last = phase.first + (phase.taps - 1) * op.stride[d];
        at.push(all[2 + d].mul(-op.stride[d]).add_const(last));
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
        let place = quotient.add_const(phase.padding - (phase.taps - 1));
        if phase.ends {
            bounds.push(Bound { at: place.clone(), low: 0, high: phase.results });
        }
        at.push(place);
    }
    let read = to.graph.view(result, at, shape.clone());
    if bounds.is_empty() {
        return read;
    }
    let guard = Op::Guard { bounds, inside: read, outside: zero };
    to.graph.push(&format!("{name}_phase_ends"), guard, shape, dtype)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What the module's first lines say, by definition, in one dim and one channel.
    fn transposed(op: &Convolution, x: &[i64], w: &[i64]) -> Vec<i64> {
        let mut out = vec![0; op.output[0] as usize];
        for (i, x) in x.iter().enumerate() {
            for (k, w) in w.iter().enumerate() {
                let o = i as i64 * op.stride[0] + k as i64 - op.padding[0];
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
            let place = q + phase.padding - (phase.taps - 1);
            if phase.taps == 0 || phase.results < 1 || (phase.ends && place >= phase.results) {
                return 0;
            }
            assert!((0..phase.results).contains(&place), "{op:?} {phase:?} {place}");
            let tap = |u: i64| w[(phase.first + (phase.taps - 1 - u) * stride) as usize];
            let input = |i: i64| if i < 0 { None } else { x.get(i as usize).copied() };
            (0..phase.taps)
                .map(|u| input(place + u - phase.padding).map_or(0, |x| x * tap(u)))
                .sum()
        };
        (0..op.output[0]).map(at).collect()
    }

    proptest! {
        #[test]
        fn phases_put_together_are_the_transposed_convolution(
            input in 1i64..7, kernel in 1i64..7, stride in 1i64..5, padding in 0i64..4, more in 0i64..4,
        ) {
            let output = (input - 1) * stride - 2 * padding + kernel + more % stride;
            prop_assume!(output > 0);
            let op = Convolution {
                batch: 1, channels_in: 1, channels_out: 1, groups: 1,
                input: vec![input], output: vec![output], kernel: vec![kernel], stride: vec![stride],
                padding: vec![padding], dilation: vec![1], transposed: true,
            };
            let x: Vec<i64> = (0..input).map(|i| 1 + i * i).collect();
            let w: Vec<i64> = (0..kernel).map(|k| 1 + 10 * k).collect();
            prop_assert_eq!(transposed(&op, &x, &w), by_phases(&op, &x, &w));
        }
    }
}
