//! Pool of idle runners: processes that have imported torch, know no candidate and no task, and wait for
//! their candidate.
//!
//! ```text
//! expect() ──► a thread per process: a fork in a jail (`forks`), on a GPU the context and the arena ──► ready
//! take()   ◄── the oldest that still answers, or one that is under way, or one started now
//! ```
//!
//! A runner serves one candidate and ends with it. When taken it gets the artifact through a folder of its
//! own (`runner_dirs`), on the cpu device its arena by file descriptor, and the candidate by its first
//! request. Before that only our own code runs in it, so every failure is an infrastructure error.
//!
//! Starts never disturb timed windows. A GPU is held shared while a context is made there, as by every
//! process that starts (`channel.py`, `starting`); on the cpu device, where importing torch itself (which
//! their parent does, or each of them where there is none) would disturb, the device is held shared for
//! the whole start.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use warpwright_jail::Killer;

use crate::device::arena::{Arena, ArenaError, Zone};
use crate::device::device_arbiter::{DeviceArbiter, Purpose};
use crate::error::JudgeError;
use crate::process::host::{Grant, Host};
use crate::process::memory::{Room, START_BYTES};
use crate::process::role::Role;
use crate::process::runner_dirs::{RunnerDir, RunnerDirs};
use crate::process::worker::{WALL, Worker};

/// Host memory that a runner may use beside its arena, bytes.
const BESIDE_ARENA: u64 = 4 << 30;
/// Longest a runner waits: the rest of its life must be enough for any candidate.
const SHELF_LIFE: Duration = Duration::from_secs(WALL.as_secs() / 2);

/// The idle runners of one judge. Dropping the pool kills them.
pub(crate) struct RunnerPool {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Resources that the pool needs to start runners.
pub(crate) struct Means {
    pub(crate) host: Arc<Host>,
    pub(crate) arbiter: Arc<DeviceArbiter>,
    /// The largest memory that a runner can be given on the cpu device, or what candidates of most tasks have on a
    /// GPU.
    pub(crate) room: Room,
    pub(crate) cache: PathBuf,
}

/// An idle runner.
pub(crate) struct Spare {
    // Ends before its folder is removed.
    pub(crate) worker: Worker,
    pub(crate) runner_dir: RunnerDir,
    /// The memory that it has mapped, where all candidates have the same.
    arena: Option<Arc<Arena>>,
    born: Instant,
}

struct Shared {
    means: Means,
    runner_dirs: Mutex<Option<Arc<RunnerDirs>>>,
    /// Memory of all candidates, one after the other, if the device has that.
    arena: Mutex<Common>,
    state: Mutex<State>,
    changed: Condvar,
}

/// Memory that candidates have one after the other.
struct Common {
    room: Room,
    made: Option<Arc<Arena>>,
}

#[derive(Default)]
struct State {
    /// The oldest first.
    ready: VecDeque<Spare>,
    /// Starts in progress on threads of the pool.
    under_way: usize,
    /// Callers of [`RunnerPool::take`] that wait for those.
    waiting: usize,
    /// Handles that kill the starting processes, by the number of the start.
    killers: Vec<(u64, Killer)>,
    starts: u64,
    /// The memory that candidates have is being replaced: nobody starts a runner.
    changing: bool,
    closing: bool,
}

impl RunnerPool {
    /// One with nothing in it; the first [`RunnerPool::expect`] or [`RunnerPool::take`] begins.
    pub(crate) fn new(means: Means) -> Self {
        let arena = Mutex::new(Common { room: means.room, made: None });
        let shared = Shared {
            means,
            runner_dirs: Mutex::default(),
            arena,
            state: Mutex::default(),
            changed: Condvar::new(),
        };
        Self { shared: Arc::new(shared), threads: Mutex::default() }
    }

    /// Memory of all candidates, one after the other; made when first asked for. `None` if each candidate has
    /// memory of its own.
    pub(crate) fn common_arena(&self) -> Result<Option<Arc<Arena>>, ArenaError> {
        self.shared.common_arena()
    }

    /// What candidates have on a GPU now.
    pub(crate) fn room(&self) -> Room {
        lock(&self.shared.arena).room
    }

