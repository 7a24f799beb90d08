//! `cublasLtMatmul`, generic over what an address is, as [`crate::Convolution`].

use serde::{Deserialize, Serialize};

use crate::library_call::LibraryCall;
use crate::plan::{Address, GemmScalar};

/// A matrix, or several of a size, as cuBLASLt describes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LtMatrix<A = Address> {
    /// First element.
    pub at: A,
    /// `cudaDataType_t`.
    pub dtype: u32,
    /// Rows and columns, as stored.
    pub sizes: [i64; 2],
    /// Elements between neighbours along the dimension that is not contiguous.
    pub leading: i64,
    /// Whether rows are contiguous, and not columns.
    #[serde(default)]
    pub row_major: bool,
    /// Number of matrices.
    pub batch: u32,
    /// Elements from matrix to matrix.
    pub stride: i64,
}

/// `D = epilogue(alpha * A * B + beta * C)`. The replayer chooses the algorithm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Matmul<A = Address> {
    /// `cublasOperation_t` of `A` and `B`: 0, 1 or 2.
    pub transpose: [u8; 2],
    /// `A`, `B`, `C` and `D`.
    pub matrices: [LtMatrix<A>; 4],
    /// Factor of the product.
    pub alpha: GemmScalar,
    /// Factor of `C`.
    pub beta: GemmScalar,
    /// `cublasComputeType_t`.
    pub compute: u32,
    /// `cublasLtEpilogue_t`: none, ReLU or GELU, each with or without a bias.
    pub epilogue: u32,
    /// One number per row of `D`, of its type.
    pub bias: Option<A>,
}

impl<A> LtMatrix<A> {
    fn try_map<'a, B, E>(
        &'a self,
        place: &mut impl FnMut(&'a A) -> Result<B, E>,
    ) -> Result<LtMatrix<B>, E> {
        let Self { at, dtype, sizes, leading, row_major, batch, stride } = self;
        Ok(LtMatrix {
            at: place(at)?,
            dtype: *dtype,
            sizes: *sizes,
            leading: *leading,
            row_major: *row_major,
            batch: *batch,
            stride: *stride,
        })
    }
}

impl<A> LibraryCall<A> for Matmul<A> {
    type With<B> = Matmul<B>;

    /// The same product with other addresses: of the four matrices, and of the bias.
    fn try_map<'a, B, E>(
        &'a self,
        place: &mut impl FnMut(&'a A) -> Result<B, E>,
    ) -> Result<Matmul<B>, E>
    where
        A: 'a,
    {
        let [a, b, c, d] = &self.matrices;
        Ok(Matmul {
            transpose: self.transpose,
            matrices: [a.try_map(place)?, b.try_map(place)?, c.try_map(place)?, d.try_map(place)?],
            alpha: self.alpha,
            beta: self.beta,
            compute: self.compute,
            epilogue: self.epilogue,
            bias: self.bias.as_ref().map(place).transpose()?,
        })
    }
}
