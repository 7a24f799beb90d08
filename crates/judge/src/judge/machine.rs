//! The machine that a judge works on: its device, who holds it, and what is known of it.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use warpwright_build::Target;
use warpwright_jail::{Isolation as JailIsolation, Level};
use warpwright_record::fingerprint::Fingerprint;
use warpwright_record::libraries::{Library, LibrarySet};
use warpwright_record::verdict::{Isolation, IsolationLevel, Profile};
use warpwright_task::Task;

use super::config::{BaselineSet, JudgeConfig};
use super::voids::Voids;
use crate::device::arena::{Arena, ArenaError};
use crate::device::backend::DeviceBackend;
use crate::device::cores;
use crate::device::device_arbiter::DeviceArbiter;
use crate::device::health::{Cores, Health, Watch};
use crate::error::JudgeError;
use crate::process::host::Workers;
use crate::process::plan_store::PlanStore;
use crate::timing::baseline::Baseline;
use crate::timing::baseline_floor::Quickest;
use crate::timing::calibrate::{self, Calibration};

/// A machine, and the configuration by which a judge uses it.
pub(crate) struct Machine {
    pub(crate) config: JudgeConfig,
    pub(crate) device: Arc<dyn DeviceBackend>,
    pub(crate) arbiter: Arc<DeviceArbiter>,
    /// Cores that are kept for what is timed; none where there are few.
    pub(crate) cores: Vec<usize>,
    /// Tells whether the machine is fit to be timed on.
    pub(crate) health: Health,
    /// Launch plans of verdicts.
    pub(crate) plans: PlanStore,
    /// Verdicts that do not count any more.
    pub(crate) voids: Voids,
    isolation: JailIsolation,
    /// Name and version of the compiler of kernels.
    pub(crate) compiler: String,
    /// Why the device cannot be used any more.
    lost: OnceLock<String>,
    /// The fastest empty windows.
    empty: Mutex<Quickest>,
    calibration: Mutex<Option<Calibration>>,
}

/// Header libraries that a task allows. None where its list cannot be read: no candidate is judged then.
pub fn allowed_by(task: &Task) -> LibrarySet {
    let names = task.libraries().unwrap_or_default();
    names.iter().filter_map(|name| name.parse().ok()).collect::<Vec<Library>>().iter().collect()
}

impl Machine {
    /// A machine with an open device. Takes cores from this thread that are kept for what is timed. `tools`
    /// names the toolchain.
    pub(crate) fn new(
        config: JudgeConfig,
        device: Arc<dyn DeviceBackend>,
        isolation: JailIsolation,
        tools: &[String],
    ) -> Self {
        let health = device.health();
        let cores = device.reserve_cores();
        let arbiter = Arc::new(device.arbiter());
        let compiler = tools.iter().find(|line| device.is_compiler(line)).cloned();
        let hardware = &device.facts().hardware;
        let known = calibrate::load(&config.cache, &config.device.to_string(), hardware);
        Self {
            arbiter,
            cores,
            health,
            plans: PlanStore::of(&config.cache),
            voids: Voids::of(&config.cache),
            isolation,
            compiler: compiler.unwrap_or_default(),
            lost: OnceLock::new(),
            empty: Mutex::default(),
            calibration: Mutex::new(known),
            config,
            device,
        }
    }

    /// Rules of precision, and the seed of the reference's weights.
    pub(crate) fn settings(&self) -> (Profile, u64) {
        (self.config.profile, self.config.seed)
    }

    /// The device's ceilings, if they are known.
    pub(crate) fn calibration(&self) -> Option<Calibration> {
        lock(&self.calibration).clone()
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
    /// contenders. `workers`: all processes of the judge.
    pub(crate) fn watch(&self, timed: [u32; 2], contenders: usize, workers: &Workers) -> Watch<'_> {
        // Kept cores belong to what is timed; without them whatever this judge starts shares all.
        let on = if self.cores.is_empty() {
            Cores { numbers: cores::allowed(), roots: workers.pids(), judge: true }
        } else {
            Cores { numbers: self.cores.clone(), roots: timed.to_vec(), judge: false }
        };
        Watch::begin(&self.health, self.config.device.to_string(), contenders, on)
    }

    /// Header libraries that candidates may use here whatever the task; none on the cpu device.
    pub(crate) fn libraries(&self) -> LibrarySet {
        match self.device.target() {
            Target::Cuda { .. } => self.config.libraries,
            Target::Cpu => LibrarySet::default(),
        }
    }

    /// The same, and those that the task allows.
    pub(crate) fn libraries_for(&self, task: &Task) -> LibrarySet {
        match self.device.target() {
            Target::Cuda { .. } => self.config.libraries.and(allowed_by(task)),
            Target::Cpu => LibrarySet::default(),
        }
    }

    /// The isolation level for verdicts, with the enforced and the missing measures.
    pub(crate) fn isolation(&self) -> Isolation {
        Isolation {
            level: match self.isolation.level {
                Level::Full => IsolationLevel::Full,
                Level::Partial => IsolationLevel::Partial,
            },
            enforced: self.isolation.enforced.clone(),
            missing: self.isolation.missing.clone(),
        }
    }

    /// Memory the judge creates for a process of a task on this device.
    pub(crate) fn arena(&self, task: &Task, bytes: u64) -> Result<Arena, JudgeError> {
        let made = self.device.arena(bytes);
        made.map_err(|error| no_arena(task, error))
    }

    /// The baselines that candidates are timed against.
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

    /// This machine, with the versions of the reference's process.
    pub(crate) fn fingerprint(&self, torch: &str, python: &str) -> Fingerprint {
        let known = lock(&self.calibration);
        Fingerprint {
            device: self.config.device.to_string(),
            hardware: self.device.facts().hardware.clone(),
            cores: cores::all() as u32,
            driver: self.device.facts().driver.clone(),
            compiler: self.compiler.clone(),
            torch: torch.to_owned(),
            python: python.to_owned(),
            clocks: String::new(),
            warpwright: env!("CARGO_PKG_VERSION").to_owned(),
            bandwidth_bytes_per_second: known.as_ref().map(|c| c.bandwidth_bytes_per_second),
            exactness: known.as_ref().and_then(|c| c.exactness.clone()),
        }
    }

    /// Remembers the empty windows of one measurement; see [`Quickest::add`].
    pub(crate) fn remember_empty(&self, windows: &[f64]) -> Option<f64> {
        lock(&self.empty).add(windows)
    }
}

/// The error for memory that was not created for a task.
pub(crate) fn no_arena(task: &Task, error: ArenaError) -> JudgeError {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_a_task_are_those_it_lists() {
        let of = |line: &str| allowed_by(&Task::from_source("t", format!("{line}\n")));
        assert_eq!(of("libraries = ['cccl']").list(), [Library::Cccl]);
        assert_eq!(of("libraries = ['cccl', 'cutlass']").list(), Library::ALL);
        for line in ["", "libraries = []", "libraries = ['cublas']", "libraries = names()"] {
            assert_eq!(of(line), LibrarySet::default(), "{line}");
        }
        assert!(LibrarySet::forbidden().and(of("libraries = ['cccl']")).list().is_empty());
    }
}
