//! Sessions of many tasks, shared by many episodes.
//!
//! An oracle is a process that holds torch and one reference: opening it takes seconds and hundreds
//! of megabytes. The pool keeps those that were used last, serves requests in the order in which they
//! come, and works on as many at once as the device allows: on a GPU one, whose memory is planned for
//! one; on the cpu device one per core, and a measurement alone, because everything else on the
//! machine would disturb it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use warpwright_record::candidate::Candidate;
use warpwright_record::findings::{Findings, Inspection};
use warpwright_record::verdict::{Stage, Verdict};
use warpwright_task::{Mode, Task};

use crate::error::JudgeError;
use crate::judge::LocalJudge;
use crate::queue::Queue;
use crate::session::TaskSession;

/// Memory that one open session is counted with, bytes.
const SESSION_BYTES: u64 = 1 << 30;

/// Sessions on one judge.
pub struct SessionPool<'j> {
    judge: &'j LocalJudge,
    most_open: usize,
    state: Mutex<State<'j>>,
    changed: Condvar,
}

struct State<'j> {
    queue: Queue<Key>,
    /// Open and unused, the longest unused first.
    idle: Vec<(Key, TaskSession<'j>)>,
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
        let (busy, open) = if judge.config().device.is_cuda() {
            (1, 2)
        } else {
            let room = judge.facts().memory_bytes / 4 / SESSION_BYTES;
            (cores, (room as usize).clamp(2, 64).max(cores))
        };
        let state = State { queue: Queue::new(busy), idle: Vec::new() };
        Self { judge, most_open: open, state: Mutex::new(state), changed: Condvar::new() }
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

    /// Looks at a candidate with a tool; see [`TaskSession::inspect`]. Waits for its turn.
    pub fn inspect(
        &self,
        task: &Task,
        candidate: &Candidate,
        inspection: &Inspection,
    ) -> Result<Findings, JudgeError> {
        // Times of kernels mean something only alone; on a GPU everything is.
        let alone = *inspection == Inspection::Kernels && !self.judge.config().device.is_cuda();
        self.with(task, alone, |session| session.inspect(candidate, inspection))
    }

    fn with<T>(
        &self,
        task: &Task,
        alone: bool,
        work: impl FnOnce(&mut TaskSession<'j>) -> Result<T, JudgeError>,
    ) -> Result<T, JudgeError> {
        let turn = self.turn(Key::of(task), alone);
        let found = turn.take();
        let mut session = match found {
            Some(session) => session,
            None => self.judge.task(task)?,
        };
        let done = work(&mut session);
        if done.is_ok() {
            turn.keep(session);
        }
        // After our own failure nothing is known of its processes: the next request opens anew.
        done
    }

    /// Waits for this key's turn.
    fn turn(&self, key: Key, alone: bool) -> Turn<'_, 'j> {
        let mut state = self.lock();
        let ticket = state.queue.join(key.clone(), alone);
        while !state.queue.begin(ticket) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        // Who comes next may be able to begin as well.
        self.changed.notify_all();
        Turn { pool: self, key }
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
}

impl<'j> Turn<'_, 'j> {
    /// The key's session, if it is open; else room for it.
    fn take(&self) -> Option<TaskSession<'j>> {
        let mut state = self.pool.lock();
        if let Some(at) = state.idle.iter().position(|(key, _)| *key == self.key) {
            return Some(state.idle.remove(at).1);
        }
        let most = self.pool.most_open.saturating_sub(state.queue.working());
        let over = state.idle.len().saturating_sub(most);
        let closed: Vec<_> = state.idle.drain(..over).collect();
        drop(state);
        // Ending processes takes a moment: not under the lock.
        drop(closed);
        None
    }

    fn keep(&self, session: TaskSession<'j>) {
        self.pool.lock().idle.push((self.key.clone(), session));
    }
}

impl Drop for Turn<'_, '_> {
    fn drop(&mut self) {
        self.pool.lock().queue.end(&self.key);
        self.pool.changed.notify_all();
    }
}
