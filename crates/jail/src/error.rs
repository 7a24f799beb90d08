//! Errors of the jail itself. A program that fails inside it is an [`Outcome`](crate::Outcome).

use std::io;
use std::path::PathBuf;

use crate::isolation::Level;

/// The jail could not do its work: an infrastructure error, never a verdict on what ran inside.
#[derive(Debug, thiserror::Error)]
pub enum JailError {
    /// The helper program `warpwright-jail-init` was not found.
    #[error("failed to find the jail's helper program (searched: {})", .looked_at.join(", "))]
    NoInit {
        /// The paths searched.
        looked_at: Vec<String>,
    },
    /// No backend can confine a process on this machine.
    #[error("failed to set up a jail: no backend works on this machine: {}", .reasons.join("; "))]
    NoBackend {
        /// Per backend, why it does not work here.
        reasons: Vec<String>,
    },
    /// The caller requires full isolation, and the best backend reaches less.
    #[error("failed to reach full isolation: backend {backend} reaches {level} isolation: {}", .missing.join(", "))]
    NotFull {
        /// The best backend that works here.
        backend: String,
        /// The level it reaches.
        level: Level,
        /// The restrictions that it does not enforce.
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
    /// This jail cannot fulfil the specification. A usage error.
    #[error("failed to start jail {label:?}: its specification is invalid: {reason}")]
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
    /// The fork server could not start a program.
    #[error("failed to start jail {label:?} from its fork server: {reason}")]
    Fork {
        /// The fork server's label.
        label: String,
        /// The cause.
        reason: String,
    },
    /// One step of the set-up failed inside the helper; nothing of the caller's program has run.
    #[error("failed to set up jail {label:?}: {step}: {message}")]
    Setup {
        /// The jail's label.
        label: String,
        /// The step, as in `docs/concepts/jail.md`.
        step: String,
        /// The system's message.
        message: String,
    },
    /// The helper died or broke the protocol. Everything in the jail has been killed.
    #[error("failed to supervise jail {label:?}: {reason}")]
    Supervisor {
        /// The jail's label.
        label: String,
        /// What was seen.
        reason: String,
    },
}

impl JailError {
    /// The cure, if one is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoInit { .. } => Some(
                "build it with `cargo build --release -p warpwright-jail`, call `init_if_requested()` at the start of \
                 main, or set WARPWRIGHT_JAIL_INIT to its path"
                    .into(),
            ),
            Self::NoBackend { .. } | Self::NotFull { .. } => Some(
                "install bubblewrap, allow unprivileged user namespaces, or run as root; \
                 `--require-isolation any` accepts partial isolation"
                    .into(),
            ),
            Self::Setup { step, .. } if step.starts_with("execute") => {
                Some("mount the program into the jail, or use with_system()".into())
            }
            Self::MountSource { .. } | Self::Spec { .. } | Self::Start { .. } | Self::Fork { .. } | Self::Setup { .. } | Self::Supervisor { .. } => None,
        }
    }
}
