//! What goes wrong in an engine.

use std::path::PathBuf;

use thiserror::Error;
use warpwright_learn::engine::Refusal;

/// Why an engine could not do what was asked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The device's memory is too small for what was asked.
    #[error("failed to find memory on the device: {message}")]
    Memory {
        /// Torch's words, first line.
        message: String,
    },
    /// Torch refused.
    #[error("failed to compute: {message}")]
    Torch {
        /// Torch's words, first line.
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
        /// What is wrong with it.
        message: String,
    },
    /// A file could not be read or written.
    #[error("failed to {what}")]
    Io {
        /// What was attempted.
        what: &'static str,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The request is not valid for this model.
    #[error("failed to serve the request: {message}")]
    Request {
        /// Why.
        message: String,
    },
}

impl EngineError {
    /// What libtorch said, as the kind of failure that it is.
    pub(crate) fn of_torch(words: &str) -> Self {
        // What follows is a stack of C++ frames.
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

/// Does `work`, and takes what libtorch throws for an error: tch's shorter functions panic with it.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Result<T, EngineError>) -> Result<T, EngineError> {
    // Whatever a failed step leaves half done is given up by its caller.
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    done.unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().map(String::as_str);
        let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(EngineError::of_torch(torch_words(words.unwrap_or("a thread died without words"))))
    })
}

/// `called `Result::unwrap()` on an `Err` value: Torch("...")` says `...`.
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
    fn what_torch_throws_is_an_error_in_its_own_words() {
        let product = guarded(|| {
            let a = Tensor::zeros([2, 3], (Kind::Float, tch::Device::Cpu));
            Ok(a.matmul(&a))
        });
        let error = product.unwrap_err().to_string();
        assert!(error.starts_with("failed to compute: mat1 and mat2 shapes"), "{error}");
        assert!(!error.contains("frame"), "{error}");
        let huge = || Ok(Tensor::ones([1 << 46], (Kind::Float, tch::Device::Cpu)));
        assert!(matches!(guarded(huge), Err(EngineError::Memory { .. })));
    }
}
