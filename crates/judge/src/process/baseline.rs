//! The baseline process: one per session, for as long as the session is open.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value as Json, json};
use warpwright_jail::Killer;
use warpwright_record::verdict::Profile;
use warpwright_task::Task;

use crate::check::named::Named;
use crate::device::arena::Arena;
use crate::device::device_arbiter::{DeviceArbiter, Purpose};
use crate::error::JudgeError;
use crate::process::channel::NoAnswer;
use crate::process::host::{Grant, Host};
use crate::process::oracle::{mode_name, profile_name};
use crate::process::role::Role;
use crate::process::wire::{Agreement, Peak};
use crate::process::worker::Worker;
use crate::timing::baseline::Baseline;

/// Longest one compilation may take; `max-autotune` can need minutes.
const COMPILE_PATIENCE: Duration = Duration::from_mins(20);
const PATIENCE: Duration = Duration::from_mins(5);
/// Calls after which a baseline is warm: graphs are recorded on the second.
const WARM_CALLS: u32 = 4;

/// The process, and the arena it allocates from on the cpu device once it has been given one.
pub(crate) struct BaselineProcess {
    worker: Worker,
    arena: Option<Arena>,
    /// Memory that it maps in each window, as a candidate does that of its inputs.
    beside: Option<Arc<Arena>>,
    artifact: Option<PathBuf>,
}

/// One that was begun before it is needed: importing torch and its compilers takes seconds.
pub(crate) struct EarlyBaseline {
    thread: JoinHandle<Result<BaselineProcess, JudgeError>>,
    _ending: Ending,
}

impl EarlyBaseline {
    /// Has a thread start it, which `start` does. Dropping this ends both.
    pub(crate) fn begin(
        start: impl FnOnce(&Starting) -> Result<BaselineProcess, JudgeError> + Send + 'static,
    ) -> Option<Self> {
        let starting = Starting::default();
        let ending = Ending(starting.clone());
        let thread = std::thread::Builder::new().name("baseline".to_owned());
        // Without a thread nothing is begun early, and who needs the process starts it.
        Some(Self { thread: thread.spawn(move || start(&starting)).ok()?, _ending: ending })
    }

    /// Waits until it is up; `None` if that failed: who needs it then starts one, and is told of the
    /// same failure. The caller must not hold the device.
    pub(crate) fn take(self) -> Option<BaselineProcess> {
        self.thread.join().ok()?.ok()
    }
}

/// A start that may be given up while it is under way.
#[derive(Clone, Default)]
pub(crate) struct Starting(Arc<Mutex<(bool, Option<Killer>)>>);

impl Starting {
    fn lock(&self) -> MutexGuard<'_, (bool, Option<Killer>)> {
        // Both are whole after every statement, also after a panic elsewhere.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers the process that is starting, unless its session has ended.
    fn register(&self, killer: Killer) -> Result<(), JudgeError> {
        let mut state = self.lock();
        if state.0 {
            let reason = "the session is closed";
            return Err(JudgeError::infrastructure("start the baseline process", reason));
        }
        state.1 = Some(killer);
        Ok(())
    }

    /// It has started: from here on it ends with its [`BaselineProcess`].
    fn done(&self) {
        self.lock().1 = None;
    }
}

/// Gives a start up when it is dropped. It waits for nothing: the thread may be waiting for the device,
/// which whoever drops this may hold.
pub(crate) struct Ending(Starting);

impl Drop for Ending {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.0 = true;
        if let Some(killer) = &state.1 {
            killer.kill();
        }
    }
}

impl BaselineProcess {
    /// Starts it. `cache` keeps compiled graphs of one task from session to session. References may
    /// call the kernels of `artifact`.
    pub(crate) fn start(
        host: &Host,
        cache: &Path,
        artifact: Option<&Path>,
        arbiter: &DeviceArbiter,
        starting: &Starting,
    ) -> Result<Self, JudgeError> {
        let env = vec![
            ("TORCHINDUCTOR_CACHE_DIR", cache.to_string_lossy().into_owned()),
            ("TRITON_CACHE_DIR", cache.join("triton").to_string_lossy().into_owned()),
        ];
        let read = artifact.into_iter().collect();
        let grant = Grant { read, write: vec![cache], env, ..Grant::default() };
        // On the cpu device importing compilers would disturb what is timed; a GPU it asks for itself.
        let _shared = host.device.share_for_host_work(arbiter, Purpose::Start);
        let worker = Worker::spawn(host, Role::Baseline, None, &grant)?;
        starting.register(worker.killer()?)?;
        let worker = worker.up(arbiter)?;
        starting.done();
        Ok(Self { worker, arena: None, beside: None, artifact: artifact.map(Path::to_owned) })
    }

    /// Has it allocate from this memory from now on, of which it touches all: on the cpu device, as a
    /// candidate does. The caller holds nothing of the device.
    pub(crate) fn adopt(
        &mut self,
        arena: Arena,
        arbiter: &DeviceArbiter,
    ) -> Result<(), JudgeError> {
        let _shared = arbiter.share(Purpose::Host);
        let request = json!({"do": "adopt", "arena_bytes": arena.len()});
        self.worker.hand_over(&request, &arena, PATIENCE, arbiter)?;
        self.arena = Some(arena);
        Ok(())
    }

