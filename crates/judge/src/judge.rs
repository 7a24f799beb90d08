//! The judge: state that the sessions of all its tasks share.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use warpwright_build::{Builder, Instrument, Outcome, Request, Settings, Target, Toolchain};
use warpwright_jail::{Isolation as JailIsolation, Jail, Level, Requirement};
use warpwright_record::candidate::Candidate;
use warpwright_record::fingerprint::Fingerprint;
use warpwright_record::verdict::{Isolation, IsolationLevel, Profile};
use warpwright_task::Task;
use warpwright_task::similarity::OpGraph;

use crate::admission::degenerate::Degenerate;
use crate::device::arena::{Arena, ArenaError, KeptArenas};
use crate::device::backend::DeviceBackend;
use crate::device::device_arbiter::{DeviceArbiter, Neighbour, Purpose, Used};
use crate::device::facts::{Device, DeviceFacts, host_facts};
use crate::device::health::{Cores, Health, Watch};
use crate::device::{self, cores};
use crate::error::JudgeError;
use crate::process::arena_allocator;
use crate::process::baseline::{BaselineProcess, EarlyBaseline, Starting};
use crate::process::embedded;
use crate::process::forks::{Forks, HowStarted};
use crate::process::host::Host;
use crate::process::memory::{Memory, Work};
use crate::process::oracle::LoadedOracle;
use crate::process::role::Role;
use crate::process::runner_pool::{Means, RunnerPool};
use crate::process::slots::Slots;
use crate::process::worker_reuse::Reuse;
use crate::session::{Begun, TaskSession};
use crate::timing::baseline::Baseline;
use crate::timing::baseline_floor::Quickest;
use crate::timing::calibrate::{self, Calibration};

/// Which baselines a candidate is timed against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaselineSet {
    /// Eager and `torch.compile` in its default mode.
    Plain,
    /// `Plain` and, on a GPU, `reduce-overhead`.
    Usual,
    /// `Usual` and, on a GPU, `max-autotune`.
    All,
}

/// Configuration of a judge.
#[derive(Clone, Debug)]
pub struct JudgeConfig {
    /// Where candidates run.
    pub device: Device,
    /// Rules of precision and comparison.
    pub profile: Profile,
    /// Seed of the reference's weights. Secrets (inputs, addresses, which timed calls are compared) come from
    /// the system's entropy instead.
    pub seed: u64,
    /// Baselines to time against.
    pub baselines: BaselineSet,
    /// Whether degenerate tasks are refused or judged without reward.
    pub degenerate: Degenerate,
    /// Minimum isolation; with less, opening the judge fails.
    pub isolation: Requirement,
    /// Python interpreter with torch.
    pub python: PathBuf,
    /// Cache folder for builds, compiled baselines and calibrations.
    pub cache: PathBuf,
    /// Length of a timed window; `None` for the device's default. Only for measuring the accuracy of
    /// shorter windows.
    pub window: Option<Duration>,
}

/// Part of the host's memory that may be kept for runners to come.
const KEPT: u64 = 8;

/// A judge on this machine.
pub struct LocalJudge {
    pub(crate) config: JudgeConfig,
    pub(crate) host: Arc<Host>,
    pub(crate) builder: Builder,
    pub(crate) device: Arc<dyn DeviceBackend>,
    isolation: JailIsolation,
    pub(crate) arbiter: Arc<DeviceArbiter>,
    pub(crate) runner_pool: RunnerPool,
    /// Memory of candidates on the cpu device that are gone.
    kept: KeptArenas,
    pub(crate) reuse: Reuse,
    builds: Slots,
    /// Cores that are kept for what is timed; none where there are few.
    pub(crate) cores: Vec<usize>,
    /// Tells whether the machine is fit to be timed on.
    pub(crate) health: Health,
    /// Why the GPU cannot be used any more.
    lost: OnceLock<String>,
    /// The fastest empty windows.
    pub(crate) empty: Mutex<Quickest>,
    calibration: Mutex<Option<Calibration>>,
}

