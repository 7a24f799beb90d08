//! The plan: modules, kernels, memory, and nodes in order.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::convolution::Convolution;
use crate::matmul::Matmul;
use crate::products::Gemv;

/// Version of the serialised plan. A reader refuses every other one.
pub const PLAN_VERSION: u32 = 1;

/// What one call of a candidate does on the device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaunchPlan {
    /// [`PLAN_VERSION`].
    pub version: u32,
    /// What made it.
    pub producer: Producer,
    /// Images of device code.
    pub modules: Vec<Module>,
    /// Entry points that nodes launch.
    pub kernels: Vec<Kernel>,
    /// Descriptors of the tensor memory accelerator, which are encoded at replay.
    pub tensor_maps: Vec<TensorMap>,
    /// Contents that the candidate's host code computed from weights and shapes.
    pub constants: Vec<Constant>,
    /// Memory. Every address of a node is a block and an offset.
    pub blocks: Vec<Block>,
    /// Runs once per set of weights, untimed.
    pub prepare: Vec<Node>,
    /// Runs once per call.
    pub forward: Vec<Node>,
    /// Where results lie after a call.
    pub outputs: Outputs,
}

/// What made a plan: tells plans of different producers apart, and changes nothing in how they are replayed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Producer {
    /// E.g. `cuda-runtime`.
    pub kind: String,
    /// Compiler of the device code, with its version.
    pub compiler: String,
}

/// An image that the driver loads: a fat binary of the artifact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    /// BLAKE3 of the image.
    pub hash: String,
    /// File of the artifact that holds it.
    pub file: String,
    /// Offset in that file, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// An entry point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// Index into [`LaunchPlan::modules`].
    pub module: u32,
    /// Symbol in the image.
    pub name: String,
    /// Bytes of each parameter, as the image says.
    pub params: Vec<u32>,
    /// `cudaFuncAttributeMaxDynamicSharedMemorySize`, in bytes, if set.
    #[serde(default)]
    pub max_dynamic_shared: Option<u32>,
    /// `cudaFuncAttributePreferredSharedMemoryCarveout`, in percent, if set.
    #[serde(default)]
    pub shared_carveout: Option<i32>,
    /// `cudaFuncAttributeNonPortableClusterSizeAllowed`.
    #[serde(default)]
    pub nonportable_cluster: bool,
}

/// Contents of a block, stored beside the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Constant {
    /// BLAKE3.
    pub hash: String,
    /// Length in bytes.
    pub bytes: u64,
}

/// A piece of device memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// Length in bytes.
    pub bytes: u64,
    /// What it holds.
    pub role: Role,
}

/// What a block holds, and how long it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Tensor of this position among the call's inputs.
    Input(u32),
    /// Tensor of this position in the `state_dict`.
    Weight(u32),
    /// Tensor of this position among the arguments of the constructor.
    Init(u32),
    /// Index into [`LaunchPlan::constants`].
    Constant(u32),
    /// Lasts from call to call: what `prepare` fills, or a workspace.
    Kept,
    /// Made by the call: results and intermediates. Alive from before node `born` until before node `freed` of
    /// [`LaunchPlan::forward`], or to the end.
    Call {
        /// Number of nodes before it was allocated.
        born: u32,
        /// Number of nodes before it was freed.
        freed: Option<u32>,
    },
}

/// A place in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// Index into [`LaunchPlan::blocks`].
    pub block: u32,
    /// Bytes from its start.
    pub offset: u64,
}

/// Memory that a node reads or writes by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Memory {
    /// In a block.
    Block(Address),
    /// A variable of a module.
    Symbol {
        /// Index into [`LaunchPlan::modules`].
        module: u32,
        /// Name in the image.
        name: String,
        /// Bytes from its start.
        offset: u64,
    },
}

/// One operation. Nodes of a stream run in order; `after` adds edges from other streams.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Stream, counted from 0.
    #[serde(default)]
    pub stream: u32,
    /// Earlier nodes of other streams that it waits for.
    #[serde(default)]
    pub after: Vec<u32>,
    /// What it does.
    pub op: Op,
}

/// What a node does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// Launches a kernel.
    Launch(Launch),
    /// `cudaMemset`.
    Fill(Fill),
    /// `cudaMemcpy`, device to device.
    Copy(Copy2d),
    /// `cudaMemcpy` from the host; the bytes are part of the plan.
    Upload(Upload),
    /// A matrix product of cuBLAS.
    Gemm(Box<Gemm>),
    /// A product of a matrix and a vector.
    Gemv(Box<Gemv>),
    /// A product of cuBLASLt.
    Matmul(Box<Matmul>),
    /// A convolution of cuDNN.
    Convolution(Box<Convolution>),
}

/// A launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// Index into [`LaunchPlan::kernels`].
    pub kernel: u32,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads per block.
    pub block: [u32; 3],
    /// Dynamic shared memory per block, in bytes.
    pub shared: u32,
    /// Blocks per cluster.
    #[serde(default)]
    pub cluster: Option<[u32; 3]>,
    /// Whether all blocks are resident at once.
    #[serde(default)]
    pub cooperative: bool,
    /// Whether it may begin before the kernel before it in its stream has ended (programmatic stream
    /// serialization).
    #[serde(default)]
    pub programmatic: bool,
    /// One per parameter of the kernel.
    pub args: Vec<Argument>,
}

