//! How an engine computes.

use serde::{Deserialize, Serialize};
use tch::Kind;

use crate::deviation::Deviation;
use crate::weights::Lora;

/// The type that products are computed in; weights are float32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dtype {
    /// Single precision.
    #[default]
    Float32,
    /// 8 bits of precision, float32's range.
    Bfloat16,
}

impl Dtype {
    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::Float32 => Kind::Float,
            Self::Bfloat16 => Kind::BFloat16,
        }
    }
}

/// How an engine computes. Of this only `lora` and `sampler` change what is learned, beyond rounding.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Number of the GPU; without, the host computes.
    pub gpu: Option<usize>,
    /// The type of products.
    pub dtype: Dtype,
    /// The type of the optimiser's moments.
    pub optimizer_state_dtype: Dtype,
    /// Most tokens of one pass; longer rows pass alone.
    pub max_token_len: usize,
    /// Whether blocks are computed again on the way back instead of kept.
    pub gradient_checkpointing: bool,
    /// Most sequences that are drawn at once.
    pub max_num_seqs: usize,
    /// Tokens of a sequence that are drawn before the host reads them, at most; of one that is over before that, the
    /// others are thrown away. Without, eight on a GPU and one on the host.
    pub unread: Option<u32>,
    /// Whether a GPU draws by CUDA graphs.
    pub cuda_graphs: bool,
    /// Whether a GPU learns and draws in bfloat16 by kernels of our own where they exist, instead of torch's alone.
    pub fused_kernels: bool,
    /// Threads of this process that compute; without, as many as libtorch takes. Small models are quicker
    /// with one.
    pub num_threads: Option<usize>,
    /// Adapters that are trained instead of the model: then its matrices are kept in the type of products only.
    pub lora: Option<Lora>,
    /// How the sampler's weights differ from the trainer's, for experiments.
    pub sampler: Deviation,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            gpu: None,
            dtype: Dtype::Float32,
            optimizer_state_dtype: Dtype::Float32,
            max_token_len: 32_768,
            gradient_checkpointing: false,
            max_num_seqs: 256,
            unread: None,
            cuda_graphs: true,
            fused_kernels: true,
            num_threads: None,
            lora: None,
            sampler: Deviation::default(),
        }
    }
}
