//! Who may use the device now: many beside each other, or one alone.
//!
//! Whatever computes on the device beside a measured window would lengthen it. Opening an oracle and
//! compiling baselines go side by side; baselines are tuned, and candidates run, alone. But a candidate
//! that is not timed at the moment is *calm*: processes start beside it, and it enters beside those. While
//! one is measured or waits to be, one process a turn, which begins as a turn ends: the driver makes one
//! context after the other, about as long as a candidate takes to end and the next to be loaded and
//! verified, and who is to be measured waits until all that have begun are made (decision 32).
//!
//! Who waits has a deadline, the sooner the shorter its turns are as a rule, and the earliest goes
//! first: a baseline needs the device eight times for a few hundredths of a second each, and would
//! wait most of its life for candidates that measure for seconds. When one who shares has its turn, all
//! enter who wait to share: else a device that is wanted alone and shared by turns would be shared by
//! one at a time. Nobody waits for ever: a deadline comes, and who came later does not enter with others;
//! a process that waits for a turn's end has one after so many turns as others were there before it.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;

/// What a device is held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A process begins, on a GPU with a context of its own.
    Start,
    /// A reference is loaded, and what is known of it found out.
    Reference,
    /// Baselines are moved to the device, compiled and warmed.
    Baselines,
    /// Baselines get inputs, and their windows a length.
    Staging,
    /// A candidate is looked at.
    Verification,
    /// A candidate is looked at and timed.
    Measurement,
    /// A profiler or a sanitizer runs a candidate.
    Inspection,
    /// Something that disturbs what is timed on the cpu device: compilers, memory touched first.
    Host,
    /// The device's own speed is measured.
    Ceilings,
    /// A neighbour samples from a model.
    Drawing,
    /// A neighbour scores what was sampled, or trains.
    Learning,
    /// A neighbour takes weights from the device.
    Saving,
}

impl Purpose {
    /// All, in the order of their declaration.
    pub const ALL: [Self; 12] = [
        Self::Start,
        Self::Reference,
        Self::Baselines,
        Self::Staging,
        Self::Verification,
        Self::Measurement,
        Self::Inspection,
        Self::Host,
        Self::Ceilings,
        Self::Drawing,
        Self::Learning,
        Self::Saving,
    ];

    /// For people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Start => "starting processes",
            Self::Reference => "references",
            Self::Baselines => "baselines",
            Self::Staging => "staging baselines",
            Self::Verification => "verifying",
            Self::Measurement => "measuring",
            Self::Inspection => "inspections",
            Self::Host => "work on the host",
            Self::Ceilings => "ceilings",
            Self::Drawing => "drawing",
            Self::Learning => "learning",
            Self::Saving => "saving",
        }
    }

    /// For how long one that comes may be passed by those of shorter turns: a few turns' time. Of 12
    /// episodes on an H200 a turn took 0.07 s for baselines, 0.5 s for verifying, 0.8 s for staging, a
    /// start and a reference, and 1 to 6 s for measuring.
    const fn patience(self) -> Duration {
        match self {
            Self::Baselines => Duration::ZERO,
            Self::Verification | Self::Staging => Duration::from_secs(2),
            _ => Duration::from_secs(4),
        }
    }
}

/// Times as long as its turn takes, as far as that is known, may one who comes be passed by those of
/// shorter turns; and the longest.
const PATIENCE: u32 = 2;
const LONGEST: Duration = Duration::from_secs(8);

/// Somebody else who computes on a judge's device: a model that is sampled from or trained.
#[derive(Clone, Debug)]
pub struct Neighbour(pub(crate) Arc<Gate>);

impl Neighbour {
    /// Computes while nobody is measured. Waits for its turn; whoever would measure waits meanwhile. From
    /// within it nothing may be judged there.
    pub fn compute<T>(&self, what: ModelWork, work: impl FnOnce() -> T) -> T {
        let _held = self.0.share(match what {
            ModelWork::Draw => Purpose::Drawing,
            ModelWork::Learn => Purpose::Learning,
            ModelWork::Save => Purpose::Saving,
        });
        work()
    }
}

/// What a neighbour does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelWork {
    /// It samples.
    Draw,
    /// It scores or trains.
    Learn,
    /// It takes weights from the device.
    Save,
}

