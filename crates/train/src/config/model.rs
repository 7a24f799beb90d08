//! Keys of the model: `[model]`, one from scratch, and `[pretrained]`, an existing one.

use std::path::{Path, PathBuf};

use fs_err as fs;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use warpwright_learn::model_config::ModelConfig;
use warpwright_native::Pretokenizer;
use warpwright_rollout::engine::Adapters;
use warpwright_rollout::error::chain;

use crate::error::TrainError;

/// A decoder of the Qwen3 family from scratch, and its tokenizer. Sizes have the names of Hugging Face's
/// `config.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// A Hugging Face `config.json` that gives all sizes, relative to the configuration's folder. A key in it that
    /// would change the computation and is not supported is an error.
    #[schemars(extend("x-verl" = ["actor_rollout_ref.model.hf_config_path"]))]
    pub config: Option<PathBuf>,
    /// Where the byte-level BPE tokenizer splits a text before it merges: `words`, or `lines`, whose tokens may be whole
    /// lines.
    #[serde(default)]
    pub pretokenizer: Pretokenizer,
    /// Size of the vocabulary; smaller if the texts have fewer tokens.
    #[schemars(extend("x-hf" = ["vocab_size"]))]
    pub vocab_size: Option<i64>,
    /// Width of the residual stream.
    #[schemars(extend("x-hf" = ["hidden_size"]))]
    pub hidden_size: Option<i64>,
    /// Width of the MLP.
    #[schemars(extend("x-hf" = ["intermediate_size"]))]
    pub intermediate_size: Option<i64>,
    /// Number of decoder layers.
    #[schemars(extend("x-hf" = ["num_hidden_layers"]))]
    pub num_hidden_layers: Option<i64>,
    /// Number of query heads.
    #[schemars(extend("x-hf" = ["num_attention_heads"]))]
    pub num_attention_heads: Option<i64>,
    /// Number of key and value heads (grouped-query attention). Default: `num_attention_heads`.
    #[schemars(extend("x-hf" = ["num_key_value_heads"]))]
    pub num_key_value_heads: Option<i64>,
    /// Width of a head. Default: `hidden_size / num_attention_heads`.
    #[schemars(extend("x-hf" = ["head_dim"]))]
    pub head_dim: Option<i64>,
    /// Longest episode, tokens.
    #[schemars(extend("x-hf" = ["max_position_embeddings"]))]
    pub max_position_embeddings: Option<i64>,
    /// Base of the rotary position embedding. Default: 10000.
    #[schemars(extend("x-hf" = ["rope_theta"]))]
    pub rope_theta: Option<f64>,
    /// Added to the mean square in RMSNorm. Default: 1e-6.
    #[schemars(extend("x-hf" = ["rms_norm_eps"]))]
    pub rms_norm_eps: Option<f64>,
    /// The embedding matrix is also the output matrix. Default: true.
    #[schemars(extend("x-hf" = ["tie_word_embeddings"]))]
    pub tie_word_embeddings: Option<bool>,
}

impl Model {
    /// The model's config; `folder` is the configuration's.
    pub fn shape(&self, folder: &Path) -> Result<ModelConfig, String> {
        match &self.config {
            None => self.shape_of_keys(),
            Some(path) => {
                if let Some(key) = self.given_sizes().first() {
                    return Err(format!(
                        "model.config gives all sizes: remove model.{key} or model.config"
                    ));
                }
                ModelConfig::read(&folder.join(path)).map_err(|error| chain(&error))
            }
        }
    }

