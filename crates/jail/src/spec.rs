//! What to run, and within which bounds.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Access rights of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// Read and execute.
    ReadOnly,
    /// Read, execute, write, create, remove. New files belong to the caller's user outside.
    ReadWrite,
}

/// One path of the host, named inside the jail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Path on the host: a folder, file, socket or device.
    pub source: PathBuf,
    /// Absolute path inside. The Landlock backend cannot rename: there it must equal `source`.
    pub target: PathBuf,
    /// Whether it can be written.
    pub access: Access,
    /// A device: kept usable as one.
    #[serde(default)]
    pub(crate) device: bool,
    /// Part of the system: world-readable, so left with its owners as they are.
    #[serde(default)]
    pub(crate) system: bool,
}

impl Mount {
    /// Shows `source` as `target`.
    pub fn new(source: impl Into<PathBuf>, target: impl Into<PathBuf>, access: Access) -> Self {
        Self { source: source.into(), target: target.into(), access, device: false, system: false }
    }

    /// Shows `path` under its own name, read-only.
    pub fn read_only(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self::new(path.clone(), path, Access::ReadOnly)
    }

    /// Shows `path` under its own name, writable.
    pub fn read_write(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self::new(path.clone(), path, Access::ReadWrite)
    }
}

/// Access to NVIDIA GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Gpu {
    /// No device node is visible.
    #[default]
    None,
    /// All NVIDIA device nodes, `/sys` read-only, the driver's libraries; no limit on address space.
    All,
    /// The same, but of the nodes of GPUs that of this minor number alone (`/dev/nvidia3` has 3): others
    /// cannot be used, whatever the program asks the driver for.
    One(u32),
}

/// What the program can reach by network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Network {
    /// Nothing: no socket but Unix ones can be made.
    #[default]
    None,
    /// The program itself: IPv4 on a loopback interface of its own, which leads nowhere else. For
    /// tools whose parts talk so. Needs a backend with namespaces, see
    /// [`Jail::has_own_network`](crate::Jail::has_own_network).
    Loopback,
}

/// What the program reads from descriptor 0.
#[derive(Debug, Default)]
pub enum Stdin {
    /// Nothing.
    #[default]
    Null,
    /// These bytes, then the end.
    Bytes(Vec<u8>),
    /// Data from this descriptor, a pipe or a socket of the caller.
    Descriptor(OwnedFd),
}

/// Where what the program prints goes.
#[derive(Debug, Default)]
pub enum Output {
    /// To the caller, bounded by [`Limits::output_bytes`]; [`Finished`](crate::Finished) has it.
    #[default]
    Captured,
    /// Both standard streams to this descriptor, usually the write end of a pipe of the caller's.
    Descriptor(OwnedFd),
}

/// Bounds on the whole process tree, except where "per process" is said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Wall time from the start of the program; 60 s.
    pub wall: Duration,
    /// CPU time of all processes together, if bounded; unbounded.
    pub cpu: Option<Duration>,
    /// Resident memory of all processes together, private files included, if bounded; unbounded.
    pub memory_bytes: Option<u64>,
    /// Processes and threads; 1024.
    pub processes: u32,
    /// Open descriptors per process; 1024.
    pub open_files: u32,
    /// Size of any file written; 8 GiB.
    pub file_bytes: u64,
    /// Private `/tmp` and home each, and `/dev/shm`; 2 GiB.
    pub tmp_bytes: u64,
    /// Kept of each of stdout and stderr: the first half and the last half; 1 MiB.
    pub output_bytes: usize,
    /// Runs at a lower scheduling priority (nice 10).
    #[serde(default)]
    pub yields: bool,
    /// May make timers (`timer_create`, `timerfd_create`): any number of them goes off, and takes time
    /// of whatever core they were set on, also while no thread of its runs; yes.
    #[serde(default = "yes")]
    pub timers: bool,
}

fn yes() -> bool {
    true
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            wall: Duration::from_mins(1),
            cpu: None,
            memory_bytes: None,
            processes: 1024,
            open_files: 1024,
            file_bytes: 8 << 30,
            tmp_bytes: 2 << 30,
            output_bytes: 1 << 20,
            yields: false,
            timers: true,
        }
    }
}

