//! The supervisor's process, as the caller holds it: its own child, or a fork server's.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use crate::scratch::Scratch;
use crate::sys;

/// How long the supervisor may take beyond the deadline before it is killed itself.
pub(crate) const GRACE: Duration = Duration::from_secs(15);

/// Whose child it is.
#[derive(Debug)]
pub(crate) enum Process {
    /// The caller's.
    Own(std::process::Child),
    /// A fork server's, which reaps it: held by descriptor.
    Forked(OwnedFd),
}

/// The process, with the private folder of its jail if there is one.
#[derive(Debug)]
pub(crate) struct Supervisor {
    process: Process,
    /// Dropped after the process has ended.
    _scratch: Option<Scratch>,
}

impl Supervisor {
    pub(crate) fn new(process: Process, scratch: Option<Scratch>) -> Self {
        Self { process, _scratch: scratch }
    }

    /// Kills it, which takes its jail along.
    pub(crate) fn kill(&mut self) {
        match &mut self.process {
            Process::Own(child) => drop(child.kill()),
            Process::Forked(handle) => {
                drop(sys::pidfd_signal(handle.as_fd(), libc::SIGKILL));
            }
        }
    }

    /// Waits for its end; how it came, as far as that is told.
    pub(crate) fn wait(&mut self) -> String {
        match &mut self.process {
            Process::Own(child) => {
                child.wait().map_or_else(|error| error.to_string(), |status| status.to_string())
            }
            Process::Forked(_) => {
                while !self.has_ended(Duration::from_secs(1)) {}
                "a fork".into()
            }
        }
    }

    /// Whether it has ended, or does before `patience` is over.
    fn has_ended(&mut self, patience: Duration) -> bool {
        match &mut self.process {
            Process::Own(child) => {
                let deadline = Instant::now() + patience;
                while matches!(child.try_wait(), Ok(None)) {
                    if Instant::now() >= deadline {
                        return false;
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
                true
            }
            // A process's descriptor becomes readable when it has ended.
            Process::Forked(handle) => {
                let ready = sys::poll_readable(&[handle.as_fd()], patience.as_millis() as i32);
                !matches!(ready.as_deref(), Ok([false]))
            }
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        // By now it has ended, or has been told to.
        if !self.has_ended(GRACE) {
            self.kill();
            self.wait();
        }
    }
}
