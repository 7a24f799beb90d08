//! Watching a jail until its program ends, breaks a bound, or the caller wants it gone.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::plan::{Cause, InForce, Inside, Plan, Report};
use crate::sys;
use crate::tree::{self, Inherited};

use super::cgroup::Group;
use super::failure::{Failure, Step as _};

/// First look at memory and CPU time: short programs have a peak too. The pauses then double.
const FIRST_LOOK: Duration = Duration::from_millis(5);
/// Longest pause while the kernel keeps the memory bound, or there is none.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// Longest pause while nobody else keeps it.
const WATCHFUL_PAUSE: Duration = Duration::from_millis(40);
/// The pause then, once memory is past half its bound.
const SHORT_PAUSE: Duration = Duration::from_millis(10);

/// A started jail, before or while its program runs.
pub(super) struct Running {
    /// First process, as the host sees it.
    pub(super) pid: i32,
    /// Messages from inside.
    pub(super) status: OwnedFd,
    /// Ends when the program has been executed.
    pub(super) executed: OwnedFd,
    pub(super) group: Group,
    pub(super) in_force: InForce,
    pub(super) inherited: Inherited,
}

pub(super) struct Watch<'a> {
    plan: &'a Plan,
    running: &'a Running,
    control: BorrowedFd<'a>,
    born: Instant,
    started: Option<Instant>,
    messages: Messages,
    notes: Vec<String>,
    peak_memory_bytes: u64,
    cpu: Option<Duration>,
    /// Trees whose owner was changed, with the owner to restore.
    pub(super) owned: Vec<(PathBuf, u32, u32)>,
}

impl<'a> Watch<'a> {
    pub(super) fn new(plan: &'a Plan, running: &'a Running, control: BorrowedFd<'a>) -> Self {
        Self {
            plan,
            running,
            control,
            born: Instant::now(),
            started: None,
            messages: Messages::default(),
            notes: Vec::new(),
            peak_memory_bytes: 0,
            cpu: None,
            owned: Vec::new(),
        }
    }

    /// Returns the report of the end; the caller then ends what is left. `tell` gets the start.
    pub(super) fn until_the_end(&mut self, tell: &dyn Fn(&Report)) -> Result<Report, Failure> {
        let mut pause = FIRST_LOOK;
        let mut next_look = self.born + pause;
        loop {
            let deadline = self.started.unwrap_or(self.born) + self.plan.limits.wall;
            let now = Instant::now();
            if now >= deadline {
                return Ok(self.end(Cause::Deadline));
            }
            let wait = deadline.min(next_look).saturating_duration_since(now);
            // Rounded up, so that the loop does not spin through the last millisecond.
            let wait_ms = wait.as_millis().min(60_000) as i32 + 1;
            let mut fds = vec![self.control, self.running.status.as_fd()];
            if self.started.is_none() {
                fds.push(self.running.executed.as_fd());
            }
            let ready = sys::poll_readable(&fds, wait_ms).step("watch the jail")?;
            let executed = ready.get(2).copied().unwrap_or(false);
            if ready[0] {
                // A byte means kill, and the end of the stream that the caller is dead.
                return Ok(self.end(Cause::Killed));
            }
            if (ready[1] || executed)
                && let Some(cause) = self.listen(executed, tell)?
            {
                return Ok(self.end(cause));
            }
            if Instant::now() >= next_look {
                self.look();
                if let Some(cause) = self.broken_bound() {
                    return Ok(self.end(cause));
                }
                pause = (pause * 2).min(self.longest_pause());
                next_look = Instant::now() + pause;
            }
        }
    }

