//! The processes that a judge starts, and what they are made of.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use warpwright_build::{Builder, Instrument, Outcome, Request, Settings, Toolchain};
use warpwright_jail::Jail;
use warpwright_record::candidate::Candidate;
use warpwright_task::Task;

use super::machine::{Machine, no_arena};
use crate::device::arena::{Arena, KeptArenas};
use crate::device::device_arbiter::Purpose;
use crate::device::facts::host_facts;
use crate::error::JudgeError;
use crate::process::baseline::{BaselineProcess, EarlyBaseline, Starting};
use crate::process::forks::Forks;
use crate::process::host::{Host, PlanTools};
use crate::process::memory::{Memory, Room, Work};
use crate::process::replayer_pool::ReplayerPool;
use crate::process::runner_pool::{Means, RunnerPool};
use crate::process::slots::Slots;
use crate::process::worker_reuse::Reuse;
use crate::timing::calibrate::{self, Calibration};

/// Part of the host's memory that may be kept for runners to come.
const KEPT: u64 = 8;

/// The compilers, and the processes that sessions share.
pub(crate) struct Processes {
    pub(crate) host: Arc<Host>,
    pub(crate) builder: Builder,
    pub(crate) runner_pool: RunnerPool,
    /// The replayers, where there is a device tier.
    pub(crate) replayer_pool: Option<ReplayerPool>,
    /// Memory of candidates on the cpu device that are gone.
    kept: KeptArenas,
    pub(crate) reuse: Reuse,
    builds: Slots,
}

impl Processes {
    /// Those of a machine; none is started. `package` is the folder of the Python package, `library` the
    /// library by which processes allocate arenas; `plans` what the device tier needs, or why
    /// there is none.
    pub(crate) fn new(
        machine: &Machine,
        jail: Arc<Jail>,
        toolchain: Toolchain,
        (package, library): (PathBuf, PathBuf),
        plans: Result<PlanTools, String>,
    ) -> Result<Self, JudgeError> {
        let config = &machine.config;
        let cache = config.cache.join("build");
        let builder = Builder::new(Arc::clone(&jail), toolchain, Settings::default(), &cache)
            .map_err(|e| JudgeError::infrastructure("open the build cache", e))?;
        let host = Arc::new(Host {
            jail,
            python: config.python.clone(),
            package,
            library,
            device: Arc::clone(&machine.device),
            workers: Arc::default(),
            forks: Forks::default(),
            plans,
            memory_bytes: host_facts().memory_bytes / 4 * 3,
        });
        let memory = Memory::all(machine.device.facts(), Work::Judging);
        let runner_pool = RunnerPool::new(Means {
            host: Arc::clone(&host),
            arbiter: Arc::clone(&machine.arbiter),
            room: memory.room(),
            cache: config.cache.clone(),
        });
        let replayer_pool = host
            .plans
            .as_ref()
            .ok()
            .map(|_| ReplayerPool::new(Arc::clone(&host), Arc::clone(&machine.arbiter), cache));
        Ok(Self {
            host,
            builder,
            runner_pool,
            replayer_pool,
            kept: KeptArenas::new(host_facts().memory_bytes / KEPT),
            reuse: Reuse::default(),
            builds: Slots::new(std::thread::available_parallelism().map_or(1, NonZero::get)),
        })
    }

    /// The device's ceilings. Measures them if they are unknown or `again` is true.
    pub(crate) fn calibrate(
        &self,
        machine: &Machine,
        again: bool,
    ) -> Result<Calibration, JudgeError> {
        let known = || machine.calibration().filter(|_| !again);
        if let Some(known) = known() {
            return Ok(known);
        }
        let facts = machine.device.facts();
        let bytes = machine.device.ceiling_bytes().min(facts.memory_bytes / 8);
        let mut process = self.baseline_process(machine, 3 * bytes)?;
        let _alone = machine.arbiter.alone(Purpose::Ceilings);
        // Somebody may have measured them while this one waited.
        if let Some(known) = known() {
            return Ok(known);
        }
        let device = machine.config.device.to_string();
        let measured = calibrate::measure(
            &mut process,
            &machine.config.cache,
            &device,
            &facts.hardware,
            (bytes, machine.device.ceiling_copies()),
        )
        .map_err(|e| machine.explain(JudgeError::infrastructure("calibrate the device", e)))?;
        machine.learn(measured.clone());
        Ok(measured)
    }

    /// A new baseline process, which on the cpu device allocates its first `arena_bytes` as a candidate
    /// does. Touching them for the first time takes about a second per gigabyte.
    pub(crate) fn baseline_process(
        &self,
        machine: &Machine,
        arena_bytes: u64,
    ) -> Result<BaselineProcess, JudgeError> {
        self.baseline_calling(machine, None, arena_bytes)
    }

