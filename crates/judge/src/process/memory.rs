//! How much of the device's memory a session may use, and how its processes divide it.
//!
//! On a GPU one memory holds the allocations of the oracles and baselines of all open sessions, each session
//! in its own part, and the arena of the one candidate that runs. On the cpu device untouched memory costs
//! nothing, and nothing is divided.

use crate::check::dtype::Dtype;
use crate::device::arena::{GRAIN, Zone};
use crate::device::facts::DeviceFacts;
use crate::error::JudgeError;
use crate::process::wire::{Sizes, padded};

/// The last bytes of an arena that a process is given at its start. No candidate has them: what the
/// process allocates before it has a candidate lies there, while the rest may be another one's.
pub(crate) const START_BYTES: u64 = 1 << 20;

/// A part of the device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Of the whole device.
    device: u64,
    bytes: u64,
    divided: bool,
    all: bool,
    work: Work,
}

/// Work of the sessions that share a device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Sessions judge candidates: oracle and baselines exist at the same time, and one candidate runs.
    Judging,
    /// Sessions examine tasks: the oracle forgets its task before baselines start.
    Examining,
}

/// Percent of a GPU's memory for the candidate that runs, the same for all: its arena, and the inputs of
/// one window, which lie in memory of their own.
const RUNNER: u64 = 24;
const INPUTS: u64 = 12;

impl Work {
    /// Percent that are handed out in parts; contexts of many processes take the rest.
    const fn handed_out(self) -> u64 {
        match self {
            Self::Judging => 50,
            Self::Examining => 75,
        }
    }

    /// Percent of a part that the oracle's and the baseline's torch may take each, and its arena, while
    /// nothing is known of the task.
    const fn torch(self) -> u64 {
        match self {
            Self::Judging => 35,
            Self::Examining => 70,
        }
    }
}

/// How the processes of a session divide its memory, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shares {
    /// For torch in the oracle; its arena is made as large as it must be.
    pub(crate) oracle: u64,
    /// For torch in the baseline.
    pub(crate) baseline: u64,
}

/// Memory that the processes of a session need for a task, in bytes.
struct Needs {
    arena: u64,
    oracle: u64,
    baseline: u64,
}

/// Bytes that a library may take beside its operands, however small these are.
const BESIDE: u64 = 256 << 20;

impl Memory {
    /// All of it.
    pub(crate) fn all(facts: &DeviceFacts, work: Work) -> Self {
        Self {
            device: facts.memory_bytes,
            bytes: facts.memory_bytes,
            divided: facts.arch.is_some(),
            all: true,
            work,
        }
    }

    /// `units` of `of` equal parts.
    pub(crate) fn part(facts: &DeviceFacts, work: Work, units: usize, of: usize) -> Self {
        let (units, of) = (units.max(1) as u64, of.max(1) as u64);
        let all = Self::all(facts, work);
        if units >= of || !all.divided {
            return all;
        }
        Self { bytes: all.bytes / 100 * work.handed_out() / of * units, all: false, ..all }
    }

    /// Whether it is used to look at tasks, and not to judge candidates.
    pub(crate) fn examines(self) -> bool {
        self.work == Work::Examining
    }

    /// Bytes of the oracle's arena.
    pub(crate) fn arena(self, sizes: &Sizes) -> u64 {
        arena_bytes(sizes, self.divided)
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
        if self.divided { self.device / 100 * RUNNER } else { (self.bytes / 4).min(6 << 30) }
    }

    /// Where the inputs of a window lie on a GPU, as offsets from the start of the candidate's arena:
    /// beside it, in memory that is new in each window. On the cpu device they lie in the arena.
    pub(crate) fn apart(self) -> Option<Zone> {
        let offset = (self.runner() + START_BYTES).next_multiple_of(GRAIN);
        let bytes = self.device / 100 * INPUTS / GRAIN * GRAIN;
        self.divided.then_some(Zone { offset, bytes })
    }

    /// How torch in the oracle and in the baseline divide it; no bounds where the session has
    /// everything, or where memory is not divided.
    pub(crate) fn shares(self, sizes: Option<&Sizes>) -> Option<Shares> {
        if !self.divided || self.all {
            return None;
        }
        let Some(Needs { arena, oracle, baseline }) = sizes.map(Needs::of) else {
            let share = self.bytes / 100 * self.work.torch();
            return Some(Shares { oracle: share, baseline: share });
        };
        let rest = self.bytes.saturating_sub(arena);
        if self.work == Work::Examining {
            return Some(Shares { oracle: rest, baseline: rest });
        }
        let share = (rest as f64 * oracle as f64 / (oracle + baseline) as f64) as u64;
        Some(Shares { oracle: share, baseline: rest - share })
    }

    /// What the staged inputs of the baselines may take, bytes; on the cpu device as much again what
    /// the results of a window take.
    pub(crate) fn staged(self) -> u64 {
        match (self.divided, self.all) {
            (false, _) => self.bytes / 10,
            (true, true) => self.bytes / 20,
            (true, false) => self.bytes / 100 * self.work.torch() / 4,
        }
    }

    /// An error that says how much is needed, if it is more than this part. `foreseen`: whether torch
    /// was bounded by what the task needs.
    pub(crate) fn check(self, task: &str, sizes: &Sizes, foreseen: bool) -> Result<(), JudgeError> {
        let Needs { oracle, baseline, .. } = Needs::of(sizes);
        let torch = self.work.torch();
        let bounds = if foreseen { 0 } else { oracle.max(baseline) / torch * 100 + 100 };
        let wanted = Self::needed(sizes, self.work).max(bounds);
        if self.all || wanted <= self.bytes {
            return Ok(());
        }
        Err(JudgeError::Memory {
            task: task.to_owned(),
            message: format!("it takes about {} MiB to judge", wanted >> 20),
            wanted: Some(wanted),
        })
    }

