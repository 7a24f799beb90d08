//! A product of a matrix and a vector, generic over what an address is, as [`crate::Convolution`].

use serde::{Deserialize, Serialize};

use crate::library_call::LibraryCall;
use crate::plan::{Address, GemmScalar};

/// `cublasSgemvStridedBatched` or `cublasDgemvStridedBatched`, of which `cublasSgemv` and `cublasDgemv` are a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gemv<A = Address> {
    /// `cublasOperation_t` of the matrix: 0, 1 or 2.
    pub transpose: u8,
    /// Rows and columns of the matrix as it is stored, column-major.
    pub sizes: [i64; 2],
    /// The matrix, the vector, and the result.
    pub operands: [A; 3],
    /// `cudaDataType_t` of all: float or double.
    pub dtype: u32,
    /// Leading dimension of the matrix, in elements.
    pub leading: i64,
    /// Elements between neighbours of the vector, and of the result.
    pub steps: [i64; 2],
    /// Elements from matrix to matrix, from vector to vector, and from result to result.
    pub strides: [i64; 3],
    /// Number of matrices.
    pub batch: u32,
    /// Factor of the product.
    pub alpha: GemmScalar,
    /// Factor of what the result held.
    pub beta: GemmScalar,
    /// `cublasMath_t` of the handle.
    pub math: u32,
}

impl<A> LibraryCall<A> for Gemv<A> {
    type With<B> = Gemv<B>;

    /// The same product with other addresses.
    fn try_map<'a, B, E>(
        &'a self,
        place: &mut impl FnMut(&'a A) -> Result<B, E>,
    ) -> Result<Gemv<B>, E>
    where
        A: 'a,
    {
        let [matrix, vector, result] = &self.operands;
        Ok(Gemv {
            transpose: self.transpose,
            sizes: self.sizes,
            operands: [place(matrix)?, place(vector)?, place(result)?],
            dtype: self.dtype,
            leading: self.leading,
            steps: self.steps,
            strides: self.strides,
            batch: self.batch,
            alpha: self.alpha,
            beta: self.beta,
            math: self.math,
        })
    }
}
