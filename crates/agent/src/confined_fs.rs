//! File access that cannot leave one folder.
//!
//! The agent's shell owns the workspace and may create any link, pipe or folder in it at any moment.
//! Every access of this module therefore uses `openat2` relative to the folder's descriptor, with
//! `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS`: the kernel refuses a path that follows a symbolic link or leaves
//! the folder, at the time of use. There is no gap between check and use.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use thiserror::Error;

pub use walk::{Entry, Walk};

mod walk;

/// Deepest nesting [`ConfinedDir::snapshot`] follows.
const MAX_DEPTH: usize = 8;
/// Maximum names that a snapshot visits: a shell can create millions.
const MAX_ENTRIES: usize = 20_000;

/// A folder, held by its descriptor. No access leaves it.
#[derive(Debug)]
pub struct ConfinedDir {
    root: OwnedFd,
    path: PathBuf,
}

/// Why a file operation failed.
#[derive(Debug, Error)]
pub enum FileError {
    /// The path is not a plain relative path.
    #[error("failed to use the path {path}: {reason}")]
    Path {
        /// As given.
        path: String,
        /// Why it is refused.
        reason: &'static str,
    },
    /// There is no such file.
    #[error("failed to open {path}: there is no such file")]
    Missing {
        /// Relative to the folder.
        path: String,
    },
    /// The path follows a symbolic link or leaves the folder.
    #[error("failed to open {path}: it follows a symbolic link or leaves the workspace")]
    Escapes {
        /// Relative to the folder.
        path: String,
    },
    /// A folder, pipe, socket or device.
    #[error("failed to open {path}: it is not a regular file")]
    NotRegular {
        /// Relative to the folder.
        path: String,
    },
    /// Larger than the caller allows.
    #[error("failed to read {path}: it is larger than {limit} bytes")]
    TooLarge {
        /// Relative to the folder.
        path: String,
        /// Maximum bytes allowed.
        limit: u64,
    },
    /// The system refused, e.g. because the disk is full.
    #[error("failed to {action} {path}: {source}")]
    System {
        /// `open`, `write`, ...
        action: &'static str,
        /// Relative to the folder.
        path: String,
        /// The system's reason.
        source: std::io::Error,
    },
}

impl FileError {
    /// Whether this is an infrastructure error (a full or failing disk, no memory), not a bad request.
    /// Errors that a shell in the folder can cause, such as missing permissions, are not.
    pub fn is_ours(&self) -> bool {
        use std::io::ErrorKind::{OutOfMemory, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        let Self::System { source, .. } = self else { return false };
        matches!(source.kind(), StorageFull | QuotaExceeded | ReadOnlyFilesystem | OutOfMemory)
            || [Errno::IO, Errno::MFILE, Errno::NFILE]
                .iter()
                .any(|errno| source.raw_os_error() == Some(errno.raw_os_error()))
    }
}

impl ConfinedDir {
    /// Opens a folder.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|e| system("open", &path.display().to_string(), e))?;
        Ok(Self { root, path: path.to_owned() })
    }

