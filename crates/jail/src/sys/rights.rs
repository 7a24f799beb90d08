//! What a process may do: its user, capabilities, limits and filter of system calls.

use std::io;

use libc::{c_int, c_ulong};

use super::call::{check, check_long};

/// prctl(2) with integer arguments.
pub(crate) fn prctl(option: c_int, argument: c_ulong) -> io::Result<()> {
    // SAFETY: the options used here take integers only.
    check(unsafe { libc::prctl(option, argument, 0 as c_ulong, 0 as c_ulong, 0 as c_ulong) })
        .map(drop)
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
