//! A replayer: the process that holds a GPU and launches plans. Its host code is trusted; everything in its
//! context belongs to the candidate while kernels run. So it gets addresses, and no values, seeds or results. On the
//! cpu device it forks processes that run the kernels.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::Value as Json;
use warpwright_jail::Outcome;
use warpwright_plan::{LaunchPlan, Role as Block};
use warpwright_replay::wire::{self, Request};

use crate::check::families::Draw;
use crate::check::layout::{Layout, place_all};
use crate::check::placement::{Placement, TooLarge};
use crate::device::arena::{Arena, Lent, Poison, Zone, gaps};
use crate::device::device_arbiter::DeviceArbiter;
use crate::error::JudgeError;
use crate::process::candidate::{LoadedCandidate, WindowState, too_large};
use crate::process::channel::NoAnswer;
use crate::process::exchange::Exchanged;
use crate::process::failure::Trouble;
use crate::process::host::{Grant, Host};
use crate::process::memory::START_BYTES;
use crate::process::oracle::Oracle;
use crate::process::placed_plan::{Placed, bring, results};
use crate::process::plan_values::{covered, form, same_shapes};
use crate::process::played::{Played, SAMPLES, offsets};
use crate::process::replay_trouble::{no_inputs, trouble};
use crate::process::role::Role;
use crate::process::worker::Worker;

/// Candidates after which a replayer is ended, whatever happened: what accumulates in a context is not known.
const MOST_SERVED: u32 = 256;

/// Longest that requests which run no kernel of a candidate may take.
const PATIENCE: Duration = Duration::from_mins(1);

/// A replayer that waits for a plan.
pub(crate) struct Replayer {
    worker: Worker,
    /// No other replayer has this name, on any machine.
    id: String,
    served: u32,
    /// The last turn that a repeat has confirmed.
    agreed: u32,
}

/// How a replayer stands when it is given a candidate.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    pub(crate) id: String,
    /// Number of this candidate among those that it serves, from 1.
    pub(crate) turn: u32,
    /// The last turn that a repeat has confirmed.
    pub(crate) agreed: u32,
}

/// A candidate's plan for one set of weights, and the contents of its constants.
pub(crate) struct PlanOf {
    pub(crate) plan: LaunchPlan,
    pub(crate) constants: Vec<Vec<u8>>,
    /// Functions of the device runtime by which its kernels reach beyond the plan.
    pub(crate) needs: BTreeSet<String>,
}

/// A plan that a replayer has loaded.
pub(crate) struct Replay {
    replayer: Replayer,
    /// Name of the weights, and the plan for them.
    plans: Vec<(&'static str, Placed)>,
    /// Structure of the inputs that were recorded, and the numbers among them.
    trees: [Json; 2],
    /// Whether no kernel is launched: what is right all the same comes from elsewhere.
    without_launches: bool,
    /// Whose weights are in memory.
    settled: Option<&'static str>,
    state: WindowState,
    patience: Duration,
    /// Bytes of memory for inputs that the replayer has mapped.
    inputs: u64,
    /// Parts of the memory that are no longer as they were poisoned at first.
    used: Vec<Zone>,
    /// The last window.
    last: Option<LastWindow>,
    /// What was exchanged in it.
    exchanged: Option<Exchanged>,
    /// Most bytes of local memory of a thread.
    local: u32,
}

/// Where the blocks of a window lie, and what the rest of its part of the memory holds.
struct LastWindow {
    zone: Zone,
    poison: Poison,
    blocks: Vec<Zone>,
}

/// Finds the program: where `WARPWRIGHT_REPLAYER` says, else beside this program, or one folder up.
pub(crate) fn find() -> Result<PathBuf, JudgeError> {
    const NAME: &str = "warpwright-replayer";
    let hint = "keep it beside `warpwright`, or set WARPWRIGHT_REPLAYER to its path";
    if let Some(named) = std::env::var_os("WARPWRIGHT_REPLAYER").map(PathBuf::from) {
        let missing = format!("WARPWRIGHT_REPLAYER names {}, which is no file", named.display());
        return named.is_file().then_some(named).ok_or_else(|| JudgeError::lacks(&missing, hint));
    }
    let own = std::env::current_exe().ok();
    let around = own.iter().flat_map(|own| own.ancestors().skip(1).take(2));
    let found = around.map(|folder| folder.join(NAME)).find(|path| path.is_file());
    let missing = "the program `warpwright-replayer` was not found";
    found.ok_or_else(|| JudgeError::lacks(missing, hint))
}

impl Replayer {
    /// Starts one, which maps the memory of all candidates.
    pub(crate) fn start(
        host: &Host,
        arena: &Arena,
        cache: &Path,
        arbiter: &DeviceArbiter,
    ) -> Result<Self, JudgeError> {
        let grant = Grant { read: vec![cache], ..Grant::default() };
        let worker = Worker::spawn(host, Role::Replayer, Some(arena), &grant)?.up(arbiter)?;
        let id = format!("{:032x}", rand::rng().random::<u128>());
        Ok(Self { worker, id, served: 0, agreed: 0 })
    }

