//! One running shell: its jail, the order socket, and how commands start, are awaited and end.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt};
use warpwright_jail::{Child, Outcome, Output, Process};

use crate::service;
use crate::tools::shell::disk::DiskWatch;
use crate::tools::shell::job::{Job, JobState, MAX_RUNNING};
use crate::tools::shell::provision::{Shell, ShellError};
use crate::tools::shell::pump::{Pump, Report, Sources, unblocked};
use crate::workspace::Workspace;

/// Program of the jail, and the shell that it starts.
const KEEPER: &str = include_str!("keeper.sh");
const DRIVER: &str = include_str!("driver.sh");
/// Descriptors inside: orders, reports, and the first one for background commands.
const ORDERS: i32 = 3;
const REPORTS: i32 = 4;
const FIRST_SLOT: i32 = 20;
/// Interval of checking for interrupts and for the end of the jail.
const POLL: Duration = Duration::from_millis(50);
/// Timeout for a shell to start.
const START: Duration = Duration::from_secs(30);
/// Timeout for a shell to accept an order.
const ORDER: Duration = Duration::from_secs(2);
/// Timeout for a shell to return after its command is killed.
const RETURN: Duration = Duration::from_secs(3);
/// Pause between two attempts to kill the command.
const RETURN_STEP: Duration = Duration::from_millis(100);

/// How the wait for a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The command ended; the shell waits for the next.
    Returned(i32),
    /// The command was killed at its timeout; the shell waits for the next.
    Stopped,
    /// The shell itself ended with this code, by `exit` or a signal.
    Left(i32),
    /// The shell did not return after its command was killed at the timeout.
    Stuck,
    /// Everything in the jail has ended.
    Dead(Outcome),
    /// The shell was ended for this reason.
    Broken(String),
    /// The user interrupted.
    Interrupted,
}

/// A shell and all its processes. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Live {
    // Dropped first: the others wait for nothing once it is gone.
    child: Child,
    orders: UnixStream,
    keeper: u32,
    /// `None` between the end of one shell and the start of the next.
    driver: Option<Process>,
    pub(crate) pump: Pump,
    pub(crate) listener: Arc<UnixListener>,
    _folder: tempfile::TempDir,
}

impl Live {
    /// Starts a jail with a shell in it. `wall` limits its lifetime.
    pub(crate) fn start(
        shell: &Shell,
        workspace: &Workspace,
        wall: Duration,
    ) -> Result<Self, ShellError> {
        let folder = tempfile::Builder::new().prefix("warpwright-").tempdir();
        let folder = folder.map_err(ShellError::Socket)?;
        let socket = folder.path().join("judge.sock");
        let listener = Arc::new(service::listen(&socket).map_err(ShellError::Socket)?);
        let (orders, their_orders) = UnixStream::pair().map_err(ShellError::Socket)?;
        orders.set_write_timeout(Some(ORDER)).map_err(ShellError::Socket)?;
        let (reports, their_reports) = report_socket().map_err(ShellError::Socket)?;
        let (output, their_output) = pipe().map_err(ShellError::Socket)?;
        let mut spec = shell
            .spec(workspace, &socket, wall)
            .args(keeper())
            .output(Output::Descriptor(their_output))
            .fd(their_orders, ORDERS)
            .fd(their_reports, REPORTS);
        let mut slots = Vec::with_capacity(MAX_RUNNING);
        for slot in 0..MAX_RUNNING as i32 {
            let (read, write) = pipe().map_err(ShellError::Socket)?;
            slots.push(read);
            spec = spec.fd(write, FIRST_SLOT + slot);
        }
        let disk = DiskWatch::start(workspace.path()).map_err(ShellError::Socket)?;
        let sources = Sources { output, reports, slots, listener: Arc::clone(&listener), disk };
        let pump = Pump::start(sources).map_err(ShellError::Socket)?;
        let child = shell.jail.spawn(spec)?;
        let mut live =
            Self { child, orders, keeper: 0, driver: None, pump, listener, _folder: folder };
        live.keeper = live.expect("ready")?;
        live.next_driver()?;
        Ok(live)
    }

