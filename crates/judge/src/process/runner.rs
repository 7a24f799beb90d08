//! A runner: the process that holds a candidate. The judge trusts nothing that it says.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use serde_json::{Value as Json, json};
use warpwright_jail::Outcome;
use warpwright_record::inputs::InputFamily;

use crate::check::families::Draw;
use crate::check::layout::{Layout, place_all};
use crate::check::named::{Named, Results};
use crate::device::arena::{Arena, Lent, Poison, Zone};
use crate::device::device_arbiter::{DeviceArbiter, Purpose};
use crate::error::JudgeError;
use crate::process::candidate::{LoadedCandidate, WindowState, moves, too_large};
use crate::process::channel::NoAnswer;
use crate::process::failure::{Stumble, Trouble};
use crate::process::oracle::Oracle;
use crate::process::played::{Played, look, offsets};
use crate::process::replay_trouble::no_inputs;
use crate::process::runner_dirs::RunnerDir;
use crate::process::runner_pool::Spare;
use crate::process::wire::{Place, Prepared, Value};
use crate::process::worker::Worker;

/// Places of the results that are looked at on the cpu device, where everything is frozen then and nobody's
/// clock runs.
const FROZEN_SAMPLES: usize = 1024;

/// Longest a runner may take to map its memory.
const ADOPT_PATIENCE: Duration = Duration::from_mins(2);

/// A candidate loaded in its process.
pub(crate) struct Runner {
    // Ends before its folder is removed.
    worker: Worker,
    dir: RunnerDir,
    state: WindowState,
    /// Longest any one request may take.
    patience: Duration,
}

/// A runner that has ended.
pub(crate) struct Ended {
    /// How it went, if it was gone already.
    pub(crate) outcome: Option<Outcome>,
    /// Its last words.
    pub(crate) tail: String,
    /// Its memory, if nothing that could have mapped it is left.
    pub(crate) arena: Option<Arc<Arena>>,
}

impl Runner {
    /// Makes a process that waited this candidate's: shows it the artifact, and on the cpu device
    /// gives it its memory, every page of it at once if the candidate will be timed: a page fault
    /// inside a window would be timed too. Nothing of the candidate runs yet.
    pub(crate) fn adopt(
        spare: Spare,
        artifact: &Path,
        (arena, timed): (Arc<Arena>, bool),
        layout: Layout,
        patience: Duration,
        random: StdRng,
        arbiter: &DeviceArbiter,
    ) -> Result<Self, JudgeError> {
        let Spare { mut worker, runner_dir, .. } = spare;
        let failed = |e| JudgeError::infrastructure("copy the artifact for the runner", e);
        if let Arena::Host(_) = &*arena {
            // Copying and touching every page of the memory would disturb a measured window.
            let _shared = arbiter.share(Purpose::Host);
            runner_dir.fill(artifact).map_err(failed)?;
            let request = json!({"do": "adopt", "arena_bytes": layout.len(), "populate": timed});
            worker.hand_over(&request, &arena, ADOPT_PATIENCE, arbiter)?;
        } else {
            // Its memory is mapped already: all candidates of a GPU have the same.
            runner_dir.fill(artifact).map_err(failed)?;
        }
        Ok(Self {
            worker,
            dir: runner_dir,
            state: WindowState::new(arena, layout, random),
            patience,
        })
    }

    fn ask<T: serde::de::DeserializeOwned>(
        &mut self,
        during: &'static str,
        request: &Json,
    ) -> Result<T, Trouble> {
        let answer = self.worker.ask(request, self.patience);
        answer.map_err(|answer| Trouble::Candidate(Stumble { during, answer }))
    }

    /// Makes ready for the candidate, with the device held: moves the process to these cores, and
    /// poisons what the candidate before it may have left. Memory for results is poisoned again
    /// before each window; inputs are overwritten.
    pub(crate) fn begin(&mut self, cores: &[usize]) -> Result<(), Trouble> {
        match &*self.state.arena {
            Arena::Cuda(arena) => arena.poison(0, arena.len() / 4 * 4, Poison::NAN)?,
            // Whatever a former candidate left in the file was overwritten before this one got it, and
            // what is not touched costs nothing.
            Arena::Host(arena) => {
                let weights = self.state.layout.weights;
                arena.poison(weights.offset, weights.bytes, Poison::NAN)?;
            }
        }
        if !cores.is_empty() {
            self.ask::<Json>("load", &json!({"do": "pin", "cores": cores}))?;
        }
        Ok(())
    }

