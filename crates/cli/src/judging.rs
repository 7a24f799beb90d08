//! Opens the judge that a command line asks for, and shows it to the agent as its `Judge`.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use warpwright_agent::judge::{DeviceFacts, Judge, JudgeUnavailable};
use warpwright_jail::{Jail, JailError, Requirement};
use warpwright_judge::{BaselineSet, Device, JudgeConfig, JudgeError, LocalJudge, TaskSession};
use warpwright_record::candidate::Candidate;
use warpwright_record::verdict::{Profile, Stage, Verdict};

use crate::args::{Common, DeviceArg, IsolationArg};
use crate::failure::{Failure, chain};
use crate::printer::Printer;
use crate::{folders, gpu, python};

/// How often a candidate is judged when the judge itself fails, before the episode is given up.
const ATTEMPTS: u32 = 3;

/// What judging needs of this machine.
pub(crate) struct Bench {
    /// The judge.
    pub(crate) judge: LocalJudge,
    /// The jail, for the agent's shell.
    pub(crate) jail: Jail,
    /// The interpreter.
    pub(crate) python: PathBuf,
}

/// What to open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) profile: Profile,
    pub(crate) seed: u64,
    pub(crate) all_baselines: bool,
    pub(crate) require_full_isolation: bool,
}

impl Wanted {
    pub(crate) fn new(common: &Common, profile: Profile) -> Self {
        Self {
            profile,
            seed: common.seed,
            all_baselines: common.baselines == crate::args::BaselinesArg::All,
            require_full_isolation: common.require_isolation == IsolationArg::Full,
        }
    }
}

impl Bench {
    /// Finds interpreter, jail and device, and opens the judge.
    pub(crate) fn open(
        common: &Common,
        device: DeviceArg,
        wanted: Wanted,
        printer: Printer,
    ) -> Result<Self, Failure> {
        let python = python::require(common.python.as_deref())?.executable;
        let isolation =
            if wanted.require_full_isolation { Requirement::Full } else { Requirement::Any };
        let jail = Jail::detect(isolation).map_err(|error| isolation_failure(&error))?;
        let config = |device| JudgeConfig {
            device,
            profile: wanted.profile,
            seed: wanted.seed,
            baselines: if wanted.all_baselines { BaselineSet::All } else { BaselineSet::Usual },
            isolation,
            python: python.clone(),
            cache: folders::cache(common.cache.as_deref()),
        };
        let judge = match device {
            DeviceArg::Cpu => LocalJudge::open(config(Device::Cpu))?,
            DeviceArg::Cuda(number) => LocalJudge::open(config(Device::Cuda(number)))?,
            DeviceArg::Auto if gpu::all().is_empty() => LocalJudge::open(config(Device::Cpu))?,
            DeviceArg::Auto => match LocalJudge::open(config(Device::Cuda(0))) {
                Ok(judge) => judge,
                Err(error @ JudgeError::Setup { .. }) => {
                    printer
                        .say(&format!("warning: {}; going on with the cpu device", chain(&error)));
                    LocalJudge::open(config(Device::Cpu))?
                }
                Err(error) => return Err(error.into()),
            },
        };
        Ok(Self { judge, jail, python })
    }

    /// Name of the device.
    pub(crate) fn device(&self) -> String {
        self.judge.config().device.to_string()
    }

    /// Compilers for the agent's shell: folders to show and folders for its `PATH`.
    pub(crate) fn compilers(&self) -> (Vec<PathBuf>, Vec<PathBuf>) {
        let root = self.judge.toolchain().nvcc.as_ref().map(|cuda| cuda.root.clone());
        let path = root.iter().map(|root| root.join("bin")).collect();
        (root.into_iter().collect(), path)
    }

    /// What a policy is told of the device; measures its ceilings if that was never done.
    pub(crate) fn facts(&self) -> Result<DeviceFacts, Failure> {
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
        })
    }
}

/// One task's session as the agent sees it.
pub(crate) struct SessionJudge<'j> {
    session: Mutex<TaskSession<'j>>,
    facts: DeviceFacts,
}

impl<'j> SessionJudge<'j> {
    pub(crate) fn new(session: TaskSession<'j>, facts: DeviceFacts) -> Self {
        Self { session: Mutex::new(session), facts }
    }
}

impl Judge for SessionJudge<'_> {
    fn judge(&self, candidate: &Candidate, stage: Stage) -> Result<Verdict, JudgeUnavailable> {
        // A panic while judging leaves a session that answers or says why it cannot.
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        let mut attempts = 1;
        loop {
            match session.judge(candidate, stage) {
                Ok(verdict) => return Ok(verdict),
                // A busy moment, mostly: measuring refuses when too much else runs.
                Err(JudgeError::Infrastructure { .. }) if attempts < ATTEMPTS => attempts += 1,
                Err(error) => return Err(JudgeUnavailable { message: chain(&error) }),
            }
        }
    }

    fn device(&self) -> DeviceFacts {
        self.facts.clone()
    }
}

fn isolation_failure(error: &JailError) -> Failure {
    let (message, hint) = (chain(error), error.hint());
    match error {
        JailError::NotFull { .. } => Failure::isolation(message, hint),
        _ => Failure::infrastructure(message, hint),
    }
}

impl From<JudgeError> for Failure {
    fn from(error: JudgeError) -> Self {
        let (message, hint) = (chain(&error), error.hint().map(str::to_owned));
        match error {
            JudgeError::Reference { .. } => Self::usage(message, hint),
            JudgeError::Setup { .. } | JudgeError::Infrastructure { .. } => {
                Self::infrastructure(message, hint)
            }
        }
    }
}
