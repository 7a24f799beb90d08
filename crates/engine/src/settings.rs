//! Settings of an engine.

use serde::{Deserialize, Serialize};
use tch::Kind;

use crate::deviation::Deviation;
use crate::weights::Lora;

/// The type of matrix products; weights are float32.
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

/// Settings of an engine. Only `lora` and `sampler` change the result of training, beyond rounding.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Index of the GPU; `None` computes on the host.
    pub gpu: Option<usize>,
    /// The type of matrix products.
    pub dtype: Dtype,
    /// The type of the optimizer state.
    pub optimizer_state_dtype: Dtype,
    /// Limit on the tokens of a micro-batch; a longer row is a micro-batch of its own.
    pub max_token_len: usize,
    /// Whether the backward pass recomputes the blocks' activations instead of keeping them.
    pub gradient_checkpointing: bool,
    /// Limit on the sequences sampled at once.
    pub max_num_seqs: usize,
    /// Limit on the tokens per sequence that are sampled before the host reads them. Tokens sampled
    /// after end-of-sequence are discarded; the output does not change. `None` is eight on a GPU
    /// and one on the host.
    pub unread: Option<u32>,
    /// Whether a GPU samples with CUDA graphs.
    pub cuda_graphs: bool,
    /// Whether a GPU in bfloat16 uses the fused kernels where they exist, instead of torch's.
    pub fused_kernels: bool,
    /// Number of compute threads of the process; `None` is libtorch's default. Small models are
    /// faster with one.
    pub num_threads: Option<usize>,
    /// LoRA adapters to train instead of the model, whose matrices are then kept in the compute
    /// type only.
    pub lora: Option<Lora>,
    /// Deviation of the sampler's weights from the trainer's, for experiments.
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
