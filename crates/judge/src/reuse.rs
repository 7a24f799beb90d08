//! Processes that go on to another task.
//!
//! One that has looked at a task has imported, is warm and, on a GPU, holds a context: most of what a
//! look at a small task takes. Where one author wrote all tasks, it goes on to the next when it has
//! forgotten the last (`succession.py`). Tasks of others get processes of their own: what a hostile one
//! leaves behind would meet the next. Candidates are never near either.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::baseline::BaselineProcess;
use crate::gate::Gate;
use crate::process::Worker;

/// Tasks that one process looks at: what libraries keep of each is bounded.
const MOST_TASKS: u32 = 100;

/// Which processes look at a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processes {
    /// Its own: for a task whose author is not known.
    Own,
    /// Those that have looked at others for which this was said: for tasks of one author.
    Shared,
}

/// Processes that wait for their next task.
#[derive(Default)]
pub(crate) struct Reuse {
    oracles: Mutex<Vec<Worker>>,
    baselines: Mutex<Vec<BaselineProcess>>,
}

impl Reuse {
    /// One that is up and knows no task.
    pub(crate) fn oracle(&self) -> Option<Worker> {
        lock(&self.oracles).pop()
    }

    /// As [`Reuse::oracle`].
    pub(crate) fn baseline(&self) -> Option<BaselineProcess> {
        lock(&self.baselines).pop()
    }

    /// Keeps one that has forgotten its task; ends it if it has looked at many.
    pub(crate) fn keep_oracle(&self, worker: Worker) {
        if worker.served() < MOST_TASKS {
            lock(&self.oracles).push(worker);
        }
    }

    /// Has it forget its task, and keeps it; ends it if it cannot, or has looked at many. On the cpu
    /// device it allocates from memory that is as large as its task needs, and ends with it. The caller
    /// holds nothing of the device.
    pub(crate) fn keep_baseline(&self, mut process: BaselineProcess, gate: &Gate) {
        if process.next(gate).is_ok() && process.served() < MOST_TASKS {
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
    use crate::baseline::{Baseline, Starting, Tuned};
    use crate::error::JudgeError;
    use crate::examination::{Bar, Examination, Objection};
    use crate::oracle::INIT;
    use crate::pool::SessionPool;
    use crate::testing::judge;

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
    fn a_process_that_looked_at_other_tasks_says_what_a_new_one_says() {
        let judge = judge();
        let pool = SessionPool::to_examine(&judge);
        let look = |task: &Task, processes| {
            let found = pool.examine(task, None, Bar::Sound, processes);
            let first_line = |e: JudgeError| e.to_string().lines().next().map(str::to_owned);
            found.map(|found| facts(&found)).map_err(first_line)
        };
        let alone = tasks().map(|task| look(&task, Processes::Own));
        assert!(lock(&judge.reuse.oracles).is_empty(), "nobody said that they may be shared");
        let shared = tasks().map(|task| look(&task, Processes::Shared));
        assert_eq!(alone, shared);
        let is_sound = alone.each_ref().map(Result::is_ok);
        assert_eq!(is_sound, [true, true, false, true], "{alone:?}");
        let kept = lock(&judge.reuse.oracles).iter().map(Worker::pid).collect::<Vec<_>>();
        assert_eq!(kept.len(), 1);
        // The same process, again and again; one whose task raised is given up.
        for _ in 0..2 {
            look(&tasks()[0], Processes::Shared).unwrap();
        }
        let still = lock(&judge.reuse.oracles).iter().map(Worker::pid).collect::<Vec<_>>();
        assert_eq!(kept, still);
        look(&tasks()[2], Processes::Shared).unwrap_err();
        assert!(lock(&judge.reuse.oracles).is_empty());
    }

    #[test]
    fn a_baseline_process_compiles_one_task_after_the_other() {
        let judge = judge();
        let cache = tempfile::tempdir().unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs_err::set_permissions(cache.path(), open).unwrap();
        let (host, gate, starting) = (&judge.host, &judge.gate, Starting::default());
        // Without an arena, as on a GPU.
        let mut process =
            BaselineProcess::start(host, cache.path(), None, gate, &starting).unwrap();
        let [first, _, _, last] = tasks();
        for (served, task) in (1..).zip([&first, &last, &first]) {
            process.open(task, (Profile::Strict, 1), (INIT, None), gate).unwrap();
            for which in [Baseline::Eager, Baseline::Compile] {
                process.compile(&task.name, (which, 1, Tuned::Beside), gate).unwrap();
            }
            process.pin(&task.name, &[0]).unwrap();
            let apart = process.agree(&task.name, 2).unwrap().apart;
            let far = apart["compile"][0].unwrap();
            assert!(far < 1e-5, "{}: {far}", task.name);
            process.next(gate).unwrap();
            assert_eq!(process.served(), served);
            // What it knew it knows no more.
            process.agree(&task.name, 2).unwrap_err();
        }
        let pid = process.pid();
        judge.reuse.keep_baseline(process, gate);
        assert_eq!(judge.reuse.baseline().unwrap().pid(), pid);
        let mut furnished = judge.baseline_process(1 << 20).unwrap();
        furnished.open(&first, (Profile::Strict, 1), (INIT, None), gate).unwrap();
        judge.reuse.keep_baseline(furnished, gate);
        assert!(judge.reuse.baseline().is_none(), "its memory is as large as its task needs");
    }
}