    /// Copies tensors from the oracle's arena to where the runner takes them from.
    fn bring(&self, oracle: &Oracle, tensors: &mut [Place]) -> Result<(), Trouble> {
        let from = tensors.to_vec();
        place_all(tensors, self.state.layout.passage().offset);
        Ok(self.state.arena.copy_all(&oracle.arena, &moves(&from, tensors))?)
    }

    /// Loads `model_new.py` and the artifact.
    pub(crate) fn load(
        &mut self,
        oracle: &mut Oracle,
        source: &str,
        settings: (&str, &str),
    ) -> Result<(), Trouble> {
        let mut init = oracle.init()?;
        self.bring(oracle, &mut init.tensors)?;
        let (profile, mode) = settings;
        let request = json!({
            "do": "load",
            "source": source,
            "artifact": self.dir.shown().to_string_lossy(),
            "init": init,
            "profile": profile,
            "mode": mode,
            "zone": zone_json(self.state.layout.weights),
        });
        self.ask::<Json>("load", &request)?;
        Ok(())
    }

    /// Builds a `ModelNew` with the weights of a variant; milliseconds of its `prepare()`.
    pub(crate) fn state(&mut self, oracle: &mut Oracle, variant: &str) -> Result<f64, Trouble> {
        let mut state = oracle.state(variant)?;
        self.bring(oracle, &mut state.tensors)?;
        let request = json!({
            "do": "state", "variant": variant, "names": state.names, "tensors": state.tensors,
        });
        Ok(self.ask::<Prepared>("prepare", &request)?.prepare_ms)
    }

    /// Has a variant called once on inputs of its own, and takes no notice of what it gives: what it
    /// makes lazily, it makes now.
    pub(crate) fn warm(&mut self, oracle: &mut Oracle, variant: &str) -> Result<(), Trouble> {
        let draw = Draw::fresh(InputFamily::Own, &mut self.state.random);
        let set = oracle.inputs(&[draw], 0)?.sets.pop();
        let mut inputs = set.ok_or_else(too_large)?;
        if inputs.padded_bytes() > self.state.layout.passage().bytes {
            return Err(too_large().into());
        }
        self.bring(oracle, &mut inputs.tensors)?;
        let zone = zone_json(self.state.layout.first);
        let request = json!({"do": "warm", "variant": variant, "inputs": inputs, "zone": zone});
        self.ask::<Json>("forward", &request)?;
        Ok(())
    }

    /// Forbids operators that compute.
    pub(crate) fn lock(&mut self) -> Result<(), Trouble> {
        self.ask::<Json>("load", &json!({"do": "lock"}))?;
        Ok(())
    }

    /// Stops everything of the candidate on the host until something is asked of it.
    pub(crate) fn freeze(&mut self) -> Result<(), Trouble> {
        self.worker
            .freeze()
            .map_err(|answer| Trouble::Candidate(Stumble { during: "load", answer }))
    }

    /// Ends the process, which may be `gone` already.
    pub(crate) fn end(self, gone: bool) -> Ended {
        let Self { worker, state: WindowState { arena, .. }, .. } = self;
        let (outcome, tail) = if gone { worker.end() } else { worker.kill() };
        if let Arena::Cuda(arena) = &*arena {
            arena.drop_inputs();
        }
        // The jail tells how it ended once nothing in it is left; otherwise something may be, and
        // have the memory mapped.
        let arena = outcome.is_some().then_some(arena);
        Ended { outcome: outcome.filter(|_| gone), tail, arena }
    }
}

impl LoadedCandidate for Runner {
    fn nothing(&mut self, _: &[u64]) -> Result<Option<Duration>, Trouble> {
        Ok(None)
    }

    fn window_state(&self) -> &WindowState {
        &self.state
    }

