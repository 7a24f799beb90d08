//! Inputs and outputs: dtypes, shapes, and how values are drawn that no workload gives.

use super::schema::RawTensor;
use super::wrong::Wrong;

/// An element type that the formats name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dtype {
    Float(&'static str, u64),
    /// Eight-bit floats: torch draws none, so they are cast.
    Narrow(&'static str),
    Int(&'static str, u64),
    Bool,
}

impl Dtype {
    pub(super) fn of(name: &str) -> Result<Self, Wrong> {
        Ok(match name {
            "float64" => Self::Float("float64", 8),
            "float32" => Self::Float("float32", 4),
            "float16" => Self::Float("float16", 2),
            "bfloat16" => Self::Float("bfloat16", 2),
            "float8_e4m3fn" => Self::Narrow("float8_e4m3fn"),
            "float8_e5m2" => Self::Narrow("float8_e5m2"),
            "int64" => Self::Int("int64", 8),
            "int32" => Self::Int("int32", 4),
            "int16" => Self::Int("int16", 2),
            "int8" => Self::Int("int8", 1),
            "bool" => Self::Bool,
            "float4_e2m1" | "float4_e2m1fn_x2" => {
                return Err(Wrong::new(
                    format!("its dtype {name} is not judged"),
                    "torch computes nothing with four-bit floats, so there is no truth to compare with",
                ));
            }
            other => {
                let other = super::one_line(other, 40);
                return Err(Wrong::definition(format!("its dtype `{other}` is unknown")));
            }
        })
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Float(name, _) | Self::Narrow(name) | Self::Int(name, _) => name,
            Self::Bool => "bool",
        }
    }

    pub(super) const fn size(self) -> u64 {
        match self {
            Self::Float(_, size) | Self::Int(_, size) => size,
            Self::Narrow(_) | Self::Bool => 1,
        }
    }

    /// Safetensors' name.
    pub(super) const fn stored_name(self) -> &'static str {
        match self.name().as_bytes() {
            b"float64" => "F64",
            b"float32" => "F32",
            b"float16" => "F16",
            b"bfloat16" => "BF16",
            b"float8_e4m3fn" => "F8_E4M3",
            b"float8_e5m2" => "F8_E5M2",
            b"int64" => "I64",
            b"int32" => "I32",
            b"int16" => "I16",
            b"int8" => "I8",
            _ => "BOOL",
        }
    }
}

/// How an input of type `random` is drawn: the name of a rule of `draws.py`; `None` for integers
/// that could be indices.
pub(super) fn rule(
    name: &str,
    tensor: &RawTensor,
    dtype: Dtype,
    op_type: Option<&str>,
) -> Option<&'static str> {
    let shape = tensor.shape.as_deref().unwrap_or_default();
    match dtype {
        Dtype::Bool => return Some("mask"),
        Dtype::Int("int8", _) => return Some("bytes"),
        Dtype::Int(..) => return None,
        Dtype::Narrow(_) => return Some("narrow"),
        Dtype::Float(..) => {}
    }
    let lower = name.to_ascii_lowercase();
    let stem = lower.trim_end_matches(|c: char| c.is_ascii_digit() || c == '_');
    let ends = |endings: &[&str]| {
        endings.iter().any(|end| stem == *end || stem.ends_with(&format!("_{end}")))
    };
    let told = tensor.description.as_deref().unwrap_or_default().to_ascii_lowercase();
    let square = shape.len() >= 2 && shape.last() == shape.iter().rev().nth(1);
    Some(if op_type == Some("sampling") && stem == "probs" {
        "softmax"
    } else if stem.ends_with("norm_weight") {
        "scale"
    } else if stem.ends_with("norm_bias") {
        "shift"
    } else if square
        && (ends(&["attention_mask", "causal_mask"])
            || told.contains("causal") && told.contains("attention mask"))
    {
        "causal"
    } else if ends(&["mask"])
        && (ends(&["attention_mask", "drop_mask", "text_mask", "x_mask"])
            || ["binary", "{0, 1}", "0 or 1", "1.0 for valid", "0.0 for masked"]
                .iter()
                .any(|w| told.contains(w)))
    {
        "mask"
    } else if ["cos", "cos_cached", "rope_cos"].contains(&stem) {
        "cos"
    } else if ["sin", "sin_cached", "rope_sin"].contains(&stem) {
        "sin"
    } else if ends(&["rstd", "std", "variance", "var"]) {
        "positive"
    } else if name == "A_cumsum" {
        "decay_sums"
    } else if ["A", "A_log", "g"].contains(&name) {
        "decay"
    } else if ends(&["attn_weights", "attention_weights", "routing_weights"])
        || told.contains("softmax") && told.contains("output")
    {
        "softmax"
    } else if shape.len() >= 2 && ends(&["weight", "weights", "proj", "projs", "weight_matrix"]) {
        "weight"
    } else {
        "normal"
    })
}
