//! The oracle process of one task.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use warpwright_record::inputs::InputFamily;
use warpwright_record::verdict::Profile;
use warpwright_task::similarity::OpGraph;
use warpwright_task::{Mode, Task, WorkloadTolerance};

use crate::admission::degenerate;
use crate::admission::objection::Objection;
use crate::check::dtype::Dtype;
use crate::check::families::{Draw, Families};
use crate::check::glance;
use crate::check::tolerance::{Tolerance, tolerance};
use crate::device::arena::{Arena, Lent};
use crate::device::device_arbiter::{DeviceArbiter, Purpose};
use crate::error::JudgeError;
use crate::process::channel::NoAnswer;
use crate::process::host::{Grant, Host};
use crate::process::memory::Memory;
use crate::process::role::Role;
use crate::process::wire::{
    Divided, Examined, Expected, Graphed, Learned, Loaded, Opened, Peak, Redrawn, Reordered, Said,
    Sets, Sizes, State, Truths,
};
use crate::process::worker::Worker;

/// Longest an oracle may take over one request. Its code is the task's.
pub(crate) const PATIENCE: Duration = Duration::from_mins(5);
/// Most characters of why the truth cannot be computed by slices.
const MOST_WHY: usize = 200;

/// Weights of the reference as its constructor gives them.
pub(crate) const INIT: &str = "init";
/// The same, all of them moved.
pub(crate) const OTHER: &str = "other";
/// As the constructor gives them, with other values in buffers.
const BUFFERS: &str = "buffers";

/// One that has loaded its task's module, and has nothing of the device yet.
pub(crate) struct LoadedOracle {
    worker: Worker,
    task: String,
    settings: (Profile, u64),
    stated: Option<WorkloadTolerance>,
    /// What the task takes and gives, if that is much and follows from shapes.
    pub(crate) foreseen: Option<Sizes>,
}

/// The process, its arena and what it said of the task.
pub(crate) struct Oracle {
    worker: Worker,
    task: String,
    pub(crate) arena: Arc<Arena>,
    pub(crate) opened: Opened,
    /// The inputs that the task allows, and what is known of errors on each.
    pub(crate) families: Families,
    /// The tolerance that the task's workload states itself.
    pub(crate) stated: Option<WorkloadTolerance>,
    /// The weights of all calls but one: of those that are timed, of those on other inputs, and of
    /// calibration. Moved ones, unless the reference goes wrong with them: a constructor's ones and zeros
    /// are paths of their own.
    pub(crate) played: &'static str,
    /// Whether the task allows [`BUFFERS`].
    buffers: bool,
    /// Why truth is not float64, if it is not.
    pub(crate) doubt: String,
    /// Whether it has memory of a candidate's inputs mapped.
    has_inputs: bool,
    /// The last call of which the truth was enough, and its weights.
    like: Option<(String, Expected)>,
    /// Whether truth is to be float64: not for the paper, which compares with eager.
    double: bool,
    /// Whether it is computed by slices of the batch.
    sliced: bool,
    profile: Profile,
}

/// Serialised name of a profile, as the Python side knows it.
pub(crate) fn profile_name(profile: Profile) -> &'static str {
    match profile {
        Profile::Strict => "strict",
        Profile::Tf32 => "tf32",
        Profile::AsRun => "as-run",
        Profile::Paper => "paper",
    }
}

pub(crate) fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Eval => "eval",
        Mode::Train => "train",
    }
}

