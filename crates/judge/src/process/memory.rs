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
    /// Whether torch must not take what the device has beside it.
    limited: bool,
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

/// Percent of a GPU's memory for the candidate that runs, the same for all whose task fits there: its arena, and
/// the inputs of one window, which lie in memory of their own.
const RUNNER: u64 = 24;
const INPUTS: u64 = 12;
/// Bytes of a GPU's memory for contexts of processes, where a task needs all that it can have: of the judge, the
/// oracle, the baseline and one replayer or runner. An oracle had 0.6 GiB beside torch's on an H200 (2026-12-01).
const CONTEXTS: u64 = 4 << 30;
/// What one call of a candidate has for intermediates at least, bytes.
pub(crate) const LEAST_SCRATCH: u64 = 512 << 20;

/// Memory of the candidate that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Bytes of its arena, without [`START_BYTES`].
    pub(crate) arena: u64,
    /// Where the inputs of a window lie on a GPU, as offsets from the start of the arena: beside it, in memory
    /// that is new in each window. `None` on the cpu device, where they lie in the arena.
    pub(crate) apart: Option<Zone>,
}

impl Room {
    /// On a GPU.
    fn on_gpu(arena: u64, inputs: u64) -> Self {
        let offset = (arena + START_BYTES).next_multiple_of(GRAIN);
        Self { arena, apart: Some(Zone { offset, bytes: inputs.next_multiple_of(GRAIN) }) }
    }
}

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
    /// For torch in the oracle while it opens the task: it has no arena yet.
    pub(crate) opening: u64,
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
            limited: facts.memory_is_limited,
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
        arena_bytes(sizes, self.divided, self.doubles(sizes))
    }

    /// Bytes in all.
    pub(crate) fn bytes(self) -> u64 {
        self.bytes
    }

    /// Whether there is no more to be had.
    pub(crate) fn is_all(self) -> bool {
        self.all
    }

    /// Memory of the candidates of most tasks.
    pub(crate) fn room(self) -> Room {
        if self.divided {
            return Room::on_gpu(
                self.device / 100 * RUNNER,
                self.device / 100 * INPUTS / GRAIN * GRAIN,
            );
        }
        Room { arena: (self.bytes / 4).min(6 << 30), apart: None }
    }

    /// The least memory that candidates can have, while a task that may fill a GPU is opened. `None` where it has
    /// not the whole GPU.
    pub(crate) fn least_room(self) -> Option<Room> {
        (self.divided && self.all).then(|| Room::on_gpu(LEAST_SCRATCH, GRAIN))
    }

    /// Bytes of a device whose usual room has so many.
    pub(crate) fn with_room_for(self, bytes: u64) -> u64 {
        if self.divided { bytes / (RUNNER + INPUTS) * 100 } else { bytes * 4 }
    }

    /// Memory of the candidates of a task that fills a GPU: the first of `wanted` (bytes of the arena and of the
    /// inputs beside it, the most first) that leaves what the reference and the baselines need, else the last.
    /// `None` where the task does not have the whole GPU.
    pub(crate) fn large_room(self, sizes: &Sizes, wanted: &[(u64, u64)]) -> Option<Room> {
        if !self.divided || !self.all {
            return None;
        }
        let left = self.left(sizes, self.doubles(sizes));
        let fits = wanted.iter().find(|(arena, inputs)| arena + inputs <= left);
        fits.or(wanted.last()).map(|&(arena, inputs)| Room::on_gpu(arena, inputs))
    }

    /// Whether the memory holds the reference's results in float64 beside a candidate's call.
    pub(crate) fn doubles(self, sizes: &Sizes) -> bool {
        !self.divided || !self.all || self.left(sizes, true) >= least_call(sizes)
    }

    /// Bytes for a candidate if oracle and baseline take turns and each has what it needs, with the reference in
    /// float64 or not.
    fn left(self, sizes: &Sizes, double: bool) -> u64 {
        let taken = question_bytes(sizes, double) + torch_alone(sizes, double);
        self.without_contexts().saturating_sub(taken)
    }

    fn without_contexts(self) -> u64 {
        self.device.saturating_sub(CONTEXTS.min(self.device / 8))
    }

    /// Refuses a task of which one call and its expected result alone do not fit.
    pub(crate) fn refuse_too_large(self, task: &str, sizes: &Sizes) -> Result<(), JudgeError> {
        let needed = least_call(sizes) + question_bytes(sizes, false);
        if !self.divided || !self.all || needed <= self.device {
            return Ok(());
        }
        Err(JudgeError::too_large(task, Some(needed), self.device, ""))
    }

    /// Turns a lack of memory into an error of the task, where it had all of the device's memory.
    pub(crate) fn explain(self, error: JudgeError) -> JudgeError {
        match error {
            JudgeError::Memory { task, wanted, message } if self.all => {
                let needed = wanted.filter(|wanted| *wanted > self.device);
                JudgeError::too_large(&task, needed, self.device, message)
            }
            other => other,
        }
    }

    /// How torch in the oracle and in the baseline divide it; no bounds where the session has
    /// everything that the device has, or where memory is not divided.
    pub(crate) fn shares(self, sizes: Option<&Sizes>) -> Option<Shares> {
        if !self.divided || self.all && !self.limited {
            return None;
        }
        if self.all {
            // They take turns, and a task that fills the device leaves its candidates less.
            let usual = self.device / 100 * (RUNNER + INPUTS);
            let all = self.without_contexts();
            let (candidate, arena) = sizes.map_or((usual, 0), |sizes| {
                let left = self.left(sizes, self.doubles(sizes));
                (usual.min(left).max(least_call(sizes)), self.arena(sizes))
            });
            let share = all.saturating_sub(candidate + arena);
            return Some(Shares { opening: all, oracle: share, baseline: share });
        }
        let Some(Needs { arena, oracle, baseline }) = sizes.map(Needs::of) else {
            let share = self.bytes / 100 * self.work.torch();
            return Some(Shares { opening: share, oracle: share, baseline: share });
        };
        let rest = self.bytes.saturating_sub(arena);
        if self.work == Work::Examining {
            return Some(Shares { opening: rest, oracle: rest, baseline: rest });
        }
        let share = (rest as f64 * oracle as f64 / (oracle + baseline) as f64) as u64;
        Some(Shares { opening: share, oracle: share, baseline: rest - share })
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
        Self { arena: arena_bytes(sizes, true, true), oracle, baseline }
    }
}

