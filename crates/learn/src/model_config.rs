//! The shape of a model: Hugging Face's `config.json` of the Qwen3 family.

use std::path::{Path, PathBuf};

use fs_err as fs;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use thiserror::Error;

/// A decoder of the Qwen3 family, with the names of Hugging Face's `config.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelConfig {
    /// Vocabulary size.
    pub vocab_size: i64,
    /// Width of the residual stream.
    pub hidden_size: i64,
    /// Width of the MLP.
    pub intermediate_size: i64,
    /// Number of transformer blocks.
    pub num_hidden_layers: i64,
    /// Number of query heads.
    pub num_attention_heads: i64,
    /// Number of key and value heads (grouped-query attention).
    pub num_key_value_heads: i64,
    /// Width of a head.
    pub head_dim: i64,
    /// Base of the rotary position embedding.
    pub rope_theta: f64,
    /// Added to the mean square in RMSNorm.
    pub rms_norm_eps: f64,
    /// Whether the input embedding and the output projection share one matrix.
    pub tie_word_embeddings: bool,
    /// Maximum sequence length.
    pub max_position_embeddings: i64,
}

/// What `model_type` and `architectures` say of the family.
const FAMILY: (&str, &str) = ("qwen3", "Qwen3ForCausalLM");

/// Keys that a [`ModelConfig`] reads.
const SIZES: [&str; 11] = [
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "rope_theta",
    "rms_norm_eps",
    "tie_word_embeddings",
    "max_position_embeddings",
];

/// Keys of a `config.json` that do not change what a decoder of the family computes.
const WITHOUT_EFFECT: [&str; 38] = [
    "_name_or_path",
    "_attn_implementation",
    "add_cross_attention",
    "architectures",
    "bos_token_id",
    "chunk_size_feed_forward",
    "cross_attention_hidden_size",
    "decoder_start_token_id",
    "dtype",
    "eos_token_id",
    "finetuning_task",
    "id2label",
    "initializer_range",
    "is_decoder",
    "label2id",
    "max_window_layers",
    "model_type",
    "output_attentions",
    "output_hidden_states",
    "pad_token_id",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "pruned_heads",
    "return_dict",
    "rope_parameters",
    "rope_scaling",
    "sep_token_id",
    "sliding_window",
    "task_specific_params",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "tokenizer_class",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "use_bfloat16",
    "use_cache",
];

