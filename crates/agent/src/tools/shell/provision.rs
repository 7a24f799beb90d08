//! What a shell may use: its programs, mounts and limits.

use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;
use warpwright_jail::{Access, Jail, JailError, Limits, Mount, Spec};

use crate::workspace::{JAILED_PATH, READ_ONLY, Workspace};

/// Maximum size of a file that a command writes: the workspace is on the user's disk.
const MAX_FILE_BYTES: u64 = 1 << 30;
/// Size limit of `/tmp`, home and `/dev/shm`, each.
const MAX_TMP_BYTES: u64 = 1 << 30;
/// Maximum processes and threads in the shell's jail.
pub(super) const MAX_PROCESSES: u32 = 512;
/// Default memory limit of the shell's jail: half of the machine's memory, at most this.
const MAX_MEMORY_BYTES: u64 = 16 << 30;
/// The path of the judge's socket in a jail that can rename mounts.
const SOCKET_PATH: &str = "/run/warpwright/judge.sock";

/// Programs and limits of the shell.
#[derive(Clone, Debug, Default)]
pub struct Provision {
    /// Interpreter with torch; `python3` inside.
    pub python: Option<PathBuf>,
    /// Folders mounted read-only under their own names, e.g. a CUDA toolkit.
    pub folders: Vec<PathBuf>,
    /// Folders searched for programs before the system's.
    pub path: Vec<PathBuf>,
    /// Limit of resident memory of the shell and its processes, bytes; by default half of the machine's
    /// memory, at most 16 GiB.
    pub memory_bytes: Option<u64>,
}

/// Starts shells; each episode has its own.
#[derive(Clone, Debug)]
pub struct Shell {
    pub(super) jail: Jail,
    provision: Provision,
}

/// An infrastructure error of running a command.
#[derive(Debug, Error)]
pub enum ShellError {
    /// The jail failed.
    #[error(transparent)]
    Jail(#[from] JailError),
    /// The judge's socket, or another descriptor of the shell, could not be created.
    #[error("failed to make the sockets and pipes of the shell: {0}")]
    Socket(std::io::Error),
    /// The shell did not start.
    #[error("failed to start the shell: {0}")]
    Start(String),
    /// The thread that answers judge requests died: a bug.
    #[error(
        "failed to answer the judge requests of the shell: the thread that answers them ended early"
    )]
    Service,
}

impl Shell {
    /// A shell factory whose commands run in `jail`.
    pub fn new(jail: Jail, mut provision: Provision) -> Self {
        provision.python = provision.python.map(|python| mountable(&python));
        provision.memory_bytes = provision.memory_bytes.or_else(default_memory);
        Self { jail, provision }
    }

    /// The jail of one shell, without its arguments and descriptors.
    pub(super) fn spec(&self, workspace: &Workspace, socket: &Path, wall: Duration) -> Spec {
        let renames = self.jail.can_rename();
        let inside = if renames { PathBuf::from(JAILED_PATH) } else { workspace.path().to_owned() };
        let socket_inside = if renames { PathBuf::from(SOCKET_PATH) } else { socket.to_owned() };
        let mut path: Vec<PathBuf> = Vec::new();
        path.extend(self.provision.python.as_deref().and_then(Path::parent).map(Path::to_owned));
        path.extend(self.provision.path.iter().cloned());
        path.extend(["/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from));
        // Last: its other tools may be of another version than the toolkit's.
        path.extend(self.provision.python.as_deref().and_then(bundled_tools));
        let path: Vec<_> = path.iter().map(|p| p.to_string_lossy()).collect();
        let limits = Limits {
            wall,
            memory_bytes: self.provision.memory_bytes,
            processes: MAX_PROCESSES,
            file_bytes: MAX_FILE_BYTES,
            tmp_bytes: MAX_TMP_BYTES,
            ..Limits::default()
        };
        let mut spec = Spec::new("bash")
            .label("agent shell")
            .with_system()
            .cwd(&inside)
            .env("PATH", path.join(":"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("WARPWRIGHT_JUDGE_SOCKET", socket_inside.to_string_lossy())
            .limits(limits)
            .mount(Mount::new(workspace.path(), &inside, Access::ReadWrite))
            .mount(Mount::new(socket, socket_inside, Access::ReadWrite));
        for name in READ_ONLY {
            let (outside, inside) = (workspace.path().join(name), inside.join(name));
            spec = spec.mount(Mount::new(outside, inside, Access::ReadOnly));
        }
        if let Some(python) = &self.provision.python {
            spec = spec.with_python(python);
        }
        for folder in &self.provision.folders {
            spec = spec.read_only(folder);
        }
        spec
    }
}

/// An interpreter's path without `..`, which a mount's name may not contain. A virtual environment
/// is identified by the link to its interpreter, so only the folder is resolved.
pub(crate) fn mountable(python: &Path) -> PathBuf {
    let folder = python.parent().and_then(|folder| fs_err::canonicalize(folder).ok());
    match (folder, python.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => python.to_owned(),
    }
}

/// Folder with `cuobjdump` in the interpreter's environment: Triton, which torch installs, includes
/// it, and the compilers from PyPI do not.
fn bundled_tools(python: &Path) -> Option<PathBuf> {
    let libraries = fs_err::read_dir(python.parent()?.parent()?.join("lib")).ok()?;
    let folder = "site-packages/triton/backends/nvidia/bin";
    let mut found = libraries.flatten().map(|library| library.path().join(folder));
    found.find(|folder| folder.join("cuobjdump").is_file())
}

/// Half of the machine's memory, at most [`MAX_MEMORY_BYTES`].
fn default_memory() -> Option<u64> {
    let text = fs_err::read_to_string("/proc/meminfo").ok()?;
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = total.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some((kib * 1024 / 2).min(MAX_MEMORY_BYTES))
}