impl LocalJudge {
    /// Detects the machine and prepares everything that tasks share.
    ///
    /// # Errors
    /// [`JudgeError::Setup`] if the machine or its configuration lacks something.
    pub fn open(config: JudgeConfig) -> Result<Self, JudgeError> {
        let jail = Jail::detect(config.isolation)
            .map_err(|e| JudgeError::Setup { message: e.to_string(), hint: e.hint() })?;
        let isolation = jail.isolation().clone();
        let jail = Arc::new(jail);
        let toolchain = Toolchain::detect(&jail, &config.python)
            .map_err(|e| JudgeError::Setup { message: e.to_string(), hint: None })?;
        let unwritable = |e: std::io::Error| unwritable(&config.cache, &e);
        fs_err::create_dir_all(&config.cache).map_err(unwritable)?;
        // A folder that is there may still be somebody else's, read-only or full.
        tempfile::tempfile_in(&config.cache).map_err(unwritable)?;
        let unopened = device::find(config.device);
        let embedded = embedded::write(&config.cache).map_err(unwritable)?;
        let library =
            arena_allocator::library(&jail, &toolchain, &*unopened, &embedded, &config.cache)?;
        let device = unopened.open()?;
        let facts = device.facts();
        let health = device.health();
        let cores = device.reserve_cores();
        let cache = config.cache.join("build");
        let builder = Builder::new(Arc::clone(&jail), toolchain, Settings::default(), &cache)
            .map_err(|e| JudgeError::infrastructure("open the build cache", e))?;
        let host = Arc::new(Host {
            jail,
            python: config.python.clone(),
            package: embedded.python,
            library,
            device: Arc::clone(&device),
            workers: Arc::default(),
            forks: Forks::default(),
            memory_bytes: host_facts().memory_bytes / 4 * 3,
        });
        let arbiter = Arc::new(device.arbiter());
        let runner_pool = RunnerPool::new(Means {
            host: Arc::clone(&host),
            arbiter: Arc::clone(&arbiter),
            arena_bytes: Memory::all(facts, Work::Judging).runner(),
            apart: Memory::all(facts, Work::Judging).apart(),
            cache: config.cache.clone(),
        });
        let known = calibrate::load(&config.cache, &config.device.to_string(), &facts.hardware);
        Ok(Self {
            config,
            host,
            builder,
            device,
            isolation,
            arbiter,
            runner_pool,
            kept: KeptArenas::new(host_facts().memory_bytes / KEPT),
            reuse: Reuse::default(),
            builds: Slots::new(std::thread::available_parallelism().map_or(1, NonZero::get)),
            cores,
            health,
            lost: OnceLock::new(),
            empty: Mutex::default(),
            calibration: Mutex::new(known),
        })
    }

    /// Time for which the device was held since the judge was opened, in total and per purpose.
    pub fn device_use(&self) -> Used {
        self.arbiter.used()
    }

    /// A handle for other work on the same device, such as a model that samples or trains.
    pub fn neighbour(&self) -> Neighbour {
        Neighbour(Arc::clone(&self.arbiter))
    }

    /// How the judge has started runner processes since it was opened.
    pub fn how_started(&self) -> HowStarted {
        self.host.forks.of(Role::Runner).told()
    }

    /// The compilers and libraries that the judge found.
    pub fn toolchain(&self) -> &Toolchain {
        self.builder.toolchain()
    }

    /// The configuration that the judge was opened with.
    pub fn config(&self) -> &JudgeConfig {
        &self.config
    }

    /// Facts of the device.
    pub fn facts(&self) -> &DeviceFacts {
        self.device.facts()
    }

    /// Whether candidates run apart from the host's cores, where calls are far shorter.
    pub fn is_accelerator(&self) -> bool {
        self.device.is_accelerator()
    }

    /// Whether other tasks may be opened, compiled and checked while a candidate is timed.
    pub fn times_while_others_work(&self) -> bool {
        self.device.times_while_others_work()
    }