/// Keys that are supported with one value only, and that value.
fn supported() -> [(&'static str, Json); 6] {
    [
        ("attention_bias", false.into()),
        ("attention_dropout", 0.0.into()),
        ("hidden_act", "silu".into()),
        ("is_encoder_decoder", false.into()),
        ("mlp_bias", false.into()),
        ("use_sliding_window", false.into()),
    ]
}

/// Why a model's `config.json` cannot be used.
#[derive(Debug, Error)]
pub enum ModelConfigError {
    /// The file could not be read or written.
    #[error("failed to {attempt} {}", path.display())]
    Io {
        /// What was attempted.
        attempt: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The engine does not support the model.
    #[error("failed to use {}: {reason}", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// The key at fault and what is supported.
        reason: String,
    },
}

impl ModelConfig {
    /// Reads `config.json`. An error names the key if the model is of another family, or has a part that is not
    /// computed here.
    pub fn read(path: &Path) -> Result<Self, ModelConfigError> {
        let text = fs::read_to_string(path).map_err(|source| {
            let path = path.to_owned();
            ModelConfigError::Io { attempt: "read the model's config", path, source }
        })?;
        let parsed = serde_json::from_str(&text).map_err(|error| error.to_string());
        parsed
            .and_then(Self::of_json)
            .map_err(|reason| ModelConfigError::Unsupported { path: path.to_owned(), reason })
    }

    /// Reads the content of a `config.json`; the error says which key is at fault.
    pub fn of_json(mut json: Json) -> Result<Self, String> {
        let family = json["model_type"].as_str().unwrap_or("none").to_owned();
        if family != FAMILY.0 {
            return Err(format!("model_type is {family}; only {} is supported", FAMILY.0));
        }
        Self::refuse_unsupported(&json)?;
        // Since version 5, transformers stores the base in `rope_parameters`.
        if json.get("rope_theta").is_none()
            && let Some(theta) = json["rope_parameters"].get("rope_theta").cloned()
        {
            json["rope_theta"] = theta;
        }
        let config: Self = serde_json::from_value(json).map_err(|error| error.to_string())?;
        config.check()?;
        Ok(config)
    }

    /// Its `config.json`, as transformers reads it.
    pub fn to_json(&self) -> Json {
        let mut json = serde_json::json!({
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_hidden_layers,
            "num_attention_heads": self.num_attention_heads,
            "num_key_value_heads": self.num_key_value_heads,
            "head_dim": self.head_dim,
            "rope_theta": self.rope_theta,
            "rms_norm_eps": self.rms_norm_eps,
            "tie_word_embeddings": self.tie_word_embeddings,
            "max_position_embeddings": self.max_position_embeddings,
        });
        json["model_type"] = FAMILY.0.into();
        json["architectures"] = vec![FAMILY.1].into();
        json["hidden_act"] = "silu".into();
        json["attention_bias"] = false.into();
        json["rope_parameters"] =
            serde_json::json!({"rope_type": "default", "rope_theta": self.rope_theta});
        json
    }

    /// Writes `config.json` so that transformers reads it.
    pub fn write(&self, path: &Path) -> Result<(), ModelConfigError> {
        let text = format!("{:#}\n", self.to_json());
        fs::write(path, text).map_err(|source| {
            let path = path.to_owned();
            ModelConfigError::Io { attempt: "write the model's config", path, source }
        })
    }

    /// Refuses every key that would change the computation.
    fn refuse_unsupported(json: &Json) -> Result<(), String> {
        let supported = supported();
        for (key, value) in &supported {
            let given = &json[*key];
            // 0 and 0.0 are one number.
            let is_same = given.is_null()
                || given == value
                || given.is_number() && given.as_f64() == value.as_f64();
            if !is_same {
                return Err(format!("{key} is {given}; only {value} is supported"));
            }
        }
        for key in ["rope_scaling", "rope_parameters"] {
            let kind = json[key].get("rope_type").or_else(|| json[key].get("type"));
            let kind = kind.and_then(Json::as_str).unwrap_or("default");
            if kind != "default" {
                return Err(format!("{key} has rope_type {kind}; only default is supported"));
            }
        }
        if let Some(layers) = json["layer_types"].as_array()
            && let Some(other) = layers.iter().find(|layer| **layer != "full_attention")
        {
            return Err(format!("layer_types has {other}; only \"full_attention\" is supported"));
        }
        let is_known = |key: &str| {
            SIZES.contains(&key)
                || key == "layer_types"
                || WITHOUT_EFFECT.contains(&key)
                || supported.iter().any(|(known, _)| *known == key)
        };
        let mut all = json.as_object().into_iter().flatten();
        match all.find(|(key, value)| !is_known(key) && !value.is_null()) {
            Some((key, value)) => Err(format!(
                "{key} is {value}; this key is not supported: remove it if it changes nothing"
            )),
            None => Ok(()),
        }
    }

    /// Whether the numbers fit each other; what is wrong with them otherwise.
    pub fn check(&self) -> Result<(), String> {
        let sizes = [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("intermediate_size", self.intermediate_size),
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", self.num_attention_heads),
            ("num_key_value_heads", self.num_key_value_heads),
            ("head_dim", self.head_dim),
            ("max_position_embeddings", self.max_position_embeddings),
        ];
        if let Some((name, size)) = sizes.iter().find(|(_, size)| *size < 1) {
            return Err(format!("{name} is {size} and must be at least 1"));
        }
        let (heads, groups) = (self.num_attention_heads, self.num_key_value_heads);
        if heads % groups != 0 {
            return Err(format!(
                "num_attention_heads is {heads} and must be a multiple of num_key_value_heads, which is {groups}"
            ));
        }
        if self.head_dim % 2 != 0 {
            return Err(format!("head_dim is {}, and must be even", self.head_dim));
        }
        Ok(())
    }

    /// Number of parameters, without value heads.
    pub fn parameters(&self) -> i64 {
        let (d, hd) = (self.hidden_size, self.head_dim);
        let attention = d * hd * 2 * (self.num_attention_heads + self.num_key_value_heads);
        let layer = attention + 3 * d * self.intermediate_size + 2 * d + 2 * hd;
        let words = if self.tie_word_embeddings { 1 } else { 2 };
        words * self.vocab_size * d + self.num_hidden_layers * layer + d
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiny() -> ModelConfig {
        ModelConfig {
            vocab_size: 61,
            hidden_size: 32,
            intermediate_size: 48,
            num_hidden_layers: 2,
            num_attention_heads: 4,
            num_key_value_heads: 2,
            head_dim: 16,
            rope_theta: 10_000.0,
            rms_norm_eps: 1e-6,
            tie_word_embeddings: false,
            max_position_embeddings: 128,
        }
    }

    #[test]
    fn a_written_config_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        tiny().write(&path).unwrap();
        assert_eq!(ModelConfig::read(&path).unwrap(), tiny());
    }

    /// Qwen/Qwen3-0.6B's file, as it is published.
    #[test]
    fn published_qwen3_config_is_read() {
        let json = serde_json::json!({
            "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
            "bos_token_id": 151_643, "eos_token_id": 151_645, "head_dim": 128, "hidden_act": "silu",
            "hidden_size": 1024, "initializer_range": 0.02, "intermediate_size": 3072,
            "max_position_embeddings": 40_960, "max_window_layers": 28, "model_type": "qwen3",
            "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8,
            "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1_000_000,
            "sliding_window": null, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
            "transformers_version": "4.51.0", "use_cache": true, "use_sliding_window": false,
            "vocab_size": 151_936
        });
        let config = ModelConfig::of_json(json).unwrap();
        assert_eq!((config.num_hidden_layers, config.head_dim), (28, 128));
        assert_eq!(config.parameters(), 596_049_920);
    }

    #[test]
    fn unsupported_keys_are_refused_by_name() {
        let refused = |key: &str, value: Json| {
            let mut json = tiny().to_json();
            json[key] = value;
            ModelConfig::of_json(json).unwrap_err()
        };
        assert!(refused("model_type", "llama".into()).contains("model_type is llama"));
        assert!(refused("attention_bias", true.into()).contains("attention_bias is true"));
        assert!(refused("attention_dropout", 0.1.into()).contains("attention_dropout is 0.1"));
        assert!(refused("hidden_act", "gelu".into()).contains("hidden_act is \"gelu\""));
        assert!(refused("use_sliding_window", true.into()).contains("use_sliding_window"));
        let yarn = serde_json::json!({"rope_type": "yarn", "factor": 4.0});
        assert!(refused("rope_parameters", yarn.clone()).contains("rope_type yarn"));
        assert!(refused("rope_scaling", yarn).contains("rope_scaling"));
        let layers = serde_json::json!(["full_attention", "sliding_attention"]);
        assert!(refused("layer_types", layers).contains("layer_types has \"sliding_attention\""));
        assert!(refused("num_experts", 8.into()).contains("num_experts is 8"));
        assert!(refused("quantization_config", serde_json::json!({})).contains("quantization"));
        assert!(refused("num_key_value_heads", 3.into()).contains("num_key_value_heads"));
        assert!(refused("head_dim", Json::Null).contains("invalid type"));
    }

    #[test]
    fn keys_without_effect_are_accepted() {
        let mut json = tiny().to_json();
        for key in WITHOUT_EFFECT
            .iter()
            .filter(|key| !["model_type", "rope_parameters", "rope_scaling"].contains(key))
        {
            json[*key] = "anything".into();
        }
        json["layer_types"] = serde_json::json!(["full_attention", "full_attention"]);
        assert_eq!(ModelConfig::of_json(json), Ok(tiny()));
    }

    #[test]
    fn parameters_are_counted() {
        // 2 * 61 * 32 + 2 * (32 * 16 * 2 * (4 + 2) + 3 * 32 * 48 + 64 + 32) + 32
        assert_eq!(tiny().parameters(), 3904 + 2 * (6144 + 4608 + 96) + 32);
    }
}
