//! Convolutions of cuDNN on a GPU, compared with loops.

use serde_json::json;
use warpwright_plan::{Convolution, DnnEpilogue, DnnFilter, DnnTensor, GemmScalar};

use crate::device::Gpu;
use crate::gpu::{arena, go, ready, start, start_with};
use crate::launches::library;
use crate::plans::{BLOCK, at, convolves};

/// Extents of what a forward convolution reads and writes, and of its filter; groups.
const FROM: [u32; 4] = [2, 8, 6, 5];
const TO: [u32; 4] = [2, 12, 3, 5];
const FILTER: [u32; 4] = [12, 4, 3, 3];
const GROUPS: u32 = 2;
const PADDING: [u32; 2] = [1, 2];
const STEPS: [u32; 2] = [2, 1];
const DILATION: [u32; 2] = [1, 2];

/// A tensor without gaps, with its channels before or after space.
fn tensor(block: u32, dims: [u32; 4], last: bool) -> DnnTensor {
    let [_, c, h, w] = dims;
    let strides = if last { [h * w * c, 1, w * c, c] } else { [c * h * w, h * w, w, 1] };
    DnnTensor { at: at(block, 0), dtype: 0, dims: dims.to_vec(), strides: strides.to_vec() }
}

fn convolution(transposed: bool, last: bool) -> Convolution {
    let (read, written) = if transposed { (TO, FROM) } else { (FROM, TO) };
    Convolution {
        transposed,
        source: tensor(0, read, last),
        filter: DnnFilter { at: at(1, 0), dtype: 0, format: last.into(), dims: FILTER.to_vec() },
        result: tensor(4, written, last),
        padding: PADDING.to_vec(),
        steps: STEPS.to_vec(),
        dilation: DILATION.to_vec(),
        groups: GROUPS,
        mode: 1,
        compute: 0,
        math: 3,
        alpha: GemmScalar::F32(1f32.to_bits()),
        beta: GemmScalar::F32(0),
        algorithm: None,
        epilogue: None,
    }
}

/// With bias and an activation; the residual counts half.
fn fused(residual: bool, activation: u32) -> Convolution {
    let bias = tensor(2, [1, TO[1], 1, 1], false);
    let beta = GemmScalar::F32(if residual { 0.5f32.to_bits() } else { 0 });
    let epilogue = DnnEpilogue { bias, residual: residual.then(|| at(3, 0)), activation };
    Convolution { beta, epilogue: Some(epilogue), ..convolution(false, false) }
}

pub(crate) fn all() -> Vec<Convolution> {
    vec![
        convolution(false, false),
        Convolution { algorithm: Some(0), ..convolution(false, false) },
        Convolution { mode: 0, ..convolution(false, false) },
        convolution(true, false),
        Convolution { algorithm: Some(1), ..convolution(true, false) },
        convolution(false, true),
        fused(false, 1),
        fused(true, 1),
        fused(false, 5),
        // An algorithm that has no epilogue, or none of this size: another one, or one step after the other.
        Convolution { algorithm: Some(4), ..fused(true, 1) },
    ]
}

fn place(tensor: &DnnTensor, index: [u32; 4]) -> usize {
    tensor.strides.iter().zip(index).map(|(stride, i)| (stride * i) as usize).sum()
}

/// The indices of an array of these extents, in order.
fn indices(extents: [u32; 4]) -> impl Iterator<Item = [u32; 4]> {
    let [_, second, third, fourth] = extents;
    (0..extents.iter().product()).map(move |flat| {
        let rest = flat / fourth;
        [rest / third / second, rest / third % second, rest % third, flat % fourth]
    })
}

/// What the result should hold: small integers and halves, which sums keep exactly.
fn expected(of: &Convolution, given: &[Vec<f32>; 4]) -> Vec<f32> {
    let [source, weights, bias, residual] = given;
    let (from, to) =
        if of.transposed { (&of.result, &of.source) } else { (&of.source, &of.result) };
    let mut result = vec![0.0; of.result.dims.iter().product::<u32>() as usize];
    let strides = if of.filter.format == 0 { [36, 9, 3, 1] } else { [36, 1, 12, 4] };
    let filter = DnnTensor { strides: strides.to_vec(), ..to.clone() };
    for [image, out, row, column] in indices(TO) {
        for [_, inner, down, right] in indices([1, FILTER[1], FILTER[2], FILTER[3]]) {
            let read =
                [row * STEPS[0] + down * DILATION[0], column * STEPS[1] + right * DILATION[1]];
            let [Some(above), Some(left)] =
                [0, 1].map(|axis| read[axis].checked_sub(PADDING[axis]))
            else {
                continue;
            };
            if above >= FROM[2] || left >= FROM[3] {
                continue;
            }
            let (down, right) = if of.mode == 1 { (down, right) } else { (2 - down, 2 - right) };
            let weight = weights[place(&filter, [out, inner, down, right])];
            let channel = out / (TO[1] / GROUPS) * FILTER[1] + inner;
            let wide = place(from, [image, channel, above, left]);
            let narrow = place(to, [image, out, row, column]);
            let (read, written) = if of.transposed { (narrow, wide) } else { (wide, narrow) };
            result[written] += source[read] * weight;
        }
    }
    let Some(epilogue) = &of.epilogue else { return result };
    for (index, value) in result.iter_mut().enumerate() {
        let channel = index / 15 % 12;
        let kept = if epilogue.residual.is_some() { 0.5 * residual[index] } else { 0.0 };
        *value += bias[channel] + kept;
        *value = if epilogue.activation == 1 { value.max(0.0) } else { *value };
    }
    result
}

#[test]
fn gpu_convolutions_are_right() {
    let gpu = Gpu::open();
    let arena = arena(&gpu);
    let Some(path) = library("WARPWRIGHT_CUDNN", "cudnn/lib/libcudnn.so.9") else {
        println!("skipped: there is no cuDNN; WARPWRIGHT_CUDNN can name it");
        return;
    };
    let mut replayer = start_with(&arena, &[("--cudnn", Some(&path))]);
    let values =
        |step: u16| (0..1024u16).map(|i| f32::from(i * step % 7) - 3.0).collect::<Vec<_>>();
    let given = [1, 2, 3, 5].map(values);
    for convolution in all() {
        let expected = expected(&convolution, &given);
        ready(&mut replayer, &convolves(convolution.clone()), &[BLOCK, 2 * BLOCK, 3 * BLOCK]);
        for graph in [false, true] {
            for (at, values) in (0u64..).zip(&given) {
                arena.write(at * BLOCK, values);
            }
            arena.write(4 * BLOCK, &[f32::NAN; 1024]);
            go(&mut replayer, &[0, 4 * BLOCK], 1, graph);
            let found = arena.floats(4 * BLOCK, expected.len());
            assert_eq!(found, expected, "graph {graph}: {convolution:?}");
            let behind = arena.floats(4 * BLOCK + 4 * expected.len() as u64, 8);
            assert!(behind.iter().all(|x| x.is_nan()), "nothing else is written");
        }
        replayer.done(json!({"do": "unload"}));
    }
}

#[test]
fn gpu_convolutions_without_cudnn_are_no_plan() {
    let gpu = Gpu::open();
    let arena = arena(&gpu);
    let mut replayer = start(&arena, None);
    let load = crate::gpu::load(&convolves(convolution(false, false)));
    let refused = replayer.ask(load);
    assert_eq!(refused["error"]["kind"], "plan", "{refused}");
    // Positive control: the replayer still takes other plans.
    ready(&mut replayer, &crate::plans::elementwise(), &[0]);
}
