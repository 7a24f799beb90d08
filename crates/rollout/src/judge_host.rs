//! Opens the devices that the caller names, each with its judge.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use warpwright_agent::judge::DeviceFacts;
use warpwright_jail::{Jail, Requirement};
use warpwright_judge::{
    BaselineSet, Degenerate, Device, JudgeConfig, JudgeError, LocalJudge, REPEAT_RATE,
};
use warpwright_record::libraries::{Library, LibrarySet};
use warpwright_record::verdict::{Profile, Tier};

use crate::device_choice::DeviceChoice;
use crate::error::{RolloutError, chain};
use crate::{Notice, gpu, python};

/// Files of this machine that judging uses.
#[derive(Clone, Debug)]
pub struct HostFiles {
    /// The interpreter that the user named.
    pub python: Option<PathBuf>,
    /// Folder for builds, compiled baselines and other data that can be rebuilt.
    pub cache: PathBuf,
}

/// The parts of this machine that judging needs.
pub struct JudgeHost {
    /// The judge.
    pub judge: LocalJudge,
    /// The jail, for the agent's shell.
    pub jail: Arc<Jail>,
    /// The interpreter.
    pub python: PathBuf,
}

/// The tier that is required of verdicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequiredTier {
    /// None: the device tier where it is possible.
    Any,
    /// This tier, on any device.
    Always(Tier),
    /// The device tier on GPUs, none on the cpu device.
    DeviceOnGpus,
}

impl RequiredTier {
    /// The tier that a judge of this device requires.
    fn on(self, device: Device) -> Option<Tier> {
        match (self, device) {
            (Self::Always(tier), _) => Some(tier),
            (Self::DeviceOnGpus, Device::Cuda(_)) => Some(Tier::Device),
            (Self::Any, _) | (Self::DeviceOnGpus, Device::Cpu) => None,
        }
    }

    /// Name for people.
    const fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Always(tier) => tier.name(),
            Self::DeviceOnGpus => "device on GPUs",
        }
    }
}

impl From<Option<Tier>> for RequiredTier {
    fn from(tier: Option<Tier>) -> Self {
        tier.map_or(Self::Any, Self::Always)
    }
}

/// The options of a judge.
#[derive(Clone, Copy, Debug)]
pub struct JudgeOptions {
    /// Rules of precision and comparison.
    pub profile: Profile,
    /// Seed of the references' weights.
    pub seed: u64,
    /// Baselines to time against.
    pub baselines: BaselineSet,
    /// Whether opening fails on a machine with less than full isolation.
    pub require_full_isolation: bool,
    /// Policy for degenerate tasks: refused unless the user has named the task.
    pub degenerate: Degenerate,
    /// The tier in which candidates are judged.
    pub tier: RequiredTier,
    /// Whether candidates of a task that are timed in the same half minute share windows of its baselines.
    pub share_baselines: bool,
    /// Most memory of each device that its judge may use, in bytes; `None` for all that is free.
    pub memory_limit: Option<u64>,
    /// Header libraries that candidates for a GPU may use.
    pub libraries: LibrarySet,
    /// Length of a timing window in milliseconds; `None` uses the device's default.
    pub window_ms: Option<u32>,
}

impl JudgeOptions {
    /// The same with further libraries allowed, unless all are forbidden.
    #[must_use]
    pub fn with_libraries(self, more: &[Library]) -> Self {
        Self { libraries: self.libraries.and(more.iter().collect()), ..self }
    }

    /// The same with degenerate tasks judged, without a reward.
    #[must_use]
    pub fn of_any_task(self) -> Self {
        Self { degenerate: Degenerate::Judged, ..self }
    }

    /// Settings that verdicts must share to be comparable, besides the hardware, for people.
    pub fn rules(self) -> String {
        let Self {
            profile,
            seed,
            baselines,
            require_full_isolation,
            tier,
            share_baselines,
            libraries,
            window_ms,
            ..
        } = self;
        let isolation = if require_full_isolation { "full" } else { "any" };
        let baselines = match baselines {
            BaselineSet::Plain => "plain",
            BaselineSet::Usual => "default",
            BaselineSet::All => "all",
        };
        let tier = tier.name();
        let shared = if share_baselines { "shared" } else { "own" };
        let window = window_ms.map_or_else(|| "default".to_owned(), |ms| format!("{ms} ms"));
        format!(
            "profile {}, baselines {baselines} ({shared} windows), seed {seed}, isolation {isolation}, tier {tier}, libraries {}, timing windows {window}",
            profile.name(),
            libraries.rule(),
        )
    }
}

/// What all judges of this machine share.
struct Means {
    jail: Arc<Jail>,
    isolation: Requirement,
    python: PathBuf,
    cache: PathBuf,
}

impl Means {
    /// Finds the interpreter, and the best jail that works here.
    fn find(files: &HostFiles, options: JudgeOptions) -> Result<Self, RolloutError> {
        let python = python::require(files.python.as_deref())?.executable;
        let isolation =
            if options.require_full_isolation { Requirement::Full } else { Requirement::Any };
        let jail = Arc::new(Jail::detect(isolation)?);
        Ok(Self { jail, isolation, python, cache: files.cache.clone() })
    }

    fn config(&self, device: Device, options: JudgeOptions) -> JudgeConfig {
        JudgeConfig {
            device,
            profile: options.profile,
            seed: options.seed,
            baselines: options.baselines,
            degenerate: options.degenerate,
            tier: options.tier.on(device),
            share_baselines: options.share_baselines,
            libraries: options.libraries,
            isolation: self.isolation,
            python: self.python.clone(),
            cache: self.cache.clone(),
            repeat_rate: REPEAT_RATE,
            memory_limit: options.memory_limit,
            window: options.window_ms.map(|ms| Duration::from_millis(ms.into())),
        }
    }
}