/// The device's gate.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
    /// While somebody is to be measured processes start beside those who are calm alone.
    starts_beside: bool,
}

/// A deadline, and a number.
type Ticket = (Instant, u64);

#[derive(Debug, Default)]
struct State {
    sharing: usize,
    /// Of these, processes that start.
    starting: usize,
    alone: bool,
    /// Whoever is alone does not mind that processes start beside it.
    calm: bool,
    /// A process has begun to start since a turn last ended, with somebody to be measured.
    started: bool,
    /// A candidate is measured.
    measuring: bool,
    /// Candidates that wait to be.
    ready: usize,
    /// Deadlines and numbers of those who wait.
    queue: BTreeSet<Ticket>,
    /// The same of processes that wait to start and are not in the queue meanwhile.
    starts: BTreeSet<Ticket>,
    /// How many have come.
    came: u64,
    /// Who wants to share and has a number below this one need not wait for those before it.
    together: u64,
    used: Used,
    /// Since when it has been held as it is.
    since: Option<Instant>,
}

/// For how long a device was held.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    /// By one alone.
    pub alone: Duration,
    /// By one or more beside each other.
    pub shared: Duration,
    /// While a candidate waited to be measured and none was.
    pub starved: Duration,
    /// For each purpose, in the order of [`Purpose::ALL`].
    pub by: [Use; Purpose::ALL.len()],
}

/// For how long a device was held for one purpose.
#[derive(Clone, Copy, Debug, Default)]
pub struct Use {
    /// How often.
    pub turns: u32,
    /// In all; time that several shared counts for each of them.
    pub held: Duration,
    /// For how long it was waited for, in all.
    pub waited: Duration,
}

impl std::ops::Sub for Used {
    type Output = Self;

    /// What came since.
    fn sub(self, before: Self) -> Self {
        let mut since = Self {
            alone: self.alone.saturating_sub(before.alone),
            shared: self.shared.saturating_sub(before.shared),
            starved: self.starved.saturating_sub(before.starved),
            by: self.by,
        };
        for (now, before) in since.by.iter_mut().zip(before.by) {
            now.turns = now.turns.saturating_sub(before.turns);
            now.held = now.held.saturating_sub(before.held);
            now.waited = now.waited.saturating_sub(before.waited);
        }
        since
    }
}

impl State {
    /// Somebody is measured or waits to be.
    fn is_busy(&self) -> bool {
        self.measuring || self.ready > 0
    }

    /// Counts the time until now. To be called before it changes who holds the device, or who waits to
    /// measure.
    fn count(&mut self) {
        let now = Instant::now();
        let passed = self.since.map_or(Duration::ZERO, |since| now - since);
        if self.alone {
            self.used.alone += passed;
        } else if self.sharing > 0 {
            self.used.shared += passed;
        }
        if self.ready > 0 && !self.measuring {
            self.used.starved += passed;
        }
        self.since = Some(now);
    }
}

/// How somebody enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// Beside others.
    Sharing,
    /// When nobody else is there.
    Alone,
    /// When nobody is there but processes that start.
    Calm,
}

/// What a process asks to hold while it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Wish {
    Alone,
    Shared,
    Nothing,
}

impl Gate {
    /// That of a GPU, where candidates are calm at first and at last.
    pub(crate) fn of_gpu() -> Self {
        Self { starts_beside: true, ..Self::default() }
    }

    /// For how long the device was held until now. What is still held counts for no purpose yet.
    pub(crate) fn used(&self) -> Used {
        let mut state = self.lock();
        state.count();
        state.used
    }

