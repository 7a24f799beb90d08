//! What a recorder writes: addresses of its own process, and nothing that is believed.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::convolution::Convolution;
use crate::matmul::Matmul;
use crate::plan::{GemmScalar, GemmType};
use crate::products::Gemv;

/// Version of the serialised recording.
pub const RECORDING_VERSION: u32 = 1;

/// What a candidate's code asked of the device in one process, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    /// [`RECORDING_VERSION`].
    pub version: u32,
    /// First thing that cannot be recorded, if any; later fields are then incomplete.
    #[serde(default)]
    pub refused: Option<String>,
    /// Images that were registered and launched from.
    pub modules: Vec<RecordedModule>,
    /// Kernels that were launched.
    pub kernels: Vec<RecordedKernel>,
    /// `cuTensorMapEncodeTiled`, in order.
    #[serde(default)]
    pub tensor_maps: Vec<RecordedTensorMap>,
    /// Allocations, in order; no two overlap, freed or not.
    pub blocks: Vec<RecordedBlock>,
    /// Operations, in order.
    pub nodes: Vec<RecordedNode>,
    /// The `state_dict` after loading.
    pub weights: Vec<RecordedWeight>,
    /// Addresses of tensors among the constructor's arguments.
    #[serde(default)]
    pub init: Vec<u64>,
    /// Addresses of the inputs of the first call, and of the second.
    pub inputs: [Vec<u64>; 2],
    /// Allocations of `prepare()` that hold zeros though nothing wrote them, by address.
    #[serde(default)]
    pub zeroed: Vec<u64>,
    /// What the second call returned.
    pub outputs: RecordedOutputs,
    /// Nodes of the second call that stream 0 waits for after its last node, by their number in that phase.
    #[serde(default)]
    pub joined: Vec<u32>,
}

/// A fat binary, by its place in a library of the artifact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedModule {
    /// File name within the artifact.
    pub library: String,
    /// Virtual address in that library's file, as its headers count.
    pub address: u64,
}

/// A kernel that was launched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedKernel {
    /// Index into [`Recording::modules`].
    pub module: u32,
    /// Symbol in the image.
    pub name: String,
    /// As [`crate::Kernel::max_dynamic_shared`].
    #[serde(default)]
    pub max_dynamic_shared: Option<u32>,
    /// As [`crate::Kernel::shared_carveout`].
    #[serde(default)]
    pub shared_carveout: Option<i32>,
    /// As [`crate::Kernel::nonportable_cluster`].
    #[serde(default)]
    pub nonportable_cluster: bool,
}

/// When something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The constructor ran, and weights were loaded.
    Init,
    /// `prepare()` ran.
    Prepare,
    /// Inputs of a call were made, by the recorder.
    Inputs,
    /// The first call.
    First,
    /// The call that becomes the plan.
    Second,
}

/// An allocation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedBlock {
    /// First byte.
    pub address: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// When it was made.
    pub phase: Phase,
    /// Whether the host could write its contents, which then are part of the plan.
    pub open: bool,
    /// Nodes of its phase that were recorded before it was made.
    pub born: u32,
    /// Phase in which it was freed, and nodes of that phase that were recorded before.
    #[serde(default)]
    pub freed: Option<(Phase, u32)>,
}

/// One tensor of the `state_dict`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedWeight {
    /// Its name.
    pub name: String,
    /// First byte.
    pub address: u64,
}

/// An operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedNode {
    /// When.
    pub phase: Phase,
    /// Stream, counted in the order in which they were first used.
    #[serde(default)]
    pub stream: u32,
    /// Earlier nodes of the same phase that it waits for, by their number in that phase.
    #[serde(default)]
    pub after: Vec<u32>,
    /// What.
    pub op: RecordedOp,
}

/// As [`crate::Op`], with addresses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the fields are those of the plan's types of the same names")]
pub enum RecordedOp {
    Launch {
        kernel: u32,
        grid: [u32; 3],
        block: [u32; 3],
        shared: u32,
        #[serde(default)]
        cluster: Option<[u32; 3]>,
        #[serde(default)]
        cooperative: bool,
        #[serde(default)]
        programmatic: bool,
        /// Bytes of each parameter, in hexadecimal.
        args: Vec<String>,
    },
    Fill {
        to: RecordedMemory,
        value: u32,
        element: u8,
        width: u64,
        height: u64,
        pitch: u64,
    },
    Copy {
        to: RecordedMemory,
        from: RecordedMemory,
        width: u64,
        height: u64,
        to_pitch: u64,
        from_pitch: u64,
    },
    Upload {
        to: RecordedMemory,
        #[serde(with = "hex")]
        bytes: Vec<u8>,
    },
    Gemm {
        transpose: [u8; 2],
        sizes: [i64; 3],
        operands: [u64; 3],
        types: [GemmType; 3],
        leading: [i64; 3],
        strides: [i64; 3],
        batch: u32,
        alpha: GemmScalar,
        beta: GemmScalar,
        compute: u32,
        math: u32,
        algorithm: i32,
        #[serde(default)]
        pointers: bool,
    },
    Gemv(Box<Gemv<u64>>),
    Matmul(Box<Matmul<u64>>),
    Convolution(Box<Convolution<u64>>),
}

/// As [`crate::Memory`], with addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the fields are those of the plan's type of the same name")]
pub enum RecordedMemory {
    Address(u64),
    Symbol { module: u32, name: String, offset: u64 },
}

/// As [`crate::TensorMap`], with an address. In a kernel's argument a map is 128 bytes that begin with
/// [`RecordedTensorMap::MARK`] and its index as eight bytes, little endian; the rest is zero.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are those of the plan's type of the same name")]
pub struct RecordedTensorMap {
    pub dtype: u32,
    pub address: u64,
    pub dims: Vec<u64>,
    pub strides: Vec<u64>,
    pub box_dims: Vec<u32>,
    pub element_strides: Vec<u32>,
    pub interleave: u32,
    pub swizzle: u32,
    pub l2_promotion: u32,
    pub oob_fill: u32,
}

impl RecordedTensorMap {
    /// First eight bytes of a recorded map.
    pub const MARK: [u8; 8] = *b"WWTMAP\x01\x7f";
    /// Bytes of a map.
    pub const BYTES: usize = 128;
}

/// What a call returned.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RecordedOutputs {
    /// As [`crate::Outputs::tree`].
    pub tree: Json,
    /// The tensors.
    pub tensors: Vec<RecordedOutput>,
}

/// One tensor of the result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedOutput {
    /// First element.
    pub address: u64,
    /// Extent per dimension.
    pub shape: Vec<u64>,
    /// Elements between neighbours, per dimension.
    pub strides: Vec<i64>,
    /// Torch's name without the prefix.
    pub dtype: String,
}

/// Bytes as hexadecimal text.
pub mod hex {
    use serde::{Deserialize, Deserializer, Serializer};

    /// For serde.
    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digit = |value: u8| DIGITS[usize::from(value)] as char;
        let text: String = bytes.iter().flat_map(|b| [digit(b >> 4), digit(b & 15)]).collect();
        serializer.serialize_str(&text)
    }

    /// For serde.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        decode(&text).ok_or_else(|| serde::de::Error::custom("not hexadecimal"))
    }

    pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
        let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
        let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
        pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
    }
}