/// The mode for processes that load a candidate. It names the dtype that the task is cast to, and whether a call
/// computes gradients: the source of the reference does both to the reference and the inputs, and the process to the
/// candidate.
pub(crate) fn candidate_mode(task: &Task) -> &'static str {
    use warpwright_task::Dtype::{Bf16, Fp16};
    match (task.mode, task.dtype(), task.backward()) {
        (mode, None, false) => mode_name(mode),
        (Mode::Eval, None, true) => "eval:backward",
        (Mode::Eval, Some(Bf16), false) => "eval:bf16",
        (Mode::Eval, Some(Bf16), true) => "eval:bf16:backward",
        (Mode::Eval, Some(Fp16), false) => "eval:fp16",
        (Mode::Eval, Some(Fp16), true) => "eval:fp16:backward",
        (Mode::Train, None, true) => "train:backward",
        (Mode::Train, Some(Bf16), false) => "train:bf16",
        (Mode::Train, Some(Bf16), true) => "train:bf16:backward",
        (Mode::Train, Some(Fp16), false) => "train:fp16",
        (Mode::Train, Some(Fp16), true) => "train:fp16:backward",
    }
}

impl LoadedOracle {
    /// Starts a process, which loads the task's module.
    pub(crate) fn load(
        host: &Host,
        task: &Task,
        settings: (Profile, u64),
        arbiter: &DeviceArbiter,
    ) -> Result<Self, JudgeError> {
        let worker = Worker::spawn(host, Role::Oracle, None, &Grant::default())?.up(arbiter)?;
        Self::load_in(worker, host, task, settings, arbiter)
    }

    /// Has a process that knows no task load this one's module.
    pub(crate) fn load_in(
        mut worker: Worker,
        host: &Host,
        task: &Task,
        settings: (Profile, u64),
        arbiter: &DeviceArbiter,
    ) -> Result<Self, JudgeError> {
        // On the cpu device loading it would disturb what is timed; a GPU it asks for itself.
        let _shared = host.device.share_for_host_work(arbiter, Purpose::Reference);
        let load = json!({
            "do": "load",
            "source": task.source,
            "profile": profile_name(settings.0),
            "mode": mode_name(task.mode),
        });
        let loaded: Loaded =
            worker.ask(&load, PATIENCE).map_err(|e| worker.failed(&task.name, e))?;
        let stated = task.workload().and_then(|workload| workload.tolerance);
        Ok(Self { worker, task: task.name.clone(), settings, stated, foreseen: loaded.sizes })
    }

    /// Whether the task fills the device, as far as its shapes tell.
    pub(crate) fn may_be_large(&self, memory: Memory) -> bool {
        self.foreseen.as_ref().is_some_and(|sizes| memory.is_short(sizes))
    }

    /// The operator graph of the task's module, if shapes alone tell it.
    pub(crate) fn graph(&mut self) -> Result<Option<OpGraph>, JudgeError> {
        graph(&mut self.worker, self.settings.1).map_err(|e| self.worker.failed(&self.task, e))
    }

    /// Makes the models, finds out what the task takes and gives, and has `arena` make memory for one
    /// question.
    pub(crate) fn open(
        self,
        memory: Memory,
        arena: impl FnOnce(u64) -> Result<Arena, JudgeError>,
        arbiter: &DeviceArbiter,
    ) -> Result<Oracle, JudgeError> {
        let Self { mut worker, task, settings: (profile, seed), stated, foreseen } = self;
        if let Some(foreseen) = &foreseen {
            // A task that is too large costs the device nothing.
            memory.check(&task, foreseen, true)?;
            memory.refuse_too_large(&task, foreseen)?;
        }
        let device_bytes = memory.shares(foreseen.as_ref()).map(|shares| shares.opening);
        let request = json!({"do": "open", "seed": seed, "device_bytes": device_bytes});
        let opened: Opened =
            worker.ask_holding(&request, PATIENCE, arbiter).map_err(|e| worker.failed(&task, e))?;
        memory.check(&task, &opened.sizes, foreseen.is_some())?;
        memory.refuse_too_large(&task, &opened.sizes)?;
        let arena = arena(memory.arena(&opened.sizes))?;
        let sizes = if memory.is_all() { Some(&opened.sizes) } else { foreseen.as_ref() };
        let device_bytes = memory.shares(sizes).map(|shares| shares.oracle);
        let request =
            json!({"do": "adopt", "arena_bytes": arena.len(), "device_bytes": device_bytes});
        worker.hand_over(&request, &arena, PATIENCE, arbiter)?;
        let compared = opened.sizes.outputs.tensors.iter().chain(&opened.sizes.changed);
        let dtypes = compared.map(|at| Dtype::parts(&at.dtype).map(|(dtype, _)| dtype));
        let arena = Arc::new(arena);
        let families = Families::own(profile, dtypes.collect());
        let double = profile != Profile::Paper;
        let fits = memory.doubles(&opened.sizes);
        let (played, buffers) = (INIT, false);
        let mut oracle = Oracle {
            worker,
            task,
            arena,
            opened,
            families,
            stated,
            played,
            buffers,
            doubt: String::new(),
            like: None,
            has_inputs: false,
            double,
            sliced: false,
            profile,
        };
        if !fits {
            oracle.with_less(arbiter)?;
        }
        Ok(oracle)
    }
}

