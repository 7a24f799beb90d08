//! Errors of the judge. A candidate's failure is a verdict, never one of these errors.

use thiserror::Error;

use crate::admission::objection::{self, Objection};
use crate::device::arena::ArenaError;
use crate::process::channel::NoAnswer;
use crate::process::wire::Complaint;

const SMALLER: &str = "use smaller inputs";
const LARGER: &str = "use smaller inputs, a device with more memory, or a larger `--memory-limit`";
const LINT: &str =
    "run `warpwright task lint` to list every problem of the task, then change or drop the task";
/// Python's message for a full disk.
const NO_SPACE: &str = "No space left on device";
const LOST: &str = "check `nvidia-smi` and `dmesg`; reset the GPU or restart the machine, then continue the \
                    run with `--resume`";

/// The error behind an error of the judge, or its description.
pub(crate) type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why the judge gave no verdict. Such an error never becomes a reward.
#[derive(Debug, Error)]
pub enum JudgeError {
    /// The task's reference fails or is unusable. A usage error.
    #[error("failed to use the reference of task {task}: {message}")]
    Reference {
        /// Task name.
        task: String,
        /// How the reference failed.
        message: String,
        /// The cure, if one is known.
        hint: Option<String>,
    },
    /// The task is degenerate: no candidate can earn a meaningful reward. A usage error.
    #[error(
        "failed to open task {task} for judging: the task is degenerate: {}",
        objection::told(reasons)
    )]
    Degenerate {
        /// Task name.
        task: String,
        /// The objections that make it degenerate.
        reasons: Vec<Objection>,
    },
    /// The task does not fit its share of the device's memory. It may fit a larger share.
    #[error("failed to fit task {task} into its share of the device memory: {message}")]
    Memory {
        /// Task name.
        task: String,
        /// The allocation that failed.
        message: String,
        /// Device memory in bytes that would suffice, where known.
        wanted: Option<u64>,
    },
    /// The task needs more than all the memory of the device that the judge may use. No fault of the task: a larger
    /// device can judge it. A usage error.
    #[error("failed to judge task {task}: it is too large: {}", sizes(*needed, *available, message))]
    TooLarge {
        /// Task name.
        task: String,
        /// Bytes of device memory that it needs at least, if that is known.
        needed: Option<u64>,
        /// Bytes of device memory that the judge may use.
        available: u64,
        /// The allocation that failed, where none of both told before that it would.
        message: String,
    },
    /// This machine or its configuration lacks something that the judge needs: full isolation, a tool, a
    /// working GPU, a writable cache. Nothing else is this error. An infrastructure error; no later attempt
    /// succeeds without a cure.
    #[error("failed to set up the judge: {message}")]
    Setup {
        /// What is missing.
        message: String,
        /// The command that cures it.
        hint: Option<String>,
        /// What showed that it is missing, if another error did; the message quotes it.
        source: Option<Cause>,
    },
    /// The device tier is required, and this machine cannot have it. An infrastructure error; no later attempt
    /// succeeds without a cure.
    #[error(
        "failed to set up the judge: the device tier is required, and {device} has none here: {message}"
    )]
    NoDeviceTier {
        /// `cuda:N` or `cpu`.
        device: String,
        /// What is missing.
        message: String,
        /// The cure, besides requiring no tier.
        hint: Option<String>,
        /// What showed that it is missing, if another error did; the message quotes it.
        source: Option<Cause>,
    },
    /// The device is currently unfit for timing (throttled, or used by others). An infrastructure
    /// error; a later attempt may succeed.
    #[error("failed to time on {device}: {reason}")]
    Unfit {
        /// `cuda:N` or `cpu`.
        device: String,
        /// The observation that made it unfit.
        reason: String,
        /// The cure.
        hint: String,
    },
    /// A stored launch plan is not for this judge. A usage error.
    #[error("failed to replay the launch plan: {reason}")]
    NotReplayable {
        /// What does not fit.
        reason: String,
        /// The cure.
        hint: String,
    },
    /// The GPU disappeared or no longer works for this process. An infrastructure error: the process
    /// must be restarted before it can judge on this GPU again.
    #[error("failed to use {device}: the driver lost the GPU ({reason})")]
    DeviceLost {
        /// `cuda:N`.
        device: String,
        /// The failed operation and the driver's message.
        reason: String,
    },
    /// A part of the judge itself failed. An infrastructure error.
    #[error("failed to {action}: {source}")]
    Infrastructure {
        /// The failed operation, as an infinitive.
        action: String,
        /// Why it failed.
        source: Cause,
    },
}