    /// One that is needed later. On the cpu device it has no memory yet; for a GPU it compiles what it
    /// can without any.
    pub(crate) fn early_baseline(&self, machine: &Machine, task: &Task) -> Option<EarlyBaseline> {
        let cache = compile_cache(machine).ok()?;
        let (host, arbiter) = (Arc::clone(&self.host), Arc::clone(&machine.arbiter));
        let settings = machine.settings();
        let compiled: Vec<_> =
            machine.wanted().into_iter().filter(|which| which.is_early()).collect();
        let meta_compiled = machine.device.has_spare_cores().then(|| (task.clone(), compiled));
        EarlyBaseline::begin(move |starting| {
            let mut process = BaselineProcess::start(&host, &cache, None, &arbiter, starting)?;
            if let Some((task, compiled)) = meta_compiled {
                process.meta_compile(&task, (settings, &compiled), &arbiter, starting)?;
            }
            Ok(process)
        })
    }

    /// One whose references may call the kernels of an artifact.
    pub(crate) fn baseline_calling(
        &self,
        machine: &Machine,
        artifact: Option<&Path>,
        arena_bytes: u64,
    ) -> Result<BaselineProcess, JudgeError> {
        let (cache, starting) = (compile_cache(machine)?, Starting::default());
        let mut process =
            BaselineProcess::start(&self.host, &cache, artifact, &machine.arbiter, &starting)?;
        furnish(machine, &mut process, arena_bytes)?;
        Ok(process)
    }

    /// Makes an artifact of a candidate, or says why there is none.
    pub(crate) fn build(
        &self,
        machine: &Machine,
        task: &Task,
        candidate: &Candidate,
        instrument: Instrument,
    ) -> Result<Outcome, JudgeError> {
        let _slot = self.builds.take();
        self.build_at_once(machine, task, candidate, instrument)
    }

    /// The same, however many compile already: for what is linked of objects that are there.
    pub(crate) fn build_at_once(
        &self,
        machine: &Machine,
        task: &Task,
        candidate: &Candidate,
        instrument: Instrument,
    ) -> Result<Outcome, JudgeError> {
        // On the cpu device compilers would disturb what is timed.
        let _shared = machine.device.share_for_host_work(&machine.arbiter, Purpose::Host);
        // One build for all workloads.
        let reference = Some(task.unbound_source());
        let libraries = machine.libraries_for(task);
        super::need_libraries(self.builder.toolchain(), &task.name, libraries)?;
        let request = Request { reference, instrument, libraries, ..Request::default() };
        let built = self.builder.build_with(candidate, &machine.device.target(), &request);
        built.map_err(|e| JudgeError::infrastructure("build the candidate", e))
    }

    /// Memory for a candidate that needs `bytes` and may be `timed`. On a GPU it is the same for all:
    /// one runs at a time, and all of it is poisoned before the next. The caller must not hold the
    /// device.
    pub(crate) fn runner_arena(
        &self,
        machine: &Machine,
        task: &Task,
        (bytes, timed): (u64, bool),
    ) -> Result<Arc<Arena>, JudgeError> {
        let made = match self.runner_pool.common_arena() {
            Ok(None) => {
                // Writing all of it would disturb a measured window.
                let _shared = machine.arbiter.share(Purpose::Host);
                self.kept.take(bytes, timed).map(Arc::new)
            }
            Ok(Some(arena)) => Ok(arena),
            Err(error) => Err(error),
        };
        made.map_err(|error| no_arena(task, error))
    }

    /// Gives candidates on a GPU memory of this size from now on; where it has another, idle processes that have
    /// mapped that end first. The caller must not hold the device.
    pub(crate) fn make_room(&self, task: &Task, room: Room) -> Result<(), JudgeError> {
        if room.apart.is_none() || self.runner_pool.room() == room {
            return Ok(());
        }
        if let Some(replayers) = &self.replayer_pool {
            replayers.end_idle();
        }
        self.runner_pool.make_room(room);
        // At once: the oracle would take what is free.
        self.runner_pool.common_arena().map(drop).map_err(|error| no_arena(task, error))
    }

    /// Keeps the memory of an ended candidate for a later one. On a GPU all candidates share one arena.
    pub(crate) fn reuse(&self, arena: Arc<Arena>) {
        if let Some(arena) = Arc::into_inner(arena) {
            self.kept.give_back(arena);
        }
    }
}

/// What the sessions of a judge share.
#[derive(Clone, Copy)]
pub(crate) struct Shared<'j> {
    pub(crate) machine: &'j Machine,
    pub(crate) processes: &'j Processes,
}

/// Gives a baseline process its memory: on the cpu device; a GPU has torch's own allocator.
pub(crate) fn furnish(
    machine: &Machine,
    process: &mut BaselineProcess,
    arena_bytes: u64,
) -> Result<(), JudgeError> {
    match machine.device.baselines_arena(arena_bytes) {
        Some(arena) => process.adopt(arena?, &machine.arbiter),
        None => Ok(()),
    }
}

fn compile_cache(machine: &Machine) -> Result<PathBuf, JudgeError> {
    let cache = machine.config.cache.join("inductor");
    let keep = |e| JudgeError::infrastructure("create the compile cache", e);
    fs_err::create_dir_all(&cache).map_err(keep)?;
    Ok(cache)
}
