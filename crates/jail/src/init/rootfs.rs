//! The root file system a jail sees: an empty tmpfs with the named mounts, `/proc`, `/dev`, `/tmp` and a home.
//!
//! Runs as the first process of fresh namespaces. Until the last step the old root stays at `/oldroot`, the
//! new one grows at `/newroot`; then the old one is detached and nothing leads back.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::plan::{Inside, Plan};
use crate::spec::{Access, HOME, Mount};
use crate::sys;

use super::failure::{Failure, Step as _};
use super::ownership;

const OLD: &str = "/oldroot";
const NEW: &str = "/newroot";

/// Who will run inside, and how the caller's files become its own.
pub(super) struct Owner {
    /// Host user and group of the program.
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// One mapping per distinct owner of a mount's source; empty when no files need to change hands.
    pub(super) maps: Vec<((u32, u32), OwnedFd)>,
    /// Whether the program's user differs from the caller's.
    pub(super) foreign: bool,
}

/// Builds the root and moves into it. `tell` carries notes to the supervisor.
pub(super) fn enter(
    plan: &Plan,
    owner: &Owner,
    tell: &mut dyn FnMut(Inside),
) -> Result<(), Failure> {
    let root = Path::new("/");
    sys::mount(None, root, None, libc::MS_REC | libc::MS_PRIVATE, None)
        .step("detach mounts from the host")?;
    let base =
        ["/tmp", "/var/tmp", "/mnt", "/run"].map(Path::new).into_iter().find(|path| path.is_dir());
    let base = base
        .ok_or(io::Error::from_raw_os_error(libc::ENOENT))
        .step("find a folder to build the root on")?;
    tmpfs(base, "mode=755,size=8m").step("mount the empty root")?;
    for name in ["oldroot", "newroot"] {
        fs_err::create_dir(base.join(name)).step("prepare the root")?;
    }
    // pivot_root needs the new root to be a mount point, and so does the second one.
    sys::pivot_root(base, &base.join("oldroot")).step("pivot to the empty root")?;
    std::env::set_current_dir("/").step("enter the empty root")?;
    tmpfs(Path::new(NEW), "mode=755,size=8m").step("mount the new root")?;

    for (link, points_to) in &plan.symlinks {
        let link = inside(link);
        make_parent(&link).step_on("make the folder of", &link)?;
        std::os::unix::fs::symlink(points_to, &link).step_on("make the link", &link)?;
    }
    etc(owner).step("write /etc")?;
    private(plan, owner).step("mount private folders")?;
    devices().step("make /dev")?;
    proc_files()?;
    for mount in &plan.mounts {
        attach(mount, owner, tell)?;
    }
    seal()
}

fn inside(path: &Path) -> PathBuf {
    Path::new(NEW).join(path.strip_prefix("/").unwrap_or(path))
}

fn outside(path: &Path) -> PathBuf {
    Path::new(OLD).join(path.strip_prefix("/").unwrap_or(path))
}

fn tmpfs(target: &Path, options: &str) -> io::Result<()> {
    sys::mount(
        Some(Path::new("tmpfs")),
        target,
        Some("tmpfs"),
        libc::MS_NOSUID | libc::MS_NODEV,
        Some(options),
    )
}

fn make_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs_err::create_dir_all)
}

/// Names that libraries look up for the jail's user; the host's own are nobody's business.
fn etc(owner: &Owner) -> io::Result<()> {
    let folder = inside(Path::new("/etc"));
    fs_err::create_dir_all(&folder)?;
    for (name, text) in etc_files(owner.uid, owner.gid) {
        fs_err::write(folder.join(name), text)?;
    }
    Ok(())
}