    /// The folder's path when it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads a regular file of at most `limit` bytes.
    pub fn read(&self, relative: &str, limit: u64) -> Result<Vec<u8>, FileError> {
        check(relative)?;
        // NONBLOCK: opening a pipe must not wait for a writer.
        let fd = self.open_at(relative, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        read_regular(fd, relative, limit)
    }

    /// Whether the path exists, as any kind of file.
    pub fn exists(&self, relative: &str) -> bool {
        check(relative).is_ok() && !matches!(self.kind(relative), Err(FileError::Missing { .. }))
    }

    /// Writes a regular file atomically: to a new file first, then renamed over the old one, so
    /// that a full disk loses nothing. Creates missing folders.
    pub fn write(&self, relative: &str, bytes: &[u8]) -> Result<(), FileError> {
        check(relative)?;
        match self.kind(relative) {
            Ok(FileType::RegularFile) | Err(FileError::Missing { .. }) => {}
            Ok(FileType::Symlink) => {
                return Err(FileError::Escapes { path: relative.to_owned() });
            }
            Ok(_) => return Err(FileError::NotRegular { path: relative.to_owned() }),
            Err(e) => return Err(e),
        }
        let (folder, name) = self.parent(relative)?;
        let temporary = format!(".{name}.partial");
        let _ = rustix::fs::unlinkat(&folder, &temporary, AtFlags::empty());
        let written = write_new(&folder, &temporary, bytes).and_then(|()| {
            rustix::fs::renameat(&folder, &temporary, &folder, name).map_err(std::io::Error::from)
        });
        written.map_err(|source| {
            let _ = rustix::fs::unlinkat(&folder, &temporary, AtFlags::empty());
            FileError::System { action: "write", path: relative.to_owned(), source }
        })
    }

    /// Removes a file or link. A missing file is not an error.
    pub fn remove(&self, relative: &str) -> Result<(), FileError> {
        check(relative)?;
        match self.parent_if_any(relative)? {
            None => Ok(()),
            Some((folder, name)) => match rustix::fs::unlinkat(&folder, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => Ok(()),
                Err(e) => Err(system("remove", relative, e)),
            },
        }
    }

    /// Creates a folder and its parents.
    pub fn make_folder(&self, relative: &str) -> Result<(), FileError> {
        self.parent(&format!("{relative}/x")).map(|_| ())
    }

    /// Every regular file whose path `keep` accepts, by path, sorted. Links, pipes and other
    /// special files are skipped. Folders that `keep` refuses are not entered.
    pub fn snapshot(
        &self,
        limits: SnapshotLimits,
        keep: &dyn Fn(&str) -> bool,
    ) -> Result<Snapshot, FileError> {
        let mut snapshot = Snapshot::default();
        self.collect("", 0, limits, keep, &mut snapshot)?;
        snapshot.left_out.sort();
        Ok(snapshot)
    }

    fn collect(
        &self,
        prefix: &str,
        depth: usize,
        limits: SnapshotLimits,
        keep: &dyn Fn(&str) -> bool,
        snapshot: &mut Snapshot,
    ) -> Result<(), FileError> {
        let at = if prefix.is_empty() { "." } else { prefix };
        // Background commands may be at work meanwhile, and leavings may be odd.
        let folder = match self.open_at(at, OFlags::RDONLY | OFlags::DIRECTORY) {
            Ok(folder) => folder,
            Err(e) if e.is_ours() || prefix.is_empty() => return Err(e),
            Err(_) => {
                snapshot.left_out.push(prefix.to_owned());
                return Ok(());
            }
        };
        let entries = match Dir::read_from(&folder).map_err(|e| system("list", at, e)) {
            Ok(entries) => entries,
            Err(e) if e.is_ours() || prefix.is_empty() => return Err(e),
            Err(_) => {
                snapshot.left_out.push(prefix.to_owned());
                return Ok(());
            }
        };
        for entry in entries {
            let entry = match entry.map_err(|e| system("list", at, e)) {
                Ok(entry) => entry,
                Err(e) if e.is_ours() || prefix.is_empty() => return Err(e),
                // Removed while it was read.
                Err(_) => {
                    snapshot.left_out.push(prefix.to_owned());
                    return Ok(());
                }
            };
            snapshot.visited += 1;
            if snapshot.visited > MAX_ENTRIES {
                snapshot.left_out.push(format!("{prefix}/(more than {MAX_ENTRIES} names)"));
                return Ok(());
            }
            let Ok(name) = entry.file_name().to_str() else {
                snapshot.left_out.push(format!("{prefix}/(a name that is not UTF-8)"));
                continue;
            };
            if name == "." || name == ".." {
                continue;
            }
            let path = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}/{name}") };
            if !keep(&path) {
                continue;
            }
            match self.kind(&path) {
                Ok(FileType::Directory) if depth < MAX_DEPTH => {
                    self.collect(&path, depth + 1, limits, keep, snapshot)?;
                }
                Ok(FileType::RegularFile) => {
                    let room = limits.total_bytes.saturating_sub(snapshot.bytes());
                    let most = limits.file_bytes.min(room);
                    match self.read(&path, most) {
                        Ok(bytes) if snapshot.files.len() < limits.files => {
                            snapshot.files.insert(path, bytes);
                        }
                        Ok(_) | Err(FileError::TooLarge { .. }) => snapshot.left_out.push(path),
                        Err(e) if !e.is_ours() => snapshot.left_out.push(path),
                        Err(e) => return Err(e),
                    }
                }
                _ => snapshot.left_out.push(path),
            }
        }
        Ok(())
    }

