//! Errors of an engine.

use std::path::PathBuf;

use thiserror::Error;
use warpwright_learn::engine::Refusal;

/// Why an engine failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The device is out of memory.
    #[error("the device is out of memory: {message}")]
    Memory {
        /// The first line of torch's message.
        message: String,
    },
    /// Torch failed.
    #[error("torch failed: {message}")]
    Torch {
        /// The first line of torch's message.
        message: String,
    },
    /// A model's `config.json` cannot be used.
    #[error(transparent)]
    Config(#[from] warpwright_learn::model_config::ModelConfigError),
    /// A checkpoint's files do not fit its `config.json`.
    #[error("failed to use {}: {message}", path.display())]
    Model {
        /// The file.
        path: PathBuf,
        /// The fault.
        message: String,
    },
    /// A file could not be read or written.
    #[error("failed to {what}")]
    Io {
        /// What was attempted.
        what: &'static str,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The request is not valid for this model.
    #[error("the engine refuses the request: {message}")]
    Request {
        /// The reason.
        message: String,
    },
}

impl EngineError {
    /// Classifies libtorch's message.
    pub(crate) fn of_torch(words: &str) -> Self {
        // A stack of C++ frames follows.
        let message = words.lines().next().unwrap_or_default().trim().to_owned();
        if words.contains("out of memory") || words.contains("can't allocate memory") {
            Self::Memory { message }
        } else {
            Self::Torch { message }
        }
    }

    pub(crate) fn request(message: impl Into<String>) -> Self {
        Self::Request { message: message.into() }
    }
}

impl From<Refusal> for EngineError {
    fn from(Refusal { is_memory, message }: Refusal) -> Self {
        if is_memory { Self::Memory { message } } else { Self::Request { message } }
    }
}

impl From<tch::TchError> for EngineError {
    fn from(error: tch::TchError) -> Self {
        Self::of_torch(&error.to_string())
    }
}

/// Runs `work` and converts exceptions of libtorch into errors: tch's shorter functions panic with
/// them.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Result<T, EngineError>) -> Result<T, EngineError> {
    // The caller discards the half-done state of a failed step.
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    done.unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().map(String::as_str);
        let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(EngineError::of_torch(torch_words(words.unwrap_or("a thread died without a message"))))
    })
}

/// Extracts `...` from `called `Result::unwrap()` on an `Err` value: Torch("...")`.
fn torch_words(words: &str) -> &str {
    let start = words.find("Torch(\"").map_or(0, |at| at + "Torch(\"".len());
    let words = &words[start..];
    words.split("\\n").next().unwrap_or(words).trim_end_matches("\")")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Kind, Tensor};

    #[test]
    fn torch_exception_becomes_an_error() {
        let product = guarded(|| {
            let a = Tensor::zeros([2, 3], (Kind::Float, tch::Device::Cpu));
            Ok(a.matmul(&a))
        });
        let error = product.unwrap_err().to_string();
        assert!(error.starts_with("torch failed: mat1 and mat2 shapes"), "{error}");
        assert!(!error.contains("frame"), "{error}");
        let huge = || Ok(Tensor::ones([1 << 46], (Kind::Float, tch::Device::Cpu)));
        assert!(matches!(guarded(huge), Err(EngineError::Memory { .. })));
    }
}
