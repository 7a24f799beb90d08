//! How an engine computes, as configurations say it.

use serde::{Deserialize, Serialize};

/// How the engine computes; none of it but `sampler_*` changes what is learned, up to rounding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EngineConfig {
    pub(crate) compute: Compute,
    pub(crate) moments: Compute,
    pub(crate) pass_tokens: usize,
    pub(crate) recompute: bool,
    pub(crate) slots: usize,
    /// Whether a GPU draws by CUDA graphs.
    pub(crate) graphs: bool,
    /// Whether a GPU learns and draws in bfloat16 by kernels of our own, where they exist.
    pub(crate) fused: bool,
    /// How many of the run's devices compute, the first ones: the others only judge. Without, all.
    pub(crate) gpus: Option<usize>,
    /// Threads on the host; 1 gives the same numbers again.
    pub(crate) threads: usize,
    pub(crate) sampler_rounding: Rounding,
    pub(crate) sampler_behind: usize,
}

/// A type of numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Compute {
    #[default]
    Float32,
    Bfloat16,
}

impl Compute {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Float32 => "float32",
            Self::Bfloat16 => "bfloat16",
        }
    }
}

/// What the sampler's matrices are rounded to, for experiments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Rounding {
    #[default]
    None,
    Bfloat16,
    Fp8,
}

impl Rounding {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Bfloat16 => "bfloat16",
            Self::Fp8 => "fp8",
        }
    }
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            compute: Compute::Float32,
            moments: Compute::Float32,
            pass_tokens: 32_768,
            recompute: false,
            slots: 256,
            graphs: true,
            fused: true,
            gpus: None,
            threads: 1,
            sampler_rounding: Rounding::None,
            sampler_behind: 0,
        }
    }
}

impl EngineConfig {
    /// For models that only speak: on GPUs by the type that those of the Qwen3 family are stored in and ours are
    /// trained by.
    pub(crate) fn drawing(on_gpus: bool) -> Self {
        let compute = if on_gpus { Compute::Bfloat16 } else { Compute::Float32 };
        Self { compute, ..Self::default() }
    }
}
