//! Why two recordings do not make a plan. The text goes to whoever wrote the candidate.

use std::fmt;

use crate::image::ImageError;
use crate::recording::Phase;
use crate::validate::Invalid;

/// How recorders report a stream that the current one does not wait for.
const NOT_JOINED: &str = "a stream is not joined before the call ends";

/// Why two recordings do not make a plan. Each message is one plain sentence or two, and says what in the
/// candidate to change where one can.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum NotRecordable {
    /// The recorder's own word, which is a stranger's.
    #[error("{0}")]
    Refused(String),
    /// Not the candidate's fault, unless it tampered with the recorder.
    #[error("the recording is not valid: {what}")]
    Recorder { what: String },
    #[error("forward() needs {found} {what}; at most {most} can be recorded")]
    TooMuch { what: &'static str, found: u64, most: u64 },
    #[error(
        "kernel {kernel} takes {bytes} bytes of local memory per thread, and at most {most} can be recorded; \
         keep large arrays in shared or global memory"
    )]
    LocalMemory { kernel: String, bytes: u32, most: u32 },
    #[error(
        "{what} differs between two recordings of the same calls; it must not depend on addresses, time, \
         random numbers or values of tensors"
    )]
    Differs { what: String },
    #[error(
        "byte {byte} of parameter {parameter} of kernel {kernel} ({place}) is neither a constant nor a \
         pointer to memory of the candidate; pass pointers as they are, in structures that have no padding"
    )]
    Argument { kernel: String, parameter: usize, byte: usize, place: Place },
    #[error(
        "parameter {parameter} of kernel {kernel} ({place}) holds a pointer at byte {byte}, which is not a \
         multiple of 8; align the structure's fields"
    )]
    UnalignedPointer { kernel: String, parameter: usize, byte: usize, place: Place },
    #[error(
        "byte {byte} of what the host copies to the device ({place}) is neither a constant nor a pointer to \
         memory of the candidate"
    )]
    Uploaded { byte: usize, place: Place },
    #[error(
        "a tensor map lies where it cannot be found ({place}); pass each as a `__grid_constant__` argument \
         of its own, or 64-byte aligned in a structure"
    )]
    StrayTensorMap { place: Place },
    #[error("{place} uses memory that is no allocation of the candidate or no input of its call")]
    ForeignMemory { place: Place },
    #[error("{place} uses memory before it is allocated or after it is freed")]
    Lifetime { place: Place },
    #[error(
        "{place} uses an input of an earlier call; read only the inputs that forward() is called with"
    )]
    EarlierInput { place: Place },
    #[error("the candidate launches work while it is constructed; do that in prepare()")]
    LaunchesInConstructor,
    #[error(
        "the second call does not launch what the first does{detail}; forward() must do the same each time"
    )]
    SecondCallDiffers { detail: String },
    #[error(
        "a tensor of {bytes} bytes that __init__ or prepare() left behind differs between two recordings; it \
         must not depend on addresses, time or random numbers"
    )]
    Contents { bytes: u64 },
    #[error(
        "result {output} lies in memory that the call did not make; return a tensor of its own"
    )]
    ForeignOutput { output: usize },
    #[error("result {output} is an empty tensor, which a plan cannot hold")]
    EmptyOutput { output: usize },
    #[error(
        "a stream is not joined before the call ends ({place}); let the current stream wait for an event of \
         it"
    )]
    NotJoined { place: Place },
    #[error(
        "operation {node} of a call is not the copy of what forward() returns, or comes after its gradients were \
         used; outputs are final when forward() returns"
    )]
    LateOutput { node: usize },
    #[error("forward() launches nothing and copies nothing on the device")]
    LaunchesNothing,
    #[error("{library}: {source}")]
    Image { library: String, source: ImageError },
    /// What a replayer would refuse.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

impl NotRecordable {
    pub(super) fn recorder(what: impl Into<String>) -> Self {
        Self::Recorder { what: what.into() }
    }

    pub(super) fn differs(what: impl Into<String>) -> Self {
        Self::Differs { what: what.into() }
    }

    /// Whether what it reports is wrong in any tier: results that may come after the call has ended, or its half.
    pub fn is_race(&self) -> bool {
        match self {
            Self::NotJoined { place } => matches!(place.phase, Phase::First | Phase::Second),
            Self::Refused(reason) => reason.starts_with(NOT_JOINED),
            Self::LateOutput { .. } => true,
            _ => false,
        }
    }

    /// Refuses more than `most`.
    pub(super) fn beyond(what: &'static str, found: u64, most: u64) -> Result<(), Self> {
        if found > most { Err(Self::TooMuch { what, found, most }) } else { Ok(()) }
    }
}

/// An operation of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// When it was asked for.
    pub phase: Phase,
    /// Its number in that phase, from 0.
    pub index: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = match self.phase {
            Phase::Init => "__init__",
            Phase::Prepare => "prepare()",
            Phase::Inputs => "making the inputs",
            Phase::First => "the first call",
            Phase::Second => "the second call",
        };
        write!(out, "operation {} of {phase}", self.index)
    }
}

/// A stranger's text, shortened and without control characters.
pub(super) fn plain(text: &str) -> String {
    const MOST: usize = 300;
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    let mut short: String = text.chars().take(MOST).map(clean).collect();
    if text.chars().nth(MOST).is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unjoined_streams_are_a_race() {
        let refused = |text: &str| NotRecordable::Refused(text.to_owned());
        assert!(refused("a stream is not joined before the call ends").is_race());
        assert!(!refused("a stream is still being captured when the call ends").is_race());
        assert!(!NotRecordable::LaunchesNothing.is_race());
    }
}
