//! The signature of a launcher, at the binary interface.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One `extern "C"` function defined in a `.cu` file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Launcher {
    /// Symbol name.
    pub name: String,
    /// Return type.
    pub returns: Returns,
    /// Parameters in order, without the trailing stream.
    pub params: Vec<Param>,
    /// Whether a trailing `cudaStream_t` follows the parameters.
    pub has_stream: bool,
    /// 1-based line of the name in its own file.
    pub line: u32,
}

/// Return type of a launcher. A non-zero `int` or `cudaError_t` is a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Returns {
    /// Nothing.
    Void,
    /// A C `int`.
    Int,
    /// A `cudaError_t`; the same size as `int`.
    CudaError,
}

/// One parameter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Param {
    /// Name as written; `argN` if there is none.
    pub name: String,
    /// The type as written, with comments removed and blanks normalised.
    pub c_type: String,
    /// Type at the binary interface.
    pub kind: ParamKind,
}

/// A parameter at the binary interface (LP64: `long` and `size_t` have 64 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ParamKind {
    /// Address of device memory.
    Pointer {
        /// Element type of the pointee.
        element: Element,
        /// Whether the pointee is `const`: the launcher promises not to write.
        constant: bool,
    },
    /// 8-bit signed integer: `int8_t`, `char`.
    I8,
    /// 8-bit unsigned integer.
    U8,
    /// 16-bit signed integer.
    I16,
    /// 16-bit unsigned integer.
    U16,
    /// 32-bit signed integer.
    I32,
    /// 32-bit unsigned integer.
    U32,
    /// 64-bit signed integer.
    I64,
    /// 64-bit unsigned integer.
    U64,
    /// Binary32.
    F32,
    /// Binary64.
    F64,
    /// C++ `bool`, one byte.
    Bool,
}

/// Element type of a pointer. Vector types count as their element: `float4*` is `F32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Element {
    /// `float`
    F32,
    /// `double`
    F64,
    /// `__half`
    F16,
    /// `__nv_bfloat16`
    BF16,
    /// `__nv_fp8_e4m3`
    F8E4M3,
    /// `__nv_fp8_e5m2`
    F8E5M2,
    /// `int8_t`, `char`
    I8,
    /// `uint8_t`
    U8,
    /// `int16_t`
    I16,
    /// `uint16_t`
    U16,
    /// `int32_t`
    I32,
    /// `uint32_t`
    U32,
    /// `int64_t`
    I64,
    /// `uint64_t`
    U64,
    /// `bool`
    Bool,
    /// `void`: any dtype.
    Void,
}
