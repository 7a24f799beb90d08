//! The judge: the machine and the processes that the sessions of all its tasks share. The machine and the
//! processes may use every room but `session`, which borrows them; the judge opens sessions.

mod config;
pub(crate) mod machine;
pub(crate) mod processes;
pub(crate) mod voids;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use warpwright_build::{BuildError, Instrument, Outcome, Toolchain};
use warpwright_jail::{Jail, JailError, Level, Requirement};
use warpwright_plan::Code;
use warpwright_record::blob::BlobHash;
use warpwright_record::candidate::Candidate;
use warpwright_record::libraries::LibrarySet;
use warpwright_record::verdict::{Isolation, Tier, Verdict};
use warpwright_record::void::VoidTurns;
use warpwright_task::Task;
use warpwright_task::similarity::OpGraph;

use self::machine::Machine;
use self::processes::{Processes, Shared};
use crate::device;
use crate::device::device_arbiter::{Neighbour, Used};
use crate::device::facts::DeviceFacts;
use crate::error::JudgeError;
use crate::process::forks::HowStarted;
use crate::process::host::PlanTools;
use crate::process::memory::{Memory, Work};
use crate::process::oracle::LoadedOracle;
use crate::process::role::Role;
use crate::process::{arena_allocator, embedded, recorder_library, replayer};
use crate::session::{Begun, TaskSession};
use crate::timing::calibrate::Calibration;

pub use self::config::{BaselineSet, JudgeConfig, REPEAT_RATE};

/// A judge on this machine.
pub struct LocalJudge {
    pub(crate) processes: Processes,
    pub(crate) machine: Machine,
}

impl LocalJudge {
    /// Detects the machine and prepares everything that tasks share.
    ///
    /// # Errors
    /// [`JudgeError::Setup`] if the machine or its configuration lacks something, [`JudgeError::NoDeviceTier`] if
    /// that is what the device tier needs, and the configuration requires it.
    pub fn open(config: JudgeConfig) -> Result<Self, JudgeError> {
        let jail = Jail::detect(config.isolation).map_err(no_jail)?;
        Self::open_in(Arc::new(jail), config)
    }

    /// As [`Self::open`], with a jail that the caller has detected: detecting one starts processes. Fails if it
    /// enforces less than the configuration asks for.
    pub fn open_in(jail: Arc<Jail>, config: JudgeConfig) -> Result<Self, JudgeError> {
        let isolation = jail.isolation().clone();
        if config.isolation == Requirement::Full && isolation.level != Level::Full {
            let (backend, level, missing) = (isolation.backend, isolation.level, isolation.missing);
            return Err(no_jail(JailError::NotFull { backend, level, missing }));
        }
        let toolchain = Toolchain::detect(&jail, &config.python).map_err(no_tools)?;
        toolchain.has(config.libraries).map_err(no_tools)?;
        let unwritable = |e: std::io::Error| unwritable(&config.cache, e);
        fs_err::create_dir_all(&config.cache).map_err(unwritable)?;
        // A folder that is there may still be somebody else's, read-only or full.
        tempfile::tempfile_in(&config.cache).map_err(unwritable)?;
        let unopened = device::find(config.device, config.memory_limit);
        let embedded = embedded::write(&config.cache).map_err(unwritable)?;
        let library =
            arena_allocator::library(&jail, &toolchain, &*unopened, &embedded, &config.cache)?;
        let device = unopened.open()?;
        let machine = Machine::new(config, device, isolation, &toolchain.describe());
        let cache = &machine.config.cache;
        let plans = plan_tools(&machine, &jail, &toolchain, &embedded, cache)?;
        let files = (embedded.python, library);
        let processes = Processes::new(&machine, jail, toolchain, files, plans)?;
        Ok(Self { processes, machine })
    }