    /// Whether a task fills the device: there is no more, and its processes can not keep all that they
    /// would.
    pub(crate) fn is_short(self, sizes: &Sizes) -> bool {
        let most = self.device / 100 * self.work.handed_out();
        self.divided && self.all && Self::needed(sizes, self.work) > most
    }

    /// Bytes of a part that would do for this task.
    pub(crate) fn needed(sizes: &Sizes, work: Work) -> u64 {
        let Needs { arena, oracle, baseline } = Needs::of(sizes);
        arena
            + match work {
                Work::Judging => oracle + baseline,
                Work::Examining => oracle.max(baseline),
            }
    }
}

impl Needs {
    fn of(sizes: &Sizes) -> Self {
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
        Self { arena: arena_bytes(sizes, true), oracle, baseline }
    }
}

/// Sets of small inputs that the oracle makes at once on a GPU, where asking takes longer than making
/// one, and bytes that these may take.
const SETS: u64 = 256;
const SETS_BYTES: u64 = 256 << 20;

/// Questions that it answers at once there, and bytes that these may take.
const QUESTIONS: u64 = 4;
const QUESTIONS_BYTES: u64 = 1 << 30;

/// Bytes of the oracle's arena: what one question needs, and on a GPU what many sets of inputs and several
/// questions do.
fn arena_bytes(sizes: &Sizes, divided: bool) -> u64 {
    let one = question_bytes(sizes);
    if !divided {
        return one;
    }
    let sets = (SETS * sizes.inputs.padded_bytes()).min(SETS_BYTES);
    one.max(sets).max((QUESTIONS * one).min(QUESTIONS_BYTES))
}

/// Bytes for one question: the inputs, and for every output, and every input that the reference changes,
/// the truth and the reference's own answer.
fn question_bytes(sizes: &Sizes) -> u64 {
    let truth = |p: &crate::process::wire::Place| {
        let count: u64 = p.shape.iter().product();
        let (dtype, parts) = Dtype::parts(&p.dtype).unwrap_or((Dtype::F64, 2));
        let exact = if dtype.is_real() { 8 } else { dtype.size() };
        padded(count * parts * exact) + padded(count * parts * dtype.size())
    };
    let outputs: u64 = sizes.outputs.tensors.iter().chain(&sizes.changed).map(truth).sum();
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
    fn a_refused_task_names_the_memory_it_needs() {
        let facts = facts(Some("sm_90"));
        let part = Memory::part(&facts, Work::Judging, 1, 8);
        part.check("small", &foreseen(64 << 20), true).unwrap();
        let large = foreseen(4 << 30);
        let refused = part.check("large", &large, true);
        let Err(JudgeError::Memory { wanted: Some(wanted), .. }) = refused else {
            panic!("{refused:?}")
        };
        let units = wanted.div_ceil(part.bytes()) as usize;
        assert!((2..8).contains(&units), "{units}");
        let enough = Memory::part(&facts, Work::Judging, units, 8);
        enough.check("large", &large, true).unwrap();
        // Each process is bounded by what it needs, or a little more.
        let shares = enough.shares(Some(&large)).unwrap();
        let arena = arena_bytes(&large, true);
        assert!(shares.oracle + shares.baseline + arena <= enough.bytes());
        let Needs { oracle, baseline, .. } = Needs::of(&large);
        assert!(shares.oracle >= oracle && shares.baseline >= baseline, "{shares:?}");
        // Whoever has everything is refused nothing.
        let all = Memory::part(&facts, Work::Judging, 8, 8);
        all.check("huge", &foreseen(1 << 40), false).unwrap();
        // Processes that have it one after the other need less, and may have all of a part.
        let one = Memory::part(&facts, Work::Examining, 3, 48);
        let medium = foreseen(1 << 30);
        one.check("medium", &medium, true).unwrap();
        let Needs { arena, oracle, baseline } = Needs::of(&medium);
        assert!(Memory::needed(&medium, Work::Judging) > one.bytes(), "positive control");
        let shares = one.shares(Some(&medium)).unwrap();
        assert_eq!((shares.oracle, shares.baseline), (one.bytes() - arena, one.bytes() - arena));
        assert!(shares.oracle >= oracle.max(baseline));
    }

    #[test]
    fn a_task_that_exceeds_gpu_memory_is_short() {
        let [gpu, host] = [Some("sm_90"), None].map(facts);
        let (small, large) = (foreseen(64 << 20), foreseen(12 << 30));
        let all = |facts| Memory::all(facts, Work::Judging);
        assert!(all(&gpu).is_short(&large));
        assert!(!all(&gpu).is_short(&small));
        let part = Memory::part(&gpu, Work::Judging, 1, 8);
        assert!(!part.is_short(&large), "it is told that it needs more");
        assert!(!all(&host).is_short(&large));
    }

    #[test]
    fn small_inputs_are_sampled_in_batches_on_a_gpu() {
        let small = foreseen(1 << 20);
        let all = |arch| Memory::all(&facts(arch), Work::Judging);
        let [gpu, host] = [Some("sm_90"), None].map(|arch| all(arch).arena(&small));
        assert!(gpu >= SETS * (1 << 20) && gpu <= SETS_BYTES, "{gpu}");
        assert!(host < 4 << 20, "{host}: what lies in a cache is quicker there");
        let large = foreseen(1 << 30);
        assert_eq!(all(Some("sm_90")).arena(&large), question_bytes(&large));
    }
}
