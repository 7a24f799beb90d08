//! Watches the shell's disk use: the workspace is on the host's disk, and the kernel has no size
//! limit for a folder.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

/// Maximum bytes of the workspace.
const MAX_BYTES: u64 = 4 << 30;
/// Maximum number of names, and maximum nesting.
const MAX_NAMES: u64 = 100_000;
const MAX_DEPTH: usize = 64;
/// Minimum free space on the host's disk, if it was free when the shell started.
const RESERVE_BYTES: u64 = 2 << 30;
const RESERVE_FILES: u64 = 50_000;
/// First pause between two checks; slow checks run less often.
const PAUSE: Duration = Duration::from_secs(1);

/// Periodically checks the size of the workspace.
#[derive(Debug)]
pub(crate) struct DiskWatch {
    path: PathBuf,
    root: OwnedFd,
    bytes: u64,
    names: u64,
    reserve: (u64, u64),
    next: Instant,
}

#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    bytes: u64,
    names: u64,
}

impl DiskWatch {
    pub(crate) fn start(path: &Path) -> std::io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty())?;
        let (bytes, files) = free(&root)?;
        // What was short before is not the shell's doing.
        let reserve = (RESERVE_BYTES.min(bytes / 2), RESERVE_FILES.min(files / 2));
        let path = path.to_owned();
        let next = Instant::now() + PAUSE;
        Ok(Self { path, root, bytes: 0, names: 0, reserve, next })
    }

    /// Time of the next check.
    pub(crate) fn due(&self) -> Instant {
        self.next
    }

    /// Why the shell must be ended, if it must. A workspace that is too large but shrinks is
    /// accepted, because a command is deleting files.
    pub(crate) fn look(&mut self) -> Option<String> {
        let begun = Instant::now();
        let mut usage = Usage::default();
        add(&self.root, 0, &mut usage);
        let grown = usage.bytes > self.bytes || usage.names > self.names;
        (self.bytes, self.names) = (usage.bytes, usage.names);
        self.next = begun + PAUSE.max(20 * begun.elapsed());
        if usage.bytes > MAX_BYTES && grown {
            return Some(format!("the workspace holds more than {} GiB", MAX_BYTES >> 30));
        }
        if usage.names > MAX_NAMES && grown {
            return Some(format!(
                "the workspace holds more than {MAX_NAMES} files, or is too deep"
            ));
        }
        let (bytes, files) = free(&self.root).ok()?;
        (bytes < self.reserve.0 || files < self.reserve.1)
            .then(|| format!("the disk that holds {} is nearly full", self.path.display()))
    }
}

/// Free bytes and free files of the file system.
fn free(root: &OwnedFd) -> std::io::Result<(u64, u64)> {
    let stat = rustix::fs::fstatvfs(root)?;
    // Some file systems have no fixed number of files and say zero.
    let files = if stat.f_files == 0 { u64::MAX } else { stat.f_favail };
    Ok((stat.f_bavail.saturating_mul(stat.f_frsize), files))
}

fn add(folder: &impl AsFd, depth: usize, usage: &mut Usage) {
    let Ok(entries) = Dir::read_from(folder) else { return };
    for entry in entries.flatten() {
        if usage.names > MAX_NAMES {
            return;
        }
        let name = entry.file_name();
        if name.to_bytes() == b"." || name.to_bytes() == b".." {
            continue;
        }
        usage.names += 1;
        let Ok(stat) = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else {
            continue;
        };
        usage.bytes += (stat.st_blocks as u64) * 512;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match rustix::fs::openat(folder, name, flags, Mode::empty()) {
                Ok(below) if depth < MAX_DEPTH => add(&below, depth + 1, usage),
                Ok(_) => usage.names = MAX_NAMES + 1,
                Err(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excess_files_or_depth_are_reported_unless_shrinking() {
        let folder = tempfile::tempdir().unwrap();
        let mut watch = DiskWatch::start(folder.path()).unwrap();
        fs_err::write(folder.path().join("a"), "x").unwrap();
        assert_eq!(watch.look(), None, "positive control");
        let deep = folder.path().join("d/".repeat(MAX_DEPTH + 2));
        fs_err::create_dir_all(&deep).unwrap();
        assert!(watch.look().unwrap().contains("too deep"));
        fs_err::remove_file(folder.path().join("a")).unwrap();
        assert_eq!(watch.look(), None, "it does not grow any more");
    }
}
