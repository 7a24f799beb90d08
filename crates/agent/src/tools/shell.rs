//! The episode's shell: one bash in one jail for the whole episode.
//!
//! Inside: the workspace (its read-only part mounted read-only), the interpreter and compilers
//! read-only, a private `/tmp`, no network, no GPU. Shell state lasts until the episode or the
//! shell ends; if the shell ends, the answer names the lost state.
//! `docs/decisions/0006-persistent-shell.md` explains how commands are separated from one another.

mod capped;
mod disk;
mod job;
mod live;
mod pump;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use thiserror::Error;
use warpwright_jail::{Access, Jail, JailError, Limits, Mount, Outcome, Spec};
use warpwright_record::findings::Findings;
use warpwright_record::message::ToolStatus;

use crate::judge::{Judge, JudgeUnavailable};
use crate::service::{self, Answered, Closer, Judged};
use crate::tools::shell::job::Jobs;
use crate::tools::shell::live::{End, Live, new_mark};
use crate::workspace::{JAILED_PATH, READ_ONLY, Workspace};

/// Maximum bytes of one command's output that a policy sees.
pub const MAX_OUTPUT_BYTES: usize = 30_000;
/// Maximum bytes of a command line.
pub const MAX_COMMAND_BYTES: usize = 128 << 10;
/// Maximum size of a file that a command writes: the workspace is on the user's disk.
const MAX_FILE_BYTES: u64 = 1 << 30;
/// Size limit of `/tmp`, home and `/dev/shm`, each.
const MAX_TMP_BYTES: u64 = 1 << 30;
/// Maximum processes and threads in the shell's jail.
const MAX_PROCESSES: u32 = 512;
/// Default memory limit of the shell's jail: half of the machine's memory, at most this.
const MAX_MEMORY_BYTES: u64 = 16 << 30;
/// Lifetime of a shell whose episode has no time budget.
const LONGEST_LIFE: Duration = Duration::from_hours(24 * 7);
/// Maximum time that a shell may outlive its episode.
const GRACE: Duration = Duration::from_mins(1);
/// The path of the judge's socket in a jail that can rename mounts.
const SOCKET_PATH: &str = "/run/warpwright/judge.sock";
/// The state that is lost with a shell.
const LOST: &str = "variables, functions and the working directory are gone";

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
    jail: Jail,
    provision: Provision,
}

/// A command that has ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: ToolStatus,
    pub(crate) text: String,
    pub(crate) judged: Vec<Judged>,
    pub(crate) findings: Vec<Findings>,
    pub(crate) unavailable: Option<JudgeUnavailable>,
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
    fn spec(&self, workspace: &Workspace, socket: &Path, wall: Duration) -> Spec {
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

/// The shell of one episode, started on first use. Dropping it ends all its processes.
pub(crate) struct Session<'a> {
    shell: &'a Shell,
    workspace: &'a Workspace,
    judge: &'a dyn Judge,
    stop: &'a AtomicBool,
    live: Mutex<Option<Live>>,
    pub(crate) jobs: Jobs,
    /// Commands ran in another process, whose shell is gone; reported once.
    forgotten: AtomicBool,
}

/// One command to run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order<'a> {
    pub(crate) command: &'a str,
    pub(crate) timeout: Duration,
    /// End of the episode's time budget.
    pub(crate) until: Option<Instant>,
    pub(crate) background: bool,
    pub(crate) restart: bool,
}

impl<'a> Session<'a> {
    pub(crate) fn new(
        shell: &'a Shell,
        workspace: &'a Workspace,
        judge: &'a dyn Judge,
        stop: &'a AtomicBool,
    ) -> Self {
        let (live, jobs, forgotten) = (Mutex::new(None), Jobs::default(), AtomicBool::new(false));
        Self { shell, workspace, judge, stop, live, jobs, forgotten }
    }

    /// Records a command that a recorded episode ran.
    pub(crate) fn recall(&self, in_background: bool) {
        self.forgotten.store(true, Ordering::SeqCst);
        if in_background {
            self.jobs.recall();
        }
    }

    /// Runs a command and answers its requests to the judge.
    pub(crate) fn run(&self, order: Order<'_>) -> Result<Ran, ShellError> {
        let mut slot = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        let mut notes = Vec::new();
        if order.restart && slot.take().is_some() {
            self.jobs.lose_all();
            notes.push("the shell and everything in it was ended; this is a new one".to_owned());
        }
        if let Some(lost) = self.revive(&mut slot, order.until)? {
            notes.push(lost);
        }
        let Some(live) = slot.as_mut() else {
            return Err(ShellError::Start("no shell is running".into()));
        };
        let ran = if order.background {
            self.background(live, order, &mut notes)
        } else {
            self.foreground(live, order, &mut notes)
        };
        let (mut ran, is_over) = ran?;
        if is_over {
            *slot = None;
            self.jobs.lose_all();
        }
        if self.forgotten.swap(false, Ordering::SeqCst) {
            notes.push(format!(
                "the run was resumed since the last command: this is a new shell; {LOST}, and so \
                 are background commands and /tmp"
            ));
        }
        for note in notes {
            append(&mut ran.text, &note);
        }
        Ok(ran)
    }

