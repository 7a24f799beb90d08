//! Opens the judge that the options select, and adapts it to the agent's `Judge` trait.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use warpwright_agent::judge::{DeviceFacts, Judge, JudgeUnavailable};
use warpwright_jail::{Jail, JailError, Requirement};
use warpwright_judge::{
    BaselineSet, Degenerate, Device, JudgeConfig, JudgeError, LocalJudge, Objection, SessionPool,
};
use warpwright_record::candidate::Candidate;
use warpwright_record::findings::{Findings, Inspection};
use warpwright_record::verdict::{Profile, Stage, Verdict};
use warpwright_task::Task;

use crate::args::{BaselinesArg, Common, DeviceArg, IsolationArg};
use crate::failure::{Failure, chain};
use crate::printer::Printer;
use crate::{folders, gpu, python};

/// Seconds before each retry when the judge itself failed, as by a killed process or a GPU reset.
/// After the last retry the episode is abandoned; it can be resumed.
const PAUSES: [u64; 4] = [0, 5, 30, 120];

/// The parts of this machine that judging needs.
pub(crate) struct JudgeHost {
    /// The judge.
    pub(crate) judge: LocalJudge,
    /// The jail, for the agent's shell.
    pub(crate) jail: Jail,
    /// The interpreter.
    pub(crate) python: PathBuf,
}

/// The options of a judge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) profile: Profile,
    pub(crate) seed: u64,
    pub(crate) baselines: BaselineSet,
    pub(crate) require_full_isolation: bool,
    /// Policy for degenerate tasks: refused unless the user has named the task.
    pub(crate) degenerate: Degenerate,
    /// Length of a timing window in milliseconds; `None` uses the device's default.
    pub(crate) window_ms: Option<u32>,
}

impl Wanted {
    pub(crate) fn new(common: &Common, profile: Profile) -> Self {
        Self {
            profile,
            seed: common.seed,
            baselines: match common.baselines {
                BaselinesArg::Default => BaselineSet::Usual,
                BaselinesArg::All => BaselineSet::All,
            },
            require_full_isolation: common.require_isolation == IsolationArg::Full,
            degenerate: Degenerate::Refused,
            window_ms: None,
        }
    }

    /// The same with degenerate tasks judged, without a reward.
    pub(crate) fn of_any_task(self) -> Self {
        Self { degenerate: Degenerate::Judged, ..self }
    }
}

impl Wanted {
    /// Settings that verdicts must share to be comparable, besides the hardware, for people.
    pub(crate) fn rules(self) -> String {
        let Self { profile, seed, baselines, require_full_isolation, window_ms, .. } = self;
        let isolation = if require_full_isolation { "full" } else { "any" };
        let baselines = match baselines {
            BaselineSet::Plain => "plain",
            BaselineSet::Usual => "default",
            BaselineSet::All => "all",
        };
        let window = window_ms.map_or_else(|| "default".to_owned(), |ms| format!("{ms} ms"));
        format!(
            "profile {}, baselines {baselines}, seed {seed}, isolation {isolation}, timing windows {window}",
            profile.name()
        )
    }
}

impl JudgeHost {
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
            baselines: wanted.baselines,
            degenerate: wanted.degenerate,
            isolation,
            python: python.clone(),
            cache: folders::cache(common.cache.as_deref()),
            window: wanted.window_ms.map(|ms| Duration::from_millis(ms.into())),
        };
        let judge = match device {
            DeviceArg::Cpu => LocalJudge::open(config(Device::Cpu))?,
            DeviceArg::All => {
                let hint = "choose one device, e.g. `--device cuda:0`".to_owned();
                let message = "failed to open the device: this command uses one device, not `all`";
                return Err(Failure::usage(message, hint));
            }
            DeviceArg::Cuda(number) => LocalJudge::open(config(Device::Cuda(number)))?,
            DeviceArg::Auto if gpu::all().is_empty() => LocalJudge::open(config(Device::Cpu))?,
            DeviceArg::Auto => match LocalJudge::open(config(Device::Cuda(0))) {
                Ok(judge) => judge,
                Err(error @ JudgeError::Setup { .. }) => {
                    let text = chain(&error);
                    printer.say(&format!("warning: {text}; judging on the cpu device instead"));
                    LocalJudge::open(config(Device::Cpu))?
                }
                Err(error) => return Err(error.into()),
            },
        };
        Ok(Self { judge, jail, python })
    }

    /// Opens each device, in order; duplicates are refused.
    pub(crate) fn open_all(
        common: &Common,
        devices: &[DeviceArg],
        wanted: Wanted,
        printer: Printer,
    ) -> Result<Vec<Self>, Failure> {
        let mut benches: Vec<Self> = Vec::new();
        let each = devices.iter().flat_map(|device| match device {
            DeviceArg::All => gpu::all().iter().map(|gpu| DeviceArg::Cuda(gpu.number)).collect(),
            one => vec![*one],
        });
        for device in each {
            let bench = Self::open(common, device, wanted, printer)?;
            let name = bench.device();
            if benches.iter().any(|other| other.device() == name) {
                let hint = "list each device once".to_owned();
                return Err(Failure::usage(
                    format!("failed to open the devices: {name} is listed twice"),
                    hint,
                ));
            }
            if benches
                .first()
                .is_some_and(|b| b.judge.facts().hardware != bench.judge.facts().hardware)
            {
                let hint =
                    "run the command once per kind of hardware; their results are not comparable"
                        .to_owned();
                return Err(Failure::usage(
                    format!(
                        "failed to open {name}: its hardware differs from that of the first device"
                    ),
                    hint,
                ));
            }
            benches.push(bench);
        }
        if benches.is_empty() {
            let hint =
                "`--device cpu` judges on the host; `warpwright doctor` checks the GPUs".to_owned();
            return Err(Failure::usage(
                "failed to open the devices: this machine has no GPU",
                hint,
            ));
        }
        Ok(benches)
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

    /// The device's facts for a policy. Measures the device's peak throughput if it is not known.
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

/// The warning that a task is degenerate, before it is judged.
pub(crate) fn nothing_to_earn(task: &str, reasons: &[Objection]) -> Option<String> {
    let all: Vec<String> = reasons.iter().map(ToString::to_string).collect();
    let told =
        || format!("task {task} is degenerate; no reward can be earned on it: {}", all.join("; "));
    (!all.is_empty()).then(told)
}

/// The judge of one task, for the agent.
pub(crate) struct PoolJudge<'p, 'j> {
    pool: &'p SessionPool<'j>,
    task: &'p Task,
    facts: DeviceFacts,
    stop: &'p AtomicBool,
    /// Set if judging showed that the task cannot be judged.
    refusal: OnceLock<Refusal>,
}

/// Why a task is refused.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    /// Why no reward can be earned on it, one word per reason.
    pub(crate) degenerate: Vec<String>,
}

