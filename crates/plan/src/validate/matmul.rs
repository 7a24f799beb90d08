//! Products of cuBLASLt: the types that cuBLAS documents, an allow list of epilogues, and matrices within their blocks.

use super::gemm::{element_bytes, factors_and_types, positive};
use super::{Checker, Rule, ensure};
use crate::matmul::Matmul;
use crate::plan::GemmType;

/// Epilogues without a bias; with one they are larger by [`BIAS`].
const EPILOGUES: [u32; 3] = [NONE, 2, 32];
/// `CUBLASLT_EPILOGUE_DEFAULT`, which the others do not hold.
const NONE: u32 = 1;
/// `CUBLASLT_EPILOGUE_BIAS`.
const BIAS: u32 = 4;

impl Checker<'_> {
    pub(super) fn matmul(&self, matmul: &Matmul) -> Rule {
        let [a, b, c, d] = &matmul.matrices;
        let types = [a.dtype, b.dtype, d.dtype].map(GemmType);
        factors_and_types(matmul.compute, [matmul.alpha, matmul.beta], types)?;
        ensure(c.dtype == d.dtype, "cuBLAS has no product of these types")?;
        ensure(
            matmul.transpose.iter().all(|transpose| *transpose <= 2),
            "its operation is unknown",
        )?;
        for matrix in &matmul.matrices {
            let [rows, columns] = matrix.sizes;
            ensure(
                [rows, columns, matrix.leading].into_iter().all(positive),
                "a size is not positive or too large",
            )?;
            ensure(
                (1..=i32::MAX as u32).contains(&matrix.batch),
                "its batch is empty or too large",
            )?;
            ensure(matrix.batch == d.batch, "its matrices are not as many")?;
            let (inner, outer) = if matrix.row_major { (columns, rows) } else { (rows, columns) };
            ensure(matrix.leading >= inner, "a leading dimension is too small or too large")?;
            let element =
                element_bytes(GemmType(matrix.dtype)).ok_or("an operand has an unknown type")?;
            let extent = [inner, outer, matrix.leading];
            self.matrices(matrix.at, extent, (matrix.stride, matrix.batch), element)?;
        }
        let stored = |transpose: u8, [rows, columns]: [i64; 2]| {
            if transpose == 0 { [rows, columns] } else { [columns, rows] }
        };
        let [transpose_a, transpose_b] = matmul.transpose;
        let [rows, inner] = stored(transpose_a, a.sizes);
        let [same, columns] = stored(transpose_b, b.sizes);
        let fit = inner == same && c.sizes == d.sizes && d.sizes == [rows, columns];
        ensure(fit, "its matrices do not fit each other")?;
        let Some(bias) = matmul.bias else {
            return ensure(EPILOGUES.contains(&matmul.epilogue), "its epilogue is unknown");
        };
        let others = matmul.epilogue.checked_sub(BIAS);
        let known =
            others.is_some_and(|other| other == 0 || other != NONE && EPILOGUES.contains(&other));
        ensure(known, "its epilogue is unknown")?;
        ensure(!d.row_major, "a bias is added to rows that are not contiguous only")?;
        let element = element_bytes(GemmType(d.dtype)).ok_or("an operand has an unknown type")?;
        self.matrices(bias, [rows, 1, rows], (0, 1), element)
    }
}