    /// Gives up what is held and waits for what is wished.
    pub(crate) fn change<'g>(&'g self, held: &mut Option<Held<'g>>, wish: Wish, purpose: Purpose) {
        held.take();
        *held = match wish {
            Wish::Alone => Some(self.alone(purpose)),
            Wish::Shared => Some(self.share(purpose)),
            Wish::Nothing => None,
        };
    }

    /// Waits for its turn and until nobody is alone, then holds the device with others. Who holds it
    /// already must not ask again: someone between may wait to be alone.
    pub(crate) fn share(&self, purpose: Purpose) -> Held<'_> {
        self.enter(purpose, Manner::Sharing, Instant::now(), purpose.patience())
    }

    /// Waits for its turn and until nobody holds the device, then holds it alone.
    pub(crate) fn alone(&self, purpose: Purpose) -> Held<'_> {
        self.enter(purpose, Manner::Alone, Instant::now(), purpose.patience())
    }

    /// The same for somebody whose turns usually take so long: the shorter, the sooner it has one. Who
    /// takes a thousand times as long as the others waits for many of them, and not for ever.
    /// `calm` says that it times nothing at first.
    pub(crate) fn alone_for(
        &self,
        purpose: Purpose,
        usual: Option<Duration>,
        calm: bool,
    ) -> Held<'_> {
        let patience = usual.map(|usual| (PATIENCE * usual).min(LONGEST));
        let manner = if calm { Manner::Calm } else { Manner::Alone };
        self.enter(purpose, manner, Instant::now(), patience.unwrap_or(purpose.patience()))
    }

    fn enter(
        &self,
        purpose: Purpose,
        manner: Manner,
        came: Instant,
        patience: Duration,
    ) -> Held<'_> {
        let alone = manner != Manner::Sharing;
        let measures = purpose == Purpose::Measurement;
        let starts = purpose == Purpose::Start && !alone;
        let mut state = self.lock();
        state.count();
        state.ready += usize::from(measures);
        let number = state.came;
        state.came += 1;
        let ticket = (came + patience, number);
        loop {
            if starts && self.starts_beside && state.is_busy() {
                if state.queue.remove(&ticket) {
                    // Somebody else is first now.
                    self.changed.notify_all();
                }
                state.starts.insert(ticket);
                if state.calm && !state.started && state.starts.first() == Some(&ticket) {
                    break;
                }
            } else {
                state.starts.remove(&ticket);
                state.queue.insert(ticket);
                if starts && state.calm {
                    break;
                }
                let first = state.queue.first() == Some(&ticket);
                let turn = first || (!alone && number < state.together);
                let beside = match manner {
                    Manner::Sharing => true,
                    Manner::Alone => state.sharing == 0,
                    Manner::Calm => state.sharing == state.starting,
                };
                if turn && !state.alone && beside {
                    if first && !alone {
                        state.together = state.came;
                    }
                    break;
                }
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.queue.remove(&ticket);
        state.starts.remove(&ticket);
        state.count();
        state.started |= starts && state.is_busy();
        state.ready -= usize::from(measures);
        state.measuring |= measures;
        if alone {
            state.alone = true;
            state.calm = manner == Manner::Calm;
        } else {
            state.sharing += 1;
            state.starting += usize::from(purpose == Purpose::Start);
        }
        let since = Instant::now();
        let counted = &mut state.used.by[purpose as usize];
        counted.turns += 1;
        counted.waited += since - came;
        drop(state);
        // Others may share as well.
        self.changed.notify_all();
        Held { gate: self, alone, purpose, since }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The bookkeeping is whole after every call, also after a panic elsewhere.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The device, held until dropped.
#[derive(Debug)]
pub(crate) struct Held<'g> {
    gate: &'g Gate,
    alone: bool,
    purpose: Purpose,
    since: Instant,
}

impl Held<'_> {
    /// From now on processes may start beside the one who is alone, who times nothing any more.
    pub(crate) fn calm(&self) {
        if self.alone {
            let mut state = self.gate.lock();
            state.calm = true;
            state.started = false;
            drop(state);
            self.gate.changed.notify_all();
        }
    }

    /// Alone again, once those that have begun to start have done so.
    pub(crate) fn tense(&self) {
        let mut state = self.gate.lock();
        if !self.alone {
            return;
        }
        state.calm = false;
        // Until then it is ready to be measured, and is not.
        let measures = self.purpose == Purpose::Measurement;
        state.count();
        state.ready += usize::from(measures);
        state.measuring &= !measures;
        while state.sharing > 0 {
            state = self.gate.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.count();
        state.ready -= usize::from(measures);
        state.measuring |= measures;
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        state.count();
        state.used.by[self.purpose as usize].held += self.since.elapsed();
        state.measuring &= self.purpose != Purpose::Measurement;
        if self.alone {
            // Those who came beside hold it with others now.
            state.alone = false;
            state.calm = false;
        } else {
            state.sharing -= 1;
            state.starting -= usize::from(self.purpose == Purpose::Start);
        }
        drop(state);
        self.gate.changed.notify_all();
    }
}

#[cfg(test)]
mod tests;
