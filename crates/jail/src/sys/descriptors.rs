//! Descriptors: pipes and memory files, and which numbers survive into the next program.

use std::io::{self, Write as _};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;

use libc::c_int;

use super::call::check;

/// A pipe, both ends closed on exec: (read, write).
pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors, which we own afterwards.
    unsafe {
        check(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC))?;
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

/// An anonymous file that holds `bytes`, read from its start. Safe in threaded processes.
pub(crate) fn memory_file(bytes: &[u8]) -> io::Result<OwnedFd> {
    // SAFETY: a valid C string; the descriptor is ours.
    let fd = unsafe {
        OwnedFd::from_raw_fd(check(libc::memfd_create(c"jail".as_ptr(), libc::MFD_CLOEXEC))?)
    };
    let mut file = std::fs::File::from(fd);
    file.write_all(bytes)?;
    io::Seek::rewind(&mut file)?;
    Ok(file.into())
}

/// Waits until one of `fds` can be read or is hung up; one flag per descriptor.
/// Safe in threaded processes.
pub(crate) fn poll_readable(fds: &[BorrowedFd<'_>], timeout_ms: c_int) -> io::Result<Vec<bool>> {
    let mut entries: Vec<libc::pollfd> = fds
        .iter()
        .map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 })
        .collect();
    // SAFETY: pointer and count belong together.
    match check(unsafe {
        libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, timeout_ms)
    }) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
        Err(error) => return Err(error),
    }
    Ok(entries.iter().map(|entry| entry.revents != 0).collect())
}

/// Takes ownership of a descriptor that was handed over by number.
pub(crate) fn adopt(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: F_GETFD is harmless on any number; the helper's protocol hands each number over once.
    unsafe {
        check(libc::fcntl(fd, libc::F_GETFD))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Marks a descriptor to be closed on exec, or to be kept.
pub(crate) fn set_close_on_exec(fd: RawFd, close: bool) -> io::Result<()> {
    // SAFETY: harmless on any number; async-signal-safe.
    check(unsafe { libc::fcntl(fd, libc::F_SETFD, if close { libc::FD_CLOEXEC } else { 0 }) })
        .map(drop)
}

/// Duplicates `fd` to the lowest free number from `lowest` on, closed on exec; the caller keeps count.
pub(crate) fn duplicate_from(fd: RawFd, lowest: RawFd) -> io::Result<RawFd> {
    // SAFETY: harmless on any number.
    check(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, lowest) })
}

/// Duplicates `fd` onto the number `target`, kept on exec.
pub(crate) fn duplicate_onto(fd: RawFd, target: RawFd) -> io::Result<()> {
    // SAFETY: the caller arranges that nothing owns `target`.
    check(unsafe { libc::dup2(fd, target) }).map(drop)
}

/// Closes a descriptor number.
pub(crate) fn close(fd: RawFd) {
    // SAFETY: the caller arranges that nothing owns the number.
    unsafe { libc::close(fd) };
}

/// Gives the pipe or memory file behind `fd` to another user. Anything else (`/dev/null`, a terminal)
/// belongs to the host and is left alone.
pub(crate) fn give_stream(fd: RawFd, uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: an all-zero stat is valid, and the call fills it; the rest takes no pointers.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        check(libc::fstat(fd, &raw mut stat))?;
        let kind = stat.st_mode & libc::S_IFMT;
        let nameless = kind == libc::S_IFREG && stat.st_nlink == 0;
        if kind == libc::S_IFIFO || nameless {
            check(libc::fchown(fd, uid, gid))?;
        }
    }
    Ok(())
}

/// Whether `fd` is the end of a pipe that can only be written to.
pub(crate) fn is_write_end(fd: RawFd) -> bool {
    // SAFETY: an all-zero stat is valid, and the call fills it; the rest takes no pointers.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        libc::fstat(fd, &raw mut stat) == 0
            && stat.st_mode & libc::S_IFMT == libc::S_IFIFO
            && libc::fcntl(fd, libc::F_GETFL) & libc::O_ACCMODE == libc::O_WRONLY
    }
}

/// Asks `Command` to hand these descriptors to the new process under their own numbers.
#[expect(clippy::disallowed_types, reason = "this crate starts the processes")]
pub(crate) fn keep_open(command: &mut std::process::Command, fds: Vec<RawFd>) {
    // SAFETY: between fork and exec only fcntl is called, which is async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            for &fd in &fds {
                set_close_on_exec(fd, false)?;
            }
            Ok(())
        });
    }
}