    pub(crate) fn shared(&self) -> Shared<'_> {
        Shared { machine: &self.machine, processes: &self.processes }
    }

    /// Time for which the device was held since the judge was opened, in total and per purpose.
    pub fn device_use(&self) -> Used {
        self.machine.arbiter.used()
    }

    /// A handle for other work on the same device, such as a model that samples or trains.
    pub fn neighbour(&self) -> Neighbour {
        Neighbour(Arc::clone(&self.machine.arbiter))
    }

    /// From now on says by `notice` what people should know while it judges, such as that it waits for another
    /// process that uses the GPU; and what there was to say before.
    pub fn set_notice(&self, notice: impl Fn(&str) + Send + Sync + 'static) {
        self.machine.arbiter.set_notice(Box::new(notice));
    }

    /// How the judge has started runner processes since it was opened.
    pub fn how_started(&self) -> HowStarted {
        self.processes.host.forks.of(Role::Runner).told()
    }

    /// The compilers and libraries that the judge found.
    pub fn toolchain(&self) -> &Toolchain {
        self.processes.builder.toolchain()
    }

    /// The configuration that the judge was opened with.
    pub fn config(&self) -> &JudgeConfig {
        &self.machine.config
    }

    /// Facts of the device.
    pub fn facts(&self) -> &DeviceFacts {
        self.machine.device.facts()
    }

    /// Whether candidates run apart from the host's cores, where calls are far shorter.
    pub fn is_accelerator(&self) -> bool {
        self.machine.device.is_accelerator()
    }

    /// Whether other tasks may be opened, compiled and checked while a candidate is timed.
    pub fn times_while_others_work(&self) -> bool {
        self.machine.device.times_while_others_work()
    }

    /// Header libraries that candidates may use here whatever the task; none on the cpu device.
    pub fn libraries(&self) -> LibrarySet {
        self.machine.libraries()
    }

    /// The same, and those that the task allows by `libraries = [...]`.
    pub fn libraries_for(&self, task: &Task) -> LibrarySet {
        self.machine.libraries_for(task)
    }

    /// The isolation level for verdicts, with the enforced and the missing measures.
    pub fn isolation(&self) -> Isolation {
        self.machine.isolation()
    }

    /// Whether a verdict does not count any more: a repeat in a new GPU context disagreed with the replayer that
    /// had given it.
    ///
    /// # Errors
    /// [`JudgeError::Infrastructure`] if the journal of void verdicts cannot be read.
    pub fn is_void(&self, verdict: &Verdict) -> Result<bool, JudgeError> {
        self.machine.voids.covers(verdict)
    }

    /// All void verdicts that the judges with this cache folder know of.
    ///
    /// # Errors
    /// [`JudgeError::Infrastructure`] if their journal cannot be read.
    pub fn voids(&self) -> Result<Vec<VoidTurns>, JudgeError> {
        self.machine.voids.all()
    }

    /// The file of a verdict's launch plan, if this cache folder has it.
    pub fn plan_file(&self, hash: BlobHash) -> std::io::Result<Option<Vec<u8>>> {
        self.machine.plans.get(hash)
    }

    /// Opens a session for one task, with all of the device's memory: loads the reference and checks that
    /// candidates can be judged against it.
    pub fn task(&self, task: &Task) -> Result<TaskSession<'_>, JudgeError> {
        let (shared, memory) = (self.shared(), Memory::all(self.facts(), Work::Judging));
        TaskSession::open(shared, task, Begun::to_verify(shared, task)?, memory)
    }

    /// The operator graph of a task, traced from shapes alone; `None` if it depends on values. Computes nothing
    /// and uses nothing of a GPU but a context.
    pub fn graph(&self, task: &Task) -> Result<Option<OpGraph>, JudgeError> {
        let Self { machine, processes } = self;
        LoadedOracle::load(&processes.host, task, machine.settings(), &machine.arbiter)?.graph()
    }

    /// Builds a candidate without judging it, or finds the build in the cache.
    ///
    /// # Errors
    /// [`JudgeError::Infrastructure`] if the builder fails. A candidate that does not build is a value.
    pub fn build(&self, task: &Task, candidate: &Candidate) -> Result<Outcome, JudgeError> {
        self.processes.build_at_once(&self.machine, task, candidate, Instrument::None)
    }

    /// The folder with the package `warpwright_oracle`, which loads builds.
    pub fn python_folder(&self) -> &Path {
        &self.processes.host.package
    }

    /// The device's ceilings (bandwidth, launch time). Measures them if they are unknown or `again` is true.
    pub fn calibrate(&self, again: bool) -> Result<Calibration, JudgeError> {
        self.processes.calibrate(&self.machine, again)
    }
}

