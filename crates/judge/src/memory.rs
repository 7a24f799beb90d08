//! How much of the device's memory a session may use, and how its processes divide it.
//!
//! On a GPU one memory holds what the oracles and baselines of all open sessions allocate, each
//! session in a part of its own, and the arena of the one candidate that runs. On the cpu device
//! memory that is not touched costs nothing, and nothing is divided.

use crate::device::DeviceFacts;
use crate::error::JudgeError;
use crate::wire::{Sizes, padded};

/// A part of the device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Of the whole device.
    device: u64,
    bytes: u64,
    cuda: bool,
    all: bool,
}

/// Percent of a GPU's memory for the candidate that runs.
const RUNNER: u64 = 45;
/// Percent that are handed out in parts; contexts of many processes take the rest.
const HANDED_OUT: u64 = 43;
/// Percent of a part that each may take.
const ORACLE_ARENA: u64 = 30;
const ORACLE_TORCH: u64 = 35;
const BASELINE: u64 = 35;

/// Bytes that a library may take beside its operands, however small these are.
const BESIDE: u64 = 256 << 20;

impl Memory {
    /// All of it.
    pub(crate) fn all(facts: &DeviceFacts) -> Self {
        Self {
            device: facts.memory_bytes,
            bytes: facts.memory_bytes,
            cuda: facts.arch.is_some(),
            all: true,
        }
    }

    /// `units` of `of` equal parts.
    pub(crate) fn part(facts: &DeviceFacts, units: usize, of: usize) -> Self {
        let (units, of) = (units.max(1) as u64, of.max(1) as u64);
        let all = Self::all(facts);
        if units >= of || !all.cuda {
            return all;
        }
        Self { bytes: all.bytes / 100 * HANDED_OUT / of * units, all: false, ..all }
    }

    /// Bytes in all.
    pub(crate) fn bytes(self) -> u64 {
        self.bytes
    }

    /// Whether there is no more to be had.
    pub(crate) fn is_all(self) -> bool {
        self.all
    }

    /// Largest arena of a runner, bytes.
    pub(crate) fn runner(self) -> u64 {
        if self.cuda { self.device / 100 * RUNNER } else { (self.bytes / 4).min(6 << 30) }
    }

    /// The oracle's arena before anything is known of the task, bytes.
    pub(crate) fn oracle_arena(self) -> u64 {
        match (self.cuda, self.all) {
            (false, _) => self.bytes / 4,
            (true, false) => self.bytes / 100 * ORACLE_ARENA,
            (true, true) => self.bytes / 10,
        }
    }

    /// What torch may allocate in the oracle; no bound where the session has everything.
    pub(crate) fn oracle_torch(self) -> Option<u64> {
        (self.cuda && !self.all).then_some(self.bytes / 100 * ORACLE_TORCH)
    }

    /// What torch may allocate in the baseline.
    pub(crate) fn baseline_torch(self) -> Option<u64> {
        (self.cuda && !self.all).then_some(self.bytes / 100 * BASELINE)
    }

    /// What the staged inputs of the baselines may take, bytes; on the cpu device as much again what
    /// the results of a window take.
    pub(crate) fn staged(self) -> u64 {
        if self.all { self.bytes / 10 } else { self.bytes / 100 * BASELINE / 4 }
    }

    /// An error that says how much is needed, if it is more than this part.
    pub(crate) fn check(self, task: &str, sizes: &Sizes) -> Result<(), JudgeError> {
        let wanted = Self::needed(sizes);
        if self.all || wanted <= self.bytes {
            return Ok(());
        }
        Err(JudgeError::Memory {
            task: task.to_owned(),
            message: format!("it takes about {} MiB to judge", wanted >> 20),
            wanted: Some(wanted),
        })
    }

    /// Bytes of a part that would do for this task.
    pub(crate) fn needed(sizes: &Sizes) -> u64 {
        let (inputs, outputs) = (sizes.inputs.bytes(), sizes.outputs.bytes());
        let state: u64 = sizes.state.iter().map(|p| padded(p.bytes)).sum();
        let eager = sizes.peak_bytes.max(outputs);
        // What a library takes beside: convolutions have workspaces of about their operands' size.
        let beside = eager / 4 + BESIDE;
        // Two variants of the weights in both precisions; inputs as they are and in double; a call
        // in double, or two in single precision while both results are compared.
        let oracle = 6 * state + 3 * inputs + 2 * outputs + 2 * eager + beside;
        // Compiled with graphs: buffers of its own for inputs and everything in between.
        let baseline = state + 3 * inputs + 2 * eager + 2 * outputs + beside;
        let part = |bytes: u64, percent: u64| bytes / percent * 100 + 100;
        let arena = part(arena_bytes(sizes), ORACLE_ARENA);
        arena.max(part(oracle, ORACLE_TORCH)).max(part(baseline, BASELINE))
    }
}

/// Bytes that the oracle's arena needs for one question: the inputs, and for every output the truth
/// and, where it is not a floating-point one, the reference's own answer.
pub(crate) fn arena_bytes(sizes: &Sizes) -> u64 {
    let truth = |p: &crate::wire::Place| {
        let count: u64 = p.shape.iter().product();
        padded(count * 8) + padded(p.bytes)
    };
    let outputs: u64 = sizes.outputs.tensors.iter().map(truth).sum();
    let state: u64 = sizes.state.iter().map(|p| padded(p.bytes)).sum();
    (sizes.inputs.padded_bytes() + outputs).max(state).max(sizes.init.padded_bytes()) + (1 << 20)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn facts(arch: Option<&str>) -> DeviceFacts {
        DeviceFacts {
            hardware: String::new(),
            arch: arch.map(str::to_owned),
            processors: 1,
            cache_bytes: 1 << 20,
            shared_bytes_per_block: 1 << 16,
            driver: String::new(),
            memory_bytes: 128 << 30,
        }
    }

    /// What the oracle says before it computes, of inputs of so many bytes.
    fn foreseen(bytes: u64) -> Sizes {
        let place = json!({
            "offset": null, "shape": [bytes / 4], "strides": [1], "dtype": "float32", "bytes": bytes,
        });
        let none = json!({"tree": {"list": []}, "tensors": []});
        let inputs = json!({"tree": {"list": [{"tensor": 0}]}, "tensors": [place]});
        let sizes = json!({
            "init": none, "inputs": inputs, "outputs": none, "state": [], "peak_bytes": 0,
        });
        serde_json::from_value(sizes).unwrap()
    }

    #[test]
    fn a_task_is_refused_by_a_part_that_is_too_small_and_told_what_would_do() {
        let facts = facts(Some("sm_90"));
        let part = Memory::part(&facts, 1, 8);
        part.check("small", &foreseen(64 << 20)).unwrap();
        let large = foreseen(4 << 30);
        let refused = part.check("large", &large);
        let Err(JudgeError::Memory { wanted: Some(wanted), .. }) = refused else {
            panic!("{refused:?}")
        };
        let units = wanted.div_ceil(part.bytes()) as usize;
        assert!((2..8).contains(&units), "{units}");
        Memory::part(&facts, units, 8).check("large", &large).unwrap();
        // Whoever has everything is refused nothing.
        Memory::part(&facts, 8, 8).check("huge", &foreseen(1 << 40)).unwrap();
    }
}
