//! Folders through which runners that already run are shown what they are to load.
//!
//! A jail's mounts are fixed when it starts, and a runner starts before its candidate is known. So
//! it is shown an empty folder of its own, read-only, which the judge fills later: with copies, since
//! a link would let whatever goes wrong with one runner's files reach the build cache, from which all
//! later verdicts are served.
//!
//! Each judge has a folder below the cache, locked for as long as it lives. What judges left that
//! were killed is not locked, and is removed by the next one.

use std::fs::File;
use std::path::{Path, PathBuf};

use fs_err as fs;
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

/// Prefix of a judge's folder.
const JUDGE: &str = "judge-";
const LOCK: &str = "lock";

/// One judge's folders. Removed when dropped.
pub(crate) struct Homes {
    folder: TempDir,
    /// Says that the judge lives: held open, never read.
    _lock: File,
}

/// The folder of one runner. Removed when dropped.
pub(crate) struct Home {
    _root: TempDir,
    shown: PathBuf,
}

impl Homes {
    /// Makes this judge's folder below `cache`, and removes those of judges that are no more.
    pub(crate) fn open(cache: &Path) -> std::io::Result<Self> {
        let all = cache.join("runners");
        fs::create_dir_all(&all)?;
        // One judge at a time, so that none takes for a left-over what another has not locked yet.
        let turn = fs::File::create(all.join(LOCK))?.into_parts().0;
        flock(&turn, FlockOperation::LockExclusive)?;
        for entry in fs::read_dir(&all)? {
            let path = entry?.path();
            let named = path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(JUDGE));
            if named && !lives(&path) {
                // What cannot be removed now is tried again by the next judge.
                let _ = fs::remove_dir_all(&path);
            }
        }
        let folder = tempfile::Builder::new().prefix(JUDGE).tempdir_in(&all)?;
        let lock = fs::File::create(folder.path().join(LOCK))?.into_parts().0;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { folder, _lock: lock })
    }

    /// A new folder with nothing in it.
    pub(crate) fn add(&self) -> std::io::Result<Home> {
        let root = tempfile::Builder::new().prefix("runner-").tempdir_in(self.folder.path())?;
        let shown = root.path().join("artifact");
        fs::create_dir(&shown)?;
        Ok(Home { _root: root, shown })
    }
}

/// Whether the judge that made this folder still holds its lock.
fn lives(folder: &Path) -> bool {
    // Without a lock it was left half-made: its judge had the turn, and has lost it.
    let Ok(lock) = fs::File::open(folder.join(LOCK)) else { return false };
    flock(lock.into_parts().0, FlockOperation::NonBlockingLockExclusive).is_err()
}

impl Home {
    /// The folder that the runner is shown, under the name that it has there too.
    pub(crate) fn shown(&self) -> &Path {
        &self.shown
    }

    /// Copies an artifact's files and folders into it. It has nothing else: links are not followed.
    pub(crate) fn fill(&self, artifact: &Path) -> std::io::Result<()> {
        copy(artifact, &self.shown)
    }
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            fs::create_dir(&target)?;
            copy(&entry.path(), &target)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_artifact_is_copied_and_links_are_not_followed() {
        let cache = tempfile::tempdir().unwrap();
        let artifact = cache.path().join("artifact");
        fs::create_dir_all(artifact.join("inline")).unwrap();
        fs::write(artifact.join("libkernels.so"), "code").unwrap();
        fs::write(artifact.join("inline/module.so"), "more").unwrap();
        fs::write(cache.path().join("secret"), "secret").unwrap();
        std::os::unix::fs::symlink(cache.path().join("secret"), artifact.join("link")).unwrap();
        let homes = Homes::open(cache.path()).unwrap();
        let home = homes.add().unwrap();
        home.fill(&artifact).unwrap();
        let copy = home.shown().join("libkernels.so");
        assert_eq!(fs::read_to_string(&copy).unwrap(), "code");
        assert_eq!(fs::read_to_string(home.shown().join("inline/module.so")).unwrap(), "more");
        assert!(!home.shown().join("link").exists());
        fs::write(&copy, "other").unwrap();
        assert_eq!(fs::read_to_string(artifact.join("libkernels.so")).unwrap(), "code");
        let shown = home.shown().to_owned();
        drop(home);
        assert!(!shown.exists());
    }

    #[test]
    fn folders_of_dead_judges_are_removed_and_those_of_living_ones_kept() {
        let cache = tempfile::tempdir().unwrap();
        let living = Homes::open(cache.path()).unwrap();
        let kept = living.add().unwrap();
        let killed = Homes::open(cache.path()).unwrap();
        let left = killed.add().unwrap();
        let left_at = left.shown().to_owned();
        // As after a kill: the lock is gone and the folder is not.
        let Homes { folder, _lock: lock } = killed;
        let folder = folder.keep();
        std::mem::forget(left);
        drop(lock);
        assert!(left_at.exists(), "positive control");
        let next = Homes::open(cache.path()).unwrap();
        assert!(!left_at.exists() && !folder.exists());
        assert!(kept.shown().exists() && next.folder.path().exists());
    }
}
