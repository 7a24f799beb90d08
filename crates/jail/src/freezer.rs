//! Stopping everything in a jail from outside, and letting it go on.
//!
//! A control group's freezer is used where the jail has one: what is frozen there stays so whatever
//! signals arrive. Elsewhere every process gets SIGSTOP, and [`Freezer::thaw`] looks whether one of
//! them ran meanwhile: a timer or a socket can be told to send SIGCONT, which no filter of system
//! calls can see.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::sys;
use crate::tree;

/// Longest that stopping may take. A thread that the kernel is busy for (a page that is read, memory
/// that is pinned) stops when that is done.
const PATIENCE: Duration = Duration::from_secs(10);

/// What stops the processes of one jail, as its supervisor found it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Mechanism {
    /// The folder of a version 2 group.
    Unified(PathBuf),
    /// The folder of a version 1 group of the freezer.
    Freezer(PathBuf),
    /// Signals to everything below this process.
    Signals { supervisor: i32 },
}

impl Mechanism {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Unified(_) => "cgroup v2",
            Self::Freezer(_) => "cgroup v1",
            Self::Signals { .. } => "SIGSTOP, verified",
        }
    }

    /// Lets processes of a group go on, so that they can be killed; without a word where there is none.
    pub(crate) fn release(&self) {
        drop(match self {
            Self::Unified(folder) => fs_err::write(folder.join("cgroup.freeze"), "0"),
            Self::Freezer(folder) => fs_err::write(folder.join("freezer.state"), "THAWED"),
            Self::Signals { .. } => Ok(()),
        });
    }
}

/// Why freezing a jail failed.
#[derive(Debug, Error)]
pub enum FreezeError {
    /// The system refused.
    #[error("failed to {action}: {cause}")]
    System {
        /// What was attempted.
        action: &'static str,
        /// What the system said.
        cause: std::io::Error,
    },
    /// A process did not stop in time.
    #[error("failed to freeze the jail: a process did not stop within {} s", PATIENCE.as_secs())]
    StillRunning,
    /// A process ran between [`Freezer::freeze`] and [`Freezer::thaw`].
    #[error("failed to keep the jail frozen: a process ran")]
    RanWhileFrozen,
}

/// Stops and continues all processes of one jail; see [`Child::freezer`](crate::Child::freezer).
#[derive(Debug)]
pub struct Freezer {
    mechanism: Mechanism,
    /// Threads that were stopped, with how often each had been switched away from.
    stopped: BTreeMap<i32, Switches>,
    frozen: bool,
}

/// How often a thread has given up a processor, by itself or not.
type Switches = (u64, u64);

impl Freezer {
    pub(crate) fn new(mechanism: Mechanism) -> Self {
        Self { mechanism, stopped: BTreeMap::new(), frozen: false }
    }

    /// What stops them: `cgroup v2`, `cgroup v1` or `SIGSTOP, verified`.
    pub fn mechanism(&self) -> &'static str {
        self.mechanism.name()
    }

    /// Returns when no process of the jail can execute an instruction.
    pub fn freeze(&mut self) -> Result<(), FreezeError> {
        if self.frozen {
            return Ok(());
        }
        match &self.mechanism {
            Mechanism::Unified(folder) => {
                write(&folder.join("cgroup.freeze"), "1")?;
                await_text(&folder.join("cgroup.events"), "frozen 1")?;
            }
            Mechanism::Freezer(folder) => {
                write(&folder.join("freezer.state"), "FROZEN")?;
                await_text(&folder.join("freezer.state"), "FROZEN")?;
            }
            Mechanism::Signals { supervisor } => self.stopped = stop_all(*supervisor)?,
        }
        self.frozen = true;
        Ok(())
    }

    /// Continues all processes.
    ///
    /// # Errors
    /// [`FreezeError::RanWhileFrozen`] if one ran while frozen; the processes continue all the same.
    pub fn thaw(&mut self) -> Result<(), FreezeError> {
        if !self.frozen {
            return Ok(());
        }
        self.frozen = false;
        match &self.mechanism {
            Mechanism::Unified(folder) => write(&folder.join("cgroup.freeze"), "0"),
            Mechanism::Freezer(folder) => write(&folder.join("freezer.state"), "THAWED"),
            Mechanism::Signals { supervisor } => {
                let now = threads_below(*supervisor);
                for pid in tree::descendants(*supervisor) {
                    // It may have been killed.
                    drop(sys::kill(pid, libc::SIGCONT));
                }
                // Threads that are gone were killed; none may be new, or have run.
                let same = |(thread, seen): (&i32, &Seen)| {
                    seen.stopped && self.stopped.get(thread) == Some(&seen.switches)
                };
                if now.iter().all(same) { Ok(()) } else { Err(FreezeError::RanWhileFrozen) }
            }
        }
    }
}

