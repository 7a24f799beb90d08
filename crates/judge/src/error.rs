//! What is not a verdict: the task's own fault, or ours.

use thiserror::Error;

use crate::arena::ArenaError;
use crate::channel::NoAnswer;
use crate::degenerate;
use crate::examination::Objection;
use crate::wire::Complaint;

const SMALLER: &str = "use smaller inputs";
const LINT: &str = "`warpwright task lint` says what else speaks against it";
/// As Python words what a full disk says.
const NO_SPACE: &str = "No space left on device";
const LOST: &str = "`nvidia-smi` and `dmesg` say whether the driver still has it; when it is back (a \
                    reset, a restart of the machine), `--resume` goes on with a run";

/// Judging could not be done. Never becomes a reward.
#[derive(Debug, Error)]
pub enum JudgeError {
    /// The task's reference cannot be judged against: the caller's error.
    #[error("failed to use the reference of task {task}: {message}")]
    Reference {
        /// Task name.
        task: String,
        /// What the reference did.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// The task is degenerate: there is nothing to earn on it. The caller's error.
    #[error("failed to judge against task {task}: it is degenerate: {}", degenerate::told(reasons))]
    Degenerate {
        /// Task name.
        task: String,
        /// What is wrong with it.
        reasons: Vec<Objection>,
    },
    /// The task does not fit the part of the device's memory that it was given: it may fit more.
    #[error("failed to fit task {task} into its part of the memory: {message}")]
    Memory {
        /// Task name.
        task: String,
        /// What did not fit.
        message: String,
        /// Bytes of the device's memory that would do, where that is known.
        wanted: Option<u64>,
    },
    /// What is asked cannot be had on this machine: the caller's error.
    #[error("failed to set up judging: {message}")]
    Setup {
        /// What is missing.
        message: String,
        /// The command that mends it.
        hint: Option<String>,
    },
    /// The machine is not fit to be measured on now: infrastructure. Waiting may mend it.
    #[error("failed to measure on {device}: {reason}")]
    Unfit {
        /// `cuda:N` or `cpu`.
        device: String,
        /// What was seen.
        reason: String,
        /// What mends it.
        hint: String,
    },
    /// The GPU disappeared or no longer works for this program: infrastructure. Nothing more can be
    /// judged on it until the program is started again.
    #[error("failed to go on with {device}: it is lost ({reason})")]
    DeviceLost {
        /// `cuda:N`.
        device: String,
        /// What was attempted and what the driver said.
        reason: String,
    },
    /// A part of the judge itself failed: infrastructure.
    #[error("failed to {action}: {reason}")]
    Infrastructure {
        /// What was attempted.
        action: String,
        /// What went wrong.
        reason: String,
    },
}

impl JudgeError {
    /// What the caller can do, if anything.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Reference { hint, .. } | Self::Setup { hint, .. } => hint.as_deref(),
            Self::Memory { .. } => Some(SMALLER),
            Self::Degenerate { .. } => Some(LINT),
            Self::Unfit { hint, .. } => Some(hint),
            Self::DeviceLost { .. } => Some(LOST),
            Self::Infrastructure { .. } => None,
        }
    }

    /// When there is no more memory to be had: the task's own fault.
    pub(crate) fn with_all_memory(self) -> Self {
        match self {
            Self::Memory { task, message, .. } => {
                Self::Reference { task, message, hint: Some(SMALLER.to_owned()) }
            }
            other => other,
        }
    }

    pub(crate) fn infrastructure(
        action: impl Into<String>,
        reason: impl std::fmt::Display,
    ) -> Self {
        Self::Infrastructure { action: action.into(), reason: format!("{reason}") }
    }

    /// Somebody else than the task ended a process of the judge's.
    pub(crate) fn killed(role: &str) -> Self {
        Self::infrastructure(
            format!("go on with the {role} process"),
            "it was killed from outside (SIGKILL); if the host ran out of memory, `dmesg` says so",
        )
    }

    /// From a process that is trusted for values: its complaint is about the task.
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
                message: format!("the {role} process died while running it{}", after(tail)),
                hint: Some("inputs that do not fit memory are the usual cause".to_owned()),
            },
            NoAnswer::Late(limit) => Self::Reference {
                task: task.to_owned(),
                message: format!("it did not finish within {} s", limit.as_secs()),
                hint: Some(SMALLER.to_owned()),
            },
            NoAnswer::Malformed(what) => {
                Self::infrastructure(format!("understand the {role}"), what)
            }
            NoAnswer::Unasked => {
                Self::infrastructure(format!("understand the {role}"), "it answers something else")
            }
            NoAnswer::RanWhileFrozen => Self::infrastructure(
                format!("freeze the {role}"),
                "one of its processes ran meanwhile",
            ),
            NoAnswer::LeftRunning => {
                Self::infrastructure(format!("wait for the {role}"), "the GPU does not become idle")
            }
            NoAnswer::CannotFreeze(reason) => {
                Self::infrastructure(format!("freeze the {role}"), reason)
            }
        }
    }

    fn reference(task: &str, complaint: &Complaint) -> Self {
        let hint = match complaint.kind.as_str() {
            "missing_module" => Some(
                "install the package into the Python environment that `doctor` names".to_owned(),
            ),
            "stochastic" => {
                Some("remove what is random in forward, or draw it in get_inputs".to_owned())
            }
            "raised" if complaint.message.contains("CUDA") => Some(
                "it needs a GPU: run with `--device cuda:0` on a machine that has one".to_owned(),
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

fn after(tail: &str) -> String {
    let last = tail.trim().lines().last().unwrap_or_default();
    if last.is_empty() { String::new() } else { format!(" (its last words: {last})") }
}

impl From<ArenaError> for JudgeError {
    fn from(error: ArenaError) -> Self {
        if error.lost {
            let reason = error.to_string();
            return Self::DeviceLost { device: "the GPU".to_owned(), reason };
        }
        Self::Infrastructure { action: error.action, reason: error.reason }
    }
}
