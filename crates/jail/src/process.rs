//! One process of a jail, seen and ended from outside.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use crate::sys;
use crate::tree;

/// How often [`Process::kill_all`] looks for processes that were started while it killed.
const ROUNDS: usize = 20;

/// A process in a jail, held by descriptor: its id cannot come to mean another process meanwhile.
///
/// A [`Child`](crate::Child) ends as a whole. A program that starts others and should outlive them, such
/// as a shell, needs them ended one by one.
#[derive(Debug)]
pub struct Process {
    pid: i32,
    handle: OwnedFd,
}

impl Process {
    /// The process that the host calls `pid`, if it is in the jail whose first process is `jail`
    /// ([`Child::pid`](crate::Child::pid)).
    pub fn open(jail: u32, pid: u32) -> io::Result<Self> {
        let pid = pid as i32;
        let handle = sys::pidfd_open(pid)?;
        // Looked at after the descriptor was taken, so it is about the same process.
        if !tree::is_within(pid, jail as i32) {
            return Err(io::Error::other(format!("process {pid} is not in this jail")));
        }
        Ok(Self { pid, handle })
    }

    /// Its id, as the host sees it.
    pub fn pid(&self) -> u32 {
        self.pid as u32
    }

    /// Whether it still runs.
    pub fn is_alive(&self) -> bool {
        // A process's descriptor becomes readable when it has ended.
        sys::poll_readable(&[self.handle.as_fd()], 0)
            .is_ok_and(|ready| ready.first() == Some(&false))
    }

    /// Sends `SIGUSR1`. One that has ended is no error.
    pub fn notify(&self) {
        drop(sys::pidfd_signal(self.handle.as_fd(), libc::SIGUSR1));
    }

    /// The processes that it started itself, newest first.
    pub fn children(&self) -> Vec<Self> {
        if !self.is_alive() {
            return Vec::new();
        }
        tree::children(self.pid).into_iter().filter_map(|pid| self.hold(pid)).collect()
    }

    /// A process below this one that has not ended.
    fn hold(&self, pid: i32) -> Option<Self> {
        let held = Self { pid, handle: sys::pidfd_open(pid).ok()? };
        (held.is_alive() && tree::is_within(pid, self.pid)).then_some(held)
    }

    /// Kills it and what it started, over any number of generations. What has left it by ending its
    /// parent first (a daemon) is not found: that dies with the jail.
    pub fn kill_all(&self) {
        for _ in 0..ROUNDS {
            // Stopped first, so that nothing is started while the list is made.
            drop(sys::pidfd_signal(self.handle.as_fd(), libc::SIGSTOP));
            let below: Vec<Self> =
                tree::descendants(self.pid).into_iter().filter_map(|pid| self.hold(pid)).collect();
            for signal in [libc::SIGSTOP, libc::SIGKILL] {
                for process in &below {
                    drop(sys::pidfd_signal(process.handle.as_fd(), signal));
                }
            }
            if below.is_empty() {
                break;
            }
        }
        drop(sys::pidfd_signal(self.handle.as_fd(), libc::SIGKILL));
    }
}
