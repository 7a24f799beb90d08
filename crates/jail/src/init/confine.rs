//! The last steps before the program: descriptors, limits, user, capabilities, filter, and then its execution,
//! or what a fork does instead.

use std::ffi::CString;
use std::io;
use std::os::fd::RawFd;
use std::path::Path;

use crate::plan::Plan;
use crate::sys;

use super::failure::{Failure, Step as _};
use super::seccomp;

/// What the program's process does once it is confined.
#[derive(Clone, Copy)]
pub(super) enum Become<'a> {
    /// Executes the plan's program.
    Execute,
    /// Goes on as it is, a fork of a process that was made ready for this; gives its exit code.
    GoOn(&'a dyn Fn(&Plan) -> i32),
}

/// What the program becomes.
#[derive(Clone, Copy)]
pub(super) struct Identity<'a> {
    /// By execution or not.
    pub(super) becomes: Become<'a>,
    /// Switch to this user and group first; `None` keeps the caller's.
    pub(super) become_user: Option<(u32, u32)>,
    /// Bound the user's processes to this many (`RLIMIT_NPROC`), where the user is the jail's alone.
    pub(super) user_processes: Option<u64>,
    /// Bound each process's private writable memory (`RLIMIT_DATA`), where no control group bounds it.
    pub(super) data_bytes: Option<u64>,
}

/// Puts the program's descriptors where it expects them and closes every other but `keep`.
/// Returns the new numbers of `keep`, which are closed on exec.
pub(super) fn place_descriptors(plan: &Plan, keep: &[RawFd]) -> Result<Vec<RawFd>, Failure> {
    let above = plan.fds.iter().map(|&(_, target)| target).chain([2]).max().unwrap_or(2) + 1;
    let lift = |fd: RawFd| sys::duplicate_from(fd, above).step("move descriptors");
    // First all out of the way, then each to its place: targets may be sources of others.
    let lifted: Vec<(RawFd, RawFd)> = plan
        .fds
        .iter()
        .map(|&(source, target)| Ok((lift(source)?, target)))
        .collect::<Result<_, Failure>>()?;
    let kept = keep.iter().map(|&fd| lift(fd)).collect::<Result<Vec<_>, Failure>>()?;
    for &(source, target) in &lifted {
        sys::duplicate_onto(source, target).step("place descriptors")?;
    }
    close_others(&|fd| kept.contains(&fd) || lifted.iter().any(|&(_, target)| target == fd));
    Ok(kept)
}

/// Closes every descriptor from 3 on for which `keep` is false.
pub(super) fn close_others(keep: &dyn Fn(RawFd) -> bool) {
    let open: Vec<RawFd> = match fs_err::read_dir("/proc/self/fd") {
        Ok(entries) => {
            entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
        }
        Err(_) => (3..4096).collect(),
    };
    for fd in open {
        if fd > 2 && !keep(fd) {
            sys::close(fd);
        }
    }
}

/// Confines this process and runs the program. Returns only when that failed; the program never ran then.
/// The descriptors in `kept` are closed then.
pub(super) fn run(
    plan: &Plan,
    identity: Identity<'_>,
    kept: &[RawFd],
    restrict: impl FnOnce() -> Result<(), Failure>,
) -> Failure {
    match confine_and_become(plan, identity, kept, restrict) {
        Ok(never) => match never {},
        Err(failure) => failure,
    }
}

fn confine_and_become(
    plan: &Plan,
    identity: Identity<'_>,
    kept: &[RawFd],
    restrict: impl FnOnce() -> Result<(), Failure>,
) -> Result<std::convert::Infallible, Failure> {
    sys::new_session();
    sys::reset_signals();
    sys::set_umask(0o022);
    let limits = &plan.limits;
    let mut bounds = vec![
        (libc::RLIMIT_CORE as i32, 0),
        (libc::RLIMIT_NOFILE as i32, u64::from(limits.open_files)),
        (libc::RLIMIT_FSIZE as i32, limits.file_bytes),
    ];
    if let Some(cpu) = limits.cpu {
        // A process cannot outlive the tree's bound; the supervisor adds up the rest.
        bounds.push((libc::RLIMIT_CPU as i32, cpu.as_secs() + 1));
    }
    bounds.extend(identity.user_processes.map(|count| (libc::RLIMIT_NPROC as i32, count)));
    bounds.extend(identity.data_bytes.map(|bytes| (libc::RLIMIT_DATA as i32, bytes)));
    for (resource, value) in bounds {
        sys::limit(resource, value).step("set resource limits")?;
    }
    if limits.yields {
        sys::lower_priority();
    }
    if identity.become_user.is_some() {
        sys::drop_bounding_capabilities().step("empty the bounding set")?;
    } else {
        // Not allowed without CAP_SETPCAP; without capabilities and with no_new_privs it changes nothing.
        drop(sys::drop_bounding_capabilities());
    }
    if let Some((uid, gid)) = identity.become_user {
        sys::become_user(uid, gid).step("change user")?;
    }
    sys::drop_capabilities().step("drop capabilities")?;
    sys::prctl(libc::PR_SET_NO_NEW_PRIVS, 1).step("forbid new privileges")?;
    std::env::set_current_dir(&plan.cwd).step_on("enter the working directory", &plan.cwd)?;
    restrict()?;
    let go_on = match identity.becomes {
        Become::Execute => None,
        Become::GoOn(go_on) => {
            // Execution does this: files in /proc that are a process's own belong to its user again.
            sys::prctl(libc::PR_SET_DUMPABLE, 1).step("own itself")?;
            Some(go_on)
        }
    };
    seccomp::load(plan.network, plan.limits.timers).step("load the system call filter")?;
    let Some(go_on) = go_on else { return Err(exec(plan)) };
    for &fd in kept {
        sys::close(fd);
    }
    sys::exit_now(go_on(plan))
}

/// Looks the program up as a shell would, in the program's own `PATH`.
fn exec(plan: &Plan) -> Failure {
    let failure =
        |error: io::Error| Failure::new(format!("execute {}", plan.program.display()), &error);
    let strings = || -> io::Result<(Vec<CString>, Vec<CString>)> {
        let program = sys::c_string(&plan.program);
        let arguments = std::iter::once(program)
            .chain(plan.args.iter().map(sys::c_string))
            .collect::<io::Result<_>>()?;
        let environment = plan
            .env
            .iter()
            .map(|(key, value)| sys::c_string(format!("{key}={value}")))
            .collect::<io::Result<_>>()?;
        Ok((arguments, environment))
    };
    let (arguments, environment) = match strings() {
        Ok(strings) => strings,
        Err(error) => return failure(error),
    };
    let candidates: Vec<std::path::PathBuf> =
        if plan.program.components().count() > 1 || plan.program.is_absolute() {
            vec![plan.program.clone()]
        } else {
            let path = plan
                .env
                .iter()
                .find(|(key, _)| key == "PATH")
                .map_or("/usr/bin:/bin", |(_, value)| value);
            path.split(':').map(|folder| Path::new(folder).join(&plan.program)).collect()
        };
    let mut last = io::Error::from_raw_os_error(libc::ENOENT);
    for candidate in candidates {
        match sys::c_string(&candidate) {
            Ok(path) => {
                let error = sys::exec(&path, &arguments, &environment);
                // "Not found" must not hide why an existing one did not start.
                if error.raw_os_error() != Some(libc::ENOENT)
                    || last.raw_os_error() == Some(libc::ENOENT)
                {
                    last = error;
                }
            }
            Err(error) => return failure(error),
        }
    }
    failure(last)
}
