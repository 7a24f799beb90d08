//! How a model speaks, in a file beside its weights.

use std::path::Path;

use fs_err as fs;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use warpwright_learn::engine::Sampling;

/// How messages are drawn, and how much is read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Speech {
    /// Odds are taken to the power of one over this; 0 takes the likeliest token.
    pub temperature: f64,
    /// Only the likeliest tokens that together have this probability are drawn.
    pub top_p: f64,
    /// Most tokens of a message.
    pub most: u32,
    /// Most tokens of a tool's result that are read.
    pub result_tokens: usize,
}

impl Default for Speech {
    fn default() -> Self {
        Self { temperature: 1.0, top_p: 1.0, most: 1024, result_tokens: 64 }
    }
}

/// The file could not be read or written.
#[derive(Debug, Error)]
pub enum SpeechError {
    /// By the system.
    #[error("failed to use how the model speaks")]
    Io(#[from] std::io::Error),
    /// It says something else.
    #[error("failed to read how the model speaks in {path}: {reason}")]
    Form {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl Speech {
    /// Name of the file in a checkpoint's folder.
    pub const FILE: &str = "speech.json";

    /// As what an engine is asked for; messages end by their own mark, which [`crate::Native`] adds.
    pub fn sampling(&self) -> Sampling {
        Sampling {
            temperature: self.temperature,
            top_p: self.top_p,
            most: self.most,
            stop: Vec::new(),
        }
    }

    /// Reads a checkpoint's.
    pub fn load(folder: &Path) -> Result<Self, SpeechError> {
        let path = folder.join(Self::FILE);
        let text = fs::read(&path)?;
        serde_json::from_slice(&text).map_err(|error| SpeechError::Form {
            path: path.display().to_string(),
            reason: error.to_string(),
        })
    }

    /// Writes it into a checkpoint's folder.
    pub fn save(&self, folder: &Path) -> Result<(), SpeechError> {
        let path = folder.join(Self::FILE);
        let text = serde_json::to_vec_pretty(self).map_err(std::io::Error::from)?;
        Ok(fs::write(path, text)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_is_read_and_what_nobody_knows_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let speech = Speech { temperature: 0.7, most: 9, ..Speech::default() };
        speech.save(folder.path()).unwrap();
        assert_eq!(Speech::load(folder.path()).unwrap(), speech);
        fs::write(folder.path().join(Speech::FILE), "{\"loud\": true}").unwrap();
        let error = Speech::load(folder.path()).unwrap_err().to_string();
        assert!(error.contains("loud") && error.contains(Speech::FILE), "{error}");
    }
}
