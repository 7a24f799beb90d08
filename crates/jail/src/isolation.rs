//! The backends, and the isolation that one of them reaches.

use serde::{Deserialize, Serialize};

/// The mechanism of a jail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Backend {
    /// Namespaces and a unique user id; needs root.
    Namespaces,
    /// bubblewrap; needs no privileges of this program.
    Bubblewrap,
    /// Namespaces within a user namespace; needs no privileges.
    UserNamespaces,
    /// Landlock, system call filter and resource limits; never full isolation.
    Landlock,
}

impl Backend {
    /// All, best first.
    pub const ALL: [Self; 4] =
        [Self::Namespaces, Self::Bubblewrap, Self::UserNamespaces, Self::Landlock];

    /// Name for reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::Bubblewrap => "bubblewrap",
            Self::UserNamespaces => "user-namespaces",
            Self::Landlock => "landlock",
        }
    }
}

/// The least isolation that the caller accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// The best available isolation.
    Any,
    /// Full isolation or an error.
    Full,
}

/// Whether all of the isolation is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// All of it.
    Full,
    /// Some of it is missing.
    Partial,
}

impl std::fmt::Display for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Full => "full",
            Self::Partial => "partial",
        })
    }
}

/// The isolation that a probe inside the jail found to be in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Isolation {
    /// `Full` only if nothing is missing.
    pub level: Level,
    /// Restrictions in force, one phrase each.
    pub enforced: Vec<String>,
    /// Restrictions not in force, one phrase each.
    pub missing: Vec<String>,
    /// Name of the backend.
    pub backend: String,
}
