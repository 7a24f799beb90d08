//! Element types: how they are stored, and the type arithmetic on them is done in.

use serde::Deserialize;

/// Element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DType {
    Bool,
    #[serde(rename = "uint8")]
    U8,
    #[serde(rename = "int8")]
    I8,
    #[serde(rename = "int16")]
    I16,
    #[serde(rename = "int32")]
    I32,
    #[serde(rename = "int64")]
    I64,
    #[serde(rename = "float16")]
    F16,
    #[serde(rename = "bfloat16")]
    BF16,
    #[serde(rename = "float32")]
    F32,
    #[serde(rename = "float64")]
    F64,
}

impl DType {
    /// Bytes of one element.
    pub(crate) fn size(self) -> i64 {
        match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::I16 | Self::F16 | Self::BF16 => 2,
            Self::I32 | Self::F32 => 4,
            Self::I64 | Self::F64 => 8,
        }
    }

    /// C++ type in memory, as a launcher's pointer names it.
    pub(crate) fn storage(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::U8 => "uint8_t",
            Self::I8 => "int8_t",
            Self::I16 => "int16_t",
            Self::I32 => "int32_t",
            Self::I64 => "int64_t",
            Self::F16 => "__half",
            Self::BF16 => "__nv_bfloat16",
            Self::F32 => "float",
            Self::F64 => "double",
        }
    }

    /// The type arithmetic is done in: half precision computes in float, small integers in int.
    pub(crate) fn compute(self) -> Self {
        match self {
            Self::F16 | Self::BF16 | Self::F32 => Self::F32,
            Self::U8 | Self::I8 | Self::I16 | Self::I32 => Self::I32,
            other => other,
        }
    }

    /// C++ type of a value in a register.
    pub(crate) fn register(self) -> &'static str {
        match self.compute() {
            Self::F32 => "float",
            Self::F64 => "double",
            Self::I64 => "int64_t",
            Self::Bool => "bool",
            _ => "int",
        }
    }

    /// `torch.float32` and so on.
    pub(crate) fn torch(self) -> &'static str {
        match self {
            Self::Bool => "torch.bool",
            Self::U8 => "torch.uint8",
            Self::I8 => "torch.int8",
            Self::I16 => "torch.int16",
            Self::I32 => "torch.int32",
            Self::I64 => "torch.int64",
            Self::F16 => "torch.float16",
            Self::BF16 => "torch.bfloat16",
            Self::F32 => "torch.float32",
            Self::F64 => "torch.float64",
        }
    }

    pub(crate) fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::BF16 | Self::F32 | Self::F64)
    }

    /// Type to which two operands of a comparison are converted.
    pub(crate) fn promote(self, other: Self) -> Self {
        match (self, other) {
            (a, b) if a == b => a,
            (Self::F16, Self::BF16) | (Self::BF16, Self::F16) => Self::F32,
            (a, b) => a.max(b),
        }
    }
}
