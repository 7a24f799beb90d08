//! Files of the caller in the hands of the jail's own user, when the jail is started by root.
//!
//! Best is a mount that maps the owner's id to the jail's user: nothing on disk changes, several jails may
//! share a folder, and new files belong to the owner. Where the file system or kernel cannot do that,
//! writable folders change hands for as long as the jail runs, and others are opened to the jails' group.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use crate::sys::{self, Fork};

/// Base of the user ids of jails; the supervisor's process id (at most 2^22) is added, so two living
/// jails never share one.
const FIRST_UID: u32 = 0x6000_0000;
/// Group of all jails. What a jail can see is decided by its mounts, so a shared group gives nothing away.
pub(super) const GROUP: u32 = 0x6000_0000;

/// The user id of the jail of this supervisor.
pub(super) fn own_uid() -> u32 {
    FIRST_UID + std::process::id()
}

/// A user namespace that maps a file owner to the jail's user, for mapped mounts.
pub(super) fn id_map(owner: u32, group: u32, uid: u32) -> io::Result<OwnedFd> {
    let (hold_read, hold_write) = sys::pipe()?;
    let pid = match sys::clone_process(libc::CLONE_NEWUSER)? {
        Fork::Child => {
            // Lives until the parent has taken the namespace.
            drop(hold_write);
            drop(sys::poll_readable(&[hold_read.as_fd()], 5000));
            sys::exit_now(0)
        }
        Fork::Parent(pid) => pid,
    };
    drop(hold_read);
    let opened = (|| {
        fs_err::write(format!("/proc/{pid}/uid_map"), format!("{owner} {uid} 1"))?;
        fs_err::write(format!("/proc/{pid}/gid_map"), format!("{group} {GROUP} 1"))?;
        fs_err::File::open(format!("/proc/{pid}/ns/user"))
            .map(|file| OwnedFd::from(file.into_parts().0))
    })();
    drop(hold_write);
    drop(sys::wait_any(true));
    opened
}

/// Hands a tree to `uid`, never following links.
pub(super) fn give(path: &Path, uid: u32, gid: u32) -> io::Result<()> {
    std::os::unix::fs::lchown(path, Some(uid), Some(gid))?;
    each_entry(path, &|entry| give(entry, uid, gid))
}

/// Lets the jails' group read a tree.
pub(super) fn open_to_group(path: &Path) -> io::Result<()> {
    let meta = fs_err::symlink_metadata(path)?;
    if meta.is_symlink() {
        return Ok(());
    }
    let mode = meta.mode() & 0o7777;
    let wanted = mode | 0o040 | if meta.is_dir() || mode & 0o100 != 0 { 0o010 } else { 0 };
    if meta.gid() != GROUP || wanted != mode {
        std::os::unix::fs::lchown(path, None, Some(GROUP))?;
        fs_err::set_permissions(path, std::fs::Permissions::from_mode(wanted))?;
    }
    each_entry(path, &open_to_group)
}

fn each_entry(path: &Path, visit: &dyn Fn(&Path) -> io::Result<()>) -> io::Result<()> {
    if fs_err::symlink_metadata(path)?.is_dir() {
        for entry in fs_err::read_dir(path)? {
            visit(&entry?.path())?;
        }
    }
    Ok(())
}