/// The synthetic files of `/etc`.
pub(super) fn etc_files(uid: u32, gid: u32) -> [(&'static str, String); 4] {
    [
        ("passwd", format!("root:x:0:0:root:/:/bin/sh\njail:x:{uid}:{gid}:jail:{HOME}:/bin/sh\n")),
        ("group", format!("root:x:0:\njail:x:{gid}:\n")),
        ("hosts", "127.0.0.1 localhost\n::1 localhost\n".into()),
        ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n".into()),
    ]
}

fn private(plan: &Plan, owner: &Owner) -> io::Result<()> {
    let size = plan.limits.tmp_bytes;
    let tmp = inside(Path::new("/tmp"));
    fs_err::create_dir_all(&tmp)?;
    tmpfs(&tmp, &format!("mode=1777,size={size}"))?;
    let home = inside(Path::new(HOME));
    fs_err::create_dir_all(&home)?;
    tmpfs(&home, &format!("mode=700,size={size},uid={},gid={}", owner.uid, owner.gid))?;
    let shm = inside(Path::new("/dev/shm"));
    fs_err::create_dir_all(&shm)?;
    tmpfs(&shm, &format!("mode=1777,size={size}"))
}

fn devices() -> io::Result<()> {
    let dev = inside(Path::new("/dev"));
    for name in ["null", "zero", "full", "random", "urandom"] {
        let target = dev.join(name);
        fs_err::write(&target, "")?;
        sys::mount(
            Some(&outside(Path::new("/dev")).join(name)),
            &target,
            None,
            libc::MS_BIND,
            None,
        )?;
    }
    let links = [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ];
    for (name, points_to) in links {
        std::os::unix::fs::symlink(points_to, dev.join(name))?;
    }
    Ok(())
}

/// A `/proc` of this process namespace, with the kernel's switches out of reach.
fn proc_files() -> Result<(), Failure> {
    let proc = inside(Path::new("/proc"));
    fs_err::create_dir_all(&proc).step("make /proc")?;
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    sys::mount(Some(Path::new("proc")), &proc, Some("proc"), flags, None).step("mount /proc")?;
    // Root's files there are closed to the jail's user anyway; this is a second lock, so failing is no error.
    for name in ["sys", "sysrq-trigger", "irq", "bus", "fs"] {
        let path = proc.join(name);
        if path.exists() {
            drop(bind(&path, &path, libc::MOUNT_ATTR_RDONLY));
        }
    }
    for name in ["kcore", "keys", "kallsyms", "kmsg", "timer_list"] {
        let path = proc.join(name);
        if path.exists() {
            drop(sys::mount(
                Some(&inside(Path::new("/dev/null"))),
                &path,
                None,
                libc::MS_BIND,
                None,
            ));
        }
    }
    Ok(())
}

fn attach(mount: &Mount, owner: &Owner, tell: &mut dyn FnMut(Inside)) -> Result<(), Failure> {
    let (source, target) = (outside(&mount.source), inside(&mount.target));
    let meta = fs_err::metadata(&source).step_on("look at", &mount.source)?;
    make_point(&target, meta.is_dir()).step_on("make the mount point", &mount.target)?;
    let mut attributes = libc::MOUNT_ATTR_NOSUID;
    if !mount.device {
        attributes |= libc::MOUNT_ATTR_NODEV;
    }
    if mount.access == Access::ReadOnly {
        attributes |= libc::MOUNT_ATTR_RDONLY;
    }
    if owner.foreign && !mount.system && !mount.device {
        let map =
            owner.maps.iter().find(|(ids, _)| *ids == (meta.uid(), meta.gid())).map(|(_, fd)| fd);
        if let Some(map) = map
            && attach_mapped(&source, &target, attributes, map).is_ok()
        {
            return Ok(());
        }
        hand_over(mount, &source, &meta, owner, tell)?;
    }
    let exact = bind(&source, &target, attributes).step_on("mount", &mount.source)?;
    if !exact && mount.access == Access::ReadOnly {
        tell(Inside::Note("read-only mounts are kept by file permissions only".into()));
    }
    Ok(())
}

fn attach_mapped(source: &Path, target: &Path, attributes: u64, map: &OwnedFd) -> io::Result<()> {
    let tree = sys::open_tree(source)?;
    sys::set_mount_attributes(tree.as_fd(), attributes, Some(map.as_fd()))?;
    sys::move_mount(tree.as_fd(), target)
}

/// Where mounts cannot map owners.
fn hand_over(
    mount: &Mount,
    source: &Path,
    meta: &std::fs::Metadata,
    owner: &Owner,
    tell: &mut dyn FnMut(Inside),
) -> Result<(), Failure> {
    match mount.access {
        Access::ReadWrite => {
            tell(Inside::Owned { path: mount.source.clone(), uid: meta.uid(), gid: meta.gid() });
            ownership::give(source, owner.uid, owner.gid).step_on("hand over", &mount.source)
        }
        Access::ReadOnly => {
            let needed = if meta.is_dir() { 0o005 } else { 0o004 };
            if meta.permissions().mode() & needed == needed {
                return Ok(());
            }
            ownership::open_to_group(source).step_on("open to the jails' group", &mount.source)
        }
    }
}

/// Binds `source` and all below it on `target`. The new calls set attributes on the whole tree at once;
/// older kernels and gVisor get the old ones.
/// False when the attributes could not be set the old way either: then only file permissions keep them.
fn bind(source: &Path, target: &Path, attributes: u64) -> io::Result<bool> {
    let modern = sys::open_tree(source).and_then(|tree| {
        sys::set_mount_attributes(tree.as_fd(), attributes, None)?;
        sys::move_mount(tree.as_fd(), target)
    });
    if modern.is_ok() {
        return Ok(true);
    }
    sys::mount(Some(source), target, None, libc::MS_BIND | libc::MS_REC, None)?;
    let mut flags = libc::MS_REMOUNT | libc::MS_BIND;
    for (attribute, flag) in [
        (libc::MOUNT_ATTR_RDONLY, libc::MS_RDONLY),
        (libc::MOUNT_ATTR_NOSUID, libc::MS_NOSUID),
        (libc::MOUNT_ATTR_NODEV, libc::MS_NODEV),
    ] {
        if attributes & attribute != 0 {
            flags |= flag;
        }
    }
    Ok(mount_points_below(target)
        .iter()
        .all(|point| sys::mount(None, point, None, flags, None).is_ok()))
}

/// `target` and every mount point in it.
fn mount_points_below(target: &Path) -> Vec<PathBuf> {
    let text = fs_err::read_to_string(outside(Path::new("/proc/self/mountinfo")))
        .or_else(|_| fs_err::read_to_string("/proc/self/mountinfo"))
        .unwrap_or_default();
    let mut points: Vec<PathBuf> = text
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(|point| PathBuf::from(unescape(point)))
        .filter(|point| point.starts_with(target))
        .collect();
    if points.is_empty() {
        points.push(target.to_path_buf());
    }
    points
}

/// mountinfo writes space, tab, newline and backslash in octal.
fn unescape(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (code, plain)| text.replace(code, plain))
}

