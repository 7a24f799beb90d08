//! The shape of a model: Hugging Face's `config.json` of the Qwen3 family.

use std::path::{Path, PathBuf};

use fs_err as fs;
use serde_json::Value as Json;
use thiserror::Error;

use crate::quoted;

/// A decoder of the Qwen3 family, with the names of Hugging Face's `config.json`.
#[derive(Clone, Debug, PartialEq)]
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
        let parsed: Result<Json, String> =
            serde_json::from_str(&text).map_err(|error| error.to_string());
        parsed
            .and_then(|json| Self::of_json(&json))
            .map_err(|reason| ModelConfigError::Unsupported { path: path.to_owned(), reason })
    }

    /// Reads the content of a `config.json`; the error says which key is at fault. All values of a wrong type are
    /// listed.
    pub fn of_json(json: &Json) -> Result<Self, String> {
        let family = json["model_type"].as_str().unwrap_or("none");
        if family != FAMILY.0 {
            return Err(format!("model_type is {family}; only {} is supported", FAMILY.0));
        }
        Self::refuse_unsupported(json)?;
        // Since version 5, transformers stores the base in `rope_parameters`.
        let theta = json.get("rope_theta").or_else(|| json["rope_parameters"].get("rope_theta"));
        let mut values = Values { json, faults: Vec::new() };
        let config = Self {
            vocab_size: values.size("vocab_size"),
            hidden_size: values.size("hidden_size"),
            intermediate_size: values.size("intermediate_size"),
            num_hidden_layers: values.size("num_hidden_layers"),
            num_attention_heads: values.size("num_attention_heads"),
            num_key_value_heads: values.size("num_key_value_heads"),
            head_dim: values.size("head_dim"),
            rope_theta: values.number("rope_theta", theta),
            rms_norm_eps: values.number("rms_norm_eps", json.get("rms_norm_eps")),
            tie_word_embeddings: values.boolean("tie_word_embeddings"),
            max_position_embeddings: values.size("max_position_embeddings"),
        };
        if !values.faults.is_empty() {
            return Err(values.faults.join("; "));
        }
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

/// Reads the values of a `config.json`, and notes those of a wrong type.
struct Values<'a> {
    json: &'a Json,
    faults: Vec<String>,
}

impl Values<'_> {
    fn size(&mut self, key: &str) -> i64 {
        let size = "a whole number of at least 1";
        let value = self.json.get(key);
        let expected = match value.and_then(Json::as_f64) {
            Some(number) if number >= i64::MAX as f64 => format!("at most {}", i64::MAX),
            Some(_) => format!("{size}, without a decimal point"),
            None => size.to_owned(),
        };
        self.read(key, value, Json::as_i64, &expected)
    }

    fn number(&mut self, key: &str, value: Option<&Json>) -> f64 {
        self.read(key, value, Json::as_f64, "a number")
    }

    fn boolean(&mut self, key: &str) -> bool {
        self.read(key, self.json.get(key), Json::as_bool, "`true` or `false`")
    }

    /// The value as a type; if it has another type, it is a fault.
    fn read<T: Default>(
        &mut self,
        key: &str,
        value: Option<&Json>,
        as_type: fn(&Json) -> Option<T>,
        expected: &str,
    ) -> T {
        value.and_then(as_type).unwrap_or_else(|| {
            let found = value.map_or("missing".to_owned(), found);
            self.faults.push(format!("`{key}` is {found}; it must be {expected}"));
            T::default()
        })
    }
}

/// A value in an error.
fn found(value: &Json) -> String {
    match value {
        Json::Null => "`null`".to_owned(),
        Json::Bool(value) => format!("`{value}`"),
        Json::Number(number) => number.to_string(),
        Json::String(text) => quoted::string(text),
        Json::Array(list) => quoted::list(list.len()),
        Json::Object(_) => "an object".to_owned(),
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
        let config = ModelConfig::of_json(&json).unwrap();
        assert_eq!((config.num_hidden_layers, config.head_dim), (28, 128));
        assert_eq!(config.parameters(), 596_049_920);
    }

    #[test]
    fn unsupported_keys_are_refused_by_name() {
        let refused = |key: &str, value: Json| {
            let mut json = tiny().to_json();
            json[key] = value;
            ModelConfig::of_json(&json).unwrap_err()
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
    }

    #[test]
    fn wrong_types_name_key_value_and_expectation() {
        let size = "it must be a whole number of at least 1";
        let cases: [(&str, Json, String); 10] = [
            ("num_hidden_layers", "28".into(), format!("the string \"28\"; {size}")),
            ("hidden_size", 28.5.into(), format!("28.5; {size}, without a decimal point")),
            ("vocab_size", vec![1, 2].into(), format!("a list of 2 values; {size}")),
            ("intermediate_size", true.into(), format!("`true`; {size}")),
            ("head_dim", Json::Null, format!("`null`; {size}")),
            (
                "num_key_value_heads",
                u64::MAX.into(),
                format!("{}; it must be at most {}", u64::MAX, i64::MAX),
            ),
            ("rope_theta", "1e6".into(), "the string \"1e6\"; it must be a number".to_owned()),
            ("rms_norm_eps", serde_json::json!({}), "an object; it must be a number".to_owned()),
            ("tie_word_embeddings", 1.into(), "1; it must be `true` or `false`".to_owned()),
            (
                "max_position_embeddings",
                "8".repeat(200).into(),
                format!("the string \"{}\"...; {size}", "8".repeat(60)),
            ),
        ];
        for (key, value, told) in cases {
            let mut json = tiny().to_json();
            json[key] = value;
            assert_eq!(ModelConfig::of_json(&json), Err(format!("`{key}` is {told}")));
        }
    }

    #[test]
    fn every_wrong_value_of_a_file_is_listed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        let mut json = tiny().to_json();
        json["num_hidden_layers"] = "28".into();
        json.as_object_mut().unwrap().remove("vocab_size");
        json["rope_parameters"]["rope_theta"] = true.into();
        json.as_object_mut().unwrap().remove("rope_theta");
        fs::write(&path, json.to_string()).unwrap();
        let told = "`vocab_size` is missing; it must be a whole number of at least 1; \
                    `num_hidden_layers` is the string \"28\"; it must be a whole number of at least 1; \
                    `rope_theta` is `true`; it must be a number";
        let error = ModelConfig::read(&path).unwrap_err().to_string();
        assert_eq!(error, format!("failed to use {}: {told}", path.display()));
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
        assert_eq!(ModelConfig::of_json(&json), Ok(tiny()));
    }

    #[test]
    fn parameters_are_counted() {
        // 2 * 61 * 32 + 2 * (32 * 16 * 2 * (4 + 2) + 3 * 32 * 48 + 64 + 32) + 32
        assert_eq!(tiny().parameters(), 3904 + 2 * (6144 + 4608 + 96) + 32);
    }
}
