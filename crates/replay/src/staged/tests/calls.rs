//! Calls of libraries whose addresses the tests look at.

use warpwright_plan::{
    Convolution, DnnEpilogue, DnnFilter, DnnTensor, Gemm, GemmScalar, GemmType, Gemv, LtMatrix,
    Matmul,
};

use super::at;

/// Of source, filter, result, bias and residual.
pub(super) fn convolution() -> Convolution {
    let tensor = |at| DnnTensor { at, dtype: 0, dims: vec![1; 4], strides: vec![1; 4] };
    Convolution {
        transposed: false,
        source: tensor(at(1, 0)),
        filter: DnnFilter { at: at(0, 0), dtype: 0, format: 0, dims: vec![1; 4] },
        result: tensor(at(2, 0)),
        padding: vec![0; 2],
        steps: vec![1; 2],
        dilation: vec![1; 2],
        groups: 1,
        mode: 1,
        compute: 0,
        math: 3,
        alpha: GemmScalar::F32(1),
        beta: GemmScalar::F32(1),
        algorithm: None,
        epilogue: Some(DnnEpilogue {
            bias: tensor(at(0, 64)),
            residual: Some(at(1, 4)),
            activation: 1,
        }),
    }
}

pub(super) fn gemv() -> Gemv {
    Gemv {
        transpose: 0,
        sizes: [2, 3],
        operands: [at(0, 0), at(1, 0), at(2, 12)],
        dtype: 0,
        leading: 2,
        steps: [1; 2],
        strides: [0; 3],
        batch: 1,
        alpha: GemmScalar::F32(1),
        beta: GemmScalar::F32(0),
        math: 0,
    }
}

pub(super) fn matmul() -> Matmul {
    let matrix = |at| LtMatrix {
        at,
        dtype: 0,
        sizes: [1, 1],
        leading: 1,
        row_major: false,
        batch: 1,
        stride: 0,
    };
    Matmul {
        transpose: [0, 0],
        matrices: [at(0, 0), at(1, 0), at(2, 0), at(2, 0)].map(matrix),
        alpha: GemmScalar::F32(1),
        beta: GemmScalar::F32(0),
        compute: 68,
        epilogue: 4,
        bias: Some(at(0, 8)),
    }
}

pub(super) fn gemm() -> Gemm {
    Gemm {
        transpose: [0, 1],
        sizes: [2, 3, 4],
        operands: [at(1, 0), at(0, 4), at(2, 8)],
        types: [GemmType(0); 3],
        leading: [4; 3],
        strides: [0; 3],
        batch: 1,
        alpha: GemmScalar::F32(1),
        beta: GemmScalar::F64(0),
        compute: 68,
        math: 0,
        algorithm: -1,
        pointers: false,
    }
}
