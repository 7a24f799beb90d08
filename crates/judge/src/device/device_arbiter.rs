//! The device arbiter: grants shared or exclusive access to the device.
//!
//! Work on the device concurrent to a timed window would lengthen the window. Oracles open and baselines
//! compile with shared access; baselines are tuned, and candidates run, with exclusive access. A holder of
//! exclusive access that times nothing at the moment is *untimed*: processes may start concurrently. While a
//! candidate is measured or waits for it, one process may start per turn, when a turn ends. The driver
//! creates contexts one after the other, each in about the time in which a candidate ends and the next one
//! is loaded and verified. A measurement waits until all started processes are up (decision 32).
//!
//! Waiters are served by earliest deadline; the shorter the usual turn, the sooner the deadline. A baseline
//! needs the device eight times for a few hundredths of a second each, and would otherwise mostly wait for
//! candidates that measure for seconds. When a waiter for shared access has its turn, all current waiters
//! for shared access enter. Nobody starves: deadlines pass, and later arrivals do not enter with that
//! group. A process waiting to start enters after at most as many turns as processes waited before it.
//!
//! Who has its turn then waits for other judges on the same GPU (`device_lock.rs`), and nobody in this process waits
//! for it meanwhile who holds the device.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::device_lock::{DeviceLock, Notice};

/// Purpose for which a device is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A process starts; on a GPU it creates its context.
    Start,
    /// The oracle loads or calibrates a reference.
    Reference,
    /// Baselines are moved to the device, compiled and warmed.
    Baselines,
    /// Baselines get inputs, and the judge chooses the length of their windows.
    Staging,
    /// A candidate is verified.
    Verification,
    /// A candidate is verified and timed.
    Measurement,
    /// A profiler or a sanitizer runs a candidate.
    Inspection,
    /// Host work that would disturb timing on the cpu device: compilers, first touch of memory.
    Host,
    /// The device's ceilings (bandwidth, launch time) are measured.
    Ceilings,
    /// A model on the same device samples.
    Sampling,
    /// A model on the same device scores samples or trains.
    Training,
    /// A model's weights are copied from the device.
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
        Self::Sampling,
        Self::Training,
        Self::Saving,
    ];

    /// Label for people.
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
            Self::Sampling => "sampling",
            Self::Training => "training",
            Self::Saving => "saving weights",
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

/// A handle for other work on a judge's device: a model that samples or trains.
#[derive(Clone, Debug)]
pub struct Neighbour(pub(crate) Arc<DeviceArbiter>);

impl Neighbour {
    /// Runs `work` with shared access to the device, never concurrent to a timed window. Waits for its turn.
    /// `work` must not judge on this device: it would wait for itself.
    pub fn compute<T>(&self, what: ModelWork, work: impl FnOnce() -> T) -> T {
        let _held = self.0.share(match what {
            ModelWork::Sample => Purpose::Sampling,
            ModelWork::Train => Purpose::Training,
            ModelWork::Save => Purpose::Saving,
        });
        work()
    }
}

/// The kind of work of a [`Neighbour`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelWork {
    /// It samples.
    Sample,
    /// It scores samples or trains.
    Train,
    /// It copies weights from the device.
    Save,
}

/// Grants access to one device.
#[derive(Debug, Default)]
pub(crate) struct DeviceArbiter {
    state: Mutex<State>,
    changed: Condvar,
    /// While a measurement waits or runs, processes start only concurrent to an untimed holder.
    starts_beside: bool,
    /// Excludes other judges, where they have an arbiter of their own for the same device.
    lock: Option<DeviceLock>,
}

/// A deadline, and a number.
type Ticket = (Instant, u64);

#[derive(Debug, Default)]
struct State {
    sharing: usize,
    /// Of these, processes that start.
    starting: usize,
    alone: bool,
    /// The holder of exclusive access times nothing: processes may start concurrently.
    untimed: bool,
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

/// Time for which a device was held.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    /// With exclusive access.
    pub alone: Duration,
    /// With shared access, by one or more holders.
    pub shared: Duration,
    /// Time in which a candidate waited to be measured and none was measured.
    pub starved: Duration,
    /// Per purpose, in the order of [`Purpose::ALL`].
    pub by: [Use; Purpose::ALL.len()],
}

/// Use of a device for one purpose.
#[derive(Clone, Copy, Debug, Default)]
pub struct Use {
    /// Number of turns.
    pub turns: u32,
    /// Total time held; concurrent holders count separately.
    pub held: Duration,
    /// Total time waited.
    pub waited: Duration,
}

impl std::ops::Sub for Used {
    type Output = Self;

    /// The use since `before`.
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

/// The access that a waiter wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// Shared.
    Sharing,
    /// Exclusive.
    Alone,
    /// Exclusive, except for processes that start.
    Untimed,
}

/// The access that a process requests while it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AccessMode {
    Alone,
    Shared,
    Nothing,
}

impl DeviceArbiter {
    /// Whether no other judge's process uses the device now, as far as that can be told.
    pub(crate) fn excludes_other_processes(&self) -> bool {
        self.lock.as_ref().is_none_or(DeviceLock::is_exclusive)
    }