    /// Has it map the memory of the candidate's last inputs in each window from now on, or none: as much
    /// as a candidate must map on a GPU.
    pub(crate) fn map_as_candidates(&mut self, arena: Option<&Arc<Arena>>) {
        self.beside = arena.map(Arc::clone);
    }

    /// See [`Worker::next`]. Not for one with an arena, from which it allocates for good.
    pub(crate) fn next(&mut self, arbiter: &DeviceArbiter) -> Result<(), NoAnswer> {
        if self.arena.is_some() {
            return Err(NoAnswer::Closed);
        }
        self.worker.next(arbiter)
    }

    /// See [`Worker::served`].
    pub(crate) fn served(&self) -> u32 {
        self.worker.served()
    }

    fn ask(&mut self, task: &str, request: &Json, patience: Duration) -> Result<Json, JudgeError> {
        let answer = self.worker.ask(request, patience);
        self.trusted(task, answer)
    }

    fn trusted<T>(&mut self, task: &str, answer: Result<T, NoAnswer>) -> Result<T, JudgeError> {
        answer.map_err(|e| self.worker.failed(task, e))
    }

    /// Loads a task's reference with these weights; of a GPU's memory torch may use at most
    /// `device_bytes` from then on.
    /// The process takes a GPU when it computes there, of which the caller holds nothing.
    pub(crate) fn open(
        &mut self,
        task: &Task,
        (profile, seed): (Profile, u64),
        (weights, device_bytes): (&str, Option<u64>),
        arbiter: &DeviceArbiter,
    ) -> Result<(), JudgeError> {
        let request = json!({
            "do": "open",
            "source": task.source,
            "profile": profile_name(profile),
            "mode": mode_name(task.mode),
            "seed": seed,
            "weights": weights,
            "device_bytes": device_bytes,
            "artifact": self.artifact,
        });
        let answer = self.worker.ask_holding::<Json>(&request, PATIENCE, arbiter);
        self.trusted(&task.name, answer).map(drop)
    }

    /// Makes the model and compiles it for these baselines, with none of the device's memory. What can
    /// not be compiled so is compiled later. The caller holds nothing of the device.
    pub(crate) fn meta_compile(
        &mut self,
        task: &Task,
        ((profile, seed), compiled): ((Profile, u64), &[Baseline]),
        arbiter: &DeviceArbiter,
        starting: &Starting,
    ) -> Result<(), JudgeError> {
        starting.register(self.worker.killer()?)?;
        let request = json!({
            "do": "meta_compile",
            "source": task.source,
            "profile": profile_name(profile),
            "mode": mode_name(task.mode),
            "seed": seed,
            "which": compiled.iter().map(|which| which.name()).collect::<Vec<_>>(),
        });
        let answer = self.worker.ask_holding::<Json>(&request, COMPILE_PATIENCE, arbiter);
        starting.done();
        self.trusted(&task.name, answer).map(drop)
    }

    /// Compiles and warms one baseline, which takes the device when it computes there. The caller holds
    /// nothing of it.
    pub(crate) fn compile(
        &mut self,
        task: &str,
        (which, seed, tuned): (Baseline, u64, Tuned),
        arbiter: &DeviceArbiter,
    ) -> Result<(), JudgeError> {
        let request = json!({
            "do": "compile", "which": which.name(), "seed": seed, "warm_calls": WARM_CALLS,
        });
        let answer = match tuned {
            Tuned::Alone => self.worker.ask_holding::<Json>(&request, COMPILE_PATIENCE, arbiter),
            Tuned::Beside => self.worker.ask_beside::<Json>(&request, COMPILE_PATIENCE, arbiter),
        };
        self.trusted(task, answer).map(drop)
    }

    /// Its id, as the host sees it: that of the jail's first process.
    pub(crate) fn pid(&self) -> u32 {
        self.worker.pid()
    }

    /// Moves the process to these cores.
    pub(crate) fn pin(&mut self, task: &str, cores: &[usize]) -> Result<(), JudgeError> {
        if cores.is_empty() {
            return Ok(());
        }
        self.ask(task, &json!({"do": "pin", "cores": cores}), PATIENCE).map(drop)
    }

    /// Forgets one baseline.
    pub(crate) fn give_up(&mut self, task: &str, which: Baseline) -> Result<(), JudgeError> {
        self.ask(task, &json!({"do": "give_up", "which": which.name()}), PATIENCE).map(drop)
    }

    /// How far what was compiled is from eager on the inputs of a seed. The caller holds the device.
    pub(crate) fn agree(&mut self, task: &str, seed: u64) -> Result<Agreement, JudgeError> {
        let answer = self.ask(task, &json!({"do": "agree", "seed": seed}), PATIENCE)?;
        serde_json::from_value(answer).map_err(|error| {
            JudgeError::infrastructure("read the answer of the baseline process", error)
        })
    }

