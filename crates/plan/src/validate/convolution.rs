//! Convolutions: only what cuDNN documents, sizes that fit each other, and tensors within their blocks.

use super::{Checker, Rule, ensure};
use crate::convolution::{Convolution, DnnTensor};
use crate::plan::{Address, GemmScalar};

/// `cudnnDataType_t` of the tensors, bytes of an element, and the types of the sums.
const TYPES: &[(u32, u64, &[u32])] =
    &[(FLOAT, 4, &[FLOAT]), (DOUBLE, 8, &[DOUBLE]), (HALF, 2, &[FLOAT, HALF]), (9, 2, &[FLOAT])];
const FLOAT: u32 = 0;
const DOUBLE: u32 = 1;
const HALF: u32 = 2;
/// Numbers of algorithms, forward and transposed.
const ALGORITHMS: [u32; 2] = [8, 6];
/// Last value of `cudnnConvolutionMode_t`, `cudnnMathType_t` and `cudnnTensorFormat_t` (of those without gaps).
const LAST: [u32; 3] = [1, 3, 1];
/// `CUDNN_ACTIVATION_RELU` and `CUDNN_ACTIVATION_IDENTITY`: cuDNN fuses no others.
const ACTIVATIONS: [u32; 2] = [1, 5];
/// cuDNN takes tensors of fewer elements than this, and counts them in `int`.
const MAX_ELEMENTS: u64 = 1 << 31;

impl Checker<'_> {
    pub(super) fn convolution(&self, convolution: &Convolution) -> Rule {
        let Convolution { source, filter, result, .. } = convolution;
        let dtype = source.dtype;
        let known = TYPES.iter().find(|(of, ..)| *of == dtype);
        let (_, element, sums) = *known.ok_or("its data type is unknown")?;
        ensure([filter.dtype, result.dtype] == [dtype; 2], "its tensors have different types")?;
        ensure(sums.contains(&convolution.compute), "cuDNN has no such sums of these types")?;
        let factors = [convolution.alpha, convolution.beta];
        let double = |factor: &GemmScalar| matches!(factor, GemmScalar::F64(_));
        let single = |factor: &GemmScalar| matches!(factor, GemmScalar::F32(_));
        let right =
            if dtype == DOUBLE { factors.iter().all(double) } else { factors.iter().all(single) };
        ensure(right, "its factors have another type")?;
        let modes = [convolution.mode, convolution.math, filter.format];
        ensure(modes.iter().zip(LAST).all(|(mode, last)| *mode <= last), "a mode is unknown")?;
        let [forward, transposed] = ALGORITHMS;
        let count = if convolution.transposed { transposed } else { forward };
        ensure(
            convolution.algorithm.is_none_or(|algorithm| algorithm < count),
            "its algorithm is unknown",
        )?;
        sizes(convolution)?;
        let bytes = product(&filter.dims)?.checked_mul(element).ok_or(LARGE)?;
        self.aligned(filter.at, bytes, element)?;
        self.dnn_tensor(source, element)?;
        self.dnn_tensor(result, element)?;
        ensure(is_injective(result), "elements of its result overlap")?;
        self.epilogue(convolution, element)
    }

    fn epilogue(&self, convolution: &Convolution, element: u64) -> Rule {
        let Some(epilogue) = &convolution.epilogue else { return Ok(()) };
        ensure(!convolution.transposed, "a transposed convolution has no epilogue")?;
        ensure(ACTIVATIONS.contains(&epilogue.activation), "its activation is unknown")?;
        let result = &convolution.result;
        let channels = result.dims.iter().enumerate();
        let one_each = channels.map(|(axis, extent)| if axis == 1 { *extent } else { 1 });
        ensure(
            one_each.eq(epilogue.bias.dims.iter().copied()),
            "its bias is not one number per channel",
        )?;
        ensure(epilogue.bias.dtype == result.dtype, "its tensors have different types")?;
        self.dnn_tensor(&epilogue.bias, element)?;
        match epilogue.residual {
            Some(at) => self.dnn_tensor(&DnnTensor { at, ..result.clone() }, element),
            None => ensure(is_zero(convolution.beta), "it has a factor without a residual"),
        }
    }

    fn dnn_tensor(&self, tensor: &DnnTensor, element: u64) -> Rule {
        let DnnTensor { at, dims, strides, .. } = tensor;
        ensure(strides.len() == dims.len(), "a tensor's extents and strides do not match")?;
        ensure(strides.iter().all(|stride| in_range(*stride)), "a stride is 0 or too large")?;
        product(dims)?;
        let mut last: u64 = 0;
        for (extent, stride) in dims.iter().zip(strides) {
            let step = u64::from(extent - 1).checked_mul(u64::from(*stride));
            last = step.and_then(|step| last.checked_add(step)).ok_or(LARGE)?;
        }
        ensure(last < MAX_ELEMENTS, LARGE)?;
        self.aligned(*at, (last + 1) * element, element)
    }

    /// Whether bytes lie in their block, and begin at a multiple of an element's.
    fn aligned(&self, at: Address, bytes: u64, element: u64) -> Rule {
        self.within(at, bytes)?;
        ensure(at.offset.is_multiple_of(element), "a tensor is not aligned")
    }
}

