//! Fork servers: processes that have imported torch and fork the judge's processes. A start then takes 0.1 s
//! or less, instead of a second or more of a core, or several seconds with the compilers.
//!
//! Each role has its own fork server (`forkserver.py`), because forks share only imported modules: runners
//! get a torch without numpy, oracles a torch with it, baselines the compilers. A fork server is started
//! with its first child, and once more if it dies later. Processes are executed instead if there is no fork
//! server: with another jail backend, without the library next to the program, or if a second thread or an
//! open GPU remains after its imports.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use warpwright_jail::{Child, ForkServer, Spec};

use crate::error::JudgeError;
use crate::process::role::Role;

/// Longest the parent may take to import torch. A busy host is slow, not silent.
const READY_PATIENCE: Duration = Duration::from_mins(2);
/// How often one is started.
const STARTS: u32 = 2;

/// The fork servers of one judge, one per role.
pub(crate) struct Forks([ForkServerClient; 4]);

impl Default for Forks {
    fn default() -> Self {
        let roles = [Role::Oracle, Role::Baseline, Role::Runner, Role::Recorder];
        Self(roles.map(ForkServerClient::of))
    }
}

impl Forks {
    /// The client of this role's fork server.
    pub(crate) fn of(&self, role: Role) -> &ForkServerClient {
        &self.0[role as usize]
    }

    /// Ends them, and whoever waits for them.
    pub(crate) fn close(&self) {
        self.0.iter().for_each(ForkServerClient::close);
    }
}

/// Starts processes of one role through their fork server.
pub(crate) struct ForkServerClient {
    role: Role,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    server: Option<Arc<ForkServer>>,
    starts: u32,
    closed: bool,
    told: HowStarted,
}

/// Counts of how a judge has started its runner processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HowStarted {
    /// Processes forked from a fork server that has imported torch.
    pub forked: u64,
    /// Processes started by executing Python.
    pub executed: u64,
    /// Why the last attempt to fork failed; `None` if none failed.
    pub reason: Option<String>,
}

impl ForkServerClient {
    fn of(role: Role) -> Self {
        Self { role, state: Mutex::default() }
    }

    /// Starts what `make` describes, a module of the package, as a fork of a server that `start` starts if
    /// there is none. `None`: it must be executed.
    pub(crate) fn spawn<T>(
        &self,
        start: &dyn Fn(Role) -> Result<ForkServer, String>,
        make: &dyn Fn() -> Result<(Spec, T), JudgeError>,
    ) -> Result<Option<(Child, T)>, JudgeError> {
        while let Some(server) = self.server(start) {
            let (spec, rest) = make()?;
            match server.ready(READY_PATIENCE).and_then(|()| server.spawn(spec)) {
                Ok(child) => {
                    self.lock().told.forked += 1;
                    return Ok(Some((child, rest)));
                }
                Err(error) => {
                    let mut state = self.lock();
                    state.told.reason = Some(error.to_string());
                    if server.is_alive() {
                        // What fails with a parent that is well fails without one too, and is told then.
                        break;
                    }
                    if state.told.forked == 0 {
                        // One that never was well would not be the next time either.
                        state.starts = STARTS;
                    }
                }
            }
        }
        self.lock().told.executed += 1;
        Ok(None)
    }

    /// The parent, started if there is none; `None` if there will be none.
    fn server(
        &self,
        start: &dyn Fn(Role) -> Result<ForkServer, String>,
    ) -> Option<Arc<ForkServer>> {
        let mut state = self.lock();
        if let Some(server) = state.server.as_ref().filter(|server| server.is_alive()) {
            return Some(Arc::clone(server));
        }
        if state.closed || state.starts == STARTS {
            return None;
        }
        state.starts += 1;
        match start(self.role) {
            Ok(server) => {
                let server = Arc::new(server);
                state.server = Some(Arc::clone(&server));
                Some(server)
            }
            Err(reason) => {
                state.starts = STARTS;
                state.told.reason = Some(reason);
                None
            }
        }
    }

