//! `[engine]`: how the engine computes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the engine computes. Only `dtype` and the `sampler_*` keys change results by more than rounding in float32.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EngineConfig {
    /// Type of matrix products; weights are float32.
    #[schemars(extend("x-verl" = ["actor_rollout_ref.actor.fsdp_config.dtype", "actor_rollout_ref.rollout.dtype"], "x-hf" = ["torch_dtype"]))]
    pub dtype: Dtype,
    /// Type of the optimizer's moments.
    pub optimizer_state_dtype: Dtype,
    /// Tokens per forward and backward pass; a longer sequence has a pass of its own. Fewer tokens need less memory.
    #[schemars(extend("x-verl" = ["actor_rollout_ref.actor.ppo_max_token_len_per_gpu", "critic.ppo_max_token_len_per_gpu", "actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu", "actor_rollout_ref.ref.log_prob_max_token_len_per_gpu", "critic.forward_max_token_len_per_gpu"]))]
    pub ppo_max_token_len: usize,
    /// Recomputes activations in the backward pass instead of keeping them.
    #[schemars(extend("x-verl" = ["actor_rollout_ref.model.enable_gradient_checkpointing", "critic.model.enable_gradient_checkpointing"]))]
    pub gradient_checkpointing: bool,
    /// Limit on the sequences that are sampled at the same time.
    #[schemars(extend("x-verl" = ["actor_rollout_ref.rollout.max_num_seqs"]))]
    pub max_num_seqs: usize,
    /// Samples with CUDA graphs on a GPU.
    pub cuda_graphs: bool,
    /// Uses this program's fused CUDA kernels on a GPU in bfloat16, where they exist.
    #[schemars(extend("x-verl" = ["actor_rollout_ref.model.use_fused_kernels", "actor_rollout_ref.actor.use_fused_kernels"]))]
    pub fused_kernels: bool,
    /// Number of the run's devices that train and sample, the first ones; the others only judge. Default: all.
    #[schemars(extend("x-verl" = ["trainer.n_gpus_per_node"]))]
    pub num_gpus: Option<usize>,
    /// Host threads. With 1, a run on the cpu device is reproducible bit by bit.
    pub num_threads: usize,
    /// Type that the sampler's matrices are rounded to, for experiments; `same` does not round.
    pub sampler_dtype: SamplerDtype,
    /// Updates by which the sampler's weights lag behind the trainer's, for experiments.
    pub sampler_lag: usize,
}

/// A floating-point type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Dtype {
    #[default]
    Float32,
    Bfloat16,
}

impl Dtype {
    pub fn name(self) -> &'static str {
        match self {
            Self::Float32 => "float32",
            Self::Bfloat16 => "bfloat16",
        }
    }
}

/// Type that the sampler's matrices are rounded to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SamplerDtype {
    #[default]
    Same,
    Bfloat16,
    Fp8,
}

impl SamplerDtype {
    pub fn name(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Bfloat16 => "bfloat16",
            Self::Fp8 => "fp8",
        }
    }
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            dtype: Dtype::Float32,
            optimizer_state_dtype: Dtype::Float32,
            ppo_max_token_len: 32_768,
            gradient_checkpointing: false,
            max_num_seqs: 256,
            cuda_graphs: true,
            fused_kernels: true,
            num_gpus: None,
            num_threads: 1,
            sampler_dtype: SamplerDtype::Same,
            sampler_lag: 0,
        }
    }
}

impl EngineConfig {
    /// For models that only sample. On GPUs they use the type that Qwen3 checkpoints are stored in and ours are trained
    /// in.
    pub fn for_sampling(on_gpus: bool) -> Self {
        let dtype = if on_gpus { Dtype::Bfloat16 } else { Dtype::Float32 };
        Self { dtype, ..Self::default() }
    }
}
