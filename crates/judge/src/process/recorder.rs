//! A recorder: the jailed process without a GPU in which a candidate's host code runs once and what it asks of
//! the device is written down. The judge believes nothing of it: `warpwright-plan` compares two recordings.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value as Json, json};
use warpwright_plan::{Content, Recording};

use crate::check::layout::place_all;
use crate::device::arena::{Arena, ArenaError, HostArena};
use crate::device::device_arbiter::DeviceArbiter;
use crate::error::JudgeError;
use crate::process::candidate::moves;
use crate::process::channel::{MAX_FRAME_BYTES, NoAnswer};
use crate::process::failure::{Stumble, Trouble};
use crate::process::host::{Grant, Host};
use crate::process::oracle::Oracle;
use crate::process::role::Role;
use crate::process::wire::{Place, State, Value, padded};
use crate::process::worker::Worker;

/// Room for what the candidate allocates while it is constructed and prepared, bytes. Untouched memory costs
/// nothing.
const ROOM: u64 = 8 << 30;
/// Host memory that a recorder may use beside its memory file, bytes.
const BESIDE: u64 = 4 << 30;

/// What a recorder is given.
pub(crate) struct Given<'a> {
    /// `model_new.py`.
    pub(crate) source: &'a str,
    /// Folder of the artifact.
    pub(crate) artifact: &'a Path,
    /// Rules of precision, and the mode of the task.
    pub(crate) settings: (&'static str, &'static str),
    /// Arguments of the constructor, and the weights, with their places in the memory file.
    pub(crate) weights: &'a GivenWeights,
    /// Shapes of the inputs, and the numbers among them.
    pub(crate) inputs: &'a Value,
    /// Kernels of the artifact, by library.
    pub(crate) kernels: &'a Json,
    /// What the device answers to questions.
    pub(crate) device: &'a Json,
    /// Whether `prepare()` ends with a call on zeros.
    pub(crate) warm_up: bool,
    /// Moves addresses.
    pub(crate) seed: u64,
}

/// Arguments of a task's constructor and one set of weights, on the host.
pub(crate) struct GivenWeights {
    /// Offsets in `memory`.
    pub(crate) init: Value,
    /// Offsets in `memory`.
    pub(crate) state: State,
    /// What is given.
    pub(crate) memory: HostArena,
    /// Lengths and hashes of the arguments' tensors.
    pub(crate) init_content: Vec<Content>,
    /// The same of the weights, with their names.
    pub(crate) weights_content: Vec<(String, Content)>,
}

/// What a recorder answered.
#[derive(Deserialize)]
struct Answer {
    recording: Recording,
    base: u64,
    prepare_ms: f64,
}

/// A recording, and the memory that the candidate's host code could write.
pub(crate) struct Recorded {
    pub(crate) recording: Recording,
    memory: Arena,
    /// Where the memory file begins, as addresses count.
    base: u64,
    /// Milliseconds of `prepare()` on the host: the candidate's word.
    pub(crate) prepare_ms: f64,
}

impl Recorded {
    /// Bytes of a block that lies in the memory file.
    pub(crate) fn contents(&self, block: u32) -> Option<Vec<u8>> {
        let block = self.recording.blocks.get(block as usize)?;
        let offset = block.address.checked_sub(self.base)?;
        let end = offset.checked_add(block.bytes)?;
        if end > self.memory.len() {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(block.bytes).ok()?];
        self.memory.read(offset, &mut bytes).ok()?;
        Some(bytes)
    }
}

/// Records a candidate in a process of its own.
pub(crate) fn record(
    host: &Host,
    given: &Given<'_>,
    patience: Duration,
    arbiter: &DeviceArbiter,
) -> Result<Recorded, Trouble> {
    let weights = given.weights;
    let bytes = weights.memory.len() + ROOM;
    let memory = HostArena::create(bytes)?;
    memory.copy_from(0, &weights.memory, 0, weights.memory.len())?;
    let memory = Arena::Host(memory);
    let grant = Grant {
        read: vec![given.artifact],
        memory_bytes: Some(2 * weights.memory.len() + BESIDE),
        ..Grant::default()
    };
    let mut worker = Worker::spawn(host, Role::Recorder, None, &grant)?.up(arbiter)?;
    let (profile, mode) = given.settings;
    let request = json!({
        "do": "record",
        "source": given.source,
        "artifact": given.artifact.to_string_lossy(),
        "profile": profile,
        "mode": mode,
        "init": weights.init,
        "names": weights.state.names,
        "tensors": weights.state.tensors,
        "inputs": given.inputs,
        "kernels": given.kernels,
        "device": given.device,
        "memory_bytes": bytes,
        "warm_up": given.warm_up,
        "seed": given.seed,
    });
    let answer = worker.ask_with_memory::<Answer>(&request, &memory, patience);
    let Answer { recording, base, prepare_ms } = answer.map_err(trouble)?;
    // Nothing may write its memory any more.
    drop(worker);
    Ok(Recorded { recording, memory, base, prepare_ms })
}

