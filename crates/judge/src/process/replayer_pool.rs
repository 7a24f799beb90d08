//! The replayers of one GPU: one that works, and a spare beside it.
//!
//! A replayer serves one candidate after the other. One that faulted, hung or may have been changed is ended, and
//! the spare takes its place at once; the next spare starts when the device is shared, beside no timed window
//! (`device_arbiter.rs`). A GPU may have no memory for two: then there is no spare, and candidates share the one, each
//! in its turn. On the cpu device each candidate has a replayer of its own, with memory of its own.

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use warpwright_plan::Code;

use crate::device::arena::Arena;
use crate::device::device_arbiter::DeviceArbiter;
use crate::error::JudgeError;
use crate::process::host::Host;
use crate::process::replayer::Replayer;

/// Replayers of a GPU that wait: the one in use comes back to one spare.
const KEPT: usize = 2;

/// Candidates for which no replayer is started beside another after one could not be, as where the GPU has no memory
/// for it: each costs the host as much as one that starts.
const REST: u32 = 16;

/// The replayers of one judge. Dropping the pool ends them.
pub(crate) struct ReplayerPool {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    host: Arc<Host>,
    arbiter: Arc<DeviceArbiter>,
    /// Folder of the artifacts.
    cache: PathBuf,
    /// Replayers that are kept.
    kept: usize,
    state: Mutex<State>,
    changed: Condvar,
}

/// A replayer that serves nobody, and the memory that it has mapped.
struct Waiting {
    replayer: Replayer,
    arena: Arc<Arena>,
}

#[derive(Default)]
struct State {
    ready: Vec<Waiting>,
    /// Replayers that serve a candidate.
    working: usize,
    starting: usize,
    /// Candidates for which none is started beside another.
    rest: u32,
    closing: bool,
}

impl ReplayerPool {
    /// One with nothing in it. `cache` has the artifacts.
    pub(crate) fn new(host: Arc<Host>, arbiter: Arc<DeviceArbiter>, cache: PathBuf) -> Self {
        let (state, changed) = (Mutex::default(), Condvar::new());
        let on_gpu = host.plans.as_ref().is_ok_and(|tools| tools.code == Code::Gpu);
        let kept = if on_gpu { KEPT } else { 0 };
        let shared = Arc::new(Shared { host, arbiter, cache, kept, state, changed });
        Self { shared, threads: Mutex::default() }
    }