    /// Ends it, and whoever waits for it.
    fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        if let Some(server) = state.server.take() {
            server.kill();
        }
    }

    /// Id of the parent that lives.
    #[cfg(test)]
    pub(crate) fn parent(&self) -> Option<u32> {
        let server = self.lock().server.clone();
        server.filter(|server| server.is_alive()).map(|server| server.pid())
    }

    pub(crate) fn told(&self) -> HowStarted {
        self.lock().told.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The bookkeeping is whole after every statement, also after a panic elsewhere.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use warpwright_record::verdict::Profile;
    use warpwright_task::Task;

    use super::*;
    use crate::device::facts::Device;
    use crate::judge::LocalJudge;
    use crate::judge::processes::furnish;
    use crate::process::baseline::{BaselineProcess, Starting, Tuned};
    use crate::process::oracle::{INIT, LoadedOracle};
    use crate::testing::forking_judge;
    use crate::timing::baseline::Baseline;

    /// What needs numpy has it, and what a role's libraries were told they were told.
    const SOURCE: &str = "
import os
import sys
import numpy
import torch

assert torch.from_numpy(numpy.ones(3)).sum() == 3
assert os.environ['MALLOC_MMAP_MAX_'] == '0'
assert sys.argv[0].endswith('oracle.py'), sys.argv

class Model(torch.nn.Module):
    def forward(self, x):
        return x

def get_inputs():
    return [torch.rand(4)]
";

    #[test]
    fn oracles_and_baselines_fork_from_separate_servers() {
        let Some(judge) = forking_judge(Device::Cpu) else { return };
        let task = Task::from_source("task", SOURCE);
        let load = || {
            LoadedOracle::load(
                &judge.processes.host,
                &task,
                (Profile::Strict, 0),
                &judge.machine.arbiter,
            )
        };
        let loaded = (load().unwrap(), load().unwrap());
        let baseline =
            judge.processes.early_baseline(&judge.machine, &task).unwrap().take().unwrap();
        let forks = &judge.processes.host.forks;
        let counts = [Role::Oracle, Role::Baseline, Role::Runner].map(|role| {
            let told = forks.of(role).told();
            (told.forked, told.executed, told.reason)
        });
        assert_eq!(counts[0], (2, 0, None));
        assert_eq!(counts[1], (1, 0, None));
        let parents = [Role::Oracle, Role::Baseline].map(|role| forks.of(role).parent());
        assert!(parents.iter().all(Option::is_some) && parents[0] != parents[1], "{parents:?}");
        drop((loaded, baseline));
        forks.close();
        let parents = [Role::Oracle, Role::Baseline].map(|role| forks.of(role).parent());
        assert_eq!(parents, [None, None]);
    }

    /// Device memory that the judge has exported, and compilers that ask for a GPU when they are
    /// imported, would keep a parent from being one.
    #[test]
    fn gpu_processes_of_every_role_are_forked() {
        let Some(judge) = forking_judge(Device::Cuda(0)) else { return };
        let task = Task::from_source("task", COMPILED);
        let runner = judge.processes.runner_pool.take().unwrap();
        let load = || {
            LoadedOracle::load(
                &judge.processes.host,
                &task,
                (Profile::Strict, 0),
                &judge.machine.arbiter,
            )
        };
        let oracle = load().unwrap();
        let baseline =
            judge.processes.early_baseline(&judge.machine, &task).unwrap().take().unwrap();
        for role in [Role::Oracle, Role::Baseline, Role::Runner] {
            let told = judge.processes.host.forks.of(role).told();
            assert_eq!((told.executed, &told.reason), (0, &None), "{role:?}");
            assert!(told.forked > 0, "{role:?}");
        }
        drop((runner, oracle, baseline));
    }

    const COMPILED: &str = "
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(24, 40)

    def forward(self, x):
        y = torch.softmax(self.linear(x), -1)
        return y.cumsum(0) + torch.nn.functional.gelu(y).amax(-1, keepdim=True)

def get_inputs():
    return [torch.rand(70, 24)]

def get_init_inputs():
    return []
";

    /// What a new baseline process writes to compile that, by the names of the files: kernels, and the
    /// program that calls them.
    fn written(judge: &LocalJudge, cache: &Path) -> BTreeMap<String, Vec<String>> {
        // Processes in a jail have other users.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs_err::set_permissions(cache, open).unwrap();
        let task = Task::from_source("task", COMPILED);
        let (host, arbiter, starting) =
            (&judge.processes.host, &judge.machine.arbiter, Starting::default());
        let mut process = BaselineProcess::start(host, cache, None, arbiter, &starting).unwrap();
        furnish(&judge.machine, &mut process, 64 << 20).unwrap();
        process.open(&task, (Profile::Strict, 1), (INIT, None), arbiter).unwrap();
        process.compile("task", (Baseline::Compile, 1, Tuned::Alone), arbiter).unwrap();
        drop(process);
        let folders = fs_err::read_dir(cache).unwrap();
        let inside = folders.filter_map(|folder| fs_err::read_dir(folder.unwrap().path()).ok());
        let mut written = BTreeMap::new();
        for path in inside.flatten().map(|file| file.unwrap().path()) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let is = |kind: &str| path.extension().is_some_and(|extension| extension == kind);
            let program = is("py");
            let kernel = is("cpp") && name.contains(".main.");
            if !program && !kernel {
                continue;
            }
            let text = fs_err::read_to_string(&path).unwrap();
            // A process counts what it compiles.
            let lines = text.lines().filter(|line| !line.starts_with("# AOT ID"));
            let name = if program { "program".to_owned() } else { name };
            written.insert(name, lines.map(str::to_owned).collect());
        }
        written
    }

    #[test]
    fn a_warm_compiler_writes_the_same_files() {
        let Some(judge) = forking_judge(Device::Cpu) else { return };
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let warmed_up = written(&judge, one.path());
        let told = |judge: &LocalJudge| judge.processes.host.forks.of(Role::Baseline).told();
        assert_eq!((told(&judge).forked, told(&judge).executed), (1, 0));
        judge.processes.host.forks.close();
        // Compiling torch's headers takes longer than all else.
        fs_err::rename(one.path().join("headers"), other.path().join("headers")).unwrap();
        let new = written(&judge, other.path());
        assert_eq!((told(&judge).forked, told(&judge).executed), (1, 1));
        assert!(warmed_up.len() > 1 && warmed_up.contains_key("program"), "{warmed_up:?}");
        assert_eq!(warmed_up, new);
    }
}
