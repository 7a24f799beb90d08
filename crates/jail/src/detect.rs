//! Which isolation this machine allows, established by starting a probe and looking at what it can do.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::child::{Child, Finished};
use crate::error::JailError;
use crate::init::landlock;
use crate::init::probe::{self, Facts};
use crate::isolation::{Backend, Isolation, Level, Requirement};
use crate::locate;
use crate::plan::PROBE;
use crate::prepare::Means;
use crate::scratch;
use crate::spec::{Access, Limits, Mount, Spec};

/// A jail backend that was probed and works on this machine.
#[derive(Clone, Debug)]
pub struct Jail {
    means: Means,
    isolation: Isolation,
}

impl Jail {
    /// Finds the best backend that works here. Takes some tens of milliseconds: keep the result.
    pub fn detect(requirement: Requirement) -> Result<Self, JailError> {
        Self::detect_among(&Backend::ALL, requirement)
    }

    /// Finds the best of these backends that works here.
    pub fn detect_among(backends: &[Backend], requirement: Requirement) -> Result<Self, JailError> {
        let mut reasons = Vec::new();
        let mut best: Option<Self> = None;
        for &backend in backends {
            match Self::with_backend(backend) {
                Ok(jail) if jail.isolation.level == Level::Full => return Ok(jail),
                Ok(jail) => {
                    best.get_or_insert(jail);
                }
                Err(error @ JailError::NoInit { .. }) => return Err(error),
                Err(JailError::Setup { step, message, .. }) => {
                    reasons.push(format!("{}: {step}: {message}", backend.name()));
                }
                Err(error) => reasons.push(format!("{}: {error}", backend.name())),
            }
        }
        match best {
            None => Err(JailError::NoBackend { reasons }),
            Some(jail) if requirement == Requirement::Full => {
                let Isolation { level, missing, backend, .. } = jail.isolation;
                Err(JailError::NotFull { backend, level, missing })
            }
            Some(jail) => Ok(jail),
        }
    }

    /// Probes one backend, for tests and `doctor`.
    pub fn with_backend(backend: Backend) -> Result<Self, JailError> {
        let means = Means {
            backend,
            init: locate::find_init()?,
            bubblewrap: locate::find_program("bwrap"),
        };
        let impossible = match backend {
            Backend::Namespaces if crate::sys::effective_uid() != 0 => Some("not started by root"),
            Backend::Bubblewrap if means.bubblewrap.is_none() => Some("bwrap is not in PATH"),
            Backend::Landlock if landlock::kernel_version() == 0 => {
                Some("this kernel has no Landlock")
            }
            _ => None,
        };
        if let Some(message) = impossible {
            return Err(JailError::Setup {
                label: "probe".into(),
                step: "choose a backend".into(),
                message: message.into(),
            });
        }
        let isolation = probe(&means)?;
        Ok(Self { means, isolation })
    }

    pub(crate) fn means(&self) -> &Means {
        &self.means
    }

    /// The library with which a program that is not ours in Rust becomes a
    /// [`ForkServer`](crate::ForkServer): named by `WARPWRIGHT_JAIL_FORK`, or beside this program or the
    /// helper, or one folder up.
    pub fn fork_library(&self) -> Option<PathBuf> {
        locate::find_fork_library(&self.means.init)
    }

    /// The isolation that the probe found in force.
    pub fn isolation(&self) -> &Isolation {
        &self.isolation
    }

    /// Whether this backend supports a [`ForkServer`](crate::ForkServer).
    pub fn can_fork(&self) -> bool {
        matches!(self.means.backend, Backend::Namespaces | Backend::UserNamespaces)
    }

    /// Whether a mount can have another path inside than outside.
    pub fn can_rename(&self) -> bool {
        self.means.backend != Backend::Landlock
    }

    /// Whether this backend supports [`Network::Loopback`](crate::Network::Loopback).
    pub fn has_own_network(&self) -> bool {
        self.means.backend != Backend::Landlock
    }

    /// Starts a program.
    pub fn spawn(&self, spec: Spec) -> Result<Child, JailError> {
        Child::start(&self.means, spec)
    }

    /// Runs a program to its end.
    pub fn run(&self, spec: Spec) -> Result<Finished, JailError> {
        self.spawn(spec)?.wait()
    }
}