impl JudgeError {
    /// The cure, if one is known.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Reference { hint, .. }
            | Self::Setup { hint, .. }
            | Self::NoDeviceTier { hint, .. } => hint.as_deref(),
            Self::Memory { .. } => Some(SMALLER),
            Self::TooLarge { .. } => Some(LARGER),
            Self::Degenerate { .. } => Some(LINT),
            Self::Unfit { hint, .. } | Self::NotReplayable { hint, .. } => Some(hint),
            Self::DeviceLost { .. } => Some(LOST),
            Self::Infrastructure { .. } => None,
        }
    }

    pub(crate) fn too_large(
        task: &str,
        needed: Option<u64>,
        available: u64,
        message: impl Into<String>,
    ) -> Self {
        Self::TooLarge { task: task.to_owned(), needed, available, message: message.into() }
    }

    pub(crate) fn infrastructure(action: impl Into<String>, source: impl Into<Cause>) -> Self {
        Self::Infrastructure { action: action.into(), source: source.into() }
    }

    /// The error for something that this machine or its configuration lacks.
    pub(crate) fn lacks(message: &str, hint: &str) -> Self {
        Self::Setup { message: message.to_owned(), hint: Some(hint.to_owned()), source: None }
    }

    pub(crate) fn not_replayable(reason: String, hint: impl Into<String>) -> Self {
        Self::NotReplayable { reason, hint: hint.into() }
    }

    /// A process outside the judge killed one of its processes.
    pub(crate) fn killed(role: &str) -> Self {
        Self::infrastructure(
            format!("use the {role} process"),
            "another process killed it (SIGKILL); check `dmesg` for the out-of-memory killer",
        )
    }

    /// The error for a failed answer of a trusted process (oracle, baselines): its complaints are about
    /// the task.
    pub(crate) fn from_trusted(task: &str, role: &str, answer: NoAnswer, tail: &str) -> Self {
        match answer {
            NoAnswer::Complaint(complaint) if complaint.kind == "memory" => Self::Memory {
                task: task.to_owned(),
                message: complaint.message.lines().next().unwrap_or_default().to_owned(),
                wanted: None,
            },
            NoAnswer::Complaint(complaint) if complaint.message.contains(NO_SPACE) => {
                let reason = complaint.message.lines().next().unwrap_or_default();
                Self::infrastructure(format!("write a file for the {role}"), reason)
            }
            NoAnswer::Complaint(complaint) => Self::reference(task, &complaint),
            NoAnswer::Closed => Self::Reference {
                task: task.to_owned(),
                message: format!(
                    "the {role} process died while running the reference{}",
                    after(tail)
                ),
                hint: Some(
                    "the usual cause is inputs that do not fit memory: use smaller inputs"
                        .to_owned(),
                ),
            },
            NoAnswer::Late(limit) => Self::Reference {
                task: task.to_owned(),
                message: format!("the reference did not finish within {} s", limit.as_secs()),
                hint: Some(SMALLER.to_owned()),
            },
            NoAnswer::Malformed(what) => {
                Self::infrastructure(format!("read the answer of the {role} process"), what)
            }
            NoAnswer::TooLarge(bytes) => Self::infrastructure(
                format!("read the answer of the {role} process"),
                format!("it has {bytes} bytes"),
            ),
            NoAnswer::Unasked => Self::infrastructure(
                format!("read the answer of the {role} process"),
                "it sent an answer without a request",
            ),
            NoAnswer::RanWhileFrozen => Self::infrastructure(
                format!("freeze the {role} process"),
                "one of its processes ran while frozen",
            ),
            NoAnswer::LeftRunning => Self::infrastructure(
                format!("wait for the {role} process"),
                "its GPU work did not finish",
            ),
            NoAnswer::CannotFreeze(reason) => {
                Self::infrastructure(format!("freeze the {role} process"), reason)
            }
        }
    }

    fn reference(task: &str, complaint: &Complaint) -> Self {
        let hint = match complaint.kind.as_str() {
            "missing_module" => Some(
                "install the package into the Python environment that `warpwright doctor` names"
                    .to_owned(),
            ),
            "stochastic" => Some("sample random values in get_inputs, not in forward".to_owned()),
            "raised" if complaint.message.contains("CUDA") => Some(
                "the reference needs a GPU: use `--device cuda:0` on a machine with a GPU"
                    .to_owned(),
            ),
            _ => None,
        };
        let mut message = complaint.message.clone();
        if !complaint.trace.is_empty() {
            message = format!("{message}\n{}", complaint.trace.trim_end());
        }
        Self::Reference { task: task.to_owned(), message, hint }
    }
}

/// What is needed and what there is, for people.
fn sizes(needed: Option<u64>, available: u64, message: &str) -> String {
    let available = available >> 20;
    match needed {
        Some(needed) => format!(
            "it needs at least {} MiB of memory, and the judge may use {available} MiB",
            needed.div_ceil(1 << 20)
        ),
        None => format!(
            "it needs more than the {available} MiB of memory that the judge may use: {message}"
        ),
    }
}

fn after(tail: &str) -> String {
    let last = tail.trim().lines().last().unwrap_or_default();
    if last.is_empty() { String::new() } else { format!(" (its last output: {last})") }
}

impl From<ArenaError> for JudgeError {
    fn from(error: ArenaError) -> Self {
        if error.lost {
            let reason = error.to_string();
            return Self::DeviceLost { device: "the GPU".to_owned(), reason };
        }
        Self::Infrastructure { action: error.action, source: error.source }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    #[test]
    fn an_error_keeps_its_cause_and_quotes_it() {
        let cause = std::io::Error::other("the disk is gone");
        let error = JudgeError::infrastructure("store the calibration", cause);
        assert_eq!(error.to_string(), "failed to store the calibration: the disk is gone");
        let kept = error.source().and_then(<dyn Error>::downcast_ref::<std::io::Error>);
        assert!(kept.is_some());
        let error = JudgeError::from(ArenaError::new("read the memory file", "it is short"));
        assert_eq!(error.to_string(), "failed to read the memory file: it is short");
    }
}