    /// The arbiter of a GPU, where candidates are untimed at their start and end, with the lock that excludes other
    /// processes.
    pub(crate) fn of_gpu(lock: Option<DeviceLock>) -> Self {
        Self { starts_beside: true, lock, ..Self::default() }
    }

    /// From now on says by this what people should know.
    pub(crate) fn set_notice(&self, notice: Notice) {
        if let Some(lock) = &self.lock {
            lock.set_notice(notice);
        }
    }

    /// The use of the device until now. Access still held counts for no purpose yet.
    pub(crate) fn used(&self) -> Used {
        let mut state = self.lock();
        state.count();
        state.used
    }

    /// Releases the held access and waits for the requested one.
    pub(crate) fn change<'g>(
        &'g self,
        held: &mut Option<Held<'g>>,
        access: AccessMode,
        purpose: Purpose,
    ) {
        held.take();
        *held = match access {
            AccessMode::Alone => Some(self.alone(purpose)),
            AccessMode::Shared => Some(self.share(purpose)),
            AccessMode::Nothing => None,
        };
    }

    /// Waits for its turn and until nobody has exclusive access, then holds shared access. A holder must not
    /// call it again: a waiter for exclusive access in between would deadlock both.
    pub(crate) fn share(&self, purpose: Purpose) -> Held<'_> {
        self.enter(purpose, Manner::Sharing, Instant::now(), purpose.patience())
    }

    /// Waits for its turn and until nobody holds the device, then holds exclusive access.
    pub(crate) fn alone(&self, purpose: Purpose) -> Held<'_> {
        self.enter(purpose, Manner::Alone, Instant::now(), purpose.patience())
    }

    /// As [`Self::alone`], with a deadline from the usual length of its turns: the shorter, the sooner.
    /// `untimed`: the holder times nothing at first.
    pub(crate) fn alone_for(
        &self,
        purpose: Purpose,
        usual: Option<Duration>,
        untimed: bool,
    ) -> Held<'_> {
        let patience = usual.map(|usual| (PATIENCE * usual).min(LONGEST));
        let manner = if untimed { Manner::Untimed } else { Manner::Alone };
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
                if state.untimed && !state.started && state.starts.first() == Some(&ticket) {
                    break;
                }
            } else {
                state.starts.remove(&ticket);
                state.queue.insert(ticket);
                if starts && state.untimed {
                    break;
                }
                let first = state.queue.first() == Some(&ticket);
                let turn = first || (!alone && number < state.together);
                let beside = match manner {
                    Manner::Sharing => true,
                    Manner::Alone => state.sharing == 0,
                    Manner::Untimed => state.sharing == state.starting,
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
            state.untimed = manner == Manner::Untimed;
        } else {
            state.sharing += 1;
            state.starting += usize::from(purpose == Purpose::Start);
        }
        drop(state);
        // Others may share as well.
        self.changed.notify_all();
        match &self.lock {
            Some(lock) if alone => lock.alone(),
            // Who measures waits for processes that start: these must not wait until it is done.
            Some(lock) => lock.share(purpose != Purpose::Start),
            None => {}
        }
        let since = Instant::now();
        let counted = &mut self.lock().used.by[purpose as usize];
        counted.turns += 1;
        counted.waited += since - came;
        Held { arbiter: self, alone, purpose, since }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The bookkeeping is whole after every call, also after a panic elsewhere.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The device, held until dropped.
#[derive(Debug)]
pub(crate) struct Held<'g> {
    arbiter: &'g DeviceArbiter,
    alone: bool,
    purpose: Purpose,
    since: Instant,
}

impl Held<'_> {
    /// The holder times nothing from now on: processes may start concurrently.
    pub(crate) fn untimed(&self) {
        if self.alone {
            let mut state = self.arbiter.lock();
            state.untimed = true;
            state.started = false;
            drop(state);
            self.arbiter.changed.notify_all();
        }
    }

    /// The holder times from now on: no further process starts, and it waits for those in progress.
    pub(crate) fn timed(&self) {
        let mut state = self.arbiter.lock();
        if !self.alone {
            return;
        }
        state.untimed = false;
        // Until then it is ready to be measured, and is not.
        let measures = self.purpose == Purpose::Measurement;
        state.count();
        state.ready += usize::from(measures);
        state.measuring &= !measures;
        while state.sharing > 0 {
            state = self.arbiter.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(lock) = &self.arbiter.lock {
            drop(state);
            lock.make_exclusive();
            state = self.arbiter.lock();
        }
        state.count();
        state.ready -= usize::from(measures);
        state.measuring |= measures;
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // First: whoever enters next finds only the turns that the arbiter knows of.
        if let Some(lock) = &self.arbiter.lock {
            lock.end();
        }
        let mut state = self.arbiter.lock();
        state.count();
        state.used.by[self.purpose as usize].held += self.since.elapsed();
        state.measuring &= self.purpose != Purpose::Measurement;
        if self.alone {
            // Those who came beside hold it with others now.
            state.alone = false;
            state.untimed = false;
        } else {
            state.sharing -= 1;
            state.starting -= usize::from(self.purpose == Purpose::Start);
        }
        drop(state);
        self.arbiter.changed.notify_all();
    }
}

#[cfg(test)]
mod tests;