/// Makes the folder or empty file to mount on, but only in our own tmpfs: never in a folder of the host.
fn make_point(target: &Path, folder: bool) -> io::Result<()> {
    if target.symlink_metadata().is_ok_and(|meta| meta.is_dir() == folder) {
        return Ok(());
    }
    let own = fs_err::metadata(NEW)?.dev();
    let existing = target.ancestors().skip(1).find_map(|path| path.symlink_metadata().ok());
    // /tmp, home and /dev/shm are tmpfs of ours too, but other devices: allowed when they hold the parent.
    let ours = existing.is_some_and(|meta| meta.dev() == own)
        || ["/tmp", HOME, "/dev/shm"]
            .iter()
            .any(|path| target.starts_with(inside(Path::new(path))));
    if !ours {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            "it does not exist in the mount around it, and is not made in a folder of the host",
        ));
    }
    if folder {
        fs_err::create_dir_all(target)
    } else {
        make_parent(target)?;
        fs_err::write(target, "")
    }
}

/// Makes the root itself read-only, enters it, and lets go of the host's.
fn seal() -> Result<(), Failure> {
    let new = Path::new(NEW);
    let flags =
        libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV;
    sys::mount(None, new, None, flags, None).step("make the root read-only")?;
    std::env::set_current_dir(new).step("enter the new root")?;
    let here = Path::new(".");
    if sys::pivot_root(here, here).is_ok() {
        // The old root now lies over the new one at the same place.
        sys::unmount(here).step("let go of the old root")?;
    } else {
        // gVisor refuses the self-pivot: the old root stays mounted but unreachable, since nothing inside
        // can call chroot.
        sys::mount(Some(here), Path::new("/"), None, libc::MS_MOVE, None)
            .step("move the new root")?;
        sys::chroot(here).step("change root")?;
    }
    std::env::set_current_dir("/").step("enter the root")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octal_escapes_of_mountinfo_are_read() {
        assert_eq!(unescape("/a\\040b\\134c"), "/a b\\c");
    }
}
