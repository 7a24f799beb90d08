//! How the process of a fork server is cut off from what it does not need, before it is executed.

use std::ffi::CString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;

use libc::c_int;

use super::call::{c_string, check, check_long};
use super::processes::new_session;
use super::rights::{load_filter, prctl};

/// Has `command` run in a session and network, IPC and mount namespaces of its own, with its program read-only, and
/// beneath this filter. `user` is the caller's user and group where that needs a user namespace as well.
///
/// Forks keep the file that they were started from open (`/proc/self/exe`): it must not be one that a
/// fork could change, should it belong to the fork's user.
#[expect(clippy::disallowed_types, reason = "this crate starts the processes")]
pub(crate) fn seclude(
    command: &mut std::process::Command,
    program: &Path,
    user: Option<(u32, u32)>,
    filter: Vec<libc::sock_filter>,
) -> io::Result<()> {
    let program = c_string(program)?;
    let namespaces = libc::CLONE_NEWNS | libc::CLONE_NEWNET | libc::CLONE_NEWIPC;
    let maps = user.map(|(uid, gid)| {
        [
            (c"/proc/self/setgroups", "deny".to_owned()),
            (c"/proc/self/uid_map", format!("{uid} {uid} 1")),
            (c"/proc/self/gid_map", format!("{gid} {gid} 1")),
        ]
    });
    // SAFETY: between fork and exec only system calls are made, with memory that was made before.
    unsafe {
        command.pre_exec(move || {
            // What is typed at the caller's terminal is not meant for it.
            new_session();
            let user = if maps.is_some() { libc::CLONE_NEWUSER } else { 0 };
            check(libc::unshare(namespaces | user))?;
            for (path, text) in maps.iter().flatten() {
                write_at_once(path.as_ptr(), text.as_bytes())?;
            }
            freeze(&program)?;
            prctl(libc::PR_SET_NO_NEW_PRIVS, 1)?;
            load_filter(&filter)
        });
    }
    Ok(())
}

/// Writes a file of `/proc` in one go.
fn write_at_once(path: *const libc::c_char, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: called with valid C strings only; the descriptor is closed where it was opened.
    unsafe {
        let fd = check(libc::open(path, libc::O_WRONLY | libc::O_CLOEXEC))?;
        let written = libc::write(fd, bytes.as_ptr().cast(), bytes.len());
        let result = check(written as c_int).map(drop);
        libc::close(fd);
        result
    }
}

/// Makes a file read-only in this mount namespace.
fn freeze(file: &CString) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: valid C strings and null pointers where the kernel reads nothing, and a structure with its
    // own size.
    unsafe {
        let null = std::ptr::null();
        // What is mounted on the host later is seen; nothing goes the other way.
        let slave = libc::MS_REC | libc::MS_SLAVE;
        check(libc::mount(null, c"/".as_ptr(), null, slave, null.cast()))?;
        check(libc::mount(file.as_ptr(), file.as_ptr(), null, libc::MS_BIND, null.cast()))?;
        check_long(libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            file.as_ptr(),
            0,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        ))
        .map(drop)
    }
}