/// Whose failure it is that a recorder did not answer: a plan may be too large, which says nothing of its results.
fn trouble(answer: NoAnswer) -> Trouble {
    match answer {
        NoAnswer::TooLarge(bytes) => Trouble::Unplanned(format!(
            "the recording takes {} MiB, and at most {} MiB are read",
            bytes.div_ceil(1 << 20),
            MAX_FRAME_BYTES >> 20
        )),
        answer => Trouble::Candidate(Stumble { during: "recording", answer }),
    }
}

impl GivenWeights {
    /// Copies a task's arguments and weights from the oracle's memory.
    pub(crate) fn of(oracle: &mut Oracle, variant: &str) -> Result<Self, JudgeError> {
        let mut init = oracle.init()?;
        let sizes = &oracle.opened.sizes;
        let state_bytes: u64 = sizes.state.iter().map(|place| padded(place.bytes)).sum();
        let memory = HostArena::create((init.padded_bytes() + state_bytes).max(4096))?;
        let from = init.tensors.clone();
        let end = place_all(&mut init.tensors, 0);
        oracle.arena.copy_to_host(&memory, &moves(&from, &init.tensors))?;
        let mut state = oracle.state(variant)?;
        let from = state.tensors.clone();
        if place_all(&mut state.tensors, end) > memory.len() {
            let reason = "the oracle sent weights of another size than before";
            return Err(JudgeError::infrastructure("copy weights for a recorder", reason));
        }
        oracle.arena.copy_to_host(&memory, &moves(&from, &state.tensors))?;
        Ok(Self::seal(init, state, memory)?)
    }

    /// BLAKE3 of all that a recorder reads of them.
    pub(crate) fn hash(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        let mut add = |name: &str, content: &Content| {
            for part in [name.as_bytes(), &content.bytes.to_le_bytes(), content.hash.as_bytes()] {
                hasher.update(&(part.len() as u64).to_le_bytes());
                hasher.update(part);
            }
        };
        self.init_content.iter().for_each(|content| add("", content));
        self.weights_content.iter().for_each(|(name, content)| add(name, content));
        hasher.finalize().to_hex().to_string()
    }

    /// Arguments and weights that lie in a memory file.
    pub(crate) fn seal(init: Value, state: State, memory: HostArena) -> Result<Self, ArenaError> {
        let content = |place: &Place| content(&memory, place);
        let init_content = init.tensors.iter().map(content).collect::<Result<_, _>>()?;
        let named = state.names.iter().zip(&state.tensors);
        let weights_content = named
            .map(|(name, place)| Ok((name.clone(), content(place)?)))
            .collect::<Result<_, ArenaError>>()?;
        Ok(Self { init, state, memory, init_content, weights_content })
    }
}

/// Length and hash of a tensor in a memory file.
fn content(memory: &HostArena, place: &Place) -> Result<Content, ArenaError> {
    let (mut hasher, mut buffer) = (blake3::Hasher::new(), vec![0; 1 << 20]);
    let (mut at, end) = (place.offset.unwrap_or(0), place.offset.unwrap_or(0) + place.bytes);
    while at < end {
        let piece = (end - at).min(1 << 20) as usize;
        memory.read(at, &mut buffer[..piece])?;
        hasher.update(&buffer[..piece]);
        at += piece as u64;
    }
    Ok(Content { bytes: place.bytes, hash: hasher.finalize() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::python_test;

    #[test]
    fn recordings_too_large_are_no_crash() {
        let told = trouble(NoAnswer::TooLarge((16 << 20) + 1));
        let Trouble::Unplanned(why) = told else { panic!("{told:?}") };
        assert_eq!(why, "the recording takes 17 MiB, and at most 16 MiB are read");
        assert!(matches!(trouble(NoAnswer::Closed), Trouble::Candidate(_)));
    }

    #[test]
    fn candidates_are_recorded_or_refused_by_name() {
        // With the cases of `recorder.py`.
        assert_eq!(python_test("recorder_libraries.py"), "recorded 35 refused 28");
    }
}
