//! Why a verdict cannot become a package.

use thiserror::Error;
use warpwright_plan::Invalid;
use warpwright_plan::image::ImageError;

/// Why a task cannot be exported.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum ExportError {
    #[error("its launch plan {what}, which a package cannot do yet")]
    Unsupported { what: &'static str },
    #[error(
        "its host code computes tables from the weights, so its launch plan is right for the judged weights only"
    )]
    TablesOfWeights,
    #[error("its kernels read tensors that are arguments of the constructor")]
    InitTensors,
    #[error(
        "its launch plan file does not say the forms of its inputs: an earlier program wrote it"
    )]
    NoForms,
    #[error("its launch plan file contradicts itself: {what}")]
    Contradiction { what: &'static str },
    #[error(
        "its workloads take or return different numbers of tensors, or were judged for different devices"
    )]
    MixedWorkloads,
    #[error("it has no workload that was judged")]
    NoWorkload,
    #[error(
        "`{name}` is no name for a Python package: use lower-case letters, digits and `_`, at most 64"
    )]
    Name { name: String },
    #[error("a package `{name}` would hide the Python module of that name")]
    Module { name: String },
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

impl ExportError {
    /// The cure.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Unsupported { .. } => {
                "judge a candidate that does this with kernels of its own, or with cuBLAS through `cublasGemmEx` and \
                 its relatives"
            }
            Self::TablesOfWeights => {
                "have the candidate repack weights with kernels in `prepare()`: those are part of the plan, and run \
                 on the user's weights"
            }
            Self::InitTensors => "make them parameters or buffers of the module",
            Self::NoForms | Self::Contradiction { .. } | Self::Image(_) | Self::Invalid(_) => {
                "judge the candidate again with this program"
            }
            Self::MixedWorkloads => {
                "export a verdict on one kind of device, for a task with one signature"
            }
            Self::NoWorkload => "judge the candidate again",
            Self::Name { .. } | Self::Module { .. } => "name another with `--name`",
        }
    }
}
