//! Why a request failed.

use std::ffi::c_int;

/// Why a request failed. The variant decides the kind of the answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    /// The judge asked for what cannot be.
    #[error("{0}")]
    Request(String),
    /// The artifact's files are not what the plan says.
    #[error("{0}")]
    Artifact(String),
    /// The plan contradicts itself or its images.
    #[error("{0}")]
    Plan(String),
    /// The operating system refused.
    #[error("{0}")]
    System(String),
    /// The CUDA driver returned an error.
    #[error("{action}: CUDA error {code} ({name})")]
    Cuda {
        /// What was attempted, on what.
        action: String,
        code: c_int,
        /// E.g. `CUDA_ERROR_ILLEGAL_ADDRESS`.
        name: String,
    },
    /// A kernel of the cpu device failed, or did what none may.
    #[error("{0}")]
    Kernel(String),
    /// There is no usable CUDA driver.
    #[error("failed to load the CUDA driver (libcuda.so.1): {0}")]
    NoDriver(String),
    /// cuBLAS returned an error.
    #[error("{action}: cuBLAS status {code}")]
    Cublas { action: String, code: c_int },
    /// There is no usable cuBLAS.
    #[error("failed to load cuBLAS: {0}")]
    NoCublas(String),
    /// cuDNN returned an error.
    #[error("{action}: cuDNN status {code}")]
    Cudnn { action: String, code: c_int },
    /// There is no usable cuDNN.
    #[error("failed to load cuDNN: {0}")]
    NoCudnn(String),
}

impl Failure {
    /// As [`crate::wire::Complaint::kind`].
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Request(_) => "request",
            Self::Artifact(_) => "artifact",
            // Without cuDNN the plan cannot be replayed, whoever made it.
            Self::Plan(_) | Self::NoCudnn(_) => "plan",
            Self::System(_) => "system",
            Self::Cuda { .. } | Self::NoDriver(_) => "cuda",
            Self::Kernel(_) => "kernel",
            Self::Cublas { .. } | Self::NoCublas(_) => "cublas",
            Self::Cudnn { .. } => "cudnn",
        }
    }
}

/// Longest name of the candidate's in a message, in characters.
const MAX_NAME: usize = 120;

/// A name that a candidate chose, as it may appear in a message.
pub(crate) fn printable(name: &str) -> String {
    let mut text: String =
        name.chars().filter(|letter| !letter.is_control()).take(MAX_NAME).collect();
    if name.chars().count() > MAX_NAME {
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn driver_errors_name_action_and_code() {
        let failure = Failure::Cuda {
            action: format!("launch {}", printable("scale\n")),
            code: 700,
            name: "CUDA_ERROR_ILLEGAL_ADDRESS".to_owned(),
        };
        assert_eq!(
            failure.to_string(),
            "launch scale: CUDA error 700 (CUDA_ERROR_ILLEGAL_ADDRESS)"
        );
        assert_eq!(failure.kind(), "cuda");
        assert_eq!(printable(&"x".repeat(500)).len(), MAX_NAME + 3);
    }
}
