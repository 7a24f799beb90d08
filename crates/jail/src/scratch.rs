//! Private folders for temporary files of one jail or one probe.

use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A private folder that stands for `/tmp` and home where nothing can be mounted; removed at the end.
#[derive(Debug)]
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        if fs_err::remove_dir_all(&self.0).is_err() {
            // The program may have closed folders of its own to itself.
            drop(open_folders(&self.0));
            drop(fs_err::remove_dir_all(&self.0));
        }
    }
}

fn open_folders(path: &Path) -> std::io::Result<()> {
    if fs_err::symlink_metadata(path)?.is_dir() {
        fs_err::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
        for entry in fs_err::read_dir(path)? {
            open_folders(&entry?.path())?;
        }
    }
    Ok(())
}

/// Makes the folder of a [`Scratch`].
pub(crate) fn scratch_folder() -> std::io::Result<PathBuf> {
    let folder = own_folder("warpwright-jail", 0o700)?;
    for name in ["tmp", "home"] {
        fs_err::create_dir(folder.join(name))?;
    }
    Ok(folder)
}

/// Makes a folder for temporary files that nobody else has made: `NAME-PROCESS-NUMBER`. One of that
/// name may be there, left by a process of the same number that was killed: then the next is taken.
pub(crate) fn own_folder(name: &str, mode: u32) -> std::io::Result<PathBuf> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("{name}-{}-{number}", std::process::id()));
        match std::fs::DirBuilder::new().mode(mode).create(&folder) {
            Ok(()) => return fs_err::canonicalize(folder),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftover_folder_of_a_killed_process_is_skipped() {
        let name = format!("warpwright-left-{}", std::process::id());
        let left = |n: u32| std::env::temp_dir().join(format!("{name}-{}-{n}", std::process::id()));
        // Other tests of this process may have taken some numbers.
        let next = own_folder(&name, 0o700).unwrap();
        let taken = (0..1000).find(|n| left(*n) == next).unwrap();
        let old: Vec<_> = (taken + 1..taken + 9).map(left).collect();
        for folder in &old {
            fs_err::create_dir(folder).unwrap();
        }
        let new = own_folder(&name, 0o700).unwrap();
        assert!(new.is_dir() && !old.contains(&new));
        for folder in old.iter().chain([&next, &new]) {
            fs_err::remove_dir(folder).unwrap();
        }
    }
}
