//! Properties that the judge's processes share.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use warpwright_jail::{ForkServer, Jail, Limits, Spec, Warm};
use warpwright_plan::Code;

use crate::device::backend::DeviceBackend;
use crate::error::JudgeError;
use crate::process::forks::Forks;
use crate::process::role::Role;

/// What records and replays launch plans.
#[derive(Clone, Debug)]
pub(crate) struct PlanTools {
    /// What plans launch.
    pub(crate) code: Code,
    pub(crate) recorder: RecorderLibrary,
    /// The program `warpwright-replayer`.
    pub(crate) replayer: PathBuf,
    /// NVIDIA's cuBLAS, if it is installed.
    pub(crate) cublas: Option<PathBuf>,
    /// NVIDIA's cuDNN, if it is installed.
    pub(crate) cudnn: Option<PathBuf>,
    /// What the device answers to a recorder's questions.
    pub(crate) answers: serde_json::Value,
}

/// The library that stands for CUDA in a recorder.
#[derive(Clone, Debug)]
pub(crate) struct RecorderLibrary {
    pub(crate) library: PathBuf,
    /// Its folder.
    pub(crate) folder: PathBuf,
    /// What makes the loader find it before CUDA's.
    pub(crate) env: Vec<(String, String)>,
}

/// State that every process of this judge needs.
pub(crate) struct Host {
    pub(crate) jail: Arc<Jail>,
    pub(crate) python: PathBuf,
    pub(crate) package: PathBuf,
    pub(crate) library: PathBuf,
    pub(crate) device: Arc<dyn DeviceBackend>,
    /// The processes that were started and have not ended.
    pub(crate) workers: Arc<Workers>,
    /// The parents of processes that are forks.
    pub(crate) forks: Forks,
    /// What the device tier needs, or why there is none.
    pub(crate) plans: Result<PlanTools, String>,
    /// Host memory that a process may use unless it is granted another bound, in bytes.
    pub(crate) memory_bytes: u64,
}

impl Host {
    /// Another that starts processes in the same way, with these plans and nothing started.
    pub(crate) fn with_plans(&self, plans: PlanTools) -> Self {
        Self {
            jail: Arc::clone(&self.jail),
            python: self.python.clone(),
            package: self.package.clone(),
            library: self.library.clone(),
            device: Arc::clone(&self.device),
            workers: Arc::default(),
            forks: Forks::default(),
            plans: Ok(plans),
            memory_bytes: self.memory_bytes,
        }
    }

    /// A module of the package in a jail of its own, alone or under a program that starts Python:
    /// what is the same for all. A process on a GPU sees that one only, as its first.
    pub(crate) fn module(&self, name: &str, under: Option<(&Path, &[String])>) -> Spec {
        self.device.equip(self.python_module(name, under, self.device.torch_name()))
    }

    /// The same without access to the device; `device` is the name that the module gets.
    fn python_module(&self, name: &str, under: Option<(&Path, &[String])>, device: &str) -> Spec {
        let mut spec = match under {
            Some((program, arguments)) => Spec::new(program)
                .args(arguments.iter().map(String::as_str))
                .arg(self.python.to_string_lossy()),
            None => Spec::new(&self.python),
        };
        spec = spec
            .label(name)
            .args(["-P", "-m", &format!("warpwright_oracle.{name}"), "--device", device])
            .env("PYTHONPATH", self.package.to_string_lossy())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("PYTHONUNBUFFERED", "1")
            .with_system()
            .with_python(&self.python)
            .read_only(&self.package);
        spec
    }