/// Bytes of one call of a candidate that has few intermediates: its weights, four times as `check/layout.rs` plans
/// them; its results, somewhat padded; and its inputs twice, since those of a first call, or weights, pass through
/// where results lie later.
fn least_call(sizes: &Sizes) -> u64 {
    let state: u64 = sizes.state.iter().map(|p| padded(p.bytes)).sum();
    let call = sizes.inputs.bytes() + sizes.outputs.bytes() / 8 * 9 + LEAST_SCRATCH;
    4 * state + state.max(call) + sizes.inputs.bytes() + LEAST_SCRATCH
}

/// Bytes that torch needs in the oracle or in the baseline, whichever is more, where each gives way to the other.
fn torch_alone(sizes: &Sizes, double: bool) -> u64 {
    let (inputs, state) =
        (sizes.inputs.bytes(), sizes.state.iter().map(|p| padded(p.bytes)).sum::<u64>());
    let eager = sizes.peak_bytes.max(sizes.outputs.bytes());
    let baseline = state + inputs + eager;
    let (weights, call) =
        if double { (6 * state, 2 * (inputs + eager)) } else { (2 * state, eager) };
    weights + call.max(baseline) + BESIDE
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
fn arena_bytes(sizes: &Sizes, divided: bool, double: bool) -> u64 {
    let one = question_bytes(sizes, double);
    if !divided {
        return one;
    }
    let sets = (SETS * sizes.inputs.padded_bytes()).min(SETS_BYTES);
    one.max(sets).max((QUESTIONS * one).min(QUESTIONS_BYTES))
}

/// Bytes for one question: the inputs, and for every output, and every input that the reference changes,
/// the truth, in float64 or not, and the reference's own answer.
fn question_bytes(sizes: &Sizes, double: bool) -> u64 {
    let truth = |p: &crate::process::wire::Place| {
        let count: u64 = p.shape.iter().product();
        let (dtype, parts) = Dtype::parts(&p.dtype).unwrap_or((Dtype::F64, 2));
        let exact = if dtype.is_real() && double { 8 } else { dtype.size() };
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
            memory_is_limited: false,
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
        let arena = arena_bytes(&large, true, true);
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
        assert_eq!(all(Some("sm_90")).arena(&large), question_bytes(&large, true));
    }

    #[test]
    fn large_tasks_have_memory_by_their_size() {
        // The free memory of an H100.
        let facts = DeviceFacts { memory_bytes: 79 << 30, ..facts(Some("sm_90")) };
        let all = Memory::all(&facts, Work::Judging);
        let sizes = |inputs: u64, outputs: u64| {
            let (mut sizes, results) = (foreseen(inputs << 20), foreseen(outputs << 20));
            sizes.outputs = results.inputs;
            sizes.peak_bytes = outputs << 20;
            sizes
        };
        // `level1/21_Sigmoid` of KernelBench: all of it fits, in float64.
        let sigmoid = sizes(6144, 6144);
        let wanted = [(40 << 30, 7 << 30), (13 << 30, 6200 << 20)];
        assert!(all.doubles(&sigmoid));
        let limited = Memory { limited: true, ..all };
        let shares = limited.shares(Some(&sigmoid)).unwrap();
        assert!(shares.oracle >= torch_alone(&sigmoid, true) && shares.opening > shares.oracle);
        let room = all.large_room(&sigmoid, &wanted).unwrap();
        assert_eq!(room.arena, 13 << 30, "the first would leave the reference too little");
        let beside = room.apart.unwrap();
        assert!(beside.offset >= room.arena + START_BYTES && beside.bytes >= 6200 << 20);
        assert_eq!(all.large_room(&sizes(64, 64), &wanted).unwrap().arena, 40 << 30);
        // `level3/2_ShallowWideMLP`: its weights, four times and once in passing, and six times in the oracle, are
        // more than there is. Without float64 they are not.
        let mut wide = sizes(1, 1);
        wide.state = foreseen(8 << 30).inputs.tensors;
        assert!(!all.doubles(&wide));
        all.refuse_too_large("wide", &wide).unwrap();
        assert!(all.left(&wide, false) > least_call(&wide));
        // `level1/38_L1Norm_` has no room for float64, and is judged all the same.
        let mut norm = sizes(8192, 8192);
        norm.peak_bytes = 16 << 30;
        assert!(!all.doubles(&norm));
        assert!(all.arena(&norm) < arena_bytes(&norm, true, true) / 8 * 7);
        all.refuse_too_large("norm", &norm).unwrap();
        // A task that no division helps.
        let Err(JudgeError::TooLarge { needed: Some(needed), available, .. }) =
            all.refuse_too_large("huge", &sizes(24 << 10, 24 << 10))
        else {
            panic!("it is refused")
        };
        assert!(needed > available && available == 79 << 30);
        let part = Memory::part(&facts, Work::Judging, 1, 8);
        assert_eq!(
            part.large_room(&sigmoid, &wanted),
            None,
            "positive control: it has a part only"
        );
    }
}