    /// Takes in what came from inside; the cause of the end, if it has come.
    fn listen(&mut self, executed: bool, tell: &dyn Fn(&Report)) -> Result<Option<Cause>, Failure> {
        let open = self.messages.read(&self.running.status).step("listen to the jail")?;
        let mut ended = None;
        for message in self.messages.take() {
            match message {
                Inside::Failed { step, message } => return Err(Failure { step, message }),
                Inside::Note(note) => self.notes.push(note),
                Inside::Owned { path, uid, gid } => self.owned.push((path, uid, gid)),
                Inside::Exited(code) => ended = Some(Cause::Exited(code)),
                Inside::Signalled(signal) => ended = Some(Cause::Signalled(signal)),
            }
        }
        // The program has ended before the pipe told of its start: it did start.
        if self.started.is_none() && (executed || ended.is_some()) {
            if ended.is_none() && !open {
                return Err(Failure::said("start the first process", "it ended without a word"));
            }
            self.started = Some(Instant::now());
            let mut in_force = self.running.in_force.clone();
            in_force.notes.append(&mut self.notes);
            tell(&Report::Started { pid: self.running.pid, in_force });
        }
        if ended.is_none() && !open {
            if self.started.is_none() {
                return Err(Failure::said("start the first process", "it ended without a word"));
            }
            // Killed from outside, or for memory.
            ended = Some(Cause::Signalled(libc::SIGKILL));
        }
        let Some(cause) = ended else { return Ok(None) };
        self.look();
        let killed = matches!(cause, Cause::Signalled(libc::SIGKILL | libc::SIGXCPU));
        Ok(Some(match self.broken_bound() {
            Some(Cause::Memory) => Cause::Memory,
            // RLIMIT_CPU may be quicker than the next look.
            Some(Cause::Cpu) if killed => Cause::Cpu,
            _ => cause,
        }))
    }

    fn longest_pause(&self) -> Duration {
        match self.plan.limits.memory_bytes {
            Some(bound) if self.running.group.bounds_memory().is_none() => {
                if self.peak_memory_bytes > bound / 2 { SHORT_PAUSE } else { WATCHFUL_PAUSE }
            }
            _ => LONGEST_PAUSE,
        }
    }

    /// Measures memory and CPU time.
    fn look(&mut self) {
        let group = &self.running.group;
        let (mut memory, mut time) = (group.memory_bytes(), group.cpu_time());
        if memory.is_none() || time.is_none() {
            let running = self.running;
            let usage = tree::usage(std::process::id() as i32, running.pid, &running.inherited);
            memory = memory.or(Some(usage.memory_bytes));
            time = time.or(Some(usage.cpu));
        }
        self.peak_memory_bytes = self.peak_memory_bytes.max(memory.unwrap_or(0));
        self.cpu = time.max(self.cpu);
    }

    /// A bound that the jail has broken, as far as seen.
    fn broken_bound(&self) -> Option<Cause> {
        let limits = &self.plan.limits;
        let group = &self.running.group;
        let too_large = || limits.memory_bytes.is_some_and(|bound| self.peak_memory_bytes > bound);
        if group.out_of_memory() || (group.bounds_memory().is_none() && too_large()) {
            return Some(Cause::Memory);
        }
        (limits.cpu.is_some() && self.cpu > limits.cpu).then_some(Cause::Cpu)
    }

    fn end(&mut self, cause: Cause) -> Report {
        Report::Ended {
            cause,
            elapsed: self.started.unwrap_or(self.born).elapsed(),
            peak_memory_bytes: Some(self.peak_memory_bytes),
            cpu: self.cpu,
        }
    }
}

/// Splits the status pipe into messages.
#[derive(Default)]
struct Messages {
    pending: Vec<u8>,
}

impl Messages {
    /// Reads what is there; false at the end.
    fn read(&mut self, pipe: &OwnedFd) -> io::Result<bool> {
        let mut buffer = [0; 4096];
        while sys::poll_readable(&[pipe.as_fd()], 0)?.first() == Some(&true) {
            let count = File::from(pipe.try_clone()?).read(&mut buffer)?;
            if count == 0 {
                return Ok(false);
            }
            self.pending.extend_from_slice(&buffer[..count]);
        }
        Ok(true)
    }

    fn take(&mut self) -> Vec<Inside> {
        let mut messages = Vec::new();
        while let Some(end) = self.pending.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.pending.drain(..=end).collect();
            messages.extend(serde_json::from_slice(&line).ok());
        }
        messages
    }
}