    /// Names of the sizes that are set here.
    fn given_sizes(&self) -> Vec<&'static str> {
        let sizes = [
            ("vocab_size", self.vocab_size.is_some()),
            ("hidden_size", self.hidden_size.is_some()),
            ("intermediate_size", self.intermediate_size.is_some()),
            ("num_hidden_layers", self.num_hidden_layers.is_some()),
            ("num_attention_heads", self.num_attention_heads.is_some()),
            ("num_key_value_heads", self.num_key_value_heads.is_some()),
            ("head_dim", self.head_dim.is_some()),
            ("max_position_embeddings", self.max_position_embeddings.is_some()),
            ("rope_theta", self.rope_theta.is_some()),
            ("rms_norm_eps", self.rms_norm_eps.is_some()),
            ("tie_word_embeddings", self.tie_word_embeddings.is_some()),
        ];
        sizes.iter().filter(|(_, is_given)| *is_given).map(|(name, _)| *name).collect()
    }

    fn shape_of_keys(&self) -> Result<ModelConfig, String> {
        let needed = |name: &str, value: Option<i64>| {
            value.ok_or_else(|| {
                format!("model.{name} is missing: give it, or a Hugging Face file as model.config")
            })
        };
        let hidden_size = needed("hidden_size", self.hidden_size)?;
        let heads = needed("num_attention_heads", self.num_attention_heads)?;
        let head_dim = match self.head_dim {
            Some(width) => width,
            None if heads > 0 && hidden_size % heads == 0 => hidden_size / heads,
            None => {
                return Err(format!(
                    "model.hidden_size is {hidden_size} and must be a multiple of num_attention_heads, \
                     which is {heads}; or give model.head_dim"
                ));
            }
        };
        let shape = ModelConfig {
            vocab_size: needed("vocab_size", self.vocab_size)?,
            hidden_size,
            intermediate_size: needed("intermediate_size", self.intermediate_size)?,
            num_hidden_layers: needed("num_hidden_layers", self.num_hidden_layers)?,
            num_attention_heads: heads,
            num_key_value_heads: self.num_key_value_heads.unwrap_or(heads),
            head_dim,
            rope_theta: self.rope_theta.unwrap_or(10_000.0),
            rms_norm_eps: self.rms_norm_eps.unwrap_or(1e-6),
            tie_word_embeddings: self.tie_word_embeddings.unwrap_or(true),
            max_position_embeddings: needed(
                "max_position_embeddings",
                self.max_position_embeddings,
            )?,
        };
        shape.check().map_err(|reason| format!("model: {reason}"))?;
        Ok(shape)
    }
}

/// An existing model of the Qwen3 family.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pretrained {
    /// A Hugging Face folder with `config.json`, `tokenizer.json` and safetensors, or a checkpoint of another run without
    /// `lora_rank`; relative to the configuration's folder.
    #[schemars(extend("x-verl" = ["actor_rollout_ref.model.path", "critic.model.path"], "x-hf" = ["model_name_or_path"]))]
    pub path: PathBuf,
    /// Longest episode, tokens; at most the model's `max_position_embeddings`, which is the default.
    #[schemars(extend("x-verl" = ["actor_rollout_ref.rollout.max_model_len"], "x-hf" = ["max_model_len"]))]
    pub max_model_len: Option<usize>,
    /// Trains LoRA adapters of this rank instead of the model.
    #[schemars(extend("x-verl" = ["actor_rollout_ref.model.lora_rank", "critic.model.lora_rank"], "x-hf" = ["lora_r"]))]
    pub lora_rank: Option<u32>,
    /// Scale of the adapters: their output is multiplied by `lora_alpha / lora_rank`. Default: twice `lora_rank`.
    #[schemars(extend("x-verl" = ["actor_rollout_ref.model.lora_alpha", "critic.model.lora_alpha"], "x-hf" = ["lora_alpha"]))]
    pub lora_alpha: Option<f64>,
}

/// The model that a run starts from, found and checked.
#[derive(Clone, Debug, PartialEq)]
pub enum InitialModel {
    /// A model from scratch.
    Scratch {
        /// Its sizes; its tokenizer may have a smaller vocabulary.
        shape: ModelConfig,
        /// How its tokenizer splits texts.
        pretokenizer: Pretokenizer,
    },
    /// An existing model.
    Pretrained {
        /// Its folder, absolute.
        path: PathBuf,
    },
}

