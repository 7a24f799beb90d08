//! Processes: starting, executing, signalling and reaping them.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use libc::{c_int, c_long};

use super::call::{check, check_long};

/// Which side of a fork this is.
pub(crate) enum Fork {
    /// The new process.
    Child,
    /// The old process, with the new one's id as seen from here.
    Parent(i32),
}

/// Forks, putting the child into the namespaces of `flags` (`CLONE_NEW*`; 0 for a plain fork).
pub(crate) fn clone_process(flags: c_int) -> io::Result<Fork> {
    // SAFETY: without CLONE_VM and with a null stack this is fork(2); the caller is single-threaded,
    // so the child may go on using the allocator.
    let pid = unsafe {
        libc::syscall(
            libc::SYS_clone,
            c_long::from(flags | libc::SIGCHLD),
            0_usize,
            0_usize,
            0_usize,
            0_usize,
        )
    };
    Ok(match check_long(pid)? {
        0 => Fork::Child,
        pid => Fork::Parent(pid as i32),
    })
}

/// Forks through the C library, which updates its own state in the new process. A child that does not
/// execute another program needs that.
pub(crate) fn fork() -> io::Result<Fork> {
    // SAFETY: the caller is single-threaded, so the child may go on as the parent would.
    Ok(match check(unsafe { libc::fork() })? {
        0 => Fork::Child,
        pid => Fork::Parent(pid),
    })
}

/// Replaces this process; returns only with the reason why that failed.
pub(crate) fn exec(path: &CString, arguments: &[CString], environment: &[CString]) -> io::Error {
    let list = |items: &[CString]| -> Vec<*const libc::c_char> {
        items.iter().map(|item| item.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (arguments, environment) = (list(arguments), list(environment));
    // SAFETY: null-terminated lists of C strings that outlive the call.
    unsafe { libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    io::Error::last_os_error()
}

/// Ends this process at once, without running destructors or exit handlers.
pub(crate) fn exit_now(code: c_int) -> ! {
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(code) }
}

/// Sends a signal; signal 0 asks whether that would be allowed.
pub(crate) fn kill(pid: i32, signal: c_int) -> io::Result<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::kill(pid, signal) }).map(drop)
}

/// A descriptor of a running process: unlike its id, it never comes to mean another one (Linux 5.3).
/// Safe in threaded processes.
pub(crate) fn pidfd_open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: no pointers; a non-negative result is a new descriptor that we own.
    unsafe {
        let fd = check_long(libc::syscall(libc::SYS_pidfd_open, pid, 0))?;
        Ok(OwnedFd::from_raw_fd(fd as RawFd))
    }
}

/// Sends a signal to the process behind a descriptor. Safe in threaded processes.
pub(crate) fn pidfd_signal(process: BorrowedFd<'_>, signal: c_int) -> io::Result<()> {
    // SAFETY: a null pointer asks for the usual signal information.
    check_long(unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            process.as_raw_fd(),
            signal,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    })
    .map(drop)
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// With this exit code.
    Exited(i32),
    /// By this signal.
    Signalled(i32),
}

/// Reaps one ended child: `Ok(None)` when none has ended (only without `block`).
pub(crate) fn wait_any(block: bool) -> io::Result<Option<(i32, Ended)>> {
    loop {
        let mut status = 0;
        // SAFETY: the status is a valid place to write.
        let pid = unsafe {
            libc::waitpid(-1, &raw mut status, libc::__WALL | if block { 0 } else { libc::WNOHANG })
        };
        match check(pid) {
            Ok(0) => return Ok(None),
            Ok(pid) if libc::WIFEXITED(status) => {
                return Ok(Some((pid, Ended::Exited(libc::WEXITSTATUS(status)))));
            }
            Ok(pid) if libc::WIFSIGNALED(status) => {
                return Ok(Some((pid, Ended::Signalled(libc::WTERMSIG(status)))));
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Bytes of the largest resident set among the children reaped so far.
pub(crate) fn children_peak_bytes() -> u64 {
    // SAFETY: an all-zero rusage is valid, and the call fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    usage.ru_maxrss as u64 * 1024
}

/// Starts a session of its own.
pub(crate) fn new_session() {
    // SAFETY: no pointers; failing only means that this process leads a group already.
    unsafe { libc::setsid() };
}

/// Takes what processor time others leave, from now on and for all children: ten steps of `nice` more.
pub(crate) fn lower_priority() {
    // SAFETY: no preconditions. Asking for less is always granted.
    unsafe { libc::nice(10) };
}

/// Default signal dispositions and an empty mask: Rust's start-up ignores SIGPIPE, and whoever started
/// us may have ignored or blocked more.
pub(crate) fn reset_signals() {
    for signal in 1..=64 {
        // SAFETY: SIG_DFL is always a valid disposition; refusals (SIGKILL, SIGSTOP) do not matter.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: an initialised set.
    unsafe {
        let mut empty: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut empty);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const empty, std::ptr::null_mut());
    }
}

/// Ignores a signal.
pub(crate) fn ignore_signal(signal: c_int) {
    // SAFETY: SIG_IGN is always a valid disposition.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}