/// Starts the helper's probe inside a jail and judges what it reports.
fn probe(means: &Means) -> Result<Isolation, JailError> {
    let problem = |what: &str, cause: &dyn std::fmt::Display| JailError::Supervisor {
        label: "probe".into(),
        reason: format!("{what}: {cause}"),
    };
    let folder = ProbeFolder::new().map_err(|error| problem("no folder for the probe", &error))?;
    // The positive control of the network test: this listener is there and reachable from outside.
    let listener =
        TcpListener::bind(("127.0.0.1", 0)).map_err(|error| problem("no listener", &error))?;
    let address = listener.local_addr().map_err(|error| problem("no listener", &error))?;
    std::net::TcpStream::connect_timeout(&address, Duration::from_secs(1))
        .map_err(|error| problem("the probe's own listener cannot be reached", &error))?;
    let limits = Limits {
        wall: Duration::from_secs(10),
        memory_bytes: Some(1 << 30),
        processes: 64,
        ..Limits::default()
    };
    let path = |path: &Path| path.display().to_string();
    let spec = Spec::new(&means.init)
        .label("probe")
        .arg(PROBE)
        .with_system()
        .mount(Mount::read_only(&means.init))
        .mount(Mount::new(&folder.frozen, &folder.frozen, Access::ReadOnly))
        .mount(Mount::new(&folder.scratch, &folder.scratch, Access::ReadWrite))
        .env(probe::PORT, address.port().to_string())
        .env(probe::SECRET, path(&folder.secret))
        .env(probe::FROZEN, path(&folder.frozen))
        .env(probe::SCRATCH, path(&folder.scratch))
        .env(probe::OUTSIDER, std::process::id().to_string())
        .limits(limits);
    let finished = Child::start(means, spec)?.wait()?;
    let facts: Facts = serde_json::from_slice(&finished.stdout.bytes).map_err(|error| {
        problem(
            "the probe did not answer",
            &format!("{}, {error}, {}", finished.outcome, finished.stderr.text().trim()),
        )
    })?;
    Ok(judge(means.backend, &facts, &finished))
}

/// Turns what the probe saw into claims.
fn judge(backend: Backend, facts: &Facts, finished: &Finished) -> Isolation {
    let (mut enforced, mut missing) = (Vec::new(), Vec::new());
    let mut claim = |holds: bool, yes: &str, no: &str| {
        if holds { enforced.push(yes.to_owned()) } else { missing.push(no.to_owned()) }
    };
    let status = |key: &str| facts.status.get(key).map(String::as_str).unwrap_or_default();
    let empty =
        |key: &str| !status(key).is_empty() && status(key).bytes().all(|digit| digit == b'0');
    let uids: Vec<&str> = status("Uid").split_whitespace().collect();
    let own = crate::sys::effective_uid().to_string();

    claim(!facts.network, "no network", "the network is reachable");
    claim(
        !facts.sees_unnamed,
        "only named paths are visible",
        "paths that were not named are readable",
    );
    claim(!facts.writes_read_only, "read-only mounts", "read-only mounts can be written");
    claim(facts.writes_scratch, "writable mounts", "writable mounts cannot be written");
    claim(facts.has_tmp, "private /tmp", "there is no private /tmp");
    if facts.processes <= 4 {
        claim(true, "own process namespace", "");
    } else {
        claim(false, "", "processes outside are visible");
        claim(
            !facts.signals_caller,
            "no signals to processes outside",
            "processes of the same user can be signalled",
        );
    }
    if backend == Backend::Landlock {
        claim(false, "", "System V and POSIX IPC is shared with the host");
        claim(false, "", "the private /tmp has no size limit");
    }
    if own == "0" && backend != Backend::Namespaces {
        claim(false, "", "a user id of its own (files of root are its own)");
    } else {
        claim(
            uids.first().is_some_and(|uid| *uid != "0" && uids.iter().all(|other| other == uid)),
            if backend == Backend::Namespaces {
                "user id of its own"
            } else {
                "the caller's unprivileged user id"
            },
            "runs as root",
        );
    }
    claim(
        ["CapInh", "CapPrm", "CapEff", "CapAmb"].into_iter().all(&empty),
        "no capabilities",
        "capabilities are left",
    );
    claim(status("NoNewPrivs") == "1", "no new privileges", "new privileges can be gained");
    let filtered = status("Seccomp") == "2" && facts.allowed.is_empty();
    claim(
        filtered,
        "system call filter",
        &format!("system calls are not filtered ({})", facts.allowed.join(", ")),
    );
    missing.extend(finished.notes.iter().cloned());
    let level = if missing.is_empty() { Level::Full } else { Level::Partial };
    enforced.push(format!("memory: {}", finished.memory_bound));
    enforced.push(format!("processes: {}", finished.processes_bound));
    enforced.push(format!("freezing: {}", finished.freezer));
    enforced.push("deadline, CPU time, file sizes, descriptors, output".into());
    Isolation { level, enforced, missing, backend: backend.name().into() }
}

/// Folders for the probe, removed at the end.
struct ProbeFolder {
    root: PathBuf,
    secret: PathBuf,
    frozen: PathBuf,
    scratch: PathBuf,
}

impl ProbeFolder {
    fn new() -> std::io::Result<Self> {
        let root = scratch::own_folder("warpwright-probe", 0o755)?;
        let folder = Self {
            secret: root.join("secret"),
            frozen: root.join("frozen"),
            scratch: root.join("scratch"),
            root,
        };
        fs_err::create_dir(&folder.frozen)?;
        fs_err::create_dir(&folder.scratch)?;
        fs_err::write(&folder.secret, "not for the jail")?;
        Ok(folder)
    }
}

impl Drop for ProbeFolder {
    fn drop(&mut self) {
        drop(fs_err::remove_dir_all(&self.root));
    }
}
