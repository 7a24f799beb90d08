//! What can go wrong with the jail itself. A program that fails inside it is an [`Outcome`](crate::Outcome).

use std::io;
use std::path::PathBuf;

use crate::detect::Level;

/// The jail could not do its work: an infrastructure error, never a verdict on what ran inside.
#[derive(Debug, thiserror::Error)]
pub enum JailError {
    /// No program was found that can play the jail's helper.
    #[error("failed to find the jail's helper program (looked at: {})", .looked_at.join(", "))]
    NoInit {
        /// Where it was looked for.
        looked_at: Vec<String>,
    },
    /// Nothing on this machine can confine a process.
    #[error("failed to set up a jail on this machine: {}", .reasons.join("; "))]
    NoBackend {
        /// Per backend, why it does not work here.
        reasons: Vec<String>,
    },
    /// The caller asked for full isolation.
    #[error("failed to reach full isolation: {backend} gives {level:?} only, without {}", .missing.join(", "))]
    NotFull {
        /// The best backend that works here.
        backend: String,
        /// What it reaches.
        level: Level,
        /// What it lacks.
        missing: Vec<String>,
    },
    /// The source of a mount does not exist, or cannot be reached.
    #[error("failed to mount {} in jail {label:?}: {cause}", .path.display())]
    MountSource {
        /// The jail's label.
        label: String,
        /// The path on the host.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// A specification that this jail cannot fulfil; the caller's mistake.
    #[error("failed to accept the specification of jail {label:?}: {reason}")]
    Spec {
        /// The jail's label.
        label: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The helper process could not be started.
    #[error("failed to start jail {label:?} with {}: {cause}", .program.display())]
    Start {
        /// The jail's label.
        label: String,
        /// The helper.
        program: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// No program could be started as a fork.
    #[error("failed to start jail {label:?} as a fork: {reason}")]
    Fork {
        /// The fork server's label.
        label: String,
        /// What was seen.
        reason: String,
    },
    /// One step of the set-up failed inside the helper; nothing of the caller's program has run.
    #[error("failed to set up jail {label:?}: {step}: {message}")]
    Setup {
        /// The jail's label.
        label: String,
        /// The step, as in docs/jail.md.
        step: String,
        /// The system's message.
        message: String,
    },
    /// The helper vanished or spoke out of turn; everything in the jail has been killed.
    #[error("failed to hear the end of jail {label:?}: {reason}")]
    Supervisor {
        /// The jail's label.
        label: String,
        /// What was seen.
        reason: String,
    },
}

impl JailError {
    /// What the user could do about it, if there is something.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoInit { .. } => Some(
                "build it with `cargo build --release -p warpwright-jail`, call `init_if_requested()` first thing in \
                 main, or name the helper in WARPWRIGHT_JAIL_INIT"
                    .into(),
            ),
            Self::NoBackend { .. } | Self::NotFull { .. } => Some(
                "install bubblewrap, allow unprivileged user namespaces, or run as root; \
                 `--require-isolation any` accepts less"
                    .into(),
            ),
            Self::Setup { step, .. } if step.starts_with("execute") => {
                Some("the program must exist inside the jail: mount it, or use with_system()".into())
            }
            Self::MountSource { .. } | Self::Spec { .. } | Self::Start { .. } | Self::Fork { .. } | Self::Setup { .. } | Self::Supervisor { .. } => None,
        }
    }
}
