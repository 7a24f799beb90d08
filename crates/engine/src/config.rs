//! The shape of a model: Hugging Face's `config.json` of the Qwen3 family.

use std::path::Path;

use fs_err as fs;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::error::EngineError;

/// A decoder of the Qwen3 family, with the names of Hugging Face's `config.json`. Other keys of such a
/// file are kept by whoever wrote them and are not ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelConfig {
    /// Tokens that there are.
    pub vocab_size: i64,
    /// Width of the residual stream.
    pub hidden_size: i64,
    /// Width inside the MLP.
    pub intermediate_size: i64,
    /// Blocks.
    pub num_hidden_layers: i64,
    /// Heads of queries.
    pub num_attention_heads: i64,
    /// Heads of keys and values; queries share them in groups.
    pub num_key_value_heads: i64,
    /// Width of a head.
    pub head_dim: i64,
    /// Base of the angles of rotary positions.
    pub rope_theta: f64,
    /// Added to the mean square in RMSNorm.
    pub rms_norm_eps: f64,
    /// Whether the matrix that reads tokens is the one that writes them.
    pub tie_word_embeddings: bool,
    /// Longest sequence that it is meant for.
    pub max_position_embeddings: i64,
}

/// What `model_type` and `architectures` say of the family.
const FAMILY: (&str, &str) = ("qwen3", "Qwen3ForCausalLM");

impl ModelConfig {
    /// Reads `config.json`. One of another family, or with parts that are not computed here, is an error
    /// that says so.
    pub fn read(path: &Path) -> Result<Self, EngineError> {
        let broken = |message: String| EngineError::Model { path: path.to_owned(), message };
        let text = fs::read_to_string(path)
            .map_err(|source| EngineError::Io { what: "read a model's description", source })?;
        let mut json: Json = serde_json::from_str(&text).map_err(|e| broken(e.to_string()))?;
        let family = json["model_type"].as_str().unwrap_or("none").to_owned();
        if family != FAMILY.0 {
            let message = format!("model_type is {family}, and {} is what is computed", FAMILY.0);
            return Err(broken(message));
        }
        Self::refuse_extras(&json).map_err(broken)?;
        // Since its fifth version transformers keeps the angles' base in a group of its own.
        if json.get("rope_theta").is_none()
            && let Some(theta) = json["rope_parameters"].get("rope_theta").cloned()
        {
            json["rope_theta"] = theta;
        }
        let config: Self = serde_json::from_value(json).map_err(|e| broken(e.to_string()))?;
        config.check().map_err(broken)?;
        Ok(config)
    }

    /// Writes it so that transformers reads it.
    pub fn write(&self, path: &Path) -> Result<(), EngineError> {
        let broken = |e: serde_json::Error| EngineError::Model {
            path: path.to_owned(),
            message: e.to_string(),
        };
        let mut json = serde_json::to_value(self).map_err(broken)?;
        json["model_type"] = FAMILY.0.into();
        json["architectures"] = vec![FAMILY.1].into();
        json["hidden_act"] = "silu".into();
        json["attention_bias"] = false.into();
        json["rope_parameters"] =
            serde_json::json!({"rope_type": "default", "rope_theta": self.rope_theta});
        let text = serde_json::to_string_pretty(&json).map_err(broken)?;
        fs::write(path, text + "\n")
            .map_err(|source| EngineError::Io { what: "write a model's description", source })
    }

    /// Parts that some models of the family have and that would be left out here without a word.
    fn refuse_extras(json: &Json) -> Result<(), String> {
        let on = |key: &str| json[key].as_bool() == Some(true);
        if on("attention_bias") {
            return Err("attention_bias is not computed".to_owned());
        }
        if on("use_sliding_window") {
            return Err("use_sliding_window is not computed".to_owned());
        }
        let act = json["hidden_act"].as_str().unwrap_or("silu");
        if act != "silu" {
            return Err(format!("hidden_act is {act}, and silu is what is computed"));
        }
        for key in ["rope_scaling", "rope_parameters"] {
            let given = json[key].get("rope_type").or_else(|| json[key].get("type"));
            let given = given.and_then(Json::as_str).unwrap_or("default");
            if given != "default" {
                return Err(format!("rope_type {given} is not computed"));
            }
        }
        Ok(())
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
            return Err(format!("{name} is {size}"));
        }
        let (heads, groups) = (self.num_attention_heads, self.num_key_value_heads);
        if heads % groups != 0 {
            return Err(format!("{heads} heads cannot share {groups} groups evenly"));
        }
        if self.head_dim % 2 != 0 {
            return Err(format!("head_dim is {}, and rotary positions need pairs", self.head_dim));
        }
        Ok(())
    }

    /// Numbers in the weights, heads for values not counted.
    pub fn parameters(&self) -> i64 {
        let (d, hd) = (self.hidden_size, self.head_dim);
        let attention = d * hd * 2 * (self.num_attention_heads + self.num_key_value_heads);
        let layer = attention + 3 * d * self.intermediate_size + 2 * d + 2 * hd;
        let words = if self.tie_word_embeddings { 1 } else { 2 };
        words * self.vocab_size * d + self.num_hidden_layers * layer + d
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A tiny one, with groups of heads and a head width that is not the hidden size over the heads.
    pub(crate) fn tiny() -> ModelConfig {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        ModelConfig::read(&here.join("tests/tiny.json")).unwrap()
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        tiny().write(&path).unwrap();
        assert_eq!(ModelConfig::read(&path).unwrap(), tiny());
    }

    #[test]
    fn another_family_or_part_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        let refused = |key: &str, value: Json| {
            tiny().write(&path).unwrap();
            let mut json: Json = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
            json[key] = value;
            fs::write(&path, json.to_string()).unwrap();
            ModelConfig::read(&path).unwrap_err().to_string()
        };
        assert!(refused("model_type", "llama".into()).contains("model_type is llama"));
        assert!(refused("attention_bias", true.into()).contains("attention_bias"));
        assert!(refused("hidden_act", "gelu".into()).contains("hidden_act is gelu"));
        let yarn = serde_json::json!({"rope_type": "yarn", "factor": 4.0});
        assert!(refused("rope_parameters", yarn).contains("rope_type yarn"));
        assert!(refused("num_key_value_heads", 3.into()).contains("cannot share 3 groups"));
        assert!(refused("head_dim", Json::Null).contains("invalid type"));
    }

    #[test]
    fn parameters_are_counted() {
        // 2 * 61 * 32 + 2 * (32 * 16 * 2 * (4 + 2) + 3 * 32 * 48 + 64 + 32) + 32
        assert_eq!(tiny().parameters(), 3904 + 2 * (6144 + 4608 + 96) + 32);
    }
}
