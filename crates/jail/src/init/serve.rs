//! The other end of a fork server: a process with one thread that makes jails of forks of itself.
//!
//! Each request brings a plan and descriptors. A fork of this process becomes the supervisor, as the
//! helper does when it is executed; the program is a fork of a fork of that, and goes on with the caller's
//! function where the helper's would execute. This process itself reads no plan and nothing that a
//! program wrote.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;

use serde::Serialize;

use crate::plan::{FORK_FDS, Forked, Greeting, Plan, VERSION};
use crate::sys::{self, Fork};

use super::{confine, supervisor};

/// What a fork is to do, told to it once it is confined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Program {
    /// As in [`Spec::program`](crate::Spec::program); nothing has looked for it.
    pub program: String,
    /// As in [`Spec::args`](crate::Spec::args).
    pub args: Vec<String>,
    /// As in [`Spec::env`](crate::Spec::env). The process still has the server's environment.
    pub env: BTreeMap<String, String>,
}

impl Program {
    fn of(plan: &Plan) -> Self {
        Self {
            program: plan.program.display().to_string(),
            args: plan.args.clone(),
            env: plan.env.iter().cloned().collect(),
        }
    }
}

/// Serves the [`ForkServer`](crate::ForkServer) that has started this process, until it is gone: its socket
/// is standard input. `go_on` runs in forks only, confined as the specification says; what it returns is the
/// exit code.
///
/// The process must have one thread and no GPU open; otherwise it refuses, and this returns at once.
pub fn serve_forks(go_on: &dyn Fn(Program) -> i32) -> io::Result<()> {
    let socket = take_socket()?;
    let refusal = refusal(&[]);
    let served = refusal.is_none();
    say(&socket, &Greeting { version: VERSION, refusal }, &[])?;
    if !served {
        return Ok(());
    }
    let mut children: Vec<OwnedFd> = Vec::new();
    loop {
        let watched: Vec<BorrowedFd<'_>> =
            std::iter::once(socket.as_fd()).chain(children.iter().map(OwnedFd::as_fd)).collect();
        let ready = sys::poll_readable(&watched, -1)?;
        while let Ok(Some(_)) = sys::wait_any(false) {}
        let mut ended = ready.iter().skip(1);
        children.retain(|_| ended.next() != Some(&true));
        if ready.first() != Some(&true) {
            continue;
        }
        let Some((_, fds)) = sys::receive_packet(socket.as_fd())? else { return Ok(()) };
        match fork(fds, go_on) {
            Ok((pid, child)) => {
                say(&socket, &Forked::Supervisor(pid), &[child.as_fd()])?;
                children.push(child);
            }
            Err(reason) => say(&socket, &Forked::Failed(reason), &[])?,
        }
    }
}

/// The socket under a number that standard streams do not take, which read nothing from here on.
fn take_socket() -> io::Result<OwnedFd> {
    let socket = sys::duplicate_from(0, 3).and_then(sys::adopt)?;
    let null = fs_err::File::open("/dev/null")?;
    sys::duplicate_onto(null.as_raw_fd(), 0)?;
    Ok(socket)
}

/// Why this process cannot be forked from, if it cannot.
fn refusal(given: &[RawFd]) -> Option<String> {
    match whole(given) {
        Ok(()) => None,
        Err(reason) => Some(reason.to_string()),
    }
}

/// Fails unless a fork of this process is all of it. What cannot be looked at is not.
fn whole(given: &[RawFd]) -> io::Result<()> {
    let threads = fs_err::read_dir("/proc/self/task")?.count();
    if threads != 1 {
        return Err(io::Error::other(format!("it has {threads} threads, of which a fork has one")));
    }
    match opened("/dev/nvidia", given)? {
        None => Ok(()),
        Some(path) => {
            let reason = format!("it has opened {}, which a fork cannot use", path.display());
            Err(io::Error::other(reason))
        }
    }
}

/// A file below this prefix that this process has open, but for descriptors that a child is given:
/// memory of a GPU is one, and belongs to no context.
fn opened(prefix: &str, given: &[RawFd]) -> io::Result<Option<PathBuf>> {
    let given: Vec<String> = given.iter().map(RawFd::to_string).collect();
    for entry in fs_err::read_dir("/proc/self/fd")? {
        let entry = entry?;
        if given.iter().any(|fd| entry.file_name() == fd.as_str()) {
            continue;
        }
        // The listing's own descriptor is closed by the time it is read.
        let Ok(path) = fs_err::read_link(entry.path()) else { continue };
        if path.display().to_string().starts_with(prefix) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// Makes a fork the supervisor of a jail: its id and a descriptor of it.
fn fork(fds: Vec<OwnedFd>, go_on: &dyn Fn(Program) -> i32) -> Result<(i32, OwnedFd), String> {
    if fds.len() < FORK_FDS {
        return Err(format!("a request with {} descriptors", fds.len()));
    }
    let given: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    if let Some(refusal) = refusal(&given) {
        return Err(refusal);
    }
    match sys::fork().map_err(|error| error.to_string())? {
        Fork::Child => {
            // The server's own, its other children's among them.
            confine::close_others(&|fd| given.contains(&fd));
            sys::exit_now(supervisor::forked(fds, &|plan| go_on(Program::of(plan))))
        }
        Fork::Parent(pid) => match sys::pidfd_open(pid) {
            Ok(child) => Ok((pid, child)),
            Err(error) => {
                drop(sys::kill(pid, libc::SIGKILL));
                Err(error.to_string())
            }
        },
    }
}

fn say(socket: &OwnedFd, what: &impl Serialize, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    sys::send_packet(socket.as_fd(), &serde_json::to_vec(what)?, fds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_passed_to_a_fork_are_not_reported_as_open() {
        let folder = tempfile::tempdir().unwrap();
        let prefix = folder.path().to_string_lossy();
        assert_eq!(opened(&prefix, &[]).unwrap(), None);
        let files = ["a", "b"].map(|name| fs_err::File::create(folder.path().join(name)).unwrap());
        let fds = files.each_ref().map(AsRawFd::as_raw_fd);
        assert!(opened(&prefix, &[]).unwrap().is_some());
        assert_eq!(opened(&prefix, &fds[..1]).unwrap(), Some(folder.path().join("b")));
        assert_eq!(opened(&prefix, &fds).unwrap(), None);
    }
}
