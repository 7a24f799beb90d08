//! A runner as the judge sees it: a process that holds a candidate and must be believed nothing.

use std::path::Path;
use std::sync::Arc;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::{Value as Json, json};
use warpwright_jail::Outcome;

use crate::arena::{Arena, ArenaError, Move, POISON};
use crate::channel::NoAnswer;
use crate::claims::Zone;
use crate::compare::Poison;
use crate::error::JudgeError;
use crate::families::Draw;
use crate::gate::{Gate, Purpose};
use crate::homes::Home;
use crate::layout::{Layout, place_all, sample_offsets};
use crate::nursery::Spare;
use crate::oracle::Oracle;
use crate::process::Worker;
use crate::wire::{Outputs, Place, Prepared, Value};

/// Samples of a fingerprint on the cpu device; on a GPU the cost does not depend on it.
const SAMPLES: usize = 256;

/// Longest a runner may take to map its memory.
const ADOPT_PATIENCE: Duration = Duration::from_mins(2);

/// The candidate did not do what was asked, at this point.
#[derive(Debug)]
pub(crate) struct Stumble {
    pub(crate) during: &'static str,
    pub(crate) answer: NoAnswer,
}

/// Either our own failure or the candidate's.
#[derive(Debug)]
pub(crate) enum Trouble {
    Judge(JudgeError),
    Candidate(Stumble),
}

impl<E: Into<JudgeError>> From<E> for Trouble {
    fn from(error: E) -> Self {
        Self::Judge(error.into())
    }
}

/// A candidate loaded in its process.
pub(crate) struct Runner {
    // Ends before its folder is removed.
    worker: Worker,
    home: Home,
    pub(crate) arena: Arc<Arena>,
    pub(crate) layout: Layout,
    /// Longest any one request may take.
    pub(crate) patience: Duration,
    /// The shortest window of one call so far.
    pub(crate) single: Option<Duration>,
    spent: Spent,
    random: StdRng,
}

/// What a candidate's windows took, those that count for nothing included.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    /// Making inputs, and poisoning the memory of results.
    pub(crate) inputs: Duration,
    /// From "go" to the fingerprint.
    pub(crate) windows: Duration,
}

/// What is left of a runner.
pub(crate) struct Ended {
    /// How it went, if it was gone already.
    pub(crate) outcome: Option<Outcome>,
    /// Its last words.
    pub(crate) tail: String,
    /// Its memory, if nothing that could have mapped it is left.
    pub(crate) arena: Option<Arc<Arena>>,
}

/// A window that was played: where its inputs lie, what was sampled and when.
pub(crate) struct Played {
    pub(crate) elapsed: Duration,
    pub(crate) zone: Zone,
    /// Staged inputs by slot.
    pub(crate) sets: Vec<Value>,
    /// Slot used by each call.
    pub(crate) order: Vec<usize>,
    /// Places that were looked at.
    pub(crate) samples: Vec<u64>,
    fingerprint: u64,
}

