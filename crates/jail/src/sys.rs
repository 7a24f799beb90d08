//! The system calls the jail makes, each behind one small safe function.
//!
//! All `unsafe` of the crate lives here and in the modules below. The functions run in single-threaded processes (the jail's
//! helper after re-execution, or a fork of a process with one thread), except where stated.
#![expect(unsafe_code, reason = "system calls that std does not wrap")]

mod descriptors;
mod mounts;
mod packets;
mod seclude;

use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;

use libc::{c_int, c_long, c_ulong};

pub(crate) use self::descriptors::{
    adopt, close, duplicate_from, duplicate_onto, give_stream, is_write_end, keep_open,
    memory_file, pipe, poll_readable, set_close_on_exec,
};
pub(crate) use self::mounts::{
    chroot, mount, move_mount, open_tree, pivot_root, set_mount_attributes, unmount,
};
pub(crate) use self::packets::{MOST_DESCRIPTORS, packet_pair, receive_packet, send_packet};
pub(crate) use self::seclude::seclude;

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn check_long(result: c_long) -> io::Result<c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A path or name as a C string; an inner NUL is an error, never a silent cut.
pub(crate) fn c_string(text: impl AsRef<OsStr>) -> io::Result<CString> {
    CString::new(text.as_ref().as_bytes()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

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

/// Forks as the C library does, which keeps its own books on the new process: for what goes on without
/// executing anything.
pub(crate) fn fork() -> io::Result<Fork> {
    // SAFETY: the caller is single-threaded, so the child may go on as the parent would.
    Ok(match check(unsafe { libc::fork() })? {
        0 => Fork::Child,
        pid => Fork::Parent(pid),
    })
}

/// Ends this process at once, without running destructors or exit handlers.
pub(crate) fn exit_now(code: c_int) -> ! {
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(code) }
}

/// Names this UTS namespace.
pub(crate) fn set_host_name(name: &str) -> io::Result<()> {
    // SAFETY: pointer and length belong together.
    check(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) }).map(drop)
}

/// Raises the loopback interface of this network namespace.
pub(crate) fn raise_loopback() -> io::Result<()> {
    // SAFETY: no pointers; the descriptor is new and owned from here on.
    let socket =
        unsafe { OwnedFd::from_raw_fd(check(libc::socket(libc::AF_INET, libc::SOCK_DGRAM, 0))?) };
    // SAFETY: all zeroes is a valid ifreq: a name and a union of plain numbers.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the kernel reads an ifreq, which outlives the call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) })
        .map(drop)
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

/// prctl(2) with integer arguments.
pub(crate) fn prctl(option: c_int, argument: c_ulong) -> io::Result<()> {
    // SAFETY: the options used here take integers only.
    check(unsafe { libc::prctl(option, argument, 0 as c_ulong, 0 as c_ulong, 0 as c_ulong) })
        .map(drop)
}

/// Starts a session of its own.
pub(crate) fn new_session() {
    // SAFETY: no pointers; failing only means that this process leads a group already.
    unsafe { libc::setsid() };
}

/// The effective user id.
pub(crate) fn effective_uid() -> u32 {
    // SAFETY: always succeeds.
    unsafe { libc::geteuid() }
}

/// The effective group id.
pub(crate) fn effective_gid() -> u32 {
    // SAFETY: always succeeds.
    unsafe { libc::getegid() }
}

/// Becomes `uid` and `gid` for good, without supplementary groups.
pub(crate) fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: an empty group list and plain integers.
    unsafe {
        check(libc::setgroups(0, std::ptr::null()))?;
        check(libc::setresgid(gid, gid, gid))?;
        check(libc::setresuid(uid, uid, uid))?;
    }
    Ok(())
}

/// Empties the bounding set; needs `CAP_SETPCAP`, and fails on the first refusal.
pub(crate) fn drop_bounding_capabilities() -> io::Result<()> {
    for capability in 0..64 {
        match prctl(libc::PR_CAPBSET_DROP, capability) {
            Ok(()) => {}
            // Past the last capability this kernel knows.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Empties the ambient, inheritable, permitted and effective sets.
pub(crate) fn drop_capabilities() -> io::Result<()> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: c_int,
    }
    // Refused only by kernels without ambient capabilities.
    drop(prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL as c_ulong));
    let header = Header { version: 0x2008_0522, pid: 0 };
    let data = [0_u32; 6];
    // SAFETY: header and data have the layout of version 3 (two triples).
    check_long(unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) })
        .map(drop)
}

/// Sets soft and hard limit; never raises the hard one.
pub(crate) fn limit(resource: c_int, value: u64) -> io::Result<()> {
    // SAFETY: a valid structure to read and to write.
    unsafe {
        let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        check(libc::getrlimit(resource as _, &raw mut now))?;
        let value = value.min(now.rlim_max);
        let new = libc::rlimit { rlim_cur: value, rlim_max: value };
        check(libc::setrlimit(resource as _, &raw const new)).map(drop)
    }
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

/// Sets the file mode creation mask.
pub(crate) fn set_umask(mask: u32) {
    // SAFETY: always succeeds.
    unsafe { libc::umask(mask) };
}

/// Loads a seccomp filter; `no_new_privs` must be set.
pub(crate) fn load_filter(filter: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the kernel copies `len` instructions and does not write to them.
    check_long(unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0_usize, &raw const program)
    })
    .map(drop)
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

/// A raw system call by number, for the probe: only calls whose arguments may all be zero or integers.
pub(crate) fn attempt(number: c_long, arguments: [usize; 3]) -> io::Result<i64> {
    // SAFETY: used with integer arguments or null pointers only, which the kernel checks.
    check_long(unsafe {
        libc::syscall(number, arguments[0], arguments[1], arguments[2], 0_usize, 0_usize)
    })
}