    /// Gives back what memory of the device it does not need until the next window.
    pub(crate) fn spare(&mut self, task: &str) -> Result<(), JudgeError> {
        self.ask(task, &json!({"do": "spare"}), PATIENCE).map(drop)
    }

    /// Most bytes that the process has held.
    pub(crate) fn peak_bytes(&mut self, task: &str) -> Result<u64, JudgeError> {
        let answer = self.ask(task, &json!({"do": "peak"}), PATIENCE)?;
        let peak: Result<Peak, _> = serde_json::from_value(answer);
        peak.map(|peak| peak.bytes).map_err(|error| {
            JudgeError::infrastructure("read the answer of the baseline process", error)
        })
    }

    /// Makes inputs for these seeds and keeps them. In a window the results of the last `keep` calls
    /// stay alive, or all.
    pub(crate) fn stage(
        &mut self,
        task: &str,
        seeds: &[u64],
        keep: Option<usize>,
    ) -> Result<(), JudgeError> {
        let request = json!({"do": "stage", "seeds": seeds, "keep": keep});
        self.ask(task, &request, PATIENCE).map(drop)
    }

    /// Stages the ceilings instead of a task: a copy of `bytes` and an empty launch.
    pub(crate) fn stage_ceilings(&mut self, bytes: u64) -> Result<(), JudgeError> {
        self.ask("calibration", &json!({"do": "bandwidth", "bytes": bytes}), PATIENCE).map(drop)
    }

    /// Plays a window of calls on the staged inputs, in order, from the judge's "go" to its answer
    /// and the look after it.
    pub(crate) fn play(
        &mut self,
        task: &str,
        which: &str,
        order: &[usize],
        look: Option<Look<'_>>,
    ) -> Result<Duration, JudgeError> {
        let lent = self.beside.as_ref().map(|arena| arena.lend_inputs()).transpose()?.flatten();
        let bytes = lent.as_ref().map_or(0, |(_, bytes)| *bytes);
        let request = json!({"do": "go", "which": which, "order": order, "apart_bytes": bytes});
        let lent = lent.as_ref().map(|(fd, _)| fd.as_fd());
        let (elapsed, answer) = self.worker.window((&request, lent), PATIENCE, |reply| {
            // As much as is done with a candidate's answer.
            drop(serde_json::from_slice::<Named>(reply));
            look.map_or(Ok(Vec::new()), |look| look.arena.samples(look.samples))
        });
        if let Some(seen) = self.trusted(task, answer)?.seen {
            seen?;
        }
        self.ask(task, &json!({"do": "forget"}), PATIENCE)?;
        Ok(elapsed)
    }

    /// A window in which nothing is computed: what every window costs without its calls. On a GPU
    /// one operation on one number takes part, so that the device changes hands as in any window.
    pub(crate) fn nothing(
        &mut self,
        task: &str,
        look: Option<Look<'_>>,
    ) -> Result<Duration, JudgeError> {
        self.play(task, "nothing", &[0], look)
    }
}

/// Whether what compilers time, to find the fastest variant of a kernel, has the device alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tuned {
    /// As what candidates must beat is.
    Alone,
    /// Where it only tells whether a task fits, and others would wait for it.
    Beside,
}

/// The look at a candidate's memory with which each window ends, so that all cost the same.
#[derive(Clone, Copy)]
pub(crate) struct Look<'a> {
    pub(crate) arena: &'a Arena,
    pub(crate) samples: &'a [u64],
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::device::facts::Device;
    use crate::judge::processes::furnish;
    use crate::testing::own_judge;

    #[test]
    fn an_early_baseline_is_used_or_ends_with_its_session() {
        let judge = own_judge(Device::Cpu);
        let task = Task::from_source("task", "class Model: ...");
        let running = || judge.processes.host.workers.pids().len();
        let until = |what: &str, done: &dyn Fn() -> bool| {
            let end = Instant::now() + Duration::from_mins(1);
            while !done() {
                assert!(Instant::now() < end, "waited for {what}");
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        let mut process =
            judge.processes.early_baseline(&judge.machine, &task).unwrap().take().unwrap();
        furnish(&judge.machine, &mut process, 1 << 20).unwrap();
        assert_eq!(running(), 1, "positive control");
        drop(process);
        assert_eq!(running(), 0);

        let early = judge.processes.early_baseline(&judge.machine, &task);
        until("a start", &|| running() == 1);
        drop(early);
        until("its end", &|| running() == 0);

        let alone = judge.machine.arbiter.alone(Purpose::Measurement);
        let early = judge.processes.early_baseline(&judge.machine, &task);
        until("a waiter for the device", &|| judge.machine.arbiter.waiting() == 1);
        assert_eq!(running(), 0, "nothing starts beside a measured window");
        // Whoever closes the session may hold the device that the start waits for.
        drop(early);
        drop(alone);
        until("its turn", &|| Arc::strong_count(&judge.machine.arbiter) == 2);
        assert_eq!(running(), 0, "nobody wants it any more");
    }
}
