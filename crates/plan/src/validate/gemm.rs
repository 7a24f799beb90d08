//! Matrix products: only what cuBLAS documents, and matrices within their blocks.

use super::{Checker, Rule, ensure};
use crate::plan::{Address, Gemm, GemmScalar, GemmType};
use crate::products::Gemv;

/// `cudaDataType_t`.
mod data {
    pub(super) const F32: u32 = 0;
    pub(super) const F64: u32 = 1;
    pub(super) const F16: u32 = 2;
    pub(super) const I8: u32 = 3;
    pub(super) const I32: u32 = 10;
    pub(super) const BF16: u32 = 14;
}

/// Values of `cublasComputeType_t`, the type of their scalars, and the types that `A` and `C` may have.
type Compute = (&'static [u32], Scalar, &'static [(u32, u32)]);

const COMPUTE: &[Compute] = &[
    (&[64, 65], Scalar::F16, &[(data::F16, data::F16)]),
    (&[68, 69], Scalar::F32, SINGLE),
    (&[74, 75, 77, 78], Scalar::F32, &[(data::F32, data::F32)]),
    (&[70, 71, 79], Scalar::F64, &[(data::F64, data::F64)]),
    (&[72, 73], Scalar::I32, &[(data::I8, data::I32)]),
];
const SINGLE: &[(u32, u32)] = &[
    (data::F32, data::F32),
    (data::F16, data::F16),
    (data::F16, data::F32),
    (data::BF16, data::BF16),
    (data::BF16, data::F32),
    (data::I8, data::F32),
];

/// `cublasMath_t`: default, tensor operations, pedantic, TF32, two emulations; each with or without bit 16,
/// which disallows sums of reduced precision.
const MATH: &[u32] = &[0, 1, 2, 3, 4, 8, 16, 17, 18, 19, 20, 24];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scalar {
    F16,
    F32,
    F64,
    I32,
}

impl Scalar {
    fn of(scalar: GemmScalar) -> Self {
        match scalar {
            GemmScalar::F16(_) => Self::F16,
            GemmScalar::F32(_) => Self::F32,
            GemmScalar::F64(_) => Self::F64,
            GemmScalar::I32(_) => Self::I32,
        }
    }
}

impl Checker<'_> {
    pub(super) fn gemm(&self, gemm: &Gemm) -> Rule {
        factors_and_types(gemm.compute, [gemm.alpha, gemm.beta], gemm.types)?;
        ensure(gemm.transpose.iter().all(|transpose| *transpose <= 2), "its operation is unknown")?;
        ensure(MATH.contains(&gemm.math), "its math mode is unknown")?;
        let algorithm = matches!(gemm.algorithm, -1..=23 | 99..=115);
        ensure(algorithm, "its algorithm is unknown")?;
        ensure((1..=i32::MAX as u32).contains(&gemm.batch), "its batch is empty or too large")?;
        let [m, n, k] = gemm.sizes;
        ensure(
            gemm.sizes.iter().all(|size| positive(*size)),
            "a size is not positive or too large",
        )?;
        let [transpose_a, transpose_b] = gemm.transpose;
        let stored = [
            if transpose_a == 0 { [m, k] } else { [k, m] },
            if transpose_b == 0 { [k, n] } else { [n, k] },
            [m, n],
        ];
        let rest = gemm.operands.iter().zip(gemm.types).zip(gemm.leading).zip(gemm.strides);
        for ([rows, columns], (((at, of), leading), stride)) in stored.into_iter().zip(rest) {
            let element = element_bytes(of).ok_or("an operand has an unknown type")?;
            ensure(
                positive(leading) && leading >= rows,
                "a leading dimension is too small or too large",
            )?;
            if gemm.pointers {
                self.within(*at, u64::from(gemm.batch) * POINTER)?;
                ensure(at.offset.is_multiple_of(POINTER), "an array of addresses is not aligned")?;
                continue;
            }
            self.matrices(*at, [rows, columns, leading], (stride, gemm.batch), element)?;
        }
        Ok(())
    }
}