    /// The outcome, if everything in the jail has ended.
    pub(crate) fn ended(&mut self) -> Result<Option<Outcome>, ShellError> {
        Ok(self.child.try_wait()?.then(|| self.child.outcome()).flatten())
    }

    /// Whether the shell can accept a command.
    pub(crate) fn is_ready(&self) -> bool {
        self.driver.as_ref().is_some_and(Process::is_alive)
    }

    /// Starts the next shell in the same jail, after the last one ended.
    pub(crate) fn next_driver(&mut self) -> Result<(), ShellError> {
        self.driver = None;
        self.order(&[""])
            .map_err(|_| ShellError::Start("its supervisor does not answer".into()))?;
        let pid = self.expect("hello")?;
        let process = Process::open(self.child.pid(), pid);
        self.driver = Some(process.map_err(|e| ShellError::Start(e.to_string()))?);
        Ok(())
    }

    /// Waits for a report with this text during a start; returns its sender.
    fn expect(&mut self, text: &str) -> Result<u32, ShellError> {
        let until = Instant::now() + START;
        while Instant::now() < until {
            match self.pump.shared.report(POLL) {
                Some(report) if report.text == text => return Ok(report.pid),
                Some(_) => {}
                None => {
                    if let Some(outcome) = self.ended()? {
                        return Err(ShellError::Start(format!(
                            "its process ended at once: {outcome}"
                        )));
                    }
                    if let Some(reason) = self.pump.shared.broken() {
                        return Err(ShellError::Start(reason));
                    }
                }
            }
        }
        Err(ShellError::Start(format!("it did not report `{text}` within {} s", START.as_secs())))
    }

    fn order(&mut self, fields: &[&str]) -> std::io::Result<()> {
        let mut bytes = Vec::new();
        for field in fields {
            bytes.extend_from_slice(field.as_bytes());
            bytes.push(0);
        }
        self.orders.write_all(&bytes)
    }

    /// Runs a command in the foreground until it ends or times out.
    pub(crate) fn run(
        &mut self,
        command: &str,
        timeout: Duration,
        stop: &AtomicBool,
    ) -> Result<End, ShellError> {
        let before: BTreeSet<u32> = self.children();
        let mark = new_mark();
        if self.order(&["run", &mark, "", command]).is_err() {
            return Ok(self.gone());
        }
        if let Some(end) = self.wait(&mark, Instant::now() + timeout, Some(stop))? {
            return Ok(end);
        }
        self.stop_command(&mark, &before)
    }

    /// Starts a command in the background.
    pub(crate) fn start_job(
        &mut self,
        command: &str,
        job: &Arc<Job>,
        stop: &AtomicBool,
    ) -> Result<End, ShellError> {
        let Some(slot) = self.pump.shared.take_slot(job) else {
            return Ok(End::Broken("there is no room for another background command".into()));
        };
        let descriptor = (FIRST_SLOT + slot as i32).to_string();
        if self.order(&["back", &job.mark, &descriptor, command]).is_err() {
            return Ok(self.gone());
        }
        // The wrapper's own report and the shell's may come in either order.
        let until = Instant::now() + START;
        let mut end = None;
        while end.is_none() || job.process.get().is_none() && job.state() == JobState::Running {
            let wanted = format!("job {}", job.mark);
            match self.pump.shared.report(POLL) {
                Some(report) if report.text == wanted => {
                    // One that ended already needs no handle.
                    match Process::open(self.child.pid(), report.pid) {
                        Ok(process) => drop(job.process.set(process)),
                        Err(_) => break,
                    }
                }
                Some(report) => end = end.or(self.understand(&report, &job.mark)),
                None => {
                    if let Some(ended) = self.look(Some(stop))? {
                        return Ok(ended);
                    }
                }
            }
            if Instant::now() > until {
                return Ok(End::Stuck);
            }
        }
        Ok(end.unwrap_or(End::Returned(0)))
    }

