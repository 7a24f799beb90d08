//! Mounts, and what a process sees as its root.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use libc::{c_uint, c_ulong};

use super::call::{c_string, check, check_long};

fn pointer(text: Option<&CString>) -> *const libc::c_char {
    text.map_or(std::ptr::null(), |text| text.as_ptr())
}

/// mount(2).
pub(crate) fn mount(
    source: Option<&Path>,
    target: &Path,
    kind: Option<&str>,
    flags: c_ulong,
    data: Option<&str>,
) -> io::Result<()> {
    let source = source.map(c_string).transpose()?;
    let target = c_string(target)?;
    let kind = kind.map(c_string).transpose()?;
    let data = data.map(c_string).transpose()?;
    // SAFETY: every pointer is null or a C string that outlives the call.
    check(unsafe {
        libc::mount(
            pointer(source.as_ref()),
            target.as_ptr(),
            pointer(kind.as_ref()),
            flags,
            pointer(data.as_ref()).cast(),
        )
    })
    .map(drop)
}

/// umount2(2) with `MNT_DETACH`.
pub(crate) fn unmount(target: &Path) -> io::Result<()> {
    let target = c_string(target)?;
    // SAFETY: a valid C string.
    check(unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) }).map(drop)
}

/// pivot_root(2).
pub(crate) fn pivot_root(new: &Path, old: &Path) -> io::Result<()> {
    let (new, old) = (c_string(new)?, c_string(old)?);
    // SAFETY: valid C strings.
    check_long(unsafe { libc::syscall(libc::SYS_pivot_root, new.as_ptr(), old.as_ptr()) }).map(drop)
}

/// chroot(2).
pub(crate) fn chroot(root: &Path) -> io::Result<()> {
    let root = c_string(root)?;
    // SAFETY: a valid C string.
    check(unsafe { libc::chroot(root.as_ptr()) }).map(drop)
}

/// A detached recursive copy of the mount tree at `path` (Linux 5.2).
pub(crate) fn open_tree(path: &Path) -> io::Result<OwnedFd> {
    let path = c_string(path)?;
    let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | libc::AT_RECURSIVE as c_uint;
    // SAFETY: a valid C string; a non-negative result is a new descriptor that we own.
    unsafe {
        let fd =
            check_long(libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags))?;
        Ok(OwnedFd::from_raw_fd(fd as RawFd))
    }
}

/// Sets attributes (`MOUNT_ATTR_*`) on a detached mount tree and all below it (Linux 5.12).
pub(crate) fn set_mount_attributes(
    tree: BorrowedFd<'_>,
    set: u64,
    id_map: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: set | if id_map.is_some() { libc::MOUNT_ATTR_IDMAP } else { 0 },
        attr_clr: 0,
        propagation: 0,
        userns_fd: id_map.map_or(0, |fd| fd.as_raw_fd() as u64),
    };
    let flags = (libc::AT_EMPTY_PATH | libc::AT_RECURSIVE) as c_uint;
    // SAFETY: an empty C string, and a structure with its own size.
    check_long(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    })
    .map(drop)
}

/// Attaches a detached mount tree at `target` (Linux 5.2).
pub(crate) fn move_mount(tree: BorrowedFd<'_>, target: &Path) -> io::Result<()> {
    const MOVE_MOUNT_F_EMPTY_PATH: c_uint = 4;
    let target = c_string(target)?;
    // SAFETY: valid C strings and a descriptor that is open for the call.
    check_long(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_FDCWD,
            target.as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH,
        )
    })
    .map(drop)
}