    /// Opens a session for one task, with all of the device's memory: loads the reference and checks that
    /// candidates can be judged against it.
    pub fn task(&self, task: &Task) -> Result<TaskSession<'_>, JudgeError> {
        TaskSession::open(
            self,
            task,
            Begun::to_verify(self, task)?,
            Memory::all(self.device.facts(), Work::Judging),
        )
    }

    /// The operator graph of a task, traced from shapes alone; `None` if it depends on values. Computes nothing
    /// and uses nothing of a GPU but a context.
    pub fn graph(&self, task: &Task) -> Result<Option<OpGraph>, JudgeError> {
        let settings = (self.config.profile, self.config.seed);
        LoadedOracle::load(&self.host, task, settings, &self.arbiter)?.graph()
    }

    /// The device's ceilings (bandwidth, launch time). Measures them if they are unknown or `again` is true.
    pub fn calibrate(&self, again: bool) -> Result<Calibration, JudgeError> {
        let known = || lock(&self.calibration).clone().filter(|_| !again);
        if let Some(known) = known() {
            return Ok(known);
        }
        let facts = self.device.facts();
        let bytes = self.device.ceiling_bytes().min(facts.memory_bytes / 8);
        let mut process = self.baseline_process(3 * bytes)?;
        let _alone = self.arbiter.alone(Purpose::Ceilings);
        // Somebody may have measured them while this one waited.
        if let Some(known) = known() {
            return Ok(known);
        }
        let device = self.config.device.to_string();
        let measured = calibrate::measure(
            &mut process,
            &self.config.cache,
            &device,
            &facts.hardware,
            (bytes, self.device.ceiling_copies()),
        )
        .map_err(|e| self.explain(JudgeError::infrastructure("calibrate the device", e)))?;
        *lock(&self.calibration) = Some(measured.clone());
        Ok(measured)
    }

    /// Uses these figures from now on.
    pub(crate) fn learn(&self, calibration: Calibration) {
        *lock(&self.calibration) = Some(calibration);
    }

    /// Fails when the GPU was lost: nothing that is tried on it can succeed.
    pub(crate) fn alive(&self) -> Result<(), JudgeError> {
        self.lost.get().map_or(Ok(()), |reason| Err(self.gone(reason)))
    }

    fn gone(&self, reason: &str) -> JudgeError {
        let (device, reason) = (self.config.device.to_string(), reason.to_owned());
        JudgeError::DeviceLost { device, reason }
    }

    /// What is behind an error: where the GPU is lost, whatever failed on it failed for that reason,
    /// and blames no task.
    pub(crate) fn explain(&self, error: JudgeError) -> JudgeError {
        let reason = match &error {
            JudgeError::DeviceLost { reason, .. } => Some(reason.clone()),
            JudgeError::Reference { .. } | JudgeError::Infrastructure { .. } => {
                self.device.probe().err().filter(|e| e.lost).map(|e| e.to_string())
            }
            _ => None,
        };
        let Some(reason) = reason else { return error };
        self.gone(self.lost.get_or_init(|| reason))
    }

    /// Watches the machine while a runner and a baseline process are timed in rounds of so many
    /// contenders.
    pub(crate) fn watch(&self, timed: [u32; 2], contenders: usize) -> Watch<'_> {
        // Kept cores belong to what is timed; without them whatever this judge starts shares all.
        let on = if self.cores.is_empty() {
            Cores { numbers: cores::allowed(), roots: self.host.workers.pids(), judge: true }
        } else {
            Cores { numbers: self.cores.clone(), roots: timed.to_vec(), judge: false }
        };
        Watch::begin(&self.health, self.config.device.to_string(), contenders, on)
    }

    /// The isolation level for verdicts, with the enforced and the missing measures.
    pub fn isolation(&self) -> Isolation {
        Isolation {
            level: match self.isolation.level {
                Level::Full => IsolationLevel::Full,
                Level::Partial => IsolationLevel::Partial,
            },
            enforced: self.isolation.enforced.clone(),
            missing: self.isolation.missing.clone(),
        }
    }

    /// A new baseline process, which on the cpu device allocates its first `arena_bytes` as a candidate
    /// does. Touching them for the first time takes about a second per gigabyte.
    pub(crate) fn baseline_process(&self, arena_bytes: u64) -> Result<BaselineProcess, JudgeError> {
        self.baseline_calling(None, arena_bytes)
    }

    /// One that is needed later. On the cpu device it has no memory yet; for a GPU it compiles what it
    /// can without any.
    pub(crate) fn early_baseline(&self, task: &Task) -> Option<EarlyBaseline> {
        let cache = self.compile_cache().ok()?;
        let (host, arbiter) = (Arc::clone(&self.host), Arc::clone(&self.arbiter));
        let settings = (self.config.profile, self.config.seed);
        let compiled: Vec<_> = self.wanted().into_iter().filter(|which| which.is_early()).collect();
        let meta_compiled = self.device.has_spare_cores().then(|| (task.clone(), compiled));
        EarlyBaseline::begin(move |starting| {
            let mut process = BaselineProcess::start(&host, &cache, None, &arbiter, starting)?;
            if let Some((task, compiled)) = meta_compiled {
                process.meta_compile(&task, (settings, &compiled), &arbiter, starting)?;
            }
            Ok(process)
        })
    }

    /// Gives a baseline process its memory: on the cpu device; a GPU has torch's own allocator.
    pub(crate) fn furnish(
        &self,
        process: &mut BaselineProcess,
        arena_bytes: u64,
    ) -> Result<(), JudgeError> {
        match self.device.baselines_arena(arena_bytes) {
            Some(arena) => process.adopt(arena?, &self.arbiter),
            None => Ok(()),
        }
    }

    fn compile_cache(&self) -> Result<PathBuf, JudgeError> {
        let cache = self.config.cache.join("inductor");
        let keep = |e| JudgeError::infrastructure("create the compile cache", e);
        fs_err::create_dir_all(&cache).map_err(keep)?;
        Ok(cache)
    }

    /// One whose references may call the kernels of an artifact.
    pub(crate) fn baseline_calling(
        &self,
        artifact: Option<&Path>,
        arena_bytes: u64,
    ) -> Result<BaselineProcess, JudgeError> {
        let (cache, starting) = (self.compile_cache()?, Starting::default());
        let mut process =
            BaselineProcess::start(&self.host, &cache, artifact, &self.arbiter, &starting)?;
        self.furnish(&mut process, arena_bytes)?;
        Ok(process)
    }

    /// Makes an artifact of a candidate, or says why there is none.
    pub(crate) fn build(
        &self,
        task: &Task,
        candidate: &Candidate,
        instrument: Instrument,
    ) -> Result<Outcome, JudgeError> {
        let _slot = self.builds.take();
        self.build_at_once(task, candidate, instrument)
    }

    /// The same, however many compile already: for what is linked of objects that are there.
    pub(crate) fn build_at_once(
        &self,
        task: &Task,
        candidate: &Candidate,
        instrument: Instrument,
    ) -> Result<Outcome, JudgeError> {
        // On the cpu device compilers would disturb what is timed.
        let _shared = self.device.share_for_host_work(&self.arbiter, Purpose::Host);
        let reference = Some(task.source.clone());
        let request = Request { reference, instrument, ..Request::default() };
        let built = self.builder.build_with(candidate, &self.target(), &request);
        built.map_err(|e| JudgeError::infrastructure("build the candidate", e))
    }

    /// Memory the judge creates for a process of a task on this device.
    pub(crate) fn arena(&self, task: &Task, bytes: u64) -> Result<Arena, JudgeError> {
        let made = self.device.arena(bytes);
        made.map_err(|error| no_arena(task, error))
    }

    /// Memory for a candidate that needs `bytes` and may be `timed`. On a GPU it is the same for all:
    /// one runs at a time, and all of it is poisoned before the next. The caller must not hold the
    /// device.
    pub(crate) fn runner_arena(
        &self,
        task: &Task,
        bytes: u64,
        timed: bool,
    ) -> Result<Arc<Arena>, JudgeError> {
        let made = match self.runner_pool.common_arena() {
            Ok(None) => {
                // Writing all of it would disturb a measured window.
                let _shared = self.arbiter.share(Purpose::Host);
                self.kept.take(bytes, timed).map(Arc::new)
            }
            Ok(Some(arena)) => Ok(arena),
            Err(error) => Err(error),
        };
        made.map_err(|error| no_arena(task, error))
    }

    /// Takes the memory of a candidate back of which no process is left. On a GPU it is nobody's.
    pub(crate) fn reuse(&self, arena: Arc<Arena>) {
        if let Some(arena) = Arc::into_inner(arena) {
            self.kept.give_back(arena);
        }
    }

    pub(crate) fn target(&self) -> Target {
        self.device.target()
    }

    pub(crate) fn wanted(&self) -> Vec<Baseline> {
        let mut wanted = vec![Baseline::Eager, Baseline::Compile];
        if self.device.has_compile_modes() && self.config.baselines != BaselineSet::Plain {
            wanted.push(Baseline::ReduceOverhead);
            if self.config.baselines == BaselineSet::All {
                wanted.push(Baseline::MaxAutotune);
            }
        }
        wanted
    }

    pub(crate) fn fingerprint(&self, torch: &str, python: &str) -> Fingerprint {
        let tools = self.toolchain().describe();
        let compiler = tools.iter().find(|line| self.device.is_compiler(line));
        let known = lock(&self.calibration);
        Fingerprint {
            device: self.config.device.to_string(),
            hardware: self.device.facts().hardware.clone(),
            cores: cores::all() as u32,
            driver: self.device.facts().driver.clone(),
            compiler: compiler.cloned().unwrap_or_default(),
            torch: torch.to_owned(),
            python: python.to_owned(),
            clocks: String::new(),
            warpwright: env!("CARGO_PKG_VERSION").to_owned(),
            bandwidth_bytes_per_second: known.as_ref().map(|c| c.bandwidth_bytes_per_second),
            exactness: known.as_ref().and_then(|c| c.exactness.clone()),
        }
    }
}

/// The error for a cache folder that cannot be written.
fn unwritable(cache: &Path, error: &std::io::Error) -> JudgeError {
    JudgeError::Setup {
        message: format!("failed to write to the cache folder {}: {error}", cache.display()),
        hint: Some("name a writable folder with `--cache DIR` or WARPWRIGHT_CACHE".to_owned()),
    }
}

fn no_arena(task: &Task, error: ArenaError) -> JudgeError {
    if error.exhausted {
        let message = error.to_string();
        return JudgeError::Memory { task: task.name.clone(), message, wanted: None };
    }
    error.into()
}

/// A panic elsewhere while the lock was held leaves nothing half-done that the next holder would
/// not set up again.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
