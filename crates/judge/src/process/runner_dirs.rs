//! Folders through which running runners receive the artifact that they load.
//!
//! A jail's mounts are fixed when it starts, and a runner starts before its candidate is known. So each
//! runner gets an empty folder, mounted read-only, which the judge fills later. The judge copies the
//! files: a link would let damage to one runner's files reach the build cache, which serves all later
//! verdicts.
//!
//! Each judge has a folder below the cache and holds a lock in it while it lives. The next judge removes
//! the unlocked folders of killed judges.

use std::fs::File;
use std::path::{Path, PathBuf};

use fs_err as fs;
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

/// Prefix of a judge's folder.
const JUDGE: &str = "judge-";
const LOCK: &str = "lock";

/// The folder of one judge, with one folder per runner. Removed when dropped.
pub(crate) struct RunnerDirs {
    folder: TempDir,
    /// Says that the judge lives: held open, never read.
    _lock: File,
}

/// The folder of one runner. Removed when dropped.
pub(crate) struct RunnerDir {
    _root: TempDir,
    shown: PathBuf,
}

impl RunnerDirs {
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
    pub(crate) fn add(&self) -> std::io::Result<RunnerDir> {
        let root = tempfile::Builder::new().prefix("runner-").tempdir_in(self.folder.path())?;
        let shown = root.path().join("artifact");
        fs::create_dir(&shown)?;
        Ok(RunnerDir { _root: root, shown })
    }
}

/// Whether the judge that made this folder still holds its lock.
fn lives(folder: &Path) -> bool {
    // Without a lock it was left half-made: its judge had the turn, and has lost it.
    let Ok(lock) = fs::File::open(folder.join(LOCK)) else { return false };
    flock(lock.into_parts().0, FlockOperation::NonBlockingLockExclusive).is_err()
}

impl RunnerDir {
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
        let runner_dirs = RunnerDirs::open(cache.path()).unwrap();
        let runner_dir = runner_dirs.add().unwrap();
        runner_dir.fill(&artifact).unwrap();
        let copy = runner_dir.shown().join("libkernels.so");
        assert_eq!(fs::read_to_string(&copy).unwrap(), "code");
        assert_eq!(
            fs::read_to_string(runner_dir.shown().join("inline/module.so")).unwrap(),
            "more"
        );
        assert!(!runner_dir.shown().join("link").exists());
        fs::write(&copy, "other").unwrap();
        assert_eq!(fs::read_to_string(artifact.join("libkernels.so")).unwrap(), "code");
        let shown = runner_dir.shown().to_owned();
        drop(runner_dir);
        assert!(!shown.exists());
    }

    #[test]
    fn only_folders_of_dead_judges_are_removed() {
        let cache = tempfile::tempdir().unwrap();
        let living = RunnerDirs::open(cache.path()).unwrap();
        let kept = living.add().unwrap();
        let killed = RunnerDirs::open(cache.path()).unwrap();
        let left = killed.add().unwrap();
        let left_at = left.shown().to_owned();
        // As after a kill: the lock is gone and the folder is not.
        let RunnerDirs { folder, _lock: lock } = killed;
        let folder = folder.keep();
        std::mem::forget(left);
        drop(lock);
        assert!(left_at.exists(), "positive control");
        let next = RunnerDirs::open(cache.path()).unwrap();
        assert!(!left_at.exists() && !folder.exists());
        assert!(kept.shown().exists() && next.folder.path().exists());
    }
}
