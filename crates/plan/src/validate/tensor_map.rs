//! Tensor maps: what `cuTensorMapEncodeTiled` documents, and tensors within their blocks.

use super::{Checker, Rule, ensure};
use crate::plan::TensorMap;

/// Bits of an element, by `CUtensorMapDataType`; of packed types, with their gaps.
const ELEMENT_BITS: [u64; 16] = [8, 16, 32, 32, 64, 64, 16, 32, 64, 16, 32, 32, 32, 4, 8, 8];
/// Last value of `CUtensorMapInterleave`, `CUtensorMapSwizzle`, `CUtensorMapL2promotion` and
/// `CUtensorMapFloatOOBfill`.
const LAST: [u32; 4] = [2, 6, 3, 1];
const MAX_DIM: u64 = 1 << 32;
const MAX_STRIDE: u64 = 1 << 40;
const MAX_BOX: u32 = 256;
const MAX_STEP: u32 = 8;
/// Alignment of the tensor and of its strides.
const ALIGN: u64 = 16;

impl Checker<'_> {
    pub(super) fn tensor_map(&self, map: &TensorMap) -> Rule {
        let kind = usize::try_from(map.dtype).ok().and_then(|dtype| ELEMENT_BITS.get(dtype));
        let bits = *kind.ok_or("its data type is unknown")?;
        let rank = map.dims.len();
        ensure((1..=5).contains(&rank), "it has no dimension, or more than five")?;
        let ranks = [map.strides.len() + 1, map.box_dims.len(), map.element_strides.len()];
        ensure(ranks == [rank; 3], "its dimensions, strides and boxes do not match")?;
        let modes = [map.interleave, map.swizzle, map.l2_promotion, map.oob_fill];
        ensure(modes.iter().zip(LAST).all(|(mode, last)| *mode <= last), "a mode is unknown")?;
        ensure(
            map.dims.iter().all(|dim| (1..=MAX_DIM).contains(dim)),
            "a dimension is empty or too large",
        )?;
        let boxes = map.box_dims.iter().all(|size| (1..=MAX_BOX).contains(size));
        ensure(boxes, "a box is empty or too large")?;
        let steps = map.element_strides.iter().all(|step| (1..=MAX_STEP).contains(step));
        ensure(steps, "a step is 0 or too large")?;
        let strides = map.strides.iter().all(|s| *s < MAX_STRIDE && s.is_multiple_of(ALIGN));
        ensure(strides, "a stride is not aligned or too large")?;
        ensure(map.address.offset.is_multiple_of(ALIGN), "its tensor is not aligned")?;
        let mut dims = map.dims.iter();
        let row = dims.next().and_then(|row| row.checked_mul(bits)).map(|bits| bits.div_ceil(8));
        let mut bytes = row.ok_or("it is too large")?;
        for (dim, stride) in dims.zip(&map.strides) {
            let step = (dim - 1).checked_mul(*stride);
            bytes = step.and_then(|step| bytes.checked_add(step)).ok_or("it is too large")?;
        }
        self.within(map.address, bytes)
    }
}