/// What the device tier needs, or why there is none.
///
/// # Errors
/// [`JudgeError::NoDeviceTier`] if it is required and something is missing.
fn plan_tools(
    machine: &Machine,
    jail: &Jail,
    toolchain: &Toolchain,
    embedded: &embedded::Embedded,
    cache: &Path,
) -> Result<Result<PlanTools, String>, JudgeError> {
    let wanted = machine.config.tier;
    if wanted == Some(Tier::Host) {
        return Ok(Err("only the host tier is allowed".to_owned()));
    }
    let code = if machine.device.is_accelerator() { Code::Gpu } else { Code::Host };
    if code == Code::Host && wanted != Some(Tier::Device) {
        return Ok(Err("the cpu device has the device tier only where it is required".to_owned()));
    }
    let made = || {
        let answers = machine
            .device
            .answers()?
            .ok_or_else(|| JudgeError::lacks("this device has no device tier", "use a GPU"))?;
        let replayer = replayer::find()?;
        let recorder = match code {
            Code::Gpu => recorder_library::library(jail, toolchain, embedded, cache)?,
            Code::Host => recorder_library::of_host(jail, toolchain, embedded, cache)?,
        };
        // Jails mount folders, not links.
        let found = |path: &Option<PathBuf>| fs_err::canonicalize(path.as_ref()?).ok();
        let cuda = toolchain.nvcc.as_ref();
        let cublas = cuda.and_then(|cuda| found(&cuda.cublas));
        let cudnn = cuda.and_then(|cuda| found(&cuda.cudnn));
        Ok(PlanTools { code, recorder, replayer, cublas, cudnn, answers })
    };
    match made() {
        Ok(tools) => Ok(Ok(tools)),
        Err(error) if wanted == Some(Tier::Device) => {
            Err(no_device_tier(machine.config.device.to_string(), error))
        }
        Err(JudgeError::Setup { message, .. }) => Ok(Err(message)),
        Err(error) => Ok(Err(error.to_string())),
    }
}

/// The error where the device tier is required, and this is why there is none.
fn no_device_tier(device: String, error: JudgeError) -> JudgeError {
    if matches!(error, JudgeError::DeviceLost { .. }) {
        return error;
    }
    let hint = error.hint().map(str::to_owned);
    let (message, source) = match error {
        JudgeError::Setup { message, source, .. } => (message, source),
        other => (other.to_string(), Some(other.into())),
    };
    JudgeError::NoDeviceTier { device, message, hint, source }
}

/// The error where no jail isolates as is asked for.
fn no_jail(error: JailError) -> JudgeError {
    let (message, hint) = (error.to_string(), error.hint());
    JudgeError::Setup { message, hint, source: Some(error.into()) }
}

/// The error where the tools cannot be found out: one does not work, or the judge failed to ask it.
fn no_tools(error: BuildError) -> JudgeError {
    match error {
        BuildError::MissingTool { .. } | BuildError::BrokenTool { .. } => {
            let message = error.to_string();
            JudgeError::Setup { message, hint: None, source: Some(error.into()) }
        }
        error => JudgeError::infrastructure("detect the toolchain", error),
    }
}

/// Checks that the headers of libraries that a task allows are on this machine. Judged without them, a candidate would
/// fail here that is correct elsewhere.
pub(crate) fn need_libraries(
    tools: &Toolchain,
    task: &str,
    libraries: LibrarySet,
) -> Result<(), JudgeError> {
    tools.has(libraries).map_err(|error| match error {
        BuildError::MissingTool { tool, hint } => JudgeError::Reference {
            task: task.to_owned(),
            message: format!("it allows {libraries}, and this machine has no headers of {tool}"),
            hint: Some(format!("{hint}; or judge without them, with `--libraries none`")),
        },
        error => no_tools(error),
    })
}

/// The error for a cache folder that cannot be written.
fn unwritable(cache: &Path, error: std::io::Error) -> JudgeError {
    JudgeError::Setup {
        message: format!("failed to write to the cache folder {}: {error}", cache.display()),
        hint: Some("name a writable folder with `--cache DIR` or WARPWRIGHT_CACHE".to_owned()),
        source: Some(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use warpwright_record::libraries::Library;

    use super::*;
    use crate::testing::shared_judge;

    #[test]
    fn allowed_library_without_headers_is_a_usage_error() {
        let tools = Toolchain { cutlass: None, ..shared_judge().toolchain().clone() };
        let only = |library: Library| [library].iter().collect::<LibrarySet>();
        let error = need_libraries(&tools, "t", only(Library::Cutlass)).unwrap_err();
        assert!(matches!(error, JudgeError::Reference { .. }), "{error}");
        assert!(error.to_string().contains("it allows cutlass"), "{error}");
        let hint = error.hint().unwrap();
        assert!(hint.contains("scripts/setup.d/libraries"), "{hint}");
        assert!(hint.contains("--libraries none"), "{hint}");
        // Those of cccl come with nvcc; who forbids all needs none.
        for set in [only(Library::Cccl), LibrarySet::default(), LibrarySet::forbidden()] {
            assert!(need_libraries(&tools, "t", set).is_ok(), "{set}");
        }
    }
}
