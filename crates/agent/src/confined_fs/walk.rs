//! The files of a folder by name and age, without their contents.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, FileType, OFlags};

use super::{ConfinedDir, FileError, MAX_DEPTH, MAX_ENTRIES, check};

/// One regular file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Relative to the root.
    pub path: String,
    /// Time of the last write: seconds and nanoseconds since 1970.
    pub modified: (i64, i64),
    /// Its size.
    pub bytes: u64,
}

/// The files that a walk found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walk {
    /// Regular files, by path. Links, pipes and other special files are skipped.
    pub files: Vec<Entry>,
    /// Whether files are missing: too many names, or folders that are too deep or not readable.
    pub cut: bool,
    visited: usize,
}

impl ConfinedDir {
    /// The regular files below `start`, or `start` itself if it is one; the empty path is the root.
    pub fn walk(&self, start: &str) -> Result<Walk, FileError> {
        let mut walk = Walk::default();
        if start.is_empty() {
            let root = self.open_at(".", OFlags::RDONLY | OFlags::DIRECTORY)?;
            enter(&root, "", 0, &mut walk);
        } else {
            check(start)?;
            match self.kind(start)? {
                FileType::Directory => {
                    let folder = self.open_at(start, OFlags::RDONLY | OFlags::DIRECTORY)?;
                    enter(&folder, start, 0, &mut walk);
                }
                FileType::RegularFile => {
                    let (folder, name) = self.parent(start)?;
                    walk.files.extend(look(&folder, name, start.to_owned()).map(|(_, e)| e));
                }
                FileType::Symlink => {
                    return Err(FileError::Escapes { path: start.to_owned() });
                }
                _ => return Err(FileError::NotRegular { path: start.to_owned() }),
            }
        }
        walk.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(walk)
    }
}

fn look(folder: &OwnedFd, name: &str, path: String) -> Option<(FileType, Entry)> {
    let stat = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let modified = (stat.st_mtime as i64, stat.st_mtime_nsec as i64);
    let kind = FileType::from_raw_mode(stat.st_mode);
    Some((kind, Entry { path, modified, bytes: stat.st_size as u64 }))
}

/// Skips files that vanish, or cannot be read, while a shell is running.
fn enter(folder: &OwnedFd, prefix: &str, depth: usize, walk: &mut Walk) {
    let Ok(entries) = Dir::read_from(folder) else {
        walk.cut = true;
        return;
    };
    for entry in entries {
        let Ok(entry) = entry else {
            walk.cut = true;
            return;
        };
        walk.visited += 1;
        if walk.visited > MAX_ENTRIES {
            walk.cut = true;
            return;
        }
        let Ok(name) = entry.file_name().to_str() else {
            walk.cut = true;
            continue;
        };
        if name == "." || name == ".." {
            continue;
        }
        let path = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}/{name}") };
        match look(folder, name, path) {
            Some((FileType::RegularFile, entry)) => walk.files.push(entry),
            Some((FileType::Directory, entry)) if depth < MAX_DEPTH => {
                // The name is one part and not a link, so this cannot leave the folder.
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let mode = rustix::fs::Mode::empty();
                match rustix::fs::openat(folder, name, flags, mode) {
                    Ok(below) => enter(&below, &entry.path, depth + 1, walk),
                    Err(_) => walk.cut = true,
                }
            }
            Some((FileType::Directory, _)) => walk.cut = true,
            _ => {}
        }
    }
}
