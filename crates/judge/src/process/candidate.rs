//! A loaded candidate: what plays windows, in a runner with its host code or in a replayer as a launch plan.

use std::sync::Arc;
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use crate::check::families::Draw;
use crate::check::layout::{Layout, place_all};
use crate::device::arena::{Arena, ArenaError, Lent, Move, Poison, Zone};
use crate::error::JudgeError;
use crate::process::failure::Trouble;
use crate::process::oracle::Oracle;
use crate::process::played::{Played, offsets};
use crate::process::wire::{Place, Value};

/// A candidate that has been loaded. What it says is not trusted.
pub(crate) trait LoadedCandidate {
    /// Its memory, and what its windows have shown.
    fn window_state(&self) -> &WindowState;

    /// Plays one window of one call per draw, with a variant of the weights.
    fn play(
        &mut self,
        oracle: &mut Oracle,
        variant: &str,
        draws: &[Draw],
    ) -> Result<Played, Trouble>;

    /// Most calls of a window.
    fn most_calls(&self) -> u64 {
        self.window_state().layout.calls
    }

    /// Time of a window of its process in which nothing is computed, which ends with a look at these places; `None`
    /// if a candidate's host code could lengthen it.
    fn nothing(&mut self, samples: &[u64]) -> Result<Option<Duration>, Trouble>;

    /// Whether its process maps the memory of its inputs in each window, as what it is compared with then does.
    fn maps_inputs(&self) -> bool;

    /// Forgets a variant.
    fn drop_variant(&mut self, variant: &str) -> Result<(), Trouble>;

    /// Id of its process, as the host sees it.
    fn pid(&self) -> u32;

    /// The memory in which its results lie.
    fn arena(&self) -> &Arc<Arena> {
        &self.window_state().arena
    }

    /// Whether the results are still what they were when the clock stopped.
    fn unchanged(&self, played: &Played) -> Result<bool, JudgeError> {
        Ok(self.arena().samples(&offsets(&played.samples))? == played.seen)
    }
}

/// Time of a candidate's windows, including those that do not count.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    /// Making inputs, and poisoning the memory of results.
    pub(crate) inputs: Duration,
    /// From "go" to the fingerprint.
    pub(crate) windows: Duration,
}

/// Memory of a candidate's windows, and what they have shown so far.
pub(crate) struct WindowState {
    pub(crate) arena: Arc<Arena>,
    pub(crate) layout: Layout,
    pub(crate) random: StdRng,
    /// The window so far that took the least per call, and how many calls it had.
    pub(crate) shortest: Option<(Duration, usize)>,
    pub(crate) spent: Spent,
}

impl WindowState {
    pub(crate) fn new(arena: Arc<Arena>, layout: Layout, random: StdRng) -> Self {
        Self { arena, layout, random, shortest: None, spent: Spent::default() }
    }

    /// What the memory of the next window's results is overwritten with.
    pub(crate) fn poison(&mut self) -> Poison {
        if self.random.random() { Poison::NAN } else { Poison::number(&mut self.random) }
    }

    /// Whether nothing of the candidate runs on a GPU any more; waits for that.
    pub(crate) fn is_idle(&self) -> Result<bool, ArenaError> {
        match &*self.arena {
            Arena::Cuda(arena) => arena.device().await_idle(),
            Arena::Host(_) => Ok(true),
        }
    }

    /// Counts a window of so many calls.
    pub(crate) fn count(&mut self, elapsed: Duration, calls: usize) {
        let each = |(elapsed, calls): (Duration, usize)| elapsed.as_secs_f64() / calls as f64;
        let this = (elapsed, calls);
        if calls > 0 && self.shortest.is_none_or(|least| each(this) < each(least)) {
            self.shortest = Some(this);
        }
    }

    /// The order in which a window's calls take their slots.
    pub(crate) fn shuffled(&mut self, calls: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..calls).collect();
        order.shuffle(&mut self.random);
        order
    }

    /// Brings fresh inputs, while a second thread poisons the zone of the results.
    pub(crate) fn fill(
        &mut self,
        oracle: &mut Oracle,
        draws: &[Draw],
        slots: &[Zone],
        (zone, poison, lent): (Zone, Poison, Option<&Lent>),
    ) -> Result<Vec<Value>, Trouble> {
        let arena = Arc::clone(&self.arena);
        std::thread::scope(|scope| {
            let poisoning = scope.spawn(|| arena.poison(zone.offset, zone.bytes, poison));
            // Each set in a slot of its own.
            let placed = match lent {
                Some(lent) => stage_there(oracle, draws, slots, (lent, self.layout.inputs.offset)),
                None => self.stage_from(oracle, draws, slots),
            };
            joined(poisoning)?;
            placed
        })
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
}

/// Has the oracle store each set where it is to lie.
fn stage_there(
    oracle: &mut Oracle,
    draws: &[Draw],
    slots: &[Zone],
    lent: (&Lent, u64),
) -> Result<Vec<Value>, Trouble> {
    let offsets: Vec<u64> = slots.iter().map(|slot| slot.offset).collect();
    let sets = oracle.provide(draws, &offsets, lent)?.sets;
    let lies_in =
        |slot: &Zone, at: &Place| at.offset.is_some_and(|offset| slot.contains(offset, at.bytes));
    let fit = |(set, slot): (&Value, &Zone)| set.tensors.iter().all(|at| lies_in(slot, at));
    if sets.len() != slots.len() || !sets.iter().zip(slots).all(fit) {
        return Err(too_large().into());
    }
    Ok(sets)
}

/// The error for inputs that do not fit where inputs of the task fit.
pub(crate) fn too_large() -> JudgeError {
    JudgeError::infrastructure(
        "place inputs",
        "get_inputs returned inputs of another size than before",
    )
}

/// From where tensors lie to where they are to lie.
pub(crate) fn moves(from: &[Place], to: &[Place]) -> Vec<Move> {
    let at = |place: &Place| place.offset.unwrap_or(0);
    from.iter().zip(to).map(|(a, b)| Move { to: at(b), from: at(a), bytes: b.bytes }).collect()
}

/// The result of a thread that works on memory.
fn joined(thread: ScopedJoinHandle<'_, Result<(), ArenaError>>) -> Result<(), ArenaError> {
    let died = |_| ArenaError::new("work on memory", "a thread of ours died");
    thread.join().map_err(died)?
}