fn graph(worker: &mut Worker, seed: u64) -> Result<Option<OpGraph>, NoAnswer> {
    let told: Graphed = worker.ask(&json!({"do": "graph", "seed": seed}), PATIENCE)?;
    Ok(told.graph)
}

/// Samples, in the format of the oracle's requests.
fn named(draws: &[Draw]) -> (Vec<u64>, Vec<&'static str>) {
    draws.iter().map(|draw| (draw.seed, draw.family.name())).unzip()
}

impl Oracle {
    /// The task's name.
    pub(crate) fn name(&self) -> &str {
        &self.task
    }

    /// The weights of the call that has not those that are played.
    pub(crate) fn rest(&self) -> &'static str {
        match (self.played, self.buffers) {
            (INIT, _) => OTHER,
            (_, true) => BUFFERS,
            (_, false) => INIT,
        }
    }

    /// Name of these weights in a check.
    pub(crate) fn told(weights: &str) -> &'static str {
        match weights {
            INIT => "initial weights",
            BUFFERS => "initial weights, other buffers",
            _ => "other weights",
        }
    }

    /// Has the process forget the task, and give back what it holds of the device: nothing can be
    /// asked of it any more. The caller holds nothing of the device.
    pub(crate) fn forget(&mut self, arbiter: &DeviceArbiter) -> Result<(), JudgeError> {
        self.worker.next(arbiter).map_err(|e| self.trusted(e))
    }

    /// Its process, which has forgotten the task.
    pub(crate) fn into_worker(self) -> Worker {
        self.worker
    }

    /// See [`LoadedOracle::graph`].
    pub(crate) fn graph(&mut self, seed: u64) -> Result<Option<OpGraph>, JudgeError> {
        graph(&mut self.worker, seed).map_err(|e| self.trusted(e))
    }

    /// Learns how large an honest error is and, with `others`, which other inputs and weights the task
    /// allows. An error may come from trying those. Holds the device with others, for each step anew: whoever
    /// waits to be alone has it in between.
    pub(crate) fn learn(
        &mut self,
        seed: u64,
        others: bool,
        arbiter: &DeviceArbiter,
    ) -> Result<(), JudgeError> {
        // The paper compares with eager, on the task's own inputs.
        if self.profile != Profile::Paper {
            let request = json!({
                "do": "calibrate", "seed": seed ^ 0x5eed_1000, "families": others,
                "double": self.double, "weights": if others { OTHER } else { INIT },
            });
            let shared = arbiter.share(Purpose::Reference);
            let learned: Learned =
                self.worker.ask(&request, PATIENCE).map_err(|e| self.trusted(e))?;
            drop(shared);
            self.played = if learned.weights == OTHER { OTHER } else { INIT };
            self.buffers = learned.buffers;
            self.families.calibrate(learned.calibrated);
        }
        let calls = if self.profile == Profile::Paper { 3 } else { 1 };
        for (variant, calls) in [(self.played, calls), (self.rest(), 1)] {
            for i in 0..calls {
                let _shared = arbiter.share(Purpose::Reference);
                self.expected(variant, Draw::own(seed ^ (0x5eed_0000 + i)))?;
            }
        }
        Ok(())
    }

    /// Looks for what speaks against the task, on the inputs of a seed and with these tolerances per
    /// output. The caller holds the device.
    pub(crate) fn examine(
        &mut self,
        seed: u64,
        tolerances: &[Tolerance],
    ) -> Result<Examined, JudgeError> {
        self.ask_objections(seed, tolerances, json!({ "do": "examine" }))
    }

    /// The same in two calls, on what a degenerate task shows.
    pub(crate) fn glance(
        &mut self,
        seed: u64,
        tolerances: &[Tolerance],
    ) -> Result<Examined, JudgeError> {
        let signed = self.families.allows(InputFamily::Normal);
        self.ask_objections(seed, tolerances, json!({ "do": "glance", "signed": signed }))
    }

    /// Asks what speaks against the task. `request` has what differs between the ways to look.
    fn ask_objections(
        &mut self,
        seed: u64,
        tolerances: &[Tolerance],
        mut request: Value,
    ) -> Result<Examined, JudgeError> {
        let tolerances: Vec<_> =
            tolerances.iter().map(|allowed| (allowed.atol, allowed.rtol)).collect();
        request["seed"] = json!(seed);
        request["tolerances"] = json!(tolerances);
        request["weights"] = json!(self.played);
        self.worker.ask(&request, PATIENCE).map_err(|e| self.trusted(e))
    }

    /// The tolerance of each output on the inputs of a seed, and its largest magnitude there. The
    /// caller holds the device.
    pub(crate) fn allowed(&mut self, seed: u64) -> Result<Vec<(Tolerance, f64)>, JudgeError> {
        let draw = Draw::own(seed);
        let expected = self.expected(self.played, draw)?;
        let expected = expected.ok_or_else(|| {
            JudgeError::infrastructure(
                "examine the task",
                "the oracle discarded the task's own inputs",
            )
        })?;
        // Of the outputs, and behind them of the inputs that the reference changes.
        let each = expected.notes.iter().enumerate().map(|(i, note)| {
            let (dtype, _) = Dtype::parts(&note.dtype).ok_or_else(|| {
                JudgeError::infrastructure(
                    "examine the task",
                    format!("the judge does not know dtype {}", note.dtype),
                )
            })?;
            let known = self.families.errors(draw.family, i);
            Ok((tolerance(self.profile, dtype, note, &known, draw.family), note.largest))
        });
        each.collect()
    }

    /// What two draws of its inputs, and calibration, show of a degenerate task. Where memory is short
    /// and there is no more to be had, it is not looked for.
    pub(crate) fn look_for_degeneracy(
        &mut self,
        seed: u64,
        all_memory: bool,
        arbiter: &DeviceArbiter,
    ) -> Result<Vec<Objection>, JudgeError> {
        let outputs = self.opened.sizes.outputs.tensors.len();
        let mut reasons = degenerate::after_calibration(&self.families, outputs);
        let _shared = arbiter.share(Purpose::Reference);
        let narrowed = self.profile == Profile::Paper;
        let found = self.allowed(seed).and_then(|allowed| {
            let narrow = |(tolerance, largest)| {
                if narrowed { degenerate::narrow(largest) } else { tolerance }
            };
            let tolerances: Vec<Tolerance> = allowed.into_iter().map(narrow).collect();
            self.glance(seed, &tolerances)
        });
        match found {
            Ok(found) => {
                reasons.extend(degenerate::at_a_glance(&found, self.opened.fixed_inputs));
                Ok(reasons)
            }
            Err(JudgeError::Memory { .. }) if all_memory => Ok(reasons),
            Err(error) => Err(error),
        }
    }

    /// Looks on so many draws of inputs for what few show. The caller holds the device.
    pub(crate) fn redraw(&mut self, seed: u64, draws: u32) -> Result<Redrawn, JudgeError> {
        let weights = self.played;
        let request = json!({"do": "redraw", "seed": seed, "draws": draws, "weights": weights});
        self.worker.ask(&request, PATIENCE).map_err(|e| self.trusted(e))
    }

    /// Most bytes that the process has held, with its arena.
    pub(crate) fn peak_bytes(&mut self) -> Result<u64, JudgeError> {
        let held: Peak =
            self.worker.ask(&json!({"do": "peak"}), PATIENCE).map_err(|e| self.trusted(e))?;
        // On the cpu device pages of the arena are pages of the process.
        let arena = if self.arena.is_on_gpu() { self.arena.held_bytes() } else { 0 };
        Ok(held.bytes + arena)
    }

    /// Computes in float64 by slices of the batch from now on, where the device's memory does not hold the whole and
    /// that is proven to give the same; else does without. False if it was done without before.
    pub(crate) fn with_less(&mut self, arbiter: &DeviceArbiter) -> Result<bool, JudgeError> {
        if !self.double || self.sliced {
            return Ok(self.without_double());
        }
        let shared = arbiter.share(Purpose::Reference);
        let told: Divided =
            self.worker.ask(&json!({"do": "divide"}), PATIENCE).map_err(|e| self.trusted(e))?;
        drop(shared);
        self.sliced = told.why.is_empty();
        if !self.sliced {
            self.without_double();
            let why: String = told.why.chars().take(MOST_WHY).collect();
            self.doubt = format!("{}, nor by slices of the batch: {why}", self.doubt);
        }
        Ok(true)
    }

    /// Does without float64 from now on, where the device's memory does not hold it. False if it was
    /// done without before.
    pub(crate) fn without_double(&mut self) -> bool {
        let had = std::mem::take(&mut self.double);
        if had {
            "outputs in float64 do not fit the device's memory".clone_into(&mut self.doubt);
        }
        had
    }

    fn trusted(&mut self, answer: NoAnswer) -> JudgeError {
        self.worker.failed(&self.task, answer)
    }

    /// The weights of `init` or `other`, at the start of the oracle's arena.
    pub(crate) fn state(&mut self, variant: &str) -> Result<State, JudgeError> {
        let request = json!({"do": "state", "variant": variant});
        self.worker.ask(&request, PATIENCE).map_err(|e| self.trusted(e))
    }

    /// The arguments of the model's constructor, tensors at the start of the oracle's arena.
    pub(crate) fn init(&mut self) -> Result<crate::process::wire::Value, JudgeError> {
        self.worker.ask(&json!({"do": "init"}), PATIENCE).map_err(|e| self.trusted(e))
    }

    /// How many sets of inputs its arena holds.
    pub(crate) fn sets_at_once(&self) -> usize {
        (self.arena.len() / self.opened.sizes.inputs.padded_bytes().max(1)).clamp(1, 4096) as usize
    }

    /// Inputs for each draw, one after the other from this place of the oracle's arena on.
    pub(crate) fn inputs(&mut self, draws: &[Draw], offset: u64) -> Result<Sets, JudgeError> {
        let (seeds, families) = named(draws);
        let request = json!({
            "do": "inputs", "seeds": seeds, "families": families, "offset": offset,
        });
        self.worker.ask(&request, PATIENCE).map_err(|e| self.trusted(e))
    }

    /// On a GPU: inputs for each draw in memory that is lent to it, each set from its offset on; the memory
    /// lies `at` so many bytes from where offsets count.
    pub(crate) fn provide(
        &mut self,
        draws: &[Draw],
        offsets: &[u64],
        (lent, at): (&Lent, u64),
    ) -> Result<Sets, JudgeError> {
        let (seeds, families) = named(draws);
        let map = !self.has_inputs;
        let request = json!({
            "do": "provide", "seeds": seeds, "families": families, "offsets": offsets, "at": at,
            "bytes": lent.bytes, "map": map, "keep": lent.keep,
        });
        let answer = if map {
            self.worker.ask_lending(&request, lent.fd.as_fd(), PATIENCE)
        } else {
            self.worker.ask(&request, PATIENCE)
        };
        self.has_inputs = lent.keep;
        answer.map_err(|e| self.trusted(e))
    }

    /// Has it unmap the memory of inputs that it was to keep.
    pub(crate) fn unmap_inputs(&mut self) -> Result<(), JudgeError> {
        if !std::mem::take(&mut self.has_inputs) {
            return Ok(());
        }
        let answer = self.worker.ask::<Value>(&json!({"do": "unmap"}), PATIENCE);
        answer.map(drop).map_err(|e| self.trusted(e))
    }

    /// Inputs and truth for one draw; `None` where honest programs need not agree on its inputs.
    pub(crate) fn expected(
        &mut self,
        variant: &str,
        draw: Draw,
    ) -> Result<Option<Expected>, JudgeError> {
        let (seed, family) = (draw.seed, draw.family.name());
        let request = json!({
            "do": "expected", "variant": variant, "seed": seed, "family": family,
            "double": self.double,
            "stated": self.stated.is_some() && draw.family == InputFamily::Own,
        });
        let expected: Expected =
            self.worker.ask(&request, PATIENCE).map_err(|e| self.trusted(e))?;
        if self.double {
            self.doubt.clone_from(&expected.doubt);
        }
        if !self.families.sound(draw.family, &expected) {
            return Ok(None);
        }
        self.families.learn(draw.family, &expected.notes);
        self.like = glance::enough(&expected).then(|| (variant.to_owned(), expected.clone()));
        Ok(Some(expected))
    }

    /// Inputs and truths of calls, of as many as the oracle's arena holds, from the first on; none where the task
    /// is not one of which the truth is enough ([`crate::check::glance`]).
    pub(crate) fn truths(
        &mut self,
        variant: &str,
        draws: &[Draw],
    ) -> Result<Vec<Expected>, JudgeError> {
        let Some((of, like)) = &self.like else { return Ok(Vec::new()) };
        if of != variant || !self.double {
            return Ok(Vec::new());
        }
        let like = like.clone();
        let (seeds, families) = named(draws);
        let request = json!({
            "do": "truths", "variant": variant, "seeds": seeds, "families": families,
        });
        let told: Truths = self.worker.ask(&request, PATIENCE).map_err(|e| self.trusted(e))?;
        let pairs = told.each.into_iter().zip(draws);
        let each =
            pairs.map_while(|(truth, draw)| glance::expected(&self.families, &like, truth, *draw));
        Ok(each.collect())
    }

    /// How far honest programs that sum in other orders are from the truth on this very draw. What was
    /// expected last is in the arena no longer.
    pub(crate) fn reordered(&mut self, variant: &str, draw: Draw) -> Result<Reordered, JudgeError> {
        let (seed, family) = (draw.seed, draw.family.name());
        let request = json!({
            "do": "reordered", "variant": variant, "seed": seed, "family": family,
            "double": self.double,
        });
        self.worker.ask(&request, PATIENCE).map_err(|e| self.trusted(e))
    }

    /// What honest programs say of single elements of an output, by their row-major numbers. As after
    /// `reordered`, what was expected last may be gone.
    pub(crate) fn ties(
        &mut self,
        variant: &str,
        draw: Draw,
        (output, places): (usize, &[u64]),
    ) -> Result<Said, JudgeError> {
        let request = json!({
            "do": "ties", "variant": variant, "seed": draw.seed, "family": draw.family.name(),
            "output": output, "places": places,
        });
        self.worker.ask(&request, PATIENCE).map_err(|e| self.trusted(e))
    }
}
