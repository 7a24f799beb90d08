//! How a model's messages are sampled: the file `sampling.json` beside its weights.

use std::path::Path;

use fs_err as fs;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use warpwright_learn::engine::Sampling;

/// How messages are sampled, and how much of a tool's result is read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SamplingConfig {
    /// Sampling temperature; 0 takes the most likely token.
    #[schemars(extend("x-verl" = ["actor_rollout_ref.rollout.temperature"], "x-hf" = ["temperature"]))]
    pub temperature: f64,
    /// Nucleus sampling: samples from the most likely tokens that together have this probability.
    #[schemars(extend("x-verl" = ["actor_rollout_ref.rollout.top_p"], "x-hf" = ["top_p"]))]
    pub top_p: f64,
    /// Limit on the tokens of a message.
    #[schemars(extend("x-verl" = ["actor_rollout_ref.rollout.response_length", "data.max_response_length"], "x-hf" = ["max_new_tokens", "max_completion_length", "response_length"]))]
    pub max_new_tokens: u32,
    /// Limit on the tokens of a tool's result; the rest is cut off.
    #[schemars(extend("x-verl" = ["actor_rollout_ref.rollout.multi_turn.max_tool_response_length"]))]
    pub max_tool_result_tokens: usize,
}

impl Default for SamplingConfig {
    fn default() -> Self {
        Self { temperature: 1.0, top_p: 1.0, max_new_tokens: 1024, max_tool_result_tokens: 64 }
    }
}

/// Why `sampling.json` cannot be used.
#[derive(Debug, Error)]
pub enum SamplingConfigError {
    /// It could not be read or written.
    #[error("failed to read or write {}", SamplingConfig::FILE)]
    Io(#[from] std::io::Error),
    /// Its content is not valid.
    #[error("failed to read {path}: {reason}")]
    Invalid {
        /// The file.
        path: String,
        /// The fault.
        reason: String,
    },
    /// The checkpoint was written by a development version before 0.1.
    #[error(
        "failed to read the checkpoint {folder}: it has speech.json, from a development version before 0.1; \
         write {} with temperature, top_p, max_new_tokens (was `most`) and max_tool_result_tokens (was \
         `result_tokens`), then remove speech.json",
        SamplingConfig::FILE
    )]
    Old {
        /// The checkpoint.
        folder: String,
    },
}

impl SamplingConfig {
    /// Name of the file in a checkpoint's folder.
    pub const FILE: &str = "sampling.json";

    /// The file's name in development versions before 0.1.
    const OLD_FILE: &str = "speech.json";

    /// The engine's sampling parameters; [`crate::Native`] adds the stop tokens.
    pub fn sampling(&self) -> Sampling {
        Sampling {
            temperature: self.temperature,
            top_p: self.top_p,
            max_new_tokens: self.max_new_tokens,
            stop: Vec::new(),
        }
    }

    /// Reads a checkpoint's file; `None` if it has none.
    pub fn load(folder: &Path) -> Result<Option<Self>, SamplingConfigError> {
        let path = folder.join(Self::FILE);
        if !path.is_file() {
            if folder.join(Self::OLD_FILE).is_file() {
                let folder = folder.display().to_string();
                return Err(SamplingConfigError::Old { folder });
            }
            return Ok(None);
        }
        let text = fs::read(&path)?;
        let read = serde_json::from_slice(&text).map_err(|error| SamplingConfigError::Invalid {
            path: path.display().to_string(),
            reason: error.to_string(),
        })?;
        Ok(Some(read))
    }

    /// Writes the file into a checkpoint's folder.
    pub fn save(&self, folder: &Path) -> Result<(), SamplingConfigError> {
        let path = folder.join(Self::FILE);
        let text = serde_json::to_vec_pretty(self).map_err(std::io::Error::from)?;
        Ok(fs::write(path, text)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_file_is_read_unknown_keys_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(SamplingConfig::load(folder.path()).unwrap(), None);
        let config =
            SamplingConfig { temperature: 0.7, max_new_tokens: 9, ..SamplingConfig::default() };
        config.save(folder.path()).unwrap();
        assert_eq!(SamplingConfig::load(folder.path()).unwrap(), Some(config));
        fs::write(folder.path().join(SamplingConfig::FILE), "{\"loud\": true}").unwrap();
        let error = SamplingConfig::load(folder.path()).unwrap_err().to_string();
        assert!(error.contains("loud") && error.contains(SamplingConfig::FILE), "{error}");
    }

    #[test]
    fn older_checkpoint_is_refused_with_the_cure() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("speech.json"), "{\"most\": 3}").unwrap();
        let error = SamplingConfig::load(folder.path()).unwrap_err().to_string();
        assert!(error.contains("max_new_tokens (was `most`)"), "{error}");
    }
}