    /// How it stands if it is given a candidate now.
    pub(crate) fn standing(&self) -> Standing {
        Standing { id: self.id.clone(), turn: self.served + 1, agreed: self.agreed }
    }

    /// A repeat has confirmed its last verdict.
    pub(crate) fn agreed(&mut self) {
        self.agreed = self.served;
    }

    /// Counts a candidate that it did not get.
    #[cfg(test)]
    pub(crate) fn serve(&mut self) {
        self.served += 1;
    }

    /// Whether it has served nobody yet.
    pub(crate) fn is_fresh(&self) -> bool {
        self.served == 0
    }

    /// Whether it still works and may serve another candidate.
    pub(crate) fn is_fit(&mut self) -> bool {
        self.served < MOST_SERVED && self.worker.answers()
    }

    fn ask<T: serde::de::DeserializeOwned>(
        &mut self,
        during: &'static str,
        request: &Request,
        patience: Duration,
    ) -> Result<T, Trouble> {
        let answer = self.worker.ask(&json_of(request), patience);
        answer.map_err(|answer| trouble(during, answer))
    }
}

impl Replay {
    /// Loads the plans of a candidate, the same but for the constants; the first one's kernels are loaded.
    pub(crate) fn load(
        mut replayer: Replayer,
        (plans, trees): (Vec<(&'static str, Arc<PlanOf>)>, [Json; 2]),
        artifact: &Path,
        (arena, layout, random): (Arc<Arena>, Layout, StdRng),
        (patience, cores): (Duration, &[usize]),
    ) -> Result<Result<Self, Unreplayable>, Trouble> {
        let mut placed = Vec::with_capacity(plans.len());
        for (variant, of) in plans {
            let placement = match Placement::of(&of.plan, &layout) {
                Ok(placement) => placement,
                Err(too_large) => {
                    return Ok(Err(Unreplayable { replayer, reason: told(&too_large) }));
                }
            };
            let form = form(&of.plan);
            placed.push((variant, Placed { of, placement, form }));
        }
        let Some((_, first)) = placed.first() else {
            let reason = "no weights were recorded".to_owned();
            return Ok(Err(Unreplayable { replayer, reason }));
        };
        let (plan, artifact) = (first.of.plan.clone(), artifact.to_owned());
        let request = Request::Load(Box::new(wire::Load { plan, artifact }));
        replayer.served += 1;
        if !cores.is_empty() {
            let pin = Request::Pin(wire::Pin { cores: cores.to_vec() });
            replayer.ask::<Json>("load", &pin, PATIENCE)?;
        }
        let loaded = replayer.ask::<wire::Loaded>("load", &request, PATIENCE)?;
        let local = loaded.kernels.iter().map(|kernel| kernel.local.max(0)).max().unwrap_or(0);
        let state = WindowState::new(arena, layout, random);
        Ok(Ok(Self {
            replayer,
            plans: placed,
            trees,
            without_launches: false,
            settled: None,
            state,
            patience,
            inputs: 0,
            used: Vec::new(),
            last: None,
            exchanged: None,
            local: local.unsigned_abs(),
        }))
    }

    /// Brings a variant's weights and tables to their places, and runs what `prepare` launched. Seconds that
    /// the launches took.
    pub(crate) fn settle(&mut self, oracle: &mut Oracle, variant: &str) -> Result<f64, Trouble> {
        let Self { replayer, plans, state, without_launches, .. } = self;
        let Some((name, plan)) = plans.iter().find(|(name, _)| *name == variant) else {
            return Err(
                JudgeError::infrastructure("replay a plan", "it has no such weights").into()
            );
        };
        let blocks = &plan.of.plan.blocks;
        let init = oracle.init()?;
        let wanted = |role: Block| match role {
            Block::Init(position) => init.tensors.get(position as usize),
            _ => None,
        };
        bring(state, oracle, plan, wanted)?;
        let weights = oracle.state(variant)?;
        let wanted = |role: Block| match role {
            Block::Weight(position) => weights.tensors.get(position as usize),
            _ => None,
        };
        bring(state, oracle, plan, wanted)?;
        for &(index, offset) in &plan.placement.lasting {
            if let Some(Block::Constant(which)) = blocks.get(index).map(|block| block.role)
                && let Some(bytes) = plan.of.constants.get(which as usize)
            {
                state.arena.write(offset, bytes)?;
            }
        }
        if *without_launches {
            plan.forget_kept(&state.arena)?;
        }
        let at: Vec<u64> = plan.placement.lasting.iter().map(|(_, offset)| *offset).collect();
        let settle = wire::Settle { at, without_launches: *without_launches };
        replayer.ask::<Json>("prepare", &Request::Settle(settle), PATIENCE)?;
        let started = Instant::now();
        replayer.ask::<Json>("prepare", &Request::Prepare, self.patience)?;
        self.settled = Some(name);
        Ok(started.elapsed().as_secs_f64())
    }

    /// From now on runs everything but kernels, and forgets what they left behind.
    pub(crate) fn leave_out_launches(&mut self) {
        (self.without_launches, self.settled) = (true, None);
    }

    /// Words that were written where nothing of the plan lies: none of an honest candidate.
    pub(crate) fn foreign_writes(&self) -> Result<u64, JudgeError> {
        let arena = &self.state.arena;
        let all = Zone { offset: 0, bytes: arena.len().saturating_sub(START_BYTES) };
        let lasting = self.plans.iter().flat_map(|(_, plan)| plan.lasting());
        let taken: Vec<Zone> = lasting.chain(self.used.iter().copied()).collect();
        let mut found = arena.foreign(&gaps(all, taken), Poison::NAN)?.unwrap_or(0);
        if let Some(LastWindow { zone, poison, blocks }) = &self.last {
            found += arena.foreign(&gaps(*zone, blocks.clone()), *poison)?.unwrap_or(0);
        }
        Ok(found)
    }

    /// Memory for the inputs of a window, mapped in the replayer.
    fn map_inputs(&mut self, oracle: &mut Oracle, calls: u64) -> Result<(), Trouble> {
        let Arena::Cuda(arena) = &*self.state.arena else { return Ok(()) };
        let wanted = self.state.layout.spread(calls);
        if wanted <= self.inputs {
            return Ok(());
        }
        // Windows grow: some more, so that it is not made anew each time.
        let wanted = self.state.layout.spread(2 * calls).max(wanted);
        // What nobody has mapped is free again.
        oracle.unmap_inputs()?;
        let renewed = arena.renew_inputs(wanted);
        let (lent, bytes) = renewed.map_err(|error| no_inputs(error, self.local, oracle.name()))?;
        let request = json_of(&Request::Inputs(wire::Inputs { bytes }));
        let answer = self.replayer.worker.ask_lending::<Json>(&request, lent.as_fd(), PATIENCE);
        answer.map_err(|answer| trouble("forward", answer))?;
        self.inputs = bytes;
        Ok(())
    }

    /// Ends the work on the candidate. The replayer, if it can serve another one; else how it ended, where it was
    /// `gone` already.
    pub(crate) fn end(self, went_well: bool, gone: bool) -> Result<Replayer, Option<Outcome>> {
        let Self { mut replayer, state, .. } = self;
        let unload = json_of(&Request::Unload);
        let fit = went_well && replayer.worker.ask::<Json>(&unload, PATIENCE).is_ok();
        if let Arena::Cuda(arena) = &*state.arena {
            arena.drop_inputs();
        }
        if fit {
            return Ok(replayer);
        }
        // One that closed the conversation needs a moment to be collected.
        let ended = if gone { replayer.worker.end() } else { replayer.worker.kill() };
        Err(ended.0)
    }
}

/// A plan that does not fit the judge's memory, and the replayer that would have had it.
pub(crate) struct Unreplayable {
    pub(crate) replayer: Replayer,
    pub(crate) reason: String,
}

fn told(TooLarge { what, wanted, available }: &TooLarge) -> String {
    format!("{what} take {} MiB, and {} MiB are there", wanted >> 20, available >> 20)
}

impl LoadedCandidate for Replay {
    fn window_state(&self) -> &WindowState {
        &self.state
    }

    /// The judge decides where every block of every call lies. Neither inputs nor results exist while the
    /// replayer makes its launches ready; "go" only has it launch them.
    fn play(
        &mut self,
        oracle: &mut Oracle,
        variant: &str,
        draws: &[Draw],
    ) -> Result<Played, Trouble> {
        if self.settled != Some(variant) {
            self.settle(oracle, variant)?;
        }
        let calls = draws.len() as u64;
        self.map_inputs(oracle, calls)?;
        let stopped = |answer| trouble("forward", answer);
        let Self { replayer, plans, trees, state, patience, inputs, used, last, exchanged, .. } =
            self;
        let Some((_, plan)) = plans.iter().find(|(name, _)| *name == variant) else {
            return Err(
                JudgeError::infrastructure("replay a plan", "it has no such weights").into()
            );
        };
        let slots = state.layout.slots(calls, &mut state.random);
        let order = state.shuffled(draws.len());
        let places: Vec<Vec<u64>> = order
            .iter()
            .filter_map(|&slot| slots.get(slot))
            .map(|slot| {
                let mut set = oracle.opened.sizes.inputs.clone();
                place_all(&mut set.tensors, slot.offset);
                set.tensors.iter().filter_map(|place| place.offset).collect()
            })
            .collect();
        let placed = plan.placement.window(&state.layout, &places, &mut state.random);
        let Some(placed) = placed else { return Err(too_large().into()) };
        let zone = placed.zone;
        let results = results(plan, &placed.at, draws.len()).ok_or_else(too_large)?;
        let at = wire::words(&placed.at);
        let stage = Request::Stage(wire::Stage { calls: calls as u32, at, graph: false });
        replayer.ask::<Json>("forward", &stage, PATIENCE)?;
        let poison = state.poison();
        let staging = Instant::now();
        let lent = match &*state.arena {
            Arena::Cuda(arena) => {
                arena.lend_inputs()?.map(|(fd, _)| Lent { fd, bytes: *inputs, keep: true })
            }
            Arena::Host(_) => None,
        };
        let sets = state.fill(oracle, draws, &slots, (zone, poison, lent.as_ref()))?;
        state.spent.inputs += staging.elapsed();
        // What was recorded was recorded for these shapes and numbers.
        if !sets.iter().all(|set| same_shapes(set, &oracle.opened.sizes.inputs)) {
            return Err(Trouble::Unplanned("the inputs' shapes or strides vary".to_owned()));
        }
        if !sets.iter().all(|set| covered(&set.tree, trees)) {
            let why = "numbers among the inputs vary in another way than when it was recorded";
            return Err(Trouble::Unplanned(why.to_owned()));
        }
        let samples = results.samples(zone, SAMPLES, &mut state.random);
        // Where results may lie in inputs, their places must keep what the call left there.
        let opened = &oracle.opened;
        let alone = opened.aliases_input || !opened.sizes.changed.is_empty();
        *exchanged = if alone || !state.layout.apart {
            None
        } else {
            Exchanged::make(&state.arena, (&sets, &order), &mut state.random)?
        };
        if let Some(exchanged) = exchanged {
            replayer.ask::<Json>("forward", &exchanged.request(), PATIENCE)?;
        }
        let (at, arena) = (offsets(&samples), Arc::clone(&state.arena));
        let go = json_of(&Request::Go(wire::Go { graph: false }));
        let (elapsed, answer) =
            replayer.worker.window((&go, None), *patience, |_| arena.samples(&at));
        state.spent.windows += elapsed;
        let answered = answer.map_err(stopped)?;
        if !state.is_idle()? {
            return Err(stopped(NoAnswer::LeftRunning));
        }
        let seen = match answered.seen {
            Some(seen) => seen?,
            None => state.arena.samples(&at)?,
        };
        if let Some(exchanged) = exchanged {
            exchanged.undo(&state.arena)?;
        }
        let exchanged = exchanged.as_ref().map(|exchanged| exchanged.call);
        used.push(zone);
        *last = Some(LastWindow { zone, poison, blocks: plan.placement.extents(&placed.at) });
        state.count(elapsed, draws.len());
        Ok(Played { elapsed, zone, sets, order, poison, exchanged, results, samples, seen })
    }

    fn most_calls(&self) -> u64 {
        let layout = &self.state.layout;
        let each = self.plans.iter().map(|(_, plan)| plan.placement.most_calls(layout));
        each.min().unwrap_or(0)
    }

    fn nothing(&mut self, samples: &[u64]) -> Result<Option<Duration>, Trouble> {
        let stage = Request::Stage(wire::Stage { calls: 0, at: String::new(), graph: false });
        self.replayer.ask::<Json>("forward", &stage, PATIENCE)?;
        // What windows with calls have.
        if let Some(exchanged) = &self.exchanged {
            self.replayer.ask::<Json>("forward", &exchanged.empty(), PATIENCE)?;
        }
        let (go, arena) = (json_of(&Request::Go(wire::Go { graph: false })), &self.state.arena);
        let worker = &mut self.replayer.worker;
        let (elapsed, answer) = worker.window((&go, None), PATIENCE, |_| arena.samples(samples));
        let answered = answer.map_err(|answer| trouble("forward", answer))?;
        answered.seen.transpose()?;
        Ok(Some(elapsed))
    }

    fn maps_inputs(&self) -> bool {
        false
    }

    fn drop_variant(&mut self, variant: &str) -> Result<(), Trouble> {
        if self.settled == Some(variant) {
            self.settled = None;
        }
        Ok(())
    }

    fn pid(&self) -> u32 {
        self.replayer.worker.pid()
    }
}

fn json_of(request: &Request) -> Json {
    // Plain data with names for keys always has a form.
    serde_json::to_value(request).unwrap_or_default()
}