impl Pretrained {
    /// The adapters to train instead of the model.
    pub fn adapters(&self) -> Option<Adapters> {
        self.lora_rank.map(|rank| {
            let scale = self.lora_alpha.map_or(2.0, |alpha| alpha / f64::from(rank));
            Adapters { rank, scale }
        })
    }

    /// The model's folder, absolute. Checks its `config.json` and that it supports `max_model_len`.
    pub fn find(&self, folder: &Path) -> Result<PathBuf, TrainError> {
        // Without `..`: the engine's jail mounts it at its own path.
        let path = fs::canonicalize(folder.join(&self.path)).map_err(|error| {
            let hint = "pretrained.path must be a Hugging Face model folder, or a checkpoint without \
                        `lora_rank` that another training makes first";
            TrainError::usage(format!("failed to find the model: {error}"), hint.to_owned())
        })?;
        let failed = |reason: &str, hint: &str| {
            let message = format!("failed to load the model in {}: {reason}", path.display());
            TrainError::usage(message, hint.to_owned())
        };
        let shape = ModelConfig::read(&path.join("config.json")).map_err(|error| {
            let hint = "pretrained.path must be a Hugging Face model folder of the Qwen3 family, or a checkpoint of \
                        another run without `lora_rank`";
            failed(&chain(&error), hint)
        })?;
        let supported = shape.max_position_embeddings as usize;
        match self.max_model_len.filter(|wanted| *wanted > supported) {
            None => Ok(path),
            Some(wanted) => {
                let reason = format!(
                    "pretrained.max_model_len is {wanted}, and max_position_embeddings of the model is {supported}"
                );
                Err(failed(&reason, "lower pretrained.max_model_len, or remove it"))
            }
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        if self.max_model_len == Some(0) {
            return Err("pretrained.max_model_len must be at least 1".to_owned());
        }
        if self.lora_rank == Some(0) {
            return Err("pretrained.lora_rank must be at least 1".to_owned());
        }
        if self.lora_alpha.is_some() && self.lora_rank.is_none() {
            return Err("pretrained.lora_alpha needs pretrained.lora_rank".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape() -> ModelConfig {
        ModelConfig {
            vocab_size: 61,
            hidden_size: 32,
            intermediate_size: 48,
            num_hidden_layers: 2,
            num_attention_heads: 4,
            num_key_value_heads: 2,
            head_dim: 8,
            rope_theta: 10_000.0,
            rms_norm_eps: 1e-6,
            tie_word_embeddings: false,
            max_position_embeddings: 128,
        }
    }

    fn pretrained(max_model_len: Option<usize>) -> Pretrained {
        Pretrained { path: "model".into(), max_model_len, lora_rank: None, lora_alpha: None }
    }

    #[test]
    fn context_above_the_model_is_refused_with_both_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("model");
        fs::create_dir(&model).unwrap();
        shape().write(&model.join("config.json")).unwrap();
        let found = fs::canonicalize(&model).unwrap();
        assert_eq!(pretrained(None).find(folder.path()).unwrap(), found);
        assert_eq!(pretrained(Some(128)).find(folder.path()).unwrap(), found);
        let message = pretrained(Some(129)).find(folder.path()).unwrap_err().to_string();
        assert!(message.contains("max_model_len is 129"), "{message}");
        assert!(message.contains("of the model is 128"), "{message}");
    }

    #[test]
    fn unsupported_pretrained_model_names_the_key() {
        let folder = tempfile::tempdir().unwrap();
        let refused = || pretrained(None).find(folder.path()).unwrap_err().to_string();
        assert!(refused().contains("failed to find the model"), "{}", refused());
        let model = folder.path().join("model");
        fs::create_dir(&model).unwrap();
        assert!(refused().contains("config.json"), "{}", refused());
        fs::write(model.join("config.json"), "{\"model_type\": \"llama\"}").unwrap();
        assert!(refused().contains("model_type is llama; only qwen3"), "{}", refused());
    }
}
