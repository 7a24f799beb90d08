//! A convolution of cuDNN, generic over what an address is: of a recorder's process, or of a plan's block.

use serde::{Deserialize, Serialize};

use crate::library_call::LibraryCall;
use crate::plan::{Address, GemmScalar};

/// A tensor, as cuDNN describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DnnTensor<A = Address> {
    /// First element.
    pub at: A,
    /// `cudnnDataType_t`.
    pub dtype: u32,
    /// Extent per dimension: images, channels, then two or three of space.
    pub dims: Vec<u32>,
    /// Elements between neighbours, per dimension.
    pub strides: Vec<u32>,
}

/// The weights of a convolution; they have no gaps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DnnFilter<A = Address> {
    /// First element.
    pub at: A,
    /// `cudnnDataType_t`.
    pub dtype: u32,
    /// `cudnnTensorFormat_t`: channels before space, or after.
    pub format: u32,
    /// Channels of the result, channels of the source per group, then space; in any format.
    pub dims: Vec<u32>,
}

/// `cudnnConvolutionForward`, `cudnnConvolutionBiasActivationForward` or `cudnnConvolutionBackwardData`. The
/// replayer has a workspace of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Convolution<A = Address> {
    /// Whether it is the transposed convolution: the gradient of the other by its source.
    #[serde(default)]
    pub transposed: bool,
    /// What is read.
    pub source: DnnTensor<A>,
    /// The weights.
    pub filter: DnnFilter<A>,
    /// What is written.
    pub result: DnnTensor<A>,
    /// Zeros around the source (of a transposed convolution: around the result), per dimension of space.
    pub padding: Vec<u32>,
    /// Steps of the filter, per dimension of space.
    pub steps: Vec<u32>,
    /// Distances between the filter's elements, per dimension of space.
    pub dilation: Vec<u32>,
    /// Number of groups.
    pub groups: u32,
    /// `cudnnConvolutionMode_t`.
    pub mode: u32,
    /// `cudnnDataType_t` of the sums.
    pub compute: u32,
    /// `cudnnMathType_t`.
    pub math: u32,
    /// Factor of the convolution.
    pub alpha: GemmScalar,
    /// Factor of what the result held, or with an epilogue of its residual.
    pub beta: GemmScalar,
    /// `cudnnConvolutionFwdAlgo_t` or `cudnnConvolutionBwdDataAlgo_t`, tried before those that cuDNN expects to
    /// be fast; `None` if it follows from a question to cuDNN.
    pub algorithm: Option<u32>,
    /// What is done to the result before it is written.
    pub epilogue: Option<DnnEpilogue<A>>,
}

/// `activation(convolution + beta * residual + bias)`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DnnEpilogue<A = Address> {
    /// One number per channel.
    pub bias: DnnTensor<A>,
    /// Laid out as the result; may be the result.
    pub residual: Option<A>,
    /// `cudnnActivationMode_t`: 1 for the larger of it and zero, 5 for none.
    pub activation: u32,
}

impl<A> DnnTensor<A> {
    fn try_map<'a, B, E>(
        &'a self,
        place: &mut impl FnMut(&'a A) -> Result<B, E>,
    ) -> Result<DnnTensor<B>, E> {
        let Self { at, dtype, dims, strides } = self;
        let (dims, strides) = (dims.clone(), strides.clone());
        Ok(DnnTensor { at: place(at)?, dtype: *dtype, dims, strides })
    }
}

impl<A> LibraryCall<A> for Convolution<A> {
    type With<B> = Convolution<B>;

    /// The same convolution with other addresses: of source, filter, result, bias and residual, in this order.
    fn try_map<'a, B, E>(
        &'a self,
        place: &mut impl FnMut(&'a A) -> Result<B, E>,
    ) -> Result<Convolution<B>, E>
    where
        A: 'a,
    {
        let source = self.source.try_map(place)?;
        let DnnFilter { at, dtype, format, dims } = &self.filter;
        let at = place(at)?;
        let filter = DnnFilter { at, dtype: *dtype, format: *format, dims: dims.clone() };
        let result = self.result.try_map(place)?;
        let epilogue = match &self.epilogue {
            None => None,
            Some(DnnEpilogue { bias, residual, activation }) => Some(DnnEpilogue {
                bias: bias.try_map(place)?,
                residual: residual.as_ref().map(&mut *place).transpose()?,
                activation: *activation,
            }),
        };
        Ok(Convolution {
            transposed: self.transposed,
            source,
            filter,
            result,
            padding: self.padding.clone(),
            steps: self.steps.clone(),
            dilation: self.dilation.clone(),
            groups: self.groups,
            mode: self.mode,
            compute: self.compute,
            math: self.math,
            alpha: self.alpha,
            beta: self.beta,
            algorithm: self.algorithm,
            epilogue,
        })
    }
}