/// Home of the jailed program.
pub(crate) const HOME: &str = "/home/jail";

/// One command and its bounds. Nothing of the host is visible and nothing is inherited unless named.
#[derive(Debug)]
pub struct Spec {
    /// For messages.
    pub label: String,
    /// Absolute path inside the jail, or a name looked up in the `PATH` of `env`.
    pub program: PathBuf,
    /// Arguments, without the program's name.
    pub args: Vec<String>,
    /// The whole environment. [`Spec::new`] sets `PATH`, `HOME`, `TMPDIR`, `USER` and `LANG`.
    pub env: Vec<(String, String)>,
    /// Working directory inside; `/tmp`.
    pub cwd: PathBuf,
    /// What is visible, in any order; a deeper target lies over a shallower one.
    pub mounts: Vec<Mount>,
    /// The bounds.
    pub limits: Limits,
    /// Descriptors that the program finds under these numbers (3 and up).
    pub fds: Vec<(OwnedFd, i32)>,
    /// GPU access.
    pub gpu: Gpu,
    /// Network.
    pub network: Network,
    /// Standard input.
    pub stdin: Stdin,
    /// Standard output and standard error.
    pub output: Output,
    pub(crate) symlinks: Vec<(PathBuf, PathBuf)>,
}

impl Spec {
    /// A command with default limits that sees nothing of the host yet.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        let program = program.into();
        let env = [
            ("PATH", "/usr/local/bin:/usr/bin:/bin"),
            ("HOME", HOME),
            ("TMPDIR", "/tmp"),
            ("USER", "jail"),
            ("LANG", "C.UTF-8"),
        ];
        Self {
            label: program
                .file_name()
                .map_or_else(|| "jail".into(), |name| name.to_string_lossy().into_owned()),
            program,
            args: Vec::new(),
            env: env.map(|(key, value)| (key.into(), value.into())).into(),
            cwd: "/tmp".into(),
            mounts: Vec::new(),
            limits: Limits::default(),
            fds: Vec::new(),
            gpu: Gpu::None,
            network: Network::None,
            stdin: Stdin::Null,
            output: Output::Captured,
            symlinks: Vec::new(),
        }
    }

    /// Names it in messages.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Appends one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Appends arguments.
    #[must_use]
    pub fn args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable, replacing one of that name.
    #[must_use]
    pub fn env(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        let key = key.into();
        self.env.retain(|(known, _)| *known != key);
        self.env.push((key, value.into()));
        self
    }

    /// Sets the working directory inside.
    #[must_use]
    pub fn cwd(mut self, cwd: impl Into<PathBuf>) -> Self {
        self.cwd = cwd.into();
        self
    }

    /// Adds a mount.
    #[must_use]
    pub fn mount(mut self, mount: Mount) -> Self {
        self.mounts.push(mount);
        self
    }

    /// Shows a host path under its own name, read-only.
    #[must_use]
    pub fn read_only(self, path: impl AsRef<Path>) -> Self {
        self.mount(Mount::read_only(path.as_ref()))
    }

    /// Shows a host path under its own name, writable.
    #[must_use]
    pub fn read_write(self, path: impl AsRef<Path>) -> Self {
        self.mount(Mount::read_write(path.as_ref()))
    }

    /// Sets what can be reached by network.
    #[must_use]
    pub fn network(mut self, network: Network) -> Self {
        self.network = network;
        self
    }

    /// Replaces the limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Hands a descriptor to the program under this number (3 or higher).
    #[must_use]
    pub fn fd(mut self, fd: impl Into<OwnedFd>, number: i32) -> Self {
        self.fds.push((fd.into(), number));
        self
    }

    /// Sets where standard output and standard error go.
    #[must_use]
    pub fn output(mut self, output: Output) -> Self {
        self.output = output;
        self
    }

    /// Sets standard input.
    #[must_use]
    pub fn stdin(mut self, stdin: Stdin) -> Self {
        self.stdin = stdin;
        self
    }
}