    /// Waits for the end of a command; `None` if it has not ended by then.
    fn wait(
        &mut self,
        mark: &str,
        until: Instant,
        stop: Option<&AtomicBool>,
    ) -> Result<Option<End>, ShellError> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let report = self.pump.shared.report(POLL.min(left));
            if let Some(end) = report.and_then(|report| self.understand(&report, mark)) {
                return Ok(Some(end));
            }
            if let Some(end) = self.look(stop)? {
                return Ok(Some(end));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
        }
    }

    /// Interprets a report for the command with this mark. Reports with another mark, or from a
    /// process other than the shell and its keeper, are ignored.
    fn understand(&mut self, report: &Report, mark: &str) -> Option<End> {
        let mut words = report.text.split(' ');
        let verb = words.next();
        if verb == Some("end") && self.driver.as_ref().map(Process::pid) == Some(report.pid) {
            let is_own = words.next() == Some(mark);
            return words.next()?.parse().ok().filter(|_| is_own).map(End::Returned);
        }
        if verb == Some("left") && report.pid == self.keeper {
            self.driver = None;
            return words.next()?.parse().ok().map(End::Left);
        }
        None
    }

    /// Checks the other conditions that end a wait.
    fn look(&mut self, stop: Option<&AtomicBool>) -> Result<Option<End>, ShellError> {
        if stop.is_some_and(|stop| stop.load(Ordering::SeqCst)) {
            self.child.kill();
            return Ok(Some(End::Interrupted));
        }
        if let Some(reason) = self.pump.shared.broken() {
            self.child.kill();
            return Ok(Some(End::Broken(reason)));
        }
        Ok(self.ended()?.map(End::Dead))
    }

    /// Ends a command that timed out: the shell waits for its most recent child. Earlier background
    /// commands continue.
    fn stop_command(&mut self, mark: &str, before: &BTreeSet<u32>) -> Result<End, ShellError> {
        let until = Instant::now() + RETURN;
        while Instant::now() < until {
            let Some(driver) = &self.driver else { break };
            // It leaves the command as soon as what it waits for has ended, or at once.
            driver.notify();
            match self.wait(mark, Instant::now() + RETURN_STEP, None)? {
                Some(End::Returned(_)) => return Ok(End::Stopped),
                Some(other) => return Ok(other),
                None => {}
            }
            let Some(driver) = &self.driver else { break };
            let newest = driver.children().into_iter().find(|c| !before.contains(&c.pid()));
            if let Some(newest) = newest {
                newest.kill_all();
            }
        }
        if let Some(driver) = &self.driver {
            driver.kill_all();
        }
        match self.wait(mark, Instant::now() + ORDER, None)? {
            Some(End::Left(_) | End::Returned(_)) => Ok(End::Stuck),
            Some(other) => Ok(other),
            None => Ok(self.gone()),
        }
    }

    /// Ends everything in the jail, because the shell and its keeper do not answer.
    fn gone(&mut self) -> End {
        self.child.kill();
        End::Dead(Outcome::Killed)
    }

    fn children(&self) -> BTreeSet<u32> {
        let children = self.driver.as_ref().map(Process::children).unwrap_or_default();
        children.iter().map(Process::pid).collect()
    }
}

/// Arguments of the jail's program.
fn keeper() -> [String; 6] {
    let close: Vec<String> =
        (0..MAX_RUNNING as i32).map(|slot| format!("{}>&-", FIRST_SLOT + slot)).collect();
    let driver = DRIVER.replace("__CLOSE__", &close.join(" "));
    ["--norc", "--noprofile", "-c", KEEPER, "keeper", &driver].map(str::to_owned)
}

/// A random mark that the previous command cannot guess.
pub(crate) fn new_mark() -> String {
    format!("{:032x}", rand::random::<u128>())
}

fn pipe() -> std::io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = std::io::pipe()?;
    Ok((unblocked(read.into())?, write.into()))
}

/// A socket pair for packets; our end receives the sender's credentials.
fn report_socket() -> std::io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_passcred(&ours, true)?;
    Ok((ours, theirs))
}