impl Played {
    /// What the zone of the results was filled with before the window.
    pub(crate) fn poison(&self) -> Poison {
        let half = u64::from(POISON);
        Poison { start: self.zone.offset, word: half | half << 16 | half << 32 | half << 48 }
    }
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
        gate: &Gate,
    ) -> Result<Self, JudgeError> {
        let Spare { mut worker, home, .. } = spare;
        let failed = |e| JudgeError::infrastructure("show the artifact to the runner", e);
        if let Arena::Host(_) = &*arena {
            // Copying and touching every page of the memory would disturb a measured window.
            let _shared = gate.share(Purpose::Host);
            home.fill(artifact).map_err(failed)?;
            let request = json!({"do": "adopt", "arena_bytes": layout.len(), "populate": timed});
            worker.hand_over(&request, &arena, ADOPT_PATIENCE, gate)?;
        } else {
            // Its memory is mapped already: all candidates of a GPU have the same.
            home.fill(artifact).map_err(failed)?;
        }
        Ok(Self {
            worker,
            home,
            arena,
            layout,
            patience,
            single: None,
            spent: Spent::default(),
            random,
        })
    }

    /// What its windows took, and what was made for them.
    pub(crate) fn spent(&self) -> Spent {
        self.spent
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
        match &*self.arena {
            Arena::Cuda(arena) => arena.poison(0, arena.len())?,
            // Whatever a former candidate left in the file was overwritten before this one got it, and
            // what is not touched costs nothing.
            Arena::Host(arena) => {
                arena.poison(self.layout.weights.offset, self.layout.weights.bytes)?;
            }
        }
        if !cores.is_empty() {
            self.ask::<Json>("load", &json!({"do": "pin", "cores": cores}))?;
        }
        Ok(())
    }

    /// Copies tensors from the oracle's arena into the inputs zone.
    fn bring(&self, oracle: &Oracle, tensors: &mut [Place]) -> Result<(), Trouble> {
        let from = tensors.to_vec();
        place_all(tensors, self.layout.inputs.offset);
        Ok(self.arena.copy_all(&oracle.arena, &moves(&from, tensors))?)
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
            "artifact": self.home.shown().to_string_lossy(),
            "init": init,
            "profile": profile,
            "mode": mode,
            "zone": zone_json(self.layout.weights),
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

    /// Forbids operators that compute.
    pub(crate) fn lock(&mut self) -> Result<(), Trouble> {
        self.ask::<Json>("load", &json!({"do": "lock"}))?;
        Ok(())
    }

    /// Forgets a variant.
    pub(crate) fn drop_variant(&mut self, variant: &str) -> Result<(), Trouble> {
        self.ask::<Json>("forward", &json!({"do": "drop", "variant": variant}))?;
        Ok(())
    }

    /// Plays one window of one call per draw: fresh inputs in fresh places, a poisoned zone, an
    /// order that the runner learns with "go", and the clock of this process from "go" to the
    /// fingerprint of the results.
    pub(crate) fn play(
        &mut self,
        oracle: &mut Oracle,
        variant: &str,
        draws: &[Draw],
    ) -> Result<Played, Trouble> {
        let zone = self.layout.window(draws.len() as u64, &mut self.random);
        let staging = Instant::now();
        let placed = self.stage(oracle, draws, zone)?;
        self.spent.inputs += staging.elapsed();
        let stage = json!({"do": "stage", "sets": placed, "zone": zone_json(zone)});
        self.ask::<Json>("forward", &stage)?;
        let mut order: Vec<usize> = (0..placed.len()).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, self.random.random_range(0..=i));
        }
        let samples = sample_offsets(zone, SAMPLES, &mut self.random);
        let go = json!({"do": "go", "which": variant, "order": order});
        let (start, answer) = self.worker.ask_for_window(&go, self.patience);
        let fingerprint = self.arena.fingerprint(&samples)?;
        let elapsed = start.elapsed();
        self.spent.windows += elapsed;
        answer.map_err(|answer| Trouble::Candidate(Stumble { during: "forward", answer }))?;
        if order.len() == 1 {
            self.single = Some(self.single.map_or(elapsed, |least| least.min(elapsed)));
        }
        Ok(Played { elapsed, zone, sets: placed, order, samples, fingerprint })
    }

    /// Brings fresh inputs, while a second thread poisons the zone of the results.
    fn stage(
        &mut self,
        oracle: &mut Oracle,
        draws: &[Draw],
        zone: Zone,
    ) -> Result<Vec<Value>, Trouble> {
        let arena = Arc::clone(&self.arena);
        std::thread::scope(|scope| {
            let poisoning = scope.spawn(|| arena.poison(zone.offset, zone.bytes));
            let placed = self.stage_inputs(oracle, draws);
            joined(poisoning)?;
            placed
        })
    }

    /// Has the oracle make inputs, each set in a slot of its own.
    fn stage_inputs(&mut self, oracle: &mut Oracle, draws: &[Draw]) -> Result<Vec<Value>, Trouble> {
        let slots = self.layout.slots(draws.len() as u64, &mut self.random);
        match &*self.arena {
            Arena::Cuda(_) => stage_there(oracle, draws, &slots),
            Arena::Host(_) => self.stage_from(oracle, draws, &slots),
        }
    }

    /// Has the oracle make as many sets at a time as half of its arena holds, and brings each to its
    /// slot: one half is filled while the other is copied, which takes about as long.
    fn stage_from(
        &self,
        oracle: &mut Oracle,
        draws: &[Draw],
        slots: &[Zone],
    ) -> Result<Vec<Value>, Trouble> {
        let mut placed = Vec::with_capacity(draws.len());
        let all = oracle.sets_at_once();
        let halved = all > 1 && draws.len() > 1;
        let at_once = if halved { all / 2 } else { all };
        let half = at_once as u64 * oracle.opened.sizes.inputs.padded_bytes();
        let (source, target) = (&Arc::clone(&oracle.arena), &*self.arena);
        std::thread::scope(|scope| {
            let mut copying: Option<ScopedJoinHandle<'_, Result<(), ArenaError>>> = None;
            for (i, (draws, slots)) in draws.chunks(at_once).zip(slots.chunks(at_once)).enumerate()
            {
                let offset = if halved && i % 2 == 1 { half } else { 0 };
                let sets = oracle.inputs(draws, offset)?.sets;
                if let Some(copying) = copying.take() {
                    joined(copying)?;
                }
                let mut wanted = Vec::new();
                for (set, slot) in sets.iter().zip(slots) {
                    let mut here = set.clone();
                    if place_all(&mut here.tensors, slot.offset) > slot.end() {
                        return Err(too_large().into());
                    }
                    wanted.extend(moves(&set.tensors, &here.tensors));
                    placed.push(here);
                }
                let copy = move || target.copy_all(source, &wanted);
                if halved {
                    copying = Some(scope.spawn(copy));
                } else {
                    copy()?;
                }
            }
            copying.map_or(Ok(()), joined)?;
            Ok(placed)
        })
    }

    /// Whether the results are still what they were when the clock stopped.
    pub(crate) fn unchanged(&self, played: &Played) -> Result<bool, JudgeError> {
        Ok(self.arena.fingerprint(&played.samples)? == played.fingerprint)
    }

    /// Where the runner says that the results of a call lie.
    pub(crate) fn claimed(&mut self, call: usize) -> Result<Value, Trouble> {
        let request = json!({"do": "outputs", "calls": [call]});
        let mut given: Outputs = self.ask("forward", &request)?;
        given.outputs.pop().ok_or_else(|| {
            let answer = NoAnswer::Malformed("no outputs in its answer".to_owned());
            Trouble::Candidate(Stumble { during: "forward", answer })
        })
    }

    /// Forgets results and inputs of the last window.
    pub(crate) fn release(&mut self) -> Result<(), Trouble> {
        self.ask::<Json>("forward", &json!({"do": "release"}))?;
        Ok(())
    }

    /// Its id, as the host sees it: that of the jail's first process.
    pub(crate) fn pid(&self) -> u32 {
        self.worker.pid()
    }

    /// Ends the process, which may be `gone` already.
    pub(crate) fn end(self, gone: bool) -> Ended {
        let Self { worker, arena, .. } = self;
        let (outcome, tail) = if gone { worker.end() } else { worker.kill() };
        // The jail tells how it ended once nothing in it is left; otherwise something may be, and
        // have the memory mapped.
        let arena = outcome.is_some().then_some(arena);
        Ended { outcome: outcome.filter(|_| gone), tail, arena }
    }
}

