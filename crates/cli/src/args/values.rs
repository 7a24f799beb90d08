//! Values of options: devices, profiles, stages, baselines, isolation, tiers.

use std::str::FromStr;

use clap::ValueEnum;
use warpwright_judge::BaselineSet;
use warpwright_record::verdict::{Profile, Stage, Tier};
use warpwright_task::{Dtype, Task};

use crate::failure::Failure;

/// Precision and comparison rules, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProfileArg {
    /// Full float32 for reference and candidate; tolerances scaled to the error of eager.
    Strict,
    /// TF32 for reference and candidate.
    Tf32,
    /// The dtype and the precision flags that the task sets, for reference and candidate.
    AsRun,
    /// The rules of the CUDA Agent paper: tolerance 1e-2, five inputs.
    Paper,
}

impl From<ProfileArg> for Profile {
    fn from(profile: ProfileArg) -> Self {
        match profile {
            ProfileArg::Strict => Self::Strict,
            ProfileArg::Tf32 => Self::Tf32,
            ProfileArg::AsRun => Self::AsRun,
            ProfileArg::Paper => Self::Paper,
        }
    }
}

/// The last stage of judging.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StageArg {
    /// Build.
    Built,
    /// Build, and compare with the reference.
    Verified,
    /// Build, compare with the reference, and time.
    Measured,
}

impl From<StageArg> for Stage {
    fn from(stage: StageArg) -> Self {
        match stage {
            StageArg::Built => Self::Built,
            StageArg::Verified => Self::Verified,
            StageArg::Measured => Self::Measured,
        }
    }
}

/// The baselines to time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BaselinesArg {
    /// Eager, `torch.compile` and, on a GPU, its mode `reduce-overhead`.
    Default,
    /// Also `torch.compile` with mode `max-autotune` on a GPU, which may compile for minutes.
    All,
}

impl BaselinesArg {
    /// The baselines of a judge.
    pub(crate) fn set(self) -> BaselineSet {
        match self {
            Self::Default => BaselineSet::Usual,
            Self::All => BaselineSet::All,
        }
    }
}

/// Minimum isolation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum IsolationArg {
    /// The isolation that this machine supports; each verdict records it.
    Any,
    /// Every mechanism that `docs/concepts/jail.md` requires.
    Full,
}

/// A size of memory in bytes. On the command line a number with a unit: `48GiB`, `80GB`, `512MiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) u64);

const NOT_A_SIZE: &str =
    "give a whole number with the unit MiB, GiB, MB or GB: `48GiB`, `80GB`, `512MiB`";

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit: u64 = match unit.trim_start() {
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            _ => return Err(NOT_A_SIZE.to_owned()),
        };
        let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
        bytes.filter(|bytes| *bytes > 0).map(Self).ok_or_else(|| NOT_A_SIZE.to_owned())
    }
}

/// The tier in which candidates are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TierArg {
    /// The device tier for each candidate that it can judge, the host tier for the others.
    Any,
    /// A candidate's launches are recorded without a GPU and replayed; one that cannot be recorded is not
    /// verified.
    Device,
    /// A candidate's host code runs in a process that is frozen outside its timing windows.
    Host,
}

impl TierArg {
    /// The tier, if the user requires one.
    pub(crate) fn required(self) -> Option<Tier> {
        match self {
            Self::Any => None,
            Self::Device => Some(Tier::Device),
            Self::Host => Some(Tier::Host),
        }
    }
}

/// Parses a number above 0.
pub(super) fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value.is_finite() => Ok(value),
        _ => Err("expected a number greater than 0".to_owned()),
    }
}

/// Parses a number of at least 0.
pub(super) fn not_negative(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value >= 0.0 && value.is_finite() => Ok(value),
        _ => Err("expected a number of at least 0".to_owned()),
    }
}

/// A dtype that tasks are cast to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DtypeArg {
    /// `torch.bfloat16`.
    Bf16,
    /// `torch.float16`.
    Fp16,
}

impl DtypeArg {
    /// The dtype that it names.
    pub(crate) const fn dtype(self) -> Dtype {
        match self {
            Self::Bf16 => Dtype::Bf16,
            Self::Fp16 => Dtype::Fp16,
        }
    }

    /// The task, cast. One whose source is cast already stays as it is; one that is cast to another dtype is refused.
    pub(crate) fn cast(self, task: Task) -> Result<Task, Failure> {
        let dtype = self.dtype();
        if let Some(of) = task.dtype().filter(|of| *of != dtype) {
            let message = format!(
                "failed to cast task {} to {dtype}: its source is cast to {of} already",
                task.name
            );
            let hint = "name the task's own source, or leave out `--dtype`".to_owned();
            return Err(Failure::usage(message, hint));
        }
        Ok(task.cast(dtype))
    }

    /// Every task, cast.
    pub(crate) fn cast_all(self, tasks: Vec<Task>) -> Result<Vec<Task>, Failure> {
        tasks.into_iter().map(|task| self.cast(task)).collect()
    }
}