/// Bytes of one parameter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Argument {
    /// With zeros where relocations go.
    #[serde(with = "crate::recording::hex")]
    pub bytes: Vec<u8>,
    /// Addresses in it.
    #[serde(default)]
    pub relocations: Vec<Relocation>,
    /// Tensor maps in it: byte offset, and index into [`LaunchPlan::tensor_maps`].
    #[serde(default)]
    pub tensor_maps: Vec<(u32, u32)>,
}

/// Eight bytes that become a device address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relocation {
    /// Offset of the eight bytes.
    pub at: u32,
    /// The address.
    pub to: Address,
}

/// Sets elements of 1, 2 or 4 bytes; rows of `width` elements, `pitch` bytes apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fill {
    /// First element.
    pub to: Memory,
    /// Value; as many low bytes count as an element has.
    pub value: u32,
    /// Bytes of an element: 1, 2 or 4.
    pub element: u8,
    /// Elements of a row.
    pub width: u64,
    /// Number of rows.
    pub height: u64,
    /// Bytes from row to row; ignored with one row.
    pub pitch: u64,
}

/// Copies rows of `width` bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copy2d {
    /// First byte of the target.
    pub to: Memory,
    /// First byte of the source.
    pub from: Memory,
    /// Bytes of a row.
    pub width: u64,
    /// Number of rows.
    pub height: u64,
    /// Bytes from row to row of the target; ignored with one row.
    pub to_pitch: u64,
    /// Bytes from row to row of the source; ignored with one row.
    pub from_pitch: u64,
}

/// Copies bytes of the plan to the device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upload {
    /// First byte of the target.
    pub to: Memory,
    /// With zeros where relocations go.
    #[serde(with = "crate::recording::hex")]
    pub bytes: Vec<u8>,
    /// Addresses in it.
    #[serde(default)]
    pub relocations: Vec<Relocation>,
}

/// `cublasGemmStridedBatchedEx`, of which every other product with one matrix each is a case, or
/// `cublasGemmBatchedEx`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gemm {
    /// `cublasOperation_t` of both operands: 0, 1 or 2.
    pub transpose: [u8; 2],
    /// Rows of the result, columns of the result, and the length of the sums, as cuBLAS counts (column-major).
    pub sizes: [i64; 3],
    /// `A`, `B` and `C`.
    pub operands: [Address; 3],
    /// Their types.
    pub types: [GemmType; 3],
    /// Leading dimensions, in elements.
    pub leading: [i64; 3],
    /// Elements from matrix to matrix.
    pub strides: [i64; 3],
    /// Number of matrices.
    pub batch: u32,
    /// Factor of the product.
    pub alpha: GemmScalar,
    /// Factor of what `C` held.
    pub beta: GemmScalar,
    /// `cublasComputeType_t`.
    pub compute: u32,
    /// `cublasMath_t` of the handle.
    pub math: u32,
    /// `cublasGemmAlgo_t`.
    pub algorithm: i32,
    /// Whether the operands are arrays of device addresses, one for each matrix (`cublasGemmBatchedEx`): they are
    /// read on the device, as kernels read theirs. Strides then do not count.
    #[serde(default)]
    pub pointers: bool,
}

/// `cudaDataType_t` of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GemmType(pub u32);

/// A factor, as bits of its type: of a float, a double or an int.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GemmScalar {
    /// `float`.
    F32(u32),
    /// `double`.
    F64(u64),
    /// `int`.
    I32(i32),
    /// `__half`.
    F16(u16),
}

/// Arguments of `cuTensorMapEncodeTiled`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorMap {
    /// `CUtensorMapDataType`.
    pub dtype: u32,
    /// Start of the tensor.
    pub address: Address,
    /// Elements per dimension, innermost first; 1 to 5 of them.
    pub dims: Vec<u64>,
    /// Bytes between neighbours, for all dimensions but the innermost.
    pub strides: Vec<u64>,
    /// Elements of a box per dimension.
    pub box_dims: Vec<u32>,
    /// Steps between elements per dimension.
    pub element_strides: Vec<u32>,
    /// `CUtensorMapInterleave`.
    pub interleave: u32,
    /// `CUtensorMapSwizzle`.
    pub swizzle: u32,
    /// `CUtensorMapL2promotion`.
    pub l2_promotion: u32,
    /// `CUtensorMapFloatOOBfill`.
    pub oob_fill: u32,
}

/// What a call returns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outputs {
    /// Nested lists, tuples, dicts and numbers; tensors as `{"tensor": i}`.
    pub tree: Json,
    /// The tensors.
    pub tensors: Vec<Output>,
}

/// One tensor of the result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// First element.
    pub at: Address,
    /// Extent per dimension.
    pub shape: Vec<u64>,
    /// Elements between neighbours, per dimension.
    pub strides: Vec<i64>,
    /// Torch's name without the prefix, e.g. `float32`.
    pub dtype: String,
}

impl LaunchPlan {
    /// Whether two plans are the same but for what their constants contain: they are of two sets of weights.
    pub fn same_but_constants(&self, other: &Self) -> bool {
        let Self { version, producer, modules, kernels, tensor_maps, .. } = self;
        let Self { constants, blocks, prepare, forward, outputs, .. } = self;
        let sizes = |constants: &[Constant]| -> Vec<u64> {
            constants.iter().map(|constant| constant.bytes).collect()
        };
        *version == other.version
            && *producer == other.producer
            && *modules == other.modules
            && *kernels == other.kernels
            && *tensor_maps == other.tensor_maps
            && sizes(constants) == sizes(&other.constants)
            && *blocks == other.blocks
            && *prepare == other.prepare
            && *forward == other.forward
            && *outputs == other.outputs
    }
}