fn write(path: &Path, text: &str) -> Result<(), FreezeError> {
    // `std`, not `fs_err`: this is inside measured windows, and the path is one of ours.
    #[expect(
        clippy::disallowed_methods,
        reason = "inside measured windows; errors name the action"
    )]
    std::fs::write(path, text)
        .map_err(|cause| FreezeError::System { action: "write to a control group", cause })
}

/// Waits, awake, until a file of a control group says so.
fn await_text(path: &Path, wanted: &str) -> Result<(), FreezeError> {
    let end = Instant::now() + PATIENCE;
    loop {
        #[expect(clippy::disallowed_methods, reason = "inside measured windows")]
        let text = std::fs::read_to_string(path)
            .map_err(|cause| FreezeError::System { action: "read a control group", cause })?;
        if text.lines().any(|line| line.trim() == wanted) {
            return Ok(());
        }
        if Instant::now() >= end {
            return Err(FreezeError::StillRunning);
        }
        std::hint::spin_loop();
    }
}

/// A thread as `/proc` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    /// Stopped, or gone.
    stopped: bool,
    switches: Switches,
}

/// Stops everything below a process. Two looks in a row that find the same threads, all stopped, leave
/// nobody who could have started another.
fn stop_all(supervisor: i32) -> Result<BTreeMap<i32, Switches>, FreezeError> {
    let end = Instant::now() + PATIENCE;
    let mut before: Option<BTreeMap<i32, Seen>> = None;
    loop {
        let below = tree::descendants(supervisor);
        if before.is_none() || below.iter().any(|pid| !is_stopped(*pid)) {
            for pid in &below {
                // It may have ended by itself.
                drop(sys::kill(*pid, libc::SIGSTOP));
            }
        }
        let now = threads_below(supervisor);
        let all = now.values().all(|seen| seen.stopped);
        if all && before.as_ref() == Some(&now) {
            return Ok(now.into_iter().map(|(thread, seen)| (thread, seen.switches)).collect());
        }
        before = Some(now);
        if Instant::now() >= end {
            return Err(FreezeError::StillRunning);
        }
    }
}

fn is_stopped(pid: i32) -> bool {
    status(&PathBuf::from(format!("/proc/{pid}/status"))).is_none_or(|seen| seen.stopped)
}

/// All threads of the processes below one.
fn threads_below(supervisor: i32) -> BTreeMap<i32, Seen> {
    let mut threads = BTreeMap::new();
    for pid in tree::descendants(supervisor) {
        let Ok(entries) = fs_err::read_dir(format!("/proc/{pid}/task")) else { continue };
        for entry in entries.flatten() {
            let thread = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if let (Some(thread), Some(seen)) = (thread, status(&entry.path().join("status"))) {
                threads.insert(thread, seen);
            }
        }
    }
    threads
}

/// One thread's state; `None` when it is gone.
fn status(path: &Path) -> Option<Seen> {
    parse_status(&fs_err::read_to_string(path).ok()?)
}

fn parse_status(text: &str) -> Option<Seen> {
    // The name comes first and may hold anything but a line's end, which the kernel escapes.
    let field = |name: &str| text.lines().skip(1).find_map(|line| line.strip_prefix(name));
    let number = |name: &str| field(name)?.trim().parse::<u64>().ok();
    let state = field("State:")?.trim().chars().next()?;
    Some(Seen {
        // Stopped, traced, a zombie, dead: none of them executes anything.
        stopped: matches!(state, 'T' | 't' | 'Z' | 'X'),
        switches: (number("voluntary_ctxt_switches:")?, number("nonvoluntary_ctxt_switches:")?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_name_cannot_forge_the_process_state() {
        let text = "Name:\tState:\tT\nUmask:\t0022\nState:\tR (running)\n\
                    voluntary_ctxt_switches:\t3\nnonvoluntary_ctxt_switches:\t4\n";
        assert_eq!(parse_status(text), Some(Seen { stopped: false, switches: (3, 4) }));
        assert_eq!(parse_status("Name:\tx\nState:\tT (stopped)\n"), None);
    }
}
