//! The turn of a request in a pool: its session, and the memory that it may use.

use std::time::{Duration, Instant};

use super::{Idle, Key, SessionPool};
use crate::process::memory::Memory;
use crate::session::TaskSession;

/// The right to work on a key. Ends when dropped.
pub(super) struct Turn<'p, 'j> {
    pub(super) pool: &'p SessionPool<'j>,
    pub(super) key: Key,
    pub(super) parts: usize,
}

impl<'j> Turn<'_, 'j> {
    /// The key's session, if it is open; else room for it.
    pub(super) fn take(&self) -> Option<TaskSession<'j>> {
        let mut state = self.pool.lock();
        let at = state.idle.iter().position(|idle| idle.key == self.key);
        let mut found = at.map(|at| state.idle.remove(at));
        // One with too little memory is of no use.
        let mut closed: Vec<_> =
            found.take_if(|idle| idle.parts < self.parts).into_iter().collect();
        let most = self.pool.parts.saturating_sub(self.pool.busy(&state));
        while state.idle.iter().map(|idle| idle.parts).sum::<usize>() > most {
            let now = Instant::now();
            let at = state.idle.iter().position(|idle| idle.until <= now).unwrap_or(0);
            closed.push(state.idle.remove(at));
        }
        drop(state);
        // Ending processes takes a moment: not under the lock.
        drop(closed);
        found.map(|idle| idle.session)
    }

    /// The memory that its session may use.
    pub(super) fn memory(&self) -> Memory {
        let SessionPool { judge, work, parts, .. } = self.pool;
        Memory::part(judge.facts(), *work, self.parts, *parts)
    }

    /// Remembers that the task needs more memory: enough for `wanted` bytes, or twice as much.
    pub(super) fn enlarge(&self, wanted: Option<u64>) {
        let one = self.pool.part_bytes();
        let wanted = wanted.map_or(0, |bytes| bytes.div_ceil(one) as usize);
        self.pool.enlarge(&self.key, wanted.max(2 * self.parts));
    }

    pub(super) fn learn(&self, session: &TaskSession<'j>) {
        let mut state = self.pool.lock();
        if !state.known.iter().any(|(key, _)| *key == self.key) {
            state.known.push((self.key.clone(), session.known()));
        }
    }

    pub(super) fn keep(&self, session: TaskSession<'j>) {
        // On the cpu device memory is not what is short.
        let short = self.pool.judge.machine.device.divides_memory();
        let time = if short { session.cost() } else { Duration::ZERO };
        let until = Instant::now() + time;
        let (key, parts) = (self.key.clone(), self.parts);
        self.pool.lock().idle.push(Idle { key, parts, until, session });
    }
}

impl Drop for Turn<'_, '_> {
    fn drop(&mut self) {
        self.pool.lock().queue.end(&self.key);
        self.pool.changed.notify_all();
    }
}
