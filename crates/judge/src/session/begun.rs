//! The processes of a session that is not open yet.

use std::time::{Duration, Instant};

use warpwright_task::Task;

use crate::error::JudgeError;
use crate::judge;
use crate::judge::processes::Shared;
use crate::process::baseline::EarlyBaseline;
use crate::process::memory::{Memory, Work};
use crate::process::oracle::LoadedOracle;
use crate::process::worker_reuse::Sharing;

/// The processes of a session before it is open: they have loaded what they can on the host, and
/// nothing on the device but a context. So much can be done while others have its memory.
pub(crate) struct Begun {
    pub(super) oracle: LoadedOracle,
    pub(super) early: Option<EarlyBaseline>,
    pub(super) cost: Duration,
}

impl Begun {
    /// Starts them, and has the oracle load the task's module. On the cpu device the process for the
    /// baselines comes after the oracle, for which everybody waits.
    pub(crate) fn begin(shared: Shared<'_>, task: &Task) -> Result<Self, JudgeError> {
        let Shared { machine, processes } = shared;
        let begun = Self::to_verify(shared, task)?;
        if machine.device.has_spare_cores() {
            return Ok(begun);
        }
        let early = processes.early_baseline(machine, task);
        Ok(Self { early, ..begun })
    }

    /// The same where perhaps nothing will be measured: the cpu device has no core to spare for what
    /// may not be needed.
    pub(crate) fn to_verify(shared: Shared<'_>, task: &Task) -> Result<Self, JudgeError> {
        let started = Instant::now();
        let Shared { machine, processes } = shared;
        // Said now, and not when the first candidate is built.
        let tools = processes.builder.toolchain();
        judge::need_libraries(tools, &task.name, machine.libraries_for(task))?;
        // The first candidate's process starts while this task's oracle does. In the device tier it needs none, and
        // the driver makes contexts one after the other.
        if processes.replayer_pool.is_none() {
            processes.runner_pool.expect();
        }
        // A GPU's host has cores for the baselines' process to start and to compile meanwhile. If that
        // fails, it is told when they are needed.
        let early = if machine.device.has_spare_cores() {
            processes.early_baseline(machine, task)
        } else {
            None
        };
        let settings = machine.settings();
        let oracle = LoadedOracle::load(&processes.host, task, settings, &machine.arbiter)?;
        Ok(Self { oracle, early, cost: started.elapsed() })
    }

    /// The same for a look at the task itself.
    pub(crate) fn to_examine(
        shared: Shared<'_>,
        task: &Task,
        sharing: Sharing,
    ) -> Result<Self, JudgeError> {
        let started = Instant::now();
        let Shared { machine, processes } = shared;
        let settings = machine.settings();
        let (oracle, early) = match sharing {
            Sharing::Own => {
                let early = if machine.device.has_spare_cores() {
                    processes.early_baseline(machine, task)
                } else {
                    None
                };
                (LoadedOracle::load(&processes.host, task, settings, &machine.arbiter)?, early)
            }
            Sharing::Shared => {
                let oracle = match processes.reuse.oracle() {
                    Some(worker) => LoadedOracle::load_in(
                        worker,
                        &processes.host,
                        task,
                        settings,
                        &machine.arbiter,
                    ),
                    None => LoadedOracle::load(&processes.host, task, settings, &machine.arbiter),
                };
                // A third of all tasks are refused before they are compiled, and a process that is ended
                // while it compiles goes on to none.
                (oracle?, None)
            }
        };
        Ok(Self { oracle, early, cost: started.elapsed() })
    }

    /// Refuses a task that is known not to fit all of the device's memory, before it costs the device anything.
    pub(crate) fn refuse_too_large(&self, task: &str, all: Memory) -> Result<(), JudgeError> {
        self.oracle.foreseen.as_ref().map_or(Ok(()), |sizes| all.refuse_too_large(task, sizes))
    }

    /// Bytes of the device's memory that would do, if that is known and much.
    pub(crate) fn wanted(&self, work: Work) -> Option<u64> {
        self.oracle.foreseen.as_ref().map(|sizes| Memory::needed(sizes, work))
    }
}