/// Has the oracle store each set where it is to lie.
fn stage_there(oracle: &mut Oracle, draws: &[Draw], slots: &[Zone]) -> Result<Vec<Value>, Trouble> {
    let offsets: Vec<u64> = slots.iter().map(|slot| slot.offset).collect();
    let sets = oracle.provide(draws, &offsets)?.sets;
    let lies_in =
        |slot: &Zone, at: &Place| at.offset.is_some_and(|offset| slot.contains(offset, at.bytes));
    let fit = |(set, slot): (&Value, &Zone)| set.tensors.iter().all(|at| lies_in(slot, at));
    if sets.len() != slots.len() || !sets.iter().zip(slots).all(fit) {
        return Err(too_large().into());
    }
    Ok(sets)
}

fn too_large() -> JudgeError {
    JudgeError::infrastructure("place inputs", "get_inputs gives inputs of different sizes")
}

/// From where tensors lie to where they are to lie.
fn moves(from: &[Place], to: &[Place]) -> Vec<Move> {
    let at = |place: &Place| place.offset.unwrap_or(0);
    from.iter().zip(to).map(|(a, b)| Move { to: at(b), from: at(a), bytes: b.bytes }).collect()
}

/// What a thread that works on memory came to.
fn joined(thread: ScopedJoinHandle<'_, Result<(), ArenaError>>) -> Result<(), ArenaError> {
    let died = |_| ArenaError::new("work on memory", "a thread of ours died");
    thread.join().map_err(died)?
}

fn zone_json(zone: Zone) -> Json {
    json!({"offset": zone.offset, "bytes": zone.bytes})
}