    /// A replayer, which has mapped this memory: the same for all candidates. Waits for one that is in use if the
    /// device has no room for another. The caller holds nothing of the device.
    pub(crate) fn take(&self, arena: &Arc<Arena>) -> Result<Replayer, JudgeError> {
        let mut state = self.shared.lock();
        loop {
            if let Some(mut waiting) = state.ready.pop() {
                drop(state);
                if Arc::ptr_eq(&waiting.arena, arena) && waiting.replayer.is_fit() {
                    self.shared.lock().working += 1;
                    return Ok(waiting.replayer);
                }
                drop(waiting);
                state = self.shared.lock();
                continue;
            }
            if state.starting > 0 || (state.rest > 0 && state.working > 0) {
                state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            drop(state);
            let started = self.shared.start(arena);
            state = self.shared.lock();
            match started {
                Ok(replayer) => {
                    state.working += 1;
                    return Ok(replayer);
                }
                Err(_) if self.shared.kept > 0 && state.exist() => state.rest = REST,
                Err(error) => return Err(error),
            }
        }
    }

    /// One that has served nobody: its context holds nothing of other candidates. The caller holds nothing of the
    /// device.
    pub(crate) fn take_fresh(&self, arena: &Arc<Arena>) -> Result<Replayer, JudgeError> {
        let mut state = self.shared.lock();
        let fresh =
            |waiting: &Waiting| Arc::ptr_eq(&waiting.arena, arena) && waiting.replayer.is_fresh();
        let spare = state.ready.iter().position(fresh);
        let spare = spare.map(|at| state.ready.remove(at).replayer);
        drop(state);
        let spare = spare.and_then(|mut spare| spare.is_fit().then_some(spare));
        let fresh = spare.map_or_else(|| self.shared.start(arena), Ok).or_else(|error| {
            // Those that wait may have the memory that it needs.
            let idle = std::mem::take(&mut self.shared.lock().ready);
            if idle.is_empty() {
                return Err(error);
            }
            drop(idle);
            self.shared.start(arena)
        })?;
        self.shared.lock().working += 1;
        Ok(fresh)
    }

    /// Ends those that serve nobody, so that the memory which they have mapped is free.
    pub(crate) fn end_idle(&self) {
        let mut state = self.shared.lock();
        while state.starting > 0 {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let ready = std::mem::take(&mut state.ready);
        drop(state);
        drop(ready);
    }

    /// Ends one that was taken, or learns that it has ended.
    pub(crate) fn end(&self, replayer: Option<Replayer>) {
        drop(replayer);
        let mut state = self.shared.lock();
        state.working = state.working.saturating_sub(1);
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Takes back one that has served a candidate, or learns that it has ended.
    pub(crate) fn give_back(&self, replayer: Option<Replayer>, arena: &Arc<Arena>) {
        let mut state = self.shared.lock();
        state.working = state.working.saturating_sub(1);
        self.shared.changed.notify_all();
        if self.shared.kept == 0 {
            return;
        }
        state.ready.extend(replayer.map(|replayer| Waiting { replayer, arena: Arc::clone(arena) }));
        if state.closing || state.ready.len() + state.working + state.starting >= self.shared.kept {
            return;
        }
        if state.rest > 0 {
            state.rest -= 1;
            return;
        }
        state.starting += 1;
        drop(state);
        let (shared, arena) = (Arc::clone(&self.shared), Arc::clone(arena));
        let thread = std::thread::Builder::new().name("replayer-pool".to_owned());
        let started = thread.spawn(move || shared.add(&arena));
        let mut threads = lock(&self.threads);
        threads.retain(|thread| !thread.is_finished());
        match started {
            Ok(thread) => threads.push(thread),
            // Who needs one starts it.
            Err(_) => self.shared.started(None),
        }
    }
}

impl State {
    /// Whether there is a replayer, or will be one.
    fn exist(&self) -> bool {
        !self.ready.is_empty() || self.working > 0 || self.starting > 0
    }
}

impl Drop for ReplayerPool {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        for thread in lock(&self.threads).drain(..) {
            // A panic in there has been told of already.
            let _ = thread.join();
        }
        let ready = std::mem::take(&mut self.shared.lock().ready);
        drop(ready);
    }
}

impl Shared {
    fn start(&self, arena: &Arena) -> Result<Replayer, JudgeError> {
        Replayer::start(&self.host, arena, &self.cache, &self.arbiter)
    }

    /// Starts a spare, and ignores a failure: the next caller of `take` starts one itself and gets the error.
    fn add(&self, arena: &Arc<Arena>) {
        let made = self.start(arena).ok();
        self.started(made.map(|replayer| Waiting { replayer, arena: Arc::clone(arena) }));
    }

    fn started(&self, made: Option<Waiting>) {
        let mut state = self.lock();
        state.starting -= 1;
        state.rest = if made.is_some() { 0 } else { REST };
        state.ready.extend(made);
        drop(state);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// The bookkeeping is whole after every statement, also after a panic elsewhere.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;
    use crate::device::arena::HostArena;
    use crate::process::host::{PlanTools, RecorderLibrary};
    use crate::process::replayer;
    use crate::testing::shared_judge;

    /// A pool whose replayers are this program. They see the folder.
    fn pool(replayer: &str, cache: &Path) -> ReplayerPool {
        let judge = shared_judge();
        let ours = &judge.processes.host;
        let folder = judge.machine.config.cache.clone();
        let library = folder.join("none.so");
        let recorder = RecorderLibrary { library, folder: folder.clone(), env: Vec::new() };
        let replayer = fs_err::canonicalize(replayer).unwrap();
        let answers = serde_json::Value::Null;
        let host = ours.with_plans(PlanTools {
            code: Code::Gpu,
            recorder,
            replayer,
            cublas: None,
            cudnn: None,
            answers,
        });
        let arbiter = Arc::clone(&judge.machine.arbiter);
        ReplayerPool::new(Arc::new(host), arbiter, cache.to_owned())
    }

    fn memory() -> Arc<Arena> {
        Arc::new(Arena::Host(HostArena::create(4096).unwrap()))
    }

    /// A replayer of the cpu device that starts only while no other runs, as where a GPU has memory for one.
    fn only_one(folder: &Path) -> String {
        let path = |name| folder.join(name).display().to_string();
        let (program, script, slot) = (path("replayer"), path("only-one"), path("slot"));
        fs_err::copy(replayer::find().unwrap(), &program).unwrap();
        fs_err::write(&slot, "").unwrap();
        let text = format!(
            "#!/bin/sh\nexec 9< {slot}\nflock --nonblock 9 || exit 3\nshift 2\n\
             exec {program} --device cpu \"$@\"\n"
        );
        fs_err::write(&script, text).unwrap();
        fs_err::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        script
    }

    #[test]
    fn memory_for_one_replayer_serves_all_candidates() {
        let folder = tempfile::tempdir().unwrap();
        let open = std::fs::Permissions::from_mode(0o755);
        fs_err::set_permissions(folder.path(), open).unwrap();
        let (pool, arena) = (pool(&only_one(folder.path()), folder.path()), memory());
        let one = pool.take(&arena).unwrap();
        let id = one.standing().id;
        let Err(error) = pool.shared.start(&arena) else { panic!("control: two run") };
        assert!(error.to_string().contains("exited with code 3"), "{error}");
        std::thread::scope(|scope| {
            let next = scope.spawn(|| pool.take(&arena));
            while pool.shared.lock().rest == 0 {
                std::thread::yield_now();
            }
            pool.give_back(Some(one), &arena);
            let next = next.join().unwrap().unwrap();
            assert_eq!(next.standing().id, id, "it waited for the one that was in use");
            // One that faulted makes room for the next.
            let after = scope.spawn(|| pool.take(&arena));
            pool.end(Some(next));
            let after = after.join().unwrap().unwrap();
            assert_ne!(after.standing().id, id);
            // A repeat needs one that is fresh.
            let (id, mut used) = (after.standing().id, after);
            used.serve();
            pool.give_back(Some(used), &arena);
            let fresh = pool.take_fresh(&arena).unwrap();
            assert!(fresh.is_fresh() && fresh.standing().id != id);
            pool.give_back(Some(fresh), &arena);
        });
    }

    #[test]
    fn spare_that_cannot_start_blocks_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let (pool, arena) = (pool("/bin/false", folder.path()), memory());
        // A spare fails in the background; whoever takes one then starts it, and gets the error.
        for _ in 0..2 {
            pool.give_back(None, &arena);
            let Err(error) = pool.take(&arena) else { panic!("it ends at once") };
            let told = error.to_string();
            assert!(told.starts_with("failed to start the replayer process"), "{told}");
            assert!(told.contains("exited with code 1"), "the cause: {told}");
        }
        let Err(error) = pool.take_fresh(&arena) else { panic!("it ends at once") };
        assert!(matches!(error, JudgeError::Infrastructure { .. }), "{error}");
        let state = pool.shared.lock();
        assert_eq!((state.ready.len(), state.working, state.starting), (0, 0, 0));
        assert_eq!(state.rest, REST - 1, "the second candidate starts no spare");
    }
}
