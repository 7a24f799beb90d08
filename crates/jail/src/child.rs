//! Starting a jail, waiting for it, ending it.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::capture::{Captured, Drain};
use crate::error::JailError;
use crate::freezer::{Freezer, Mechanism};
use crate::plan::{Cause, Report, SUPERVISE};
use crate::prepare::{Means, plan};
use crate::scratch::Scratch;
use crate::spec::{Output, Spec, Stdin};
use crate::supervisor::{GRACE, Process, Supervisor};
use crate::sys;

/// How long output is waited for once everything in the jail is dead.
const DRAIN: Duration = Duration::from_secs(1);

/// How the program ended, or why the jail killed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It exited with this code.
    Exited(i32),
    /// This signal ended it.
    Signalled(i32),
    /// It ran longer than [`Limits::wall`](crate::Limits::wall).
    DeadlineExceeded,
    /// It used more than [`Limits::cpu`](crate::Limits::cpu).
    CpuExceeded,
    /// It used more than [`Limits::memory_bytes`](crate::Limits::memory_bytes).
    OutOfMemory,
    /// The caller killed it.
    Killed,
}

impl std::fmt::Display for Outcome {
    /// For people, with the program as the subject.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "it exited with code {code}"),
            Self::Signalled(signal) => write!(f, "signal {signal} ended it"),
            Self::DeadlineExceeded => f.write_str("it exceeded its wall-clock limit"),
            Self::CpuExceeded => f.write_str("it exceeded its processor time limit"),
            Self::OutOfMemory => f.write_str("it exceeded its memory limit"),
            Self::Killed => f.write_str("the caller killed it"),
        }
    }
}

impl Outcome {
    /// Whether the program exited with code 0.
    pub fn is_success(self) -> bool {
        self == Self::Exited(0)
    }
}

/// The result of a jail that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// How it ended.
    pub outcome: Outcome,
    /// Standard output.
    pub stdout: Captured,
    /// Standard error.
    pub stderr: Captured,
    /// From the program's start to its end.
    pub elapsed: Duration,
    /// Most anonymous and shared memory seen at once: sampled, so short peaks of trees are missed; a
    /// single process's peak is not.
    pub peak_memory_bytes: Option<u64>,
    /// CPU time of all processes.
    pub cpu: Option<Duration>,
    /// The mechanism that bounded memory.
    pub memory_bound: String,
    /// The mechanism that bounded the number of processes.
    pub processes_bound: String,
    /// The mechanism that could have frozen it; see [`Child::freezer`].
    pub freezer: String,
    /// Restrictions that were weaker than requested, one sentence each; usually empty.
    pub notes: Vec<String>,
}

/// A program that runs in a jail. Dropping it kills everything in the jail.
#[derive(Debug)]
pub struct Child {
    label: String,
    supervisor: Supervisor,
    control: UnixStream,
    pending: Vec<u8>,
    stdout: Drain,
    stderr: Drain,
    pid: u32,
    memory_bound: String,
    processes_bound: String,
    freezer: Option<Mechanism>,
    notes: Vec<String>,
    last_moment: Instant,
    ended: Option<(Outcome, Duration, Option<u64>, Option<Duration>)>,
}

/// What a supervisor is started with.
pub(crate) struct Outfit<'a> {
    pub(crate) plan: &'a OwnedFd,
    pub(crate) control: &'a OwnedFd,
    pub(crate) fds: &'a [OwnedFd],
    pub(crate) stdin: &'a OwnedFd,
    pub(crate) stdout: &'a OwnedFd,
    pub(crate) stderr: &'a OwnedFd,
}

impl Child {
    /// Starts the helper, which starts the program.
    pub(crate) fn start(means: &Means, spec: Spec) -> Result<Self, JailError> {
        Self::begin(means, spec, |outfit| {
            let Outfit { plan, control, fds, stdin, stdout, stderr } = outfit;
            #[expect(clippy::disallowed_types, reason = "this crate starts the processes")]
            let mut command = std::process::Command::new(&means.init);
            command
                .args([SUPERVISE, &plan.as_raw_fd().to_string()])
                .env_clear()
                .current_dir("/")
                .stdin(stdin.try_clone()?)
                .stdout(stdout.try_clone()?)
                .stderr(stderr.try_clone()?);
            let keep = fds.iter().chain([plan, control]).map(AsRawFd::as_raw_fd).collect();
            sys::keep_open(&mut command, keep);
            Ok(Ok(Process::Own(command.spawn()?)))
        })
    }