impl Refusal {
    /// The refusal, if the failure is the task's.
    pub(crate) fn of(error: &JudgeError) -> Option<Self> {
        let reasons = match error {
            JudgeError::Degenerate { reasons, .. } => reasons.as_slice(),
            JudgeError::Reference { .. } => &[],
            _ => return None,
        };
        Some(Self {
            message: chain(error),
            hint: error.hint().map(str::to_owned),
            degenerate: reasons.iter().map(|reason| reason.name().to_owned()).collect(),
        })
    }
}

impl<'p, 'j> PoolJudge<'p, 'j> {
    pub(crate) fn new(
        pool: &'p SessionPool<'j>,
        task: &'p Task,
        facts: DeviceFacts,
        stop: &'p AtomicBool,
    ) -> Self {
        Self { pool, task, facts, stop, refusal: OnceLock::new() }
    }

    /// Why the task cannot be judged, if judging showed that.
    pub(crate) fn refusal(&self) -> Option<&Refusal> {
        self.refusal.get()
    }

    fn unavailable(&self, error: &JudgeError) -> JudgeUnavailable {
        if let Some(refusal) = Refusal::of(error) {
            // The first refusal is enough.
            let _ = self.refusal.set(refusal);
        }
        JudgeUnavailable { message: chain(error) }
    }

    /// Checks whether the task can be judged.
    pub(crate) fn open(&self) -> Result<(), JudgeError> {
        self.patiently(|| self.pool.open(self.task))
    }

    fn patiently<T>(&self, ask: impl Fn() -> Result<T, JudgeError>) -> Result<T, JudgeError> {
        patiently(self.stop, ask)
    }
}

/// Retries after an infrastructure failure, unless the user interrupts.
pub(crate) fn patiently<T>(
    stop: &AtomicBool,
    ask: impl Fn() -> Result<T, JudgeError>,
) -> Result<T, JudgeError> {
    let mut pauses = PAUSES.into_iter();
    loop {
        let answer = ask();
        // A lost GPU does not return while this program runs.
        let again =
            matches!(answer, Err(JudgeError::Infrastructure { .. } | JudgeError::Unfit { .. }));
        match pauses.next() {
            Some(seconds) if again && !stop.load(Ordering::SeqCst) => pause(seconds, stop),
            _ => return answer,
        }
    }
}

/// Waits, unless the user interrupts.
fn pause(seconds: u64, stop: &AtomicBool) {
    let until = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < until && !stop.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(100));
    }
}

impl Judge for PoolJudge<'_, '_> {
    fn judge(&self, candidate: &Candidate, stage: Stage) -> Result<Verdict, JudgeUnavailable> {
        self.patiently(|| self.pool.verdict(self.task, candidate, stage))
            .map_err(|error| self.unavailable(&error))
    }

    fn measure_afresh(&self, candidate: &Candidate) -> Result<Verdict, JudgeUnavailable> {
        self.patiently(|| self.pool.afresh(self.task, candidate, Stage::Measured))
            .map_err(|error| self.unavailable(&error))
    }

    fn inspect(
        &self,
        candidate: &Candidate,
        inspection: &Inspection,
    ) -> Result<Findings, JudgeUnavailable> {
        self.patiently(|| self.pool.inspect(self.task, candidate, inspection))
            .map_err(|error| self.unavailable(&error))
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
            JudgeError::Reference { .. }
            | JudgeError::Degenerate { .. }
            | JudgeError::Memory { .. } => Self::usage(message, hint),
            JudgeError::Setup { .. }
            | JudgeError::Infrastructure { .. }
            | JudgeError::Unfit { .. }
            | JudgeError::DeviceLost { .. } => Self::infrastructure(message, hint),
        }
    }
}