impl JudgeHost {
    /// Finds interpreter, jail and device, and opens the judge, which says by `notice` what people should know.
    pub fn open(
        files: &HostFiles,
        device: DeviceChoice,
        options: JudgeOptions,
        notice: &Notice,
    ) -> Result<Self, RolloutError> {
        Self::open_in(&Means::find(files, options)?, device, options, notice)
    }

    fn open_in(
        means: &Means,
        device: DeviceChoice,
        options: JudgeOptions,
        notice: &Notice,
    ) -> Result<Self, RolloutError> {
        let open =
            |device| LocalJudge::open_in(Arc::clone(&means.jail), means.config(device, options));
        let judge = match device {
            DeviceChoice::Cpu => open(Device::Cpu)?,
            DeviceChoice::All => {
                let hint = "choose one device, e.g. `--device cuda:0`".to_owned();
                let message = "failed to open the device: this command uses one device, not `all`";
                return Err(RolloutError::usage(message, hint));
            }
            DeviceChoice::Cuda(number) => open(Device::Cuda(number))?,
            DeviceChoice::Auto if gpu::all().is_empty() => open(Device::Cpu)?,
            DeviceChoice::Auto => match open(Device::Cuda(0)) {
                Ok(judge) => judge,
                Err(error @ JudgeError::Setup { .. }) => {
                    let text = chain(&error);
                    notice(&format!("warning: {text}; judging on the cpu device instead"));
                    open(Device::Cpu)?
                }
                Err(error) => return Err(error.into()),
            },
        };
        let notice = Arc::clone(notice);
        judge.set_notice(move |text| notice(text));
        Ok(Self { judge, jail: Arc::clone(&means.jail), python: means.python.clone() })
    }

    /// Opens each device, in order; duplicates are refused.
    pub fn open_all(
        files: &HostFiles,
        devices: &[DeviceChoice],
        options: JudgeOptions,
        notice: &Notice,
    ) -> Result<Vec<Self>, RolloutError> {
        let mut all = Vec::new();
        for device in devices {
            match device {
                DeviceChoice::All => {
                    all.extend(gpu::all().iter().map(|gpu| DeviceChoice::Cuda(gpu.number)));
                }
                one => all.push(*one),
            }
        }
        if all.is_empty() {
            let hint =
                "`--device cpu` judges on the host; `warpwright doctor` checks the GPUs".to_owned();
            return Err(RolloutError::usage(
                "failed to open the devices: this machine has no GPU",
                hint,
            ));
        }
        let means = Means::find(files, options)?;
        let mut hosts: Vec<Self> = Vec::new();
        for device in all {
            let host = Self::open_in(&means, device, options, notice)?;
            let name = host.device();
            if hosts.iter().any(|other| other.device() == name) {
                let hint = "list each device once".to_owned();
                return Err(RolloutError::usage(
                    format!("failed to open the devices: {name} is listed twice"),
                    hint,
                ));
            }
            if hosts
                .first()
                .is_some_and(|b| b.judge.facts().hardware != host.judge.facts().hardware)
            {
                let hint =
                    "run the command once per kind of hardware; their results are not comparable"
                        .to_owned();
                return Err(RolloutError::usage(
                    format!(
                        "failed to open {name}: its hardware differs from that of the first device"
                    ),
                    hint,
                ));
            }
            hosts.push(host);
        }
        Ok(hosts)
    }

    /// Name of the device.
    pub fn device(&self) -> String {
        self.judge.config().device.to_string()
    }

    /// Compilers for the agent's shell: folders to show and folders for its `PATH`. With the headers of these
    /// libraries.
    pub fn compilers(&self, libraries: LibrarySet) -> (Vec<PathBuf>, Vec<PathBuf>) {
        let root = self.judge.toolchain().nvcc.as_ref().map(|cuda| cuda.root.clone());
        let path = root.iter().map(|root| root.join("bin")).collect();
        let cutlass = self.judge.toolchain().cutlass.as_ref().map(|cutlass| cutlass.root.clone());
        let cutlass = cutlass.filter(|_| libraries.contains(Library::Cutlass));
        (root.into_iter().chain(cutlass).collect(), path)
    }

    /// The device's facts for a policy. Measures the device's peak throughput if it is not known.
    pub fn facts(&self) -> Result<DeviceFacts, RolloutError> {
        let facts = self.judge.facts();
        let ceilings = self.judge.calibrate(false)?;
        Ok(DeviceFacts {
            device: self.device(),
            hardware: facts.hardware.clone(),
            arch: facts.arch.clone(),
            processors: facts.processors,
            bandwidth_bytes_per_second: Some(ceilings.bandwidth_bytes_per_second),
            cache_bytes: facts.cache_bytes,
            shared_bytes_per_block: facts.shared_bytes_per_block,
            libraries: self.judge.libraries(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn training_requires_device_tier_on_gpus_only() {
        let (cpu, gpu) = (Device::Cpu, Device::Cuda(1));
        let rule = RequiredTier::DeviceOnGpus;
        assert_eq!((rule.on(cpu), rule.on(gpu)), (None, Some(Tier::Device)));
        for chosen in [None, Some(Tier::Host), Some(Tier::Device)] {
            let rule = RequiredTier::from(chosen);
            assert_eq!((rule.on(cpu), rule.on(gpu)), (chosen, chosen), "the user's choice");
        }
    }
}
