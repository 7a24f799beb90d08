//! Reuse of oracle and baseline processes for several tasks.
//!
//! A process that has examined a task has imported torch, is warm and, on a GPU, holds a context. These
//! take most of the time of examining a small task. If all tasks have one author, the process forgets its
//! task and takes the next one (`process_reuse.py`). Tasks of unknown authors get processes of their own,
//! since a hostile task could leave something behind. Candidates never run in either.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::device::device_arbiter::DeviceArbiter;
use crate::process::baseline::BaselineProcess;
use crate::process::worker::Worker;

/// Tasks per process. It bounds the memory that libraries keep for every task.
const MOST_TASKS: u32 = 100;

/// Whether tasks share the processes that examine them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// The task gets processes of its own. For tasks of unknown authors.
    Own,
    /// The task may reuse processes of earlier `Shared` tasks. For tasks of one author.
    Shared,
}

/// Idle processes that have forgotten their task.
#[derive(Default)]
pub(crate) struct Reuse {
    oracles: Mutex<Vec<Worker>>,
    baselines: Mutex<Vec<BaselineProcess>>,
}

impl Reuse {
    /// An idle oracle process, if there is one.
    pub(crate) fn oracle(&self) -> Option<Worker> {
        lock(&self.oracles).pop()
    }

    /// An idle baseline process, if there is one.
    pub(crate) fn baseline(&self) -> Option<BaselineProcess> {
        lock(&self.baselines).pop()
    }

    /// Keeps a process that has forgotten its task; ends it after [`MOST_TASKS`] tasks.
    pub(crate) fn keep_oracle(&self, worker: Worker) {
        if worker.served() < MOST_TASKS {
            lock(&self.oracles).push(worker);
        }
    }

    /// Makes the process forget its task, and keeps it. Ends it if that fails, or after [`MOST_TASKS`]
    /// tasks. On the cpu device a process with an arena always ends: the arena has the size that its task
    /// needs. The caller must not hold the device.
    pub(crate) fn keep_baseline(&self, mut process: BaselineProcess, arbiter: &DeviceArbiter) {
        if process.next(arbiter).is_ok() && process.served() < MOST_TASKS {
            lock(&self.baselines).push(process);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A list is whole after every call, also after a panic elsewhere.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use warpwright_record::verdict::Profile;
    use warpwright_task::Task;

    use super::*;
    use crate::admission::examination::{Bar, Examination};
    use crate::admission::objection::Objection;
    use crate::device::facts::Device;
    use crate::error::JudgeError;
    use crate::process::baseline::{Starting, Tuned};
    use crate::process::oracle::INIT;
    use crate::session::pool::SessionPool;
    use crate::testing::{own_judge, shared_judge};
    use crate::timing::baseline::Baseline;

    fn task(name: &str, weight: &str, forward: &str) -> Task {
        let source = format!(
            "import torch\n\n\n\
             class Model(torch.nn.Module):\n\
             \x20   def __init__(self):\n\
             \x20       super().__init__()\n\
             \x20       self.weight = torch.nn.Parameter({weight})\n\n\
             \x20   def forward(self, x):\n\
             \x20       return {forward}\n\n\n\
             def get_inputs():\n\
             \x20   return [torch.randn(96, 64)]\n"
        );
        Task::from_source(name, source)
    }

    fn tasks() -> [Task; 4] {
        [
            task("first", "torch.rand(64) + 0.5", "torch.tanh(x) * self.weight"),
            task("zeros", "torch.zeros(64)", "x * 0 * self.weight"),
            task("raises", "torch.rand(3)", "x @ self.weight"),
            task("last", "torch.rand(64, 32)", "torch.softmax(x @ self.weight, 1)"),
        ]
    }

    /// All but what takes another time each time.
    fn facts(found: &Examination) -> String {
        let compiled: Vec<&String> = found.compiled_ms.iter().map(|(name, _)| name).collect();
        let kinds = (&found.inputs, &found.outputs, &found.graph);
        let objections: Vec<&str> = found.objections.iter().map(Objection::name).collect();
        format!("{:?}", (kinds, found.unavoidable_bytes, objections, compiled))
    }

    #[test]
    fn a_reused_process_examines_like_a_new_one() {
        let judge = own_judge(Device::Cpu);
        let pool = SessionPool::to_examine(&judge);
        let look = |task: &Task, processes| {
            let found = pool.examine(task, None, Bar::Sound, processes);
            let first_line = |e: JudgeError| e.to_string().lines().next().map(str::to_owned);
            found.map(|found| facts(&found)).map_err(first_line)
        };
        let alone = tasks().map(|task| look(&task, Sharing::Own));
        assert!(
            lock(&judge.processes.reuse.oracles).is_empty(),
            "nobody said that they may be shared"
        );
        let shared = tasks().map(|task| look(&task, Sharing::Shared));
        assert_eq!(alone, shared);
        let is_sound = alone.each_ref().map(Result::is_ok);
        assert_eq!(is_sound, [true, true, false, true], "{alone:?}");
        let kept = lock(&judge.processes.reuse.oracles).iter().map(Worker::pid).collect::<Vec<_>>();
        assert_eq!(kept.len(), 1);
        // The same process, again and again; one whose task raised is given up.
        for _ in 0..2 {
            look(&tasks()[0], Sharing::Shared).unwrap();
        }
        let still =
            lock(&judge.processes.reuse.oracles).iter().map(Worker::pid).collect::<Vec<_>>();
        assert_eq!(kept, still);
        look(&tasks()[2], Sharing::Shared).unwrap_err();
        assert!(lock(&judge.processes.reuse.oracles).is_empty());
    }

    #[test]
    fn a_baseline_process_compiles_several_tasks_in_turn() {
        // No other test on the shared judge keeps idle processes in it.
        let judge = shared_judge();
        let cache = tempfile::tempdir().unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs_err::set_permissions(cache.path(), open).unwrap();
        let (host, arbiter, starting) =
            (&judge.processes.host, &judge.machine.arbiter, Starting::default());
        // Without an arena, as on a GPU.
        let mut process =
            BaselineProcess::start(host, cache.path(), None, arbiter, &starting).unwrap();
        let [first, _, _, last] = tasks();
        for (served, task) in (1..).zip([&first, &last, &first]) {
            process.open(task, (Profile::Strict, 1), (INIT, None), arbiter).unwrap();
            for which in [Baseline::Eager, Baseline::Compile] {
                process.compile(&task.name, (which, 1, Tuned::Beside), arbiter).unwrap();
            }
            process.pin(&task.name, &[0]).unwrap();
            let apart = process.agree(&task.name, 2).unwrap().apart;
            let far = apart["compile"][0].unwrap();
            assert!(far < 1e-5, "{}: {far}", task.name);
            process.next(arbiter).unwrap();
            assert_eq!(process.served(), served);
            // What it knew it knows no more.
            process.agree(&task.name, 2).unwrap_err();
        }
        let pid = process.pid();
        judge.processes.reuse.keep_baseline(process, arbiter);
        assert_eq!(judge.processes.reuse.baseline().unwrap().pid(), pid);
        let mut furnished = judge.processes.baseline_process(&judge.machine, 1 << 20).unwrap();
        furnished.open(&first, (Profile::Strict, 1), (INIT, None), arbiter).unwrap();
        judge.processes.reuse.keep_baseline(furnished, arbiter);
        assert!(
            judge.processes.reuse.baseline().is_none(),
            "its memory is as large as its task needs"
        );
    }
}
