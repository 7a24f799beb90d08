//! The forms of the reference that candidates are timed against.

/// A form of the reference that the candidate is timed against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Baseline {
    /// PyTorch eager.
    Eager,
    /// `torch.compile`, default mode.
    Compile,
    /// `torch.compile(mode="reduce-overhead")`: CUDA graphs; GPU only.
    ReduceOverhead,
    /// `torch.compile(mode="max-autotune")`: minutes of compilation; GPU only.
    MaxAutotune,
}

impl Baseline {
    /// Name in records and on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Eager => "eager",
            Self::Compile => "compile",
            Self::ReduceOverhead => "reduce_overhead",
            Self::MaxAutotune => "max_autotune",
        }
    }

    /// Whether it can be compiled before there is memory: what tunes its kernels runs them.
    pub(crate) fn is_early(self) -> bool {
        matches!(self, Self::Compile | Self::ReduceOverhead)
    }

    /// Whether a task that fills the memory does without: it keeps buffers of its own.
    pub(crate) fn is_spare(self) -> bool {
        matches!(self, Self::ReduceOverhead | Self::MaxAutotune)
    }
}