    fn kind(&self, relative: &str) -> Result<FileType, FileError> {
        let Some((folder, name)) = self.parent_if_any(relative)? else {
            return Err(FileError::Missing { path: relative.to_owned() });
        };
        match rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(FileType::from_raw_mode(stat.st_mode)),
            Err(Errno::NOENT) => Err(FileError::Missing { path: relative.to_owned() }),
            Err(e) => Err(system("look at", relative, e)),
        }
    }

    /// The folder that contains `relative`, created if needed, and the last name.
    fn parent<'a>(&self, relative: &'a str) -> Result<(OwnedFd, &'a str), FileError> {
        check(relative)?;
        let Some((folders, name)) = relative.rsplit_once('/') else {
            return Ok((self.open_at(".", OFlags::PATH | OFlags::DIRECTORY)?, relative));
        };
        let mut made = String::new();
        let mut at = self.open_at(".", OFlags::PATH | OFlags::DIRECTORY)?;
        for part in folders.split('/') {
            match rustix::fs::mkdirat(&at, part, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(e) => return Err(system("make the folder of", relative, e)),
            }
            if !made.is_empty() {
                made.push('/');
            }
            made.push_str(part);
            at = self.open_at(&made, OFlags::PATH | OFlags::DIRECTORY)?;
        }
        Ok((at, name))
    }

    fn parent_if_any<'a>(
        &self,
        relative: &'a str,
    ) -> Result<Option<(OwnedFd, &'a str)>, FileError> {
        check(relative)?;
        let (folder, name) = relative.rsplit_once('/').unwrap_or((".", relative));
        match self.open_at(folder, OFlags::PATH | OFlags::DIRECTORY) {
            Ok(fd) => Ok(Some((fd, name))),
            Err(FileError::Missing { .. }) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn open_at(&self, relative: &str, flags: OFlags) -> Result<OwnedFd, FileError> {
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::CLOEXEC;
        rustix::fs::openat2(&self.root, relative, flags, Mode::empty(), resolve).map_err(|e| {
            let path = relative.to_owned();
            match e {
                Errno::NOENT => FileError::Missing { path },
                Errno::LOOP | Errno::XDEV => FileError::Escapes { path },
                Errno::NOTDIR | Errno::NXIO | Errno::NODEV | Errno::ISDIR => {
                    FileError::NotRegular { path }
                }
                _ => system("open", relative, e),
            }
        })
    }
}

/// Creates a new file and fills it.
fn write_new(folder: &OwnedFd, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(folder, name, flags, Mode::from_raw_mode(0o644))?;
    let mut file = File::from(fd);
    file.write_all(bytes)?;
    file.flush()
}

/// Limits of a snapshot.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotLimits {
    /// Files.
    pub files: usize,
    /// Bytes in one file.
    pub file_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
}

/// The files of a folder at one point in time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Contents by relative path.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Skipped paths: links, devices, too large, too many. Sorted.
    pub left_out: Vec<String>,
    visited: usize,
}

impl Snapshot {
    fn bytes(&self) -> u64 {
        self.files.values().map(|b| b.len() as u64).sum()
    }
}

fn read_regular(fd: OwnedFd, relative: &str, limit: u64) -> Result<Vec<u8>, FileError> {
    let stat = rustix::fs::fstat(&fd).map_err(|e| system("look at", relative, e))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(FileError::NotRegular { path: relative.to_owned() });
    }
    let mut bytes = Vec::new();
    File::from(fd).take(limit + 1).read_to_end(&mut bytes).map_err(|source| FileError::System {
        action: "read",
        path: relative.to_owned(),
        source,
    })?;
    if bytes.len() as u64 > limit {
        return Err(FileError::TooLarge { path: relative.to_owned(), limit });
    }
    Ok(bytes)
}

fn check(relative: &str) -> Result<(), FileError> {
    let wrong = |reason| Err(FileError::Path { path: relative.to_owned(), reason });
    if relative.is_empty() {
        return wrong("it is empty");
    }
    if relative.len() > 512 {
        return wrong("it is longer than 512 bytes");
    }
    if relative.starts_with('/') {
        return wrong("it is not relative to the workspace");
    }
    if relative.contains('\0') {
        return wrong("it contains a zero byte");
    }
    if relative.split('/').any(|part| part.is_empty() || part == "." || part == "..") {
        return wrong("it contains an empty part, `.` or `..`");
    }
    Ok(())
}

