//! Sessions of many tasks, shared by many episodes.
//!
//! An oracle is a process that holds torch and one reference: opening it takes seconds and hundreds
//! of megabytes. The pool keeps those that were used last, serves requests in the order in which they
//! come, and works on as many at once as the device allows. A GPU's memory is cut into equal parts;
//! a session has one, or as many as its task turns out to need, and what computes there takes turns
//! at the judge's gate. On the cpu device one session works per core, and a measurement alone,
//! because everything else on the machine would disturb it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use warpwright_record::candidate::Candidate;
use warpwright_record::verdict::{Stage, Verdict};
use warpwright_task::{Mode, Task};

use crate::error::JudgeError;
use crate::judge::LocalJudge;
use crate::memory::Memory;
use crate::queue::Queue;
use crate::session::TaskSession;

/// Host memory that one open session is counted with on the cpu device, bytes.
const SESSION_BYTES: u64 = 1 << 30;
/// Most sessions on one GPU: beyond, measurements leave no time for more.
const GPU_SESSIONS: usize = 8;
/// Least memory of a GPU that is worth a part of its own, bytes.
const PART_BYTES: u64 = 4 << 30;

/// Sessions on one judge.
pub struct SessionPool<'j> {
    judge: &'j LocalJudge,
    /// How many parts of the memory open sessions may have, those that work included.
    parts: usize,
    state: Mutex<State<'j>>,
    changed: Condvar,
}

struct State<'j> {
    queue: Queue<Key>,
    /// Open and unused, the longest unused first, with their parts of the memory.
    idle: Vec<(Key, usize, TaskSession<'j>)>,
    /// Tasks that need more than one part.
    large: Vec<(Key, usize)>,
}

/// What makes two tasks the same to a session.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    name: String,
    source: blake3::Hash,
    mode: Mode,
}

impl Key {
    fn of(task: &Task) -> Self {
        let source = blake3::hash(task.source.as_bytes());
        Self { name: task.name.clone(), source, mode: task.mode }
    }
}

impl<'j> SessionPool<'j> {
    /// A pool with nothing open.
    pub fn new(judge: &'j LocalJudge) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let memory = judge.facts().memory_bytes;
        let (units, parts) = if judge.config().device.is_cuda() {
            let parts = (memory / PART_BYTES).clamp(1, GPU_SESSIONS as u64) as usize;
            (parts, parts)
        } else {
            let room = memory / 4 / SESSION_BYTES;
            (cores, (room as usize).clamp(2, 64).max(cores))
        };
        let state = State { queue: Queue::new(units), idle: Vec::new(), large: Vec::new() };
        Self { judge, parts, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// The judge.
    pub fn judge(&self) -> &'j LocalJudge {
        self.judge
    }

    /// Opens the task's session if it is not open: finds out whether it can be judged against.
    pub fn open(&self, task: &Task) -> Result<(), JudgeError> {
        self.with(task, false, |_| Ok(()))
    }

    /// Takes a candidate as far as `stage`; see [`TaskSession::judge`]. Waits for its turn.
    pub fn verdict(
        &self,
        task: &Task,
        candidate: &Candidate,
        stage: Stage,
    ) -> Result<Verdict, JudgeError> {
        let alone = stage == Stage::Measured && !self.judge.config().device.is_cuda();
        self.with(task, alone, |session| session.judge(candidate, stage))
    }

    /// Works with the task's session; with more memory, once more, if it needs that.
    fn with<T>(
        &self,
        task: &Task,
        alone: bool,
        work: impl Fn(&mut TaskSession<'j>) -> Result<T, JudgeError>,
    ) -> Result<T, JudgeError> {
        loop {
            let turn = self.turn(Key::of(task), alone);
            let session = match turn.take() {
                Some(session) => Ok(session),
                None => TaskSession::open(self.judge, task, turn.memory()),
            };
            let done = session.and_then(|mut session| {
                let done = work(&mut session);
                // After our own failure nothing is known of its processes: the next request opens
                // anew.
                if done.is_ok() {
                    turn.keep(session);
                }
                done
            });
            match done {
                Err(JudgeError::Memory { wanted, .. }) => turn.enlarge(wanted),
                done => return done,
            }
        }
    }

    /// Waits for this key's turn.
    fn turn(&self, key: Key, alone: bool) -> Turn<'_, 'j> {
        let mut state = self.lock();
        let known = state.large.iter().find(|(large, _)| *large == key);
        let parts = known.map_or(1, |(_, parts)| *parts);
        let units = if alone { state.queue.units() } else { parts };
        let ticket = state.queue.join(key.clone(), units);
        while !state.queue.begin(ticket) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        // Who comes next may be able to begin as well.
        self.changed.notify_all();
        Turn { pool: self, key, parts }
    }

    fn lock(&self) -> MutexGuard<'_, State<'j>> {
        // The bookkeeping is whole after every call, also after a panic elsewhere.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to work on a key. Ends when dropped.
struct Turn<'p, 'j> {
    pool: &'p SessionPool<'j>,
    key: Key,
    parts: usize,
}

impl<'j> Turn<'_, 'j> {
    /// The key's session, if it is open; else room for it.
    fn take(&self) -> Option<TaskSession<'j>> {
        let mut state = self.pool.lock();
        let at = state.idle.iter().position(|(key, ..)| *key == self.key);
        let found = at.map(|at| state.idle.remove(at));
        let mut closed = Vec::new();
        let found = match found {
            Some((_, parts, session)) if parts >= self.parts => Some(session),
            other => {
                closed.extend(other);
                None
            }
        };
        // On the cpu device who works alone still takes up one part.
        let working = if self.pool.judge.config().device.is_cuda() {
            state.queue.working()
        } else {
            state.queue.workers()
        };
        let most = self.pool.parts.saturating_sub(working);
        while state.idle.iter().map(|(_, parts, _)| parts).sum::<usize>() > most {
            closed.push(state.idle.remove(0));
        }
        drop(state);
        // Ending processes takes a moment: not under the lock.
        drop(closed);
        found
    }

    /// The memory that its session may use.
    fn memory(&self) -> Memory {
        let facts = self.pool.judge.facts();
        if self.parts >= self.pool.parts {
            return Memory::all(facts);
        }
        Memory::part(facts, self.parts, self.pool.parts)
    }

    /// Remembers that the task needs more memory: enough for `wanted` bytes, or twice as much.
    fn enlarge(&self, wanted: Option<u64>) {
        let one = Memory::part(self.pool.judge.facts(), 1, self.pool.parts).bytes().max(1);
        let wanted = wanted.map_or(0, |bytes| bytes.div_ceil(one) as usize);
        let parts = wanted.max(2 * self.parts).min(self.pool.parts);
        let mut state = self.pool.lock();
        state.large.retain(|(key, _)| *key != self.key);
        state.large.push((self.key.clone(), parts));
    }

    fn keep(&self, session: TaskSession<'j>) {
        self.pool.lock().idle.push((self.key.clone(), self.parts, session));
    }
}

impl Drop for Turn<'_, '_> {
    fn drop(&mut self) {
        self.pool.lock().queue.end(&self.key);
        self.pool.changed.notify_all();
    }
}