    /// The program of a role, with what it needs to start.
    pub(crate) fn program(&self, role: Role) -> Result<Spec, JudgeError> {
        match role {
            Role::Oracle | Role::Baseline | Role::Runner => {
                let spec = self.module(role.name(), None);
                Ok(spec
                    .args(["--library", &self.library.to_string_lossy()])
                    .read_only(&self.library))
            }
            Role::Recorder => {
                let plans = self.plans()?;
                let library = plans.recorder.library.to_string_lossy().into_owned();
                // It sees no GPU, and is made to believe in one.
                let device = match plans.code {
                    Code::Gpu => "cuda:0",
                    Code::Host => "cpu",
                };
                let spec = self.python_module(role.name(), None, device);
                let spec = spec.args(["--library", &library]);
                let spec = plans.recorder.env.iter().fold(spec, |spec, (k, v)| spec.env(k, v));
                Ok(spec.read_only(&plans.recorder.folder))
            }
            Role::Replayer => {
                let plans = self.plans()?;
                let device = match plans.code {
                    Code::Gpu => "0",
                    Code::Host => "cpu",
                };
                let mut spec = Spec::new(&plans.replayer)
                    .label(role.name())
                    .args(["--device", device])
                    .with_system()
                    .read_only(&plans.replayer);
                for (option, path) in [("--cublas", &plans.cublas), ("--cudnn", &plans.cudnn)] {
                    let Some(path) = path else { continue };
                    spec = spec.args([option, &path.to_string_lossy()]);
                    spec = path.parent().into_iter().fold(spec, Spec::read_only);
                }
                Ok(self.device.equip(spec))
            }
        }
    }

    fn plans(&self) -> Result<&PlanTools, JudgeError> {
        let plans = self.plans.as_ref();
        plans.map_err(|why| JudgeError::infrastructure("start a process", why.clone()))
    }

    /// Starts a fork server for a role, and does not wait until it has imported what it must.
    pub(crate) fn fork_server(&self, role: Role) -> Result<ForkServer, String> {
        let library =
            self.jail.fork_library().ok_or("there is no library for it beside the program")?;
        let library = library.to_string_lossy().into_owned();
        // Libraries read the environment when they are loaded: it is that of the processes to come.
        let mut env = self.program(role).map_err(|error| error.to_string())?.env;
        let own = role.environment(self.device.uses_host_cores()).iter();
        env.extend(own.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        // Numpy's linear algebra would start threads, of which a fork has none.
        env.push(("OPENBLAS_NUM_THREADS".to_owned(), "1".to_owned()));
        let module = "warpwright_oracle.forkserver";
        let device = self.device.kind();
        let args =
            ["-P", "-s", "-m", module, &library, role.name(), device].map(str::to_owned).into();
        let warm = Warm { label: role.name().to_owned(), program: self.python.clone(), args, env };
        ForkServer::start(&self.jail, &warm).map_err(|error| error.to_string())
    }

    /// Bounds that all share.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            memory_bytes: Some(self.memory_bytes),
            processes: 512,
            open_files: 4096,
            ..Limits::default()
        }
    }
}

/// Ids of the first processes of the jails that workers run in, as the host sees them.
#[derive(Debug, Default)]
pub(crate) struct Workers(Mutex<Vec<u32>>);

impl Workers {
    /// Those that run now.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.lock().clone()
    }

    pub(crate) fn list(self: &Arc<Self>, pid: u32) -> Listed {
        self.lock().push(pid);
        Listed { workers: Arc::clone(self), pid }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u32>> {
        // The list is whole after every call, also after a panic elsewhere.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An entry, for as long as its process runs.
pub(crate) struct Listed {
    workers: Arc<Workers>,
    pid: u32,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.workers.lock().retain(|pid| *pid != self.pid);
    }
}

/// Resources of a process in addition to its role.
#[derive(Default)]
pub(crate) struct Grant<'a> {
    /// Folders it may read.
    pub(crate) read: Vec<&'a Path>,
    /// Folders it may write.
    pub(crate) write: Vec<&'a Path>,
    /// More environment.
    pub(crate) env: Vec<(&'a str, String)>,
    /// Bound on its memory, the arena included.
    pub(crate) memory_bytes: Option<u64>,
}