fn system(action: &'static str, path: &str, errno: Errno) -> FileError {
    FileError::System { action, path: path.to_owned(), source: errno.into() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn scene() -> (tempfile::TempDir, ConfinedDir) {
        let outer = tempfile::tempdir().unwrap();
        fs_err::create_dir(outer.path().join("in")).unwrap();
        fs_err::write(outer.path().join("secret"), "secret").unwrap();
        let confined = ConfinedDir::open(&outer.path().join("in")).unwrap();
        (outer, confined)
    }

    /// Each attack is first shown to work with ordinary file access.
    #[test]
    fn symlink_out_of_the_folder_is_refused_for_reads_and_writes() {
        let (outer, confined) = scene();
        symlink("../secret", outer.path().join("in/file")).unwrap();
        symlink("..", outer.path().join("in/folder")).unwrap();
        for path in ["file", "folder/secret"] {
            let plain = outer.path().join("in").join(path);
            assert_eq!(fs_err::read_to_string(plain).unwrap(), "secret", "positive control");
            let read = confined.read(path, 100);
            assert!(matches!(read, Err(FileError::Escapes { .. })), "{path}: {read:?}");
            let written = confined.write(path, b"owned");
            assert!(matches!(written, Err(FileError::Escapes { .. })), "{path}: {written:?}");
        }
        assert_eq!(fs_err::read_to_string(outer.path().join("secret")).unwrap(), "secret");
        fs_err::write(outer.path().join("in/file"), "owned").unwrap();
        let through_link = fs_err::read_to_string(outer.path().join("secret")).unwrap();
        assert_eq!(through_link, "owned", "positive control: a plain write does follow the link");
    }

    #[test]
    fn symlink_within_the_folder_is_refused() {
        let (outer, confined) = scene();
        fs_err::write(outer.path().join("in/real"), "x").unwrap();
        symlink("real", outer.path().join("in/alias")).unwrap();
        assert_eq!(confined.read("real", 10).unwrap(), b"x");
        assert!(matches!(confined.read("alias", 10), Err(FileError::Escapes { .. })));
    }

    #[test]
    fn path_traversal_is_refused_without_a_system_call() {
        let (_outer, confined) = scene();
        for path in ["../secret", "/etc/passwd", "a/../../secret", "", "a//b", "./a", "a\0b"] {
            assert!(matches!(confined.read(path, 10), Err(FileError::Path { .. })), "{path:?}");
            assert!(matches!(confined.write(path, b""), Err(FileError::Path { .. })), "{path:?}");
        }
    }

    #[test]
    fn named_pipe_is_refused_without_blocking() {
        let (outer, confined) = scene();
        let pipe = outer.path().join("in/pipe");
        let mode = Mode::from_raw_mode(0o644);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, mode, 0).unwrap();
        assert!(matches!(confined.read("pipe", 10), Err(FileError::NotRegular { .. })));
        assert!(matches!(confined.write("pipe", b"x"), Err(FileError::NotRegular { .. })));
    }

    #[test]
    fn write_creates_folders_and_replaces_files_atomically() {
        let (outer, confined) = scene();
        confined.write("a/b/c.txt", b"one").unwrap();
        confined.write("a/b/c.txt", b"two").unwrap();
        assert_eq!(confined.read("a/b/c.txt", 10).unwrap(), b"two");
        let names: Vec<_> = fs_err::read_dir(outer.path().join("in/a/b"))
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        assert_eq!(names, ["c.txt"], "no temporary file is left");
        assert!(matches!(confined.read("a/b/c.txt", 2), Err(FileError::TooLarge { .. })));
    }

    #[test]
    fn snapshot_takes_regular_files_and_lists_skipped_ones() {
        let (outer, confined) = scene();
        confined.write("model_new.py", b"m").unwrap();
        confined.write("kernels/a.cu", b"k").unwrap();
        confined.write("kernels/big.bin", &[0; 64]).unwrap();
        confined.write("utils/x.py", b"u").unwrap();
        symlink("../secret", outer.path().join("in/kernels/link.cu")).unwrap();
        let limits = SnapshotLimits { files: 10, file_bytes: 32, total_bytes: 64 };
        let taken = confined.snapshot(limits, &|p| !p.starts_with("utils")).unwrap();
        let names: Vec<_> = taken.files.keys().map(String::as_str).collect();
        assert_eq!(names, ["kernels/a.cu", "model_new.py"]);
        assert_eq!(taken.left_out, ["kernels/big.bin", "kernels/link.cu"]);
        let many = outer.path().join("in/many");
        fs_err::create_dir(&many).unwrap();
        for i in 0..MAX_ENTRIES {
            std::fs::File::create(many.join(i.to_string())).unwrap();
        }
        let taken = confined.snapshot(limits, &|_| true).unwrap();
        assert!(taken.left_out.iter().any(|name| name.contains("more than")));
    }
}