    /// The judge tells the runner where inputs and results will lie while neither exists. It freezes the
    /// runner, makes the inputs and poisons the results. "Go" brings the order, and a secret
    /// that the answer must have. The answer names the results of all calls, and before anything else
    /// is done with it the runner is frozen again.
    fn play(
        &mut self,
        oracle: &mut Oracle,
        variant: &str,
        draws: &[Draw],
    ) -> Result<Played, Trouble> {
        let zone = self.state.layout.window(draws.len() as u64, &mut self.state.random);
        let slots = self.state.layout.slots(draws.len() as u64, &mut self.state.random);
        let poison = self.state.poison();
        let foreseen = foresee(&oracle.opened.sizes.inputs, &slots);
        let stage = json!({"do": "stage", "sets": foreseen, "zone": zone_json(zone)});
        self.ask::<Json>("forward", &stage)?;
        let stopped = |answer| Trouble::Candidate(Stumble { during: "forward", answer });
        self.worker.freeze().map_err(stopped)?;
        let staging = Instant::now();
        let lent = match &*self.state.arena {
            Arena::Cuda(arena) => {
                let wanted = self.state.layout.spread(draws.len() as u64);
                let renewed = arena.renew_inputs(wanted);
                let (fd, bytes) = renewed.map_err(|error| no_inputs(error, 0, oracle.name()))?;
                Some(Lent { fd, bytes, keep: false })
            }
            Arena::Host(_) => None,
        };
        let sets = self.state.fill(oracle, draws, &slots, (zone, poison, lent.as_ref()))?;
        self.state.spent.inputs += staging.elapsed();
        let order = self.state.shuffled(sets.len());
        // Numbers among the inputs differ from draw to draw.
        let others: Vec<(usize, &Value)> =
            sets.iter().enumerate().filter(|(i, set)| foreseen.get(*i) != Some(*set)).collect();
        let bytes = lent.as_ref().map_or(0, |lent| lent.bytes);
        let go = json!({
            "do": "go", "which": variant, "order": order, "sets": others, "apart_bytes": bytes,
        });
        let lent = lent.as_ref().map(|lent| lent.fd.as_fd());
        let (arena, random) = (Arc::clone(&self.state.arena), &mut self.state.random);
        let calls = order.len();
        let (elapsed, answer) = self
            .worker
            .window((&go, lent), self.patience, |reply| look(reply, calls, zone, &arena, random));
        self.state.spent.windows += elapsed;
        let answered = answer.map_err(stopped)?;
        // What it has left running there would slow baselines and empty windows, which come next.
        if !self.state.is_idle()? {
            return Err(stopped(NoAnswer::LeftRunning));
        }
        let (results, samples, seen) = if let Some(seen) = answered.seen {
            seen?.map_err(stopped)?
        } else {
            let named = serde_json::from_value(answered.answer);
            let named = named.map_err(|e| NoAnswer::Malformed(e.to_string()));
            let results = named.and_then(|named: Named| Results::of(named, calls));
            let results = results.map_err(stopped)?;
            let samples = results.samples(zone, FROZEN_SAMPLES, &mut self.state.random);
            let seen = self.state.arena.samples(&offsets(&samples))?;
            (results, samples, seen)
        };
        self.state.count(elapsed, calls);
        let exchanged = None;
        Ok(Played { elapsed, zone, sets, order, poison, exchanged, results, samples, seen })
    }

    fn maps_inputs(&self) -> bool {
        true
    }

    fn drop_variant(&mut self, variant: &str) -> Result<(), Trouble> {
        self.ask::<Json>("forward", &json!({"do": "drop", "variant": variant}))?;
        Ok(())
    }

    // That of the jail's first process.
    fn pid(&self) -> u32 {
        self.worker.pid()
    }
}

/// Inputs as the task gave them when it was opened, one set per slot: what a runner is told before there
/// are any.
fn foresee(inputs: &Value, slots: &[Zone]) -> Vec<Value> {
    let one = |slot: &Zone| {
        let mut set = inputs.clone();
        place_all(&mut set.tensors, slot.offset);
        set
    };
    slots.iter().map(one).collect()
}

fn zone_json(zone: Zone) -> Json {
    json!({"offset": zone.offset, "bytes": zone.bytes})
}