    /// Ensures that a shell runs; adds a notice of the lost state if it replaces another.
    fn revive(
        &self,
        slot: &mut Option<Live>,
        until: Option<Instant>,
    ) -> Result<Option<String>, ShellError> {
        let mut lost = None;
        if let Some(live) = slot {
            if let Some(outcome) = live.ended()? {
                lost = Some(format!(
                    "the shell had ended ({}); this is a new one: {LOST}, and so are background \
                     commands and /tmp",
                    words(outcome)
                ));
            } else if let Some(reason) = live.pump.shared.broken() {
                lost = Some(format!(
                    "the shell was ended: {reason}; this is a new one: {LOST}, and so are \
                     background commands and /tmp"
                ));
            } else if live.is_ready() || live.next_driver().is_ok() {
                return Ok(None);
            } else {
                lost = Some(format!(
                    "the shell did not start again; this is a new one: {LOST}, and so are \
                     background commands and /tmp"
                ));
            }
            *slot = None;
            self.jobs.lose_all();
        }
        let wall = until
            .map_or(LONGEST_LIFE, |until| until.saturating_duration_since(Instant::now()) + GRACE);
        *slot = Some(Live::start(self.shell, self.workspace, wall)?);
        Ok(lost)
    }

    /// Runs a command until it ends. Returns true if the shell has ended.
    fn foreground(
        &self,
        live: &mut Live,
        order: Order<'_>,
        notes: &mut Vec<String>,
    ) -> Result<(Ran, bool), ShellError> {
        let closer = Closer::new().map_err(ShellError::Socket)?;
        let listener = std::sync::Arc::clone(&live.listener);
        live.pump.shared.set_asking(true);
        let (ended, answered) = std::thread::scope(|scope| {
            let serving =
                scope.spawn(|| service::serve(&listener, &closer, self.workspace, self.judge));
            let ended = live.run(order.command, order.timeout, self.stop);
            closer.close();
            (ended, serving.join())
        });
        live.pump.shared.set_asking(false);
        let Answered { judged, findings, unavailable } =
            answered.map_err(|_| ShellError::Service)?;
        let ended = ended?;
        let text = live.pump.shared.take_output();
        let (status, is_over) = tell(&ended, order.timeout, &text, notes);
        Ok((Ran { status, text, judged, findings, unavailable }, is_over))
    }

    /// Starts a command in the background.
    fn background(
        &self,
        live: &mut Live,
        order: Order<'_>,
        notes: &mut Vec<String>,
    ) -> Result<(Ran, bool), ShellError> {
        let ran = |status, text| Ran {
            status,
            text,
            judged: Vec::new(),
            findings: Vec::new(),
            unavailable: None,
        };
        let job = match self.jobs.add(order.command, new_mark()) {
            Ok(job) => job,
            Err(refused) => return Ok((ran(ToolStatus::Error, refused), false)),
        };
        let ended = live.start_job(order.command, &job, self.stop)?;
        if ended == End::Returned(0) {
            let id = job.id();
            let text = format!(
                "started {id} in the background; BashOutput shows what it prints, KillBash ends it\n"
            );
            return Ok((ran(ToolStatus::Ok, text), false));
        }
        job.end(job::JobState::Gone);
        let (_, is_over) = tell(&ended, order.timeout, "", notes);
        let text = "failed to start the command in the background\n".to_owned();
        Ok((ran(ToolStatus::Error, text), is_over))
    }
}

/// Status and notes of a command's end; true if the shell and all its processes have ended.
fn tell(end: &End, timeout: Duration, output: &str, notes: &mut Vec<String>) -> (ToolStatus, bool) {
    let seconds = timeout.as_secs_f64();
    let everything = format!(
        "the next command starts a new shell: {LOST}, and so are background commands and /tmp"
    );
    match end {
        End::Returned(0) => return (ToolStatus::Ok, false),
        End::Returned(code) => {
            notes.insert(0, format!("exit code {code}"));
            if output.contains("fork: ") && output.contains("Resource temporarily unavailable") {
                notes.push(format!(
                    "at most {MAX_PROCESSES} processes may run; `restart` ends them all"
                ));
            }
        }
        End::Stopped => {
            notes.insert(0, format!(
                "stopped after {seconds} s; the running command was killed, and the shell continues"
            ));
            return (ToolStatus::TimedOut, false);
        }
        End::Stuck => {
            notes.insert(
                0,
                format!(
                    "stopped after {seconds} s; the shell did not respond and was killed with \
                 all its processes; the next command starts a new one: {LOST}"
                ),
            );
            return (ToolStatus::TimedOut, false);
        }
        End::Left(code) => {
            notes.insert(0, format!("exit code {code}"));
            notes
                .push(format!("the shell itself ended; the next command starts a new one: {LOST}"));
        }
        End::Dead(outcome) => {
            notes.insert(0, format!("{}; {everything}", words(*outcome)));
            return (ToolStatus::Error, true);
        }
        End::Broken(reason) => {
            notes.insert(0, format!("the shell was ended: {reason}; {everything}"));
            return (ToolStatus::Error, true);
        }
        End::Interrupted => {
            notes.insert(0, "interrupted".to_owned());
            return (ToolStatus::Error, true);
        }
    }
    (ToolStatus::Error, false)
}

fn words(outcome: Outcome) -> String {
    match outcome {
        Outcome::Exited(code) => format!("it exited with code {code}"),
        Outcome::Signalled(signal) => format!("killed by signal {signal}"),
        Outcome::DeadlineExceeded => "the time limit of the shell is over".to_owned(),
        Outcome::CpuExceeded => "too much CPU time".to_owned(),
        Outcome::OutOfMemory => "killed: out of memory".to_owned(),
        Outcome::Killed => "killed".to_owned(),
    }
}

fn append(text: &mut String, note: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push('[');
    text.push_str(note);
    text.push_str("]\n");
}

#[cfg(test)]
pub(crate) mod tests;