    /// Plans what `spec` says, has `launch` start the supervisor, and waits until the program runs.
    pub(crate) fn begin(
        means: &Means,
        mut spec: Spec,
        launch: impl FnOnce(Outfit<'_>) -> io::Result<Result<Process, JailError>>,
    ) -> Result<Self, JailError> {
        let label = spec.label.clone();
        let failed =
            |cause| JailError::Start { label: label.clone(), program: means.init.clone(), cause };
        let (control, theirs) = UnixStream::pair().map_err(failed)?;
        let theirs = above_standard(theirs.into()).map_err(failed)?;
        let fds: Vec<(OwnedFd, i32)> = std::mem::take(&mut spec.fds)
            .into_iter()
            .map(|(fd, target)| Ok((above_standard(fd)?, target)))
            .collect::<io::Result<_>>()
            .map_err(failed)?;
        let numbers: Vec<(RawFd, i32)> =
            fds.iter().map(|(fd, target)| (fd.as_raw_fd(), *target)).collect();
        let stdin: OwnedFd = match std::mem::take(&mut spec.stdin) {
            Stdin::Null => fs_err::File::open("/dev/null").map_err(failed)?.into_parts().0.into(),
            Stdin::Bytes(bytes) => sys::memory_file(&bytes).map_err(failed)?,
            Stdin::Descriptor(fd) => fd,
        };
        let limit = spec.limits.output_bytes;
        let (stdout, stderr, drains) = match std::mem::take(&mut spec.output) {
            Output::Captured => {
                let (stdout_read, stdout) = sys::pipe().map_err(failed)?;
                let (stderr_read, stderr) = sys::pipe().map_err(failed)?;
                let drain = |end| Drain::start(File::from(end), limit);
                (stdout, stderr, (drain(stdout_read), drain(stderr_read)))
            }
            Output::Descriptor(fd) => {
                (fd.try_clone().map_err(failed)?, fd, (Drain::default(), Drain::default()))
            }
        };
        let wall = spec.limits.wall;
        let plan = plan(means, spec, numbers, theirs.as_raw_fd())?;
        let scratch = plan.scratch.clone().map(Scratch);
        let text = serde_json::to_vec(&plan).map_err(|error| JailError::Spec {
            label: label.clone(),
            reason: format!("a path or argument is not UTF-8: {error}"),
        })?;
        let plan_file = above_standard(sys::memory_file(&text).map_err(failed)?).map_err(failed)?;
        let fds: Vec<OwnedFd> = fds.into_iter().map(|(fd, _)| fd).collect();
        let outfit = Outfit {
            plan: &plan_file,
            control: &theirs,
            fds: &fds,
            stdin: &stdin,
            stdout: &stdout,
            stderr: &stderr,
        };
        let process = launch(outfit).map_err(failed)??;
        // Only now: the child holds its copies.
        drop((theirs, fds, plan_file, stdin, stdout, stderr));
        let mut child = Self {
            label,
            supervisor: Supervisor::new(process, scratch),
            control,
            pending: Vec::new(),
            stdout: drains.0,
            stderr: drains.1,
            pid: 0,
            memory_bound: String::new(),
            processes_bound: String::new(),
            freezer: None,
            notes: Vec::new(),
            last_moment: Instant::now() + wall + GRACE,
            ended: None,
        };
        child.await_start()?;
        Ok(child)
    }

    fn await_start(&mut self) -> Result<(), JailError> {
        match self.next_report(self.last_moment)? {
            Some(Report::Started { pid, in_force }) => {
                self.pid = pid as u32;
                self.memory_bound = in_force.memory;
                self.processes_bound = in_force.processes;
                self.freezer = in_force.freezer;
                self.notes = in_force.notes;
                Ok(())
            }
            // The deadline can pass while mounts are made.
            Some(Report::Ended { cause, elapsed, peak_memory_bytes, cpu }) => {
                self.ended = Some((outcome(cause), elapsed, peak_memory_bytes, cpu));
                Ok(())
            }
            Some(Report::Failed { step, message }) => Err(self.setup_failed(step, message)),
            None => Err(self.lost("the helper did not report the start in time")),
        }
    }

    /// Id, as seen by the host, of the jail's first process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// A handle that freezes and thaws everything in the jail. `None` once it has ended.
    pub fn freezer(&self) -> Option<Freezer> {
        self.freezer.clone().map(Freezer::new)
    }

    /// Whether the program has ended. Does not block.
    pub fn try_wait(&mut self) -> Result<bool, JailError> {
        self.wait_timeout(Duration::ZERO)
    }

    /// How it ended, once [`Child::try_wait`] or [`Child::wait_timeout`] has seen the end.
    pub fn outcome(&self) -> Option<Outcome> {
        self.ended.map(|(outcome, ..)| outcome)
    }

    /// Waits at most `timeout` for the end; true if the program has ended. [`Child::wait`] then returns at once.
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<bool, JailError> {
        let until = Instant::now() + timeout;
        while self.ended.is_none() {
            match self.next_report(until.min(self.last_moment))? {
                Some(Report::Ended { cause, elapsed, peak_memory_bytes, cpu }) => {
                    self.ended = Some((outcome(cause), elapsed, peak_memory_bytes, cpu));
                }
                Some(Report::Failed { step, message }) => {
                    return Err(self.setup_failed(step, message));
                }
                Some(Report::Started { .. }) => {}
                None if Instant::now() >= self.last_moment => {
                    self.supervisor.kill();
                    return Err(
                        self.lost("the helper did not enforce the deadline; the caller killed it")
                    );
                }
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Waits for the end. The deadline of the specification bounds it.
    pub fn wait(mut self) -> Result<Finished, JailError> {
        while !self.wait_timeout(Duration::from_hours(1))? {}
        let Some((outcome, elapsed, peak_memory_bytes, cpu)) = self.ended else {
            return Err(self.lost("the helper exited without reporting the program's end"));
        };
        Ok(Finished {
            outcome,
            stdout: self.stdout.finish(DRAIN),
            stderr: self.stderr.finish(DRAIN),
            elapsed,
            peak_memory_bytes,
            cpu,
            memory_bound: std::mem::take(&mut self.memory_bound),
            processes_bound: std::mem::take(&mut self.processes_bound),
            freezer: self.freezer.take().map_or("nothing", |how| how.name()).to_owned(),
            notes: std::mem::take(&mut self.notes),
        })
    }

    /// Kills everything in the jail. [`Child::wait`] then says [`Outcome::Killed`], unless the end had come.
    pub fn kill(&mut self) {
        drop(self.control.write_all(b"k"));
    }

    /// A handle that kills the jail from another thread.
    pub fn killer(&self) -> std::io::Result<Killer> {
        Ok(Killer { control: self.control.try_clone()? })
    }

    /// Standard output and standard error until now.
    pub fn output_so_far(&self) -> (Captured, Captured) {
        (self.stdout.so_far(), self.stderr.so_far())
    }

    /// The next report; `None` when there is none until `until`.
    fn next_report(&mut self, until: Instant) -> Result<Option<Report>, JailError> {
        loop {
            if let Some(end) = self.pending.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                return match serde_json::from_slice(&line) {
                    Ok(report) => Ok(Some(report)),
                    Err(error) => {
                        Err(self.lost(&format!("it wrote something unexpected: {error}")))
                    }
                };
            }
            let wait = until.saturating_duration_since(Instant::now());
            let wait_ms = if wait.is_zero() { 0 } else { wait.as_millis().min(60_000) as i32 + 1 };
            let ready = sys::poll_readable(&[self.control.as_fd()], wait_ms)
                .map_err(|error| self.lost(&error.to_string()))?;
            if ready.first() == Some(&true) {
                let mut buffer = [0; 4096];
                match self.control.read(&mut buffer) {
                    Ok(0) => {
                        let status = self.supervisor.wait();
                        return Err(self.lost(&format!(
                            "its supervisor ended without a report ({status}); is the helper program of another build?"
                        )));
                    }
                    Ok(count) => self.pending.extend_from_slice(&buffer[..count]),
                    Err(error) => return Err(self.lost(&error.to_string())),
                }
            } else if Instant::now() >= until {
                return Ok(None);
            }
        }
    }

    fn setup_failed(&mut self, step: String, message: String) -> JailError {
        self.ended = Some((Outcome::Killed, Duration::ZERO, None, None));
        // Bubblewrap says on stderr what went wrong.
        let said = self.stderr.finish(DRAIN).text();
        let message =
            if said.trim().is_empty() { message } else { format!("{message}: {}", said.trim()) };
        JailError::Setup { label: self.label.clone(), step, message }
    }

    fn lost(&self, reason: &str) -> JailError {
        JailError::Supervisor { label: self.label.clone(), reason: reason.into() }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // The supervisor's own drop then waits for it.
        if self.ended.is_none() {
            self.kill();
        }
    }
}

/// Kills a jail from any thread; does nothing once the jail has ended.
#[derive(Debug)]
pub struct Killer {
    control: UnixStream,
}

impl Killer {
    /// Kills everything in the jail.
    pub fn kill(&self) {
        drop((&self.control).write_all(b"k"));
    }
}

fn outcome(cause: Cause) -> Outcome {
    match cause {
        Cause::Exited(code) => Outcome::Exited(code),
        Cause::Signalled(signal) => Outcome::Signalled(signal),
        Cause::Deadline => Outcome::DeadlineExceeded,
        Cause::Cpu => Outcome::CpuExceeded,
        Cause::Memory => Outcome::OutOfMemory,
        Cause::Killed => Outcome::Killed,
    }
}

/// The same file under a number that standard streams do not take.
fn above_standard(fd: OwnedFd) -> std::io::Result<OwnedFd> {
    if fd.as_raw_fd() > 2 {
        Ok(fd)
    } else {
        sys::duplicate_from(fd.as_raw_fd(), 3).and_then(sys::adopt)
    }
}