impl Checker<'_> {
    pub(super) fn gemv(&self, gemv: &Gemv) -> Rule {
        let (element, scalar) = match gemv.dtype {
            data::F32 => (4, Scalar::F32),
            data::F64 => (8, Scalar::F64),
            _ => return Err("cuBLAS has no product of these types"),
        };
        let scalars = [gemv.alpha, gemv.beta].map(Scalar::of);
        ensure(scalars == [scalar; 2], "its factors are not of the compute type")?;
        ensure(gemv.transpose <= 2, "its operation is unknown")?;
        ensure(MATH.contains(&gemv.math), "its math mode is unknown")?;
        ensure((1..=i32::MAX as u32).contains(&gemv.batch), "its batch is empty or too large")?;
        let [rows, columns] = gemv.sizes;
        let sizes = [rows, columns, gemv.leading].into_iter().chain(gemv.steps);
        ensure(sizes.into_iter().all(positive), "a size is not positive or too large")?;
        ensure(gemv.leading >= rows, "a leading dimension is too small or too large")?;
        let [taken, made] = if gemv.transpose == 0 { [columns, rows] } else { [rows, columns] };
        let [step, made_step] = gemv.steps;
        // Rows of one, and so many columns of them.
        let extents = [(rows, columns, gemv.leading), (1, taken, step), (1, made, made_step)];
        for (((rows, columns, leading), stride), at) in
            extents.into_iter().zip(gemv.strides).zip(&gemv.operands)
        {
            self.matrices(*at, [rows, columns, leading], (stride, gemv.batch), element)?;
        }
        Ok(())
    }

    /// Whether matrices of positive sizes, so many of them so far apart, lie in their block.
    pub(super) fn matrices(
        &self,
        at: Address,
        [rows, columns, leading]: [i64; 3],
        (stride, batch): (i64, u32),
        element: u64,
    ) -> Rule {
        let stride = if batch == 1 { 0 } else { stride };
        let stride = u64::try_from(stride).map_err(|_| "a stride is negative")?;
        let [rows, columns, leading] = [rows, columns, leading].map(i64::unsigned_abs);
        let matrix = (columns - 1).checked_mul(leading).and_then(|n| n.checked_add(rows));
        let batch = u64::from(batch - 1).checked_mul(stride);
        let elements = matrix.zip(batch).and_then(|(matrix, batch)| matrix.checked_add(batch));
        let bytes = elements.and_then(|elements| elements.checked_mul(element));
        self.within(at, bytes.ok_or("an operand is too large")?)?;
        ensure(at.offset.is_multiple_of(element), "an operand is not aligned")
    }
}

/// Bytes of an address.
const POINTER: u64 = 8;

/// Whether cuBLAS multiplies `A` and `B` of these types to `C`, with factors of these.
pub(super) fn factors_and_types(
    compute: u32,
    factors: [GemmScalar; 2],
    types: [GemmType; 3],
) -> Rule {
    let found = COMPUTE.iter().find(|(computes, ..)| computes.contains(&compute));
    let (_, scalar, known) = found.ok_or("its compute type is unknown")?;
    // cuBLAS reads scalars through a pointer: of another type it would read something else.
    ensure(factors.map(Scalar::of) == [*scalar; 2], "its factors are not of the compute type")?;
    let [of_a, of_b, of_c] = types.map(|GemmType(data)| data);
    ensure(of_a == of_b && known.contains(&(of_a, of_c)), "cuBLAS has no product of these types")
}

pub(super) fn positive(size: i64) -> bool {
    (1..=i64::from(i32::MAX)).contains(&size)
}

pub(super) fn element_bytes(GemmType(of): GemmType) -> Option<u64> {
    Some(match of {
        data::F64 => 8,
        data::F32 | data::I32 => 4,
        data::F16 | data::BF16 => 2,
        data::I8 => 1,
        _ => return None,
    })
}