const LARGE: &str = "a tensor is too large";

/// Whether extents, filter, padding, steps, dilation and groups belong together.
fn sizes(convolution: &Convolution) -> Rule {
    let Convolution { source, filter, result, padding, steps, dilation, groups, .. } = convolution;
    // A transposed convolution leads from the result of the other to its source.
    let [from, to] = if convolution.transposed { [result, source] } else { [source, result] };
    let rank = source.dims.len();
    ensure(matches!(rank, 4 | 5), "it has neither two nor three dimensions of space")?;
    let ranks = [filter.dims.len(), result.dims.len()];
    let spaces = [padding.len(), steps.len(), dilation.len()];
    ensure(ranks == [rank; 2] && spaces == [rank - 2; 3], "its tensors have different ranks")?;
    let all = [&source.dims, &filter.dims, &result.dims];
    ensure(
        all.into_iter().flatten().all(|extent| in_range(*extent)),
        "an extent is 0 or too large",
    )?;
    let positive = steps.iter().chain(dilation).chain([groups]);
    ensure(
        positive.copied().all(in_range)
            && padding.iter().all(|zeros| *zeros == 0 || in_range(*zeros)),
        "its padding, steps, dilation or groups are 0 or too large",
    )?;
    let (&[images, channels, ref space @ ..], &[same_images, made, ref made_space @ ..]) =
        (from.dims.as_slice(), to.dims.as_slice())
    else {
        return Err("it has no channels");
    };
    let &[of_result, of_group, ref extents @ ..] = filter.dims.as_slice() else {
        return Err("it has no channels");
    };
    ensure(images == same_images, "its tensors have different numbers of images")?;
    let fit = of_result == made
        && u64::from(of_group) * u64::from(*groups) == u64::from(channels)
        && made.is_multiple_of(*groups);
    ensure(fit, "its channels, filter and groups do not match")?;
    let each = space.iter().zip(made_space).zip(extents).zip(padding).zip(steps).zip(dilation);
    for (((((extent, made), filter), zeros), step), distance) in each {
        let [extent, filter, zeros, step, distance] =
            [extent, filter, zeros, step, distance].map(|number| u64::from(*number));
        // No number exceeds 2^32 times 2^32.
        let room = (extent + 2 * zeros).checked_sub((filter - 1) * distance + 1);
        let steps = room.ok_or("its filter is larger than what it reads")? / step + 1;
        ensure(steps == u64::from(*made), "its result has another extent")?;
    }
    Ok(())
}

/// Whether no two elements share a place.
fn is_injective(tensor: &DnnTensor) -> bool {
    let mut axes: Vec<(u64, u64)> = tensor
        .strides
        .iter()
        .zip(&tensor.dims)
        .filter(|(_, extent)| **extent > 1)
        .map(|(stride, extent)| (u64::from(*stride), u64::from(*extent)))
        .collect();
    axes.sort_unstable();
    let mut end: u64 = 1;
    axes.into_iter().all(|(stride, extent)| {
        let apart = stride >= end;
        end = end.saturating_add(stride.saturating_mul(extent - 1));
        apart
    })
}

/// Number of elements of these extents.
fn product(dims: &[u32]) -> Result<u64, &'static str> {
    ensure(dims.iter().all(|extent| in_range(*extent)), "an extent is 0 or too large")?;
    let number = dims.iter().try_fold(1u64, |all, extent| all.checked_mul(u64::from(*extent)));
    number.filter(|number| *number < MAX_ELEMENTS).ok_or(LARGE)
}

fn in_range(number: u32) -> bool {
    (1..=i32::MAX as u32).contains(&number)
}

fn is_zero(factor: GemmScalar) -> bool {
    match factor {
        GemmScalar::F32(bits) => bits == 0,
        GemmScalar::F64(bits) => bits == 0,
        GemmScalar::I32(_) | GemmScalar::F16(_) => false,
    }
}