    /// Gives candidates memory of this size from now on. Ends the idle runners, which have mapped what they had.
    pub(crate) fn make_room(&self, room: Room) {
        let mut state = self.shared.lock();
        while state.under_way > 0 || state.changing {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.changing = true;
        let ready = std::mem::take(&mut state.ready);
        drop(state);
        drop(ready);
        let mut common = lock(&self.shared.arena);
        if common.room != room {
            *common = Common { room, made: None };
        }
        drop(common);
        self.shared.lock().changing = false;
        self.shared.changed.notify_all();
    }

    /// Says that runners will be needed: has as many made ahead as are worth keeping, once half of them
    /// are gone. Their contexts are made one a turn while somebody is measured there (`device_arbiter.rs`).
    pub(crate) fn expect(&self) {
        let Means { host, room, .. } = &self.shared.means;
        let keep = host.device.idle_runners(room.arena);
        let mut threads = lock(&self.threads);
        threads.retain(|thread| !thread.is_finished());
        let mut state = self.shared.lock();
        if state.changing || state.ready.len() + state.under_way > keep / 2 + state.waiting {
            return;
        }
        while state.ready.len() + state.under_way < keep + state.waiting {
            let shared = Arc::clone(&self.shared);
            let start = std::thread::Builder::new().name("runner-pool".to_owned());
            // Without a thread nothing is made ahead, and who needs a runner starts it.
            let Ok(thread) = start.spawn(move || shared.add()) else { return };
            state.under_way += 1;
            threads.push(thread);
        }
    }

    /// A runner for one candidate. Waits for one that is under way, or starts one, if none is ready.
    /// The caller must not hold the device.
    pub(crate) fn take(&self) -> Result<Spare, JudgeError> {
        let taken = loop {
            match self.shared.next() {
                None => break self.shared.start()?,
                Some(mut spare) => {
                    let fits = self.shared.is_current(spare.arena.as_ref());
                    if fits && spare.born.elapsed() < SHELF_LIFE && spare.worker.answers() {
                        break spare;
                    }
                }
            }
        };
        if self.shared.means.host.device.has_spare_cores() {
            // At once, so that the next is ready when this one's candidate has had the device. On
            // the cpu device the caller does it later, when it no longer slows this candidate.
            self.expect();
        }
        Ok(taken)
    }
}

impl Drop for RunnerPool {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.closing = true;
        for (_, killer) in &state.killers {
            killer.kill();
        }
        drop(state);
        self.shared.means.host.forks.close();
        for thread in lock(&self.threads).drain(..) {
            // A panic in there has been told of already.
            let _ = thread.join();
        }
        let ready = std::mem::take(&mut self.shared.lock().ready);
        drop(ready);
    }
}

impl Shared {
    /// The next that is ready, or under way for this caller; `None` when the caller has to start one.
    fn next(&self) -> Option<Spare> {
        let mut state = self.lock();
        state.waiting += 1;
        let found = loop {
            if let Some(spare) = state.ready.pop_front() {
                break Some(spare);
            }
            if state.under_way < state.waiting && !state.changing {
                break None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        state.waiting -= 1;
        found
    }

    /// Starts one and puts it with those that are ready. Its failure is not told: who needs a runner
    /// then starts one, and is told of the same failure.
    fn add(&self) {
        // Counts this start off, also after a panic: somebody may wait for it.
        let _under_way = UnderWay(self);
        if let Ok(spare) = self.start() {
            self.lock().ready.push_back(spare);
        }
    }

    fn start(&self) -> Result<Spare, JudgeError> {
        let failed = |e| JudgeError::infrastructure("create a folder for a runner", e);
        let runner_dir = self.runner_dirs()?.add().map_err(failed)?;
        let arena = self.common_arena()?;
        let _held = arena.is_none().then(|| self.means.arbiter.share(Purpose::Start));
        let grant = Grant {
            read: vec![runner_dir.shown()],
            // The jail cannot change its bound later, when the arena's size is known on the cpu
            // device: it is that of the largest. What torch allocates, the arena itself bounds.
            memory_bytes: Some(self.means.room.arena + BESIDE_ARENA),
            ..Grant::default()
        };
        let worker = Worker::spawn(&self.means.host, Role::Runner, arena.as_deref(), &grant)?;
        let _starting = Starting::register(self, worker.killer()?)?;
        let worker = worker.up(&self.means.arbiter)?;
        Ok(Spare { worker, runner_dir, arena, born: Instant::now() })
    }

    /// Whether this is the memory that candidates have now.
    fn is_current(&self, arena: Option<&Arc<Arena>>) -> bool {
        let common = lock(&self.arena);
        match (&common.made, arena) {
            (Some(made), Some(arena)) => Arc::ptr_eq(made, arena),
            (_, arena) => arena.is_none(),
        }
    }

    fn runner_dirs(&self) -> Result<Arc<RunnerDirs>, JudgeError> {
        let mut runner_dirs = lock(&self.runner_dirs);
        if let Some(runner_dirs) = runner_dirs.as_ref() {
            return Ok(Arc::clone(runner_dirs));
        }
        let failed = |e| JudgeError::infrastructure("create the folder of runners", e);
        let opened = Arc::new(RunnerDirs::open(&self.means.cache).map_err(failed)?);
        *runner_dirs = Some(Arc::clone(&opened));
        Ok(opened)
    }

    fn common_arena(&self) -> Result<Option<Arc<Arena>>, ArenaError> {
        let mut common = lock(&self.arena);
        if let Some(arena) = common.made.as_ref() {
            return Ok(Some(Arc::clone(arena)));
        }
        let bytes = common.room.arena + START_BYTES;
        let apart = common.room.apart.unwrap_or(Zone { offset: bytes, bytes: 0 });
        let Some(made) = self.means.host.device.candidates_arena(bytes, apart) else {
            return Ok(None);
        };
        let arena = Arc::new(made?);
        common.made = Some(Arc::clone(&arena));
        Ok(Some(arena))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// A start that somebody may wait for.
struct UnderWay<'s>(&'s Shared);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.lock().under_way -= 1;
        self.0.changed.notify_all();
    }
}

/// A process that can be ended while it starts.
struct Starting<'s> {
    shared: &'s Shared,
    number: u64,
}

impl<'s> Starting<'s> {
    fn register(shared: &'s Shared, killer: Killer) -> Result<Self, JudgeError> {
        let mut state = shared.lock();
        if state.closing {
            return Err(JudgeError::infrastructure("start a runner", "the judge is closing"));
        }
        state.starts += 1;
        let number = state.starts;
        state.killers.push((number, killer));
        Ok(Self { shared, number })
    }
}

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        self.shared.lock().killers.retain(|(number, _)| *number != self.number);
    }
}

/// The bookkeeping is whole after every statement, also after a panic elsewhere.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
