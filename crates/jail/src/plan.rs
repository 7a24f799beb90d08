//! What travels between the caller and the jail's helper: the plan in, reports out.
//!
//! Both ends are the same build, so the format carries a version only to refuse a stale helper.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::freezer::Mechanism;
use crate::isolation::Backend;
use crate::spec::{Gpu, Limits, Mount, Network};

/// Raised whenever [`Plan`], [`Report`] or what is said to fork servers change.
pub(crate) const VERSION: u32 = 4;

/// First argument that makes a program the jail's helper; the second is the number of the plan's descriptor.
pub(crate) const SUPERVISE: &str = "__jail-init";
/// First argument of the helper started again inside bubblewrap.
pub(crate) const INSIDE: &str = "__jail-inside";
/// First argument that makes it look around inside a jail and print what it sees.
pub(crate) const PROBE: &str = "__jail-probe";

/// A whole specification, resolved against this host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) version: u32,
    pub(crate) backend: Backend,
    pub(crate) label: String,
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) cwd: PathBuf,
    /// Sorted so that a parent comes before what lies in it; sources without symbolic links.
    pub(crate) mounts: Vec<Mount>,
    /// (link, what it points to).
    pub(crate) symlinks: Vec<(PathBuf, PathBuf)>,
    pub(crate) limits: Limits,
    /// (number in the helper, number in the program).
    pub(crate) fds: Vec<(i32, i32)>,
    pub(crate) gpu: Gpu,
    pub(crate) network: Network,
    /// Socket to the caller.
    pub(crate) control_fd: i32,
    /// The helper itself.
    pub(crate) init: PathBuf,
    /// bubblewrap, for its backend.
    pub(crate) bubblewrap: Option<PathBuf>,
    /// Private folder for `/tmp` and home, for the Landlock backend.
    pub(crate) scratch: Option<PathBuf>,
    /// Set by the supervisor for the helper inside bubblewrap.
    pub(crate) handover: Option<Handover>,
}

/// What the helper inside bubblewrap needs beyond the plan.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Handover {
    pub(crate) status_fd: i32,
    pub(crate) executed_fd: i32,
    pub(crate) user_processes: Option<u64>,
    pub(crate) data_bytes: Option<u64>,
}

/// What really bounds memory and processes in one jail.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InForce {
    pub(crate) memory: String,
    pub(crate) processes: String,
    /// What can stop everything in the jail.
    pub(crate) freezer: Option<Mechanism>,
    /// Weaker than asked, and why.
    pub(crate) notes: Vec<String>,
}

/// Why a jail ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Cause {
    Exited(i32),
    Signalled(i32),
    Deadline,
    Cpu,
    Memory,
    Killed,
}

/// From the helper to the caller, one JSON object per line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The program runs; `pid` as the host sees the first process of the jail.
    Started { pid: i32, in_force: InForce },
    /// The program never ran.
    Failed { step: String, message: String },
    /// Everything in the jail is gone.
    Ended { cause: Cause, elapsed: Duration, peak_memory_bytes: Option<u64>, cpu: Option<Duration> },
}

/// From inside the jail to its supervisor, one JSON object per line. Written only by code of ours,
/// before the program starts or from a process that it cannot touch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Inside {
    Failed {
        step: String,
        message: String,
    },
    /// Something is weaker than asked.
    Note(String),
    /// Folders whose owner was changed, with the owner before.
    Owned {
        path: PathBuf,
        uid: u32,
        gid: u32,
    },
    Exited(i32),
    Signalled(i32),
}

/// What a fork server says first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Greeting {
    pub(crate) version: u32,
    /// Why it cannot serve; it ends then.
    pub(crate) refusal: Option<String>,
}

/// A fork server's answer to a request, which is a packet with the descriptors of [`FORK_FDS`] and then the
/// program's, in the order of [`Plan::fds`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Forked {
    /// The supervisor runs; its descriptor comes with this.
    Supervisor(i32),
    /// There is none, and why.
    Failed(String),
}

/// Descriptors that come first in a request: the plan, the control socket, the standard streams.
pub(crate) const FORK_FDS: usize = 5;
