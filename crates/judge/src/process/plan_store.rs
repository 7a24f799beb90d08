//! The launch plans of this machine's verdicts: files in the cache folder, named by the BLAKE3 of their bytes.

use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use fs_err as fs;
use warpwright_record::blob::BlobHash;

use crate::process::plan_file::MAX_PLAN_FILE_BYTES;

/// Bytes of all files. A candidate's plan takes some 10 KiB: enough for the verdicts of a month.
const MOST_BYTES: u64 = 8 << 30;

/// A folder of plan files. Several processes may use it concurrently.
#[derive(Debug)]
pub(crate) struct PlanStore {
    root: PathBuf,
    most_bytes: u64,
    /// Bytes that came since the last look at all files.
    came: AtomicU64,
}

impl PlanStore {
    /// The store of a cache folder.
    pub(crate) fn of(cache: &Path) -> Self {
        // The first file makes it look: an earlier process may have filled the folder.
        Self { root: cache.join("plans"), most_bytes: MOST_BYTES, came: AtomicU64::new(MOST_BYTES) }
    }

    fn place(&self, hash: BlobHash) -> PathBuf {
        let hash = hash.to_string();
        let (folder, name) = hash.split_at(2);
        self.root.join(folder).join(name)
    }

    /// Stores a file. One that is there is marked as used.
    pub(crate) fn put(&self, bytes: &[u8]) -> io::Result<BlobHash> {
        let hash = BlobHash::of(bytes);
        let place = self.place(hash);
        if let Ok(there) = fs::OpenOptions::new().write(true).open(&place)
            && there.metadata()?.len() == bytes.len() as u64
        {
            there.file().set_modified(SystemTime::now())?;
            return Ok(hash);
        }
        let folder = place.parent().unwrap_or(&self.root);
        fs::create_dir_all(folder)?;
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(bytes)?;
        // Readable as the other files of the cache are.
        file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
        file.persist(&place)?;
        self.evict(bytes.len() as u64);
        Ok(hash)
    }

    /// The bytes of a file; `None` if it is not there. Who reads them compares their hash.
    pub(crate) fn get(&self, hash: BlobHash) -> io::Result<Option<Vec<u8>>> {
        match read_plan_file(&self.place(hash)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes the least recently used files beyond the limit. A look at all takes a while: not each time.
    fn evict(&self, bytes: u64) {
        if self.came.fetch_add(bytes, Ordering::Relaxed) + bytes < self.most_bytes / 16 {
            return;
        }
        self.came.store(0, Ordering::Relaxed);
        let mut files = Vec::new();
        for folder in entries(&self.root) {
            for path in entries(&folder) {
                // Another process may be removing it.
                let Ok(facts) = fs::metadata(&path) else { continue };
                files.push((facts.modified().unwrap_or(SystemTime::UNIX_EPOCH), facts.len(), path));
            }
        }
        let mut all: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        if all <= self.most_bytes {
            return;
        }
        files.sort();
        for (_, bytes, path) in files {
            if all <= self.most_bytes / 4 * 3 {
                break;
            }
            all -= bytes;
            // One that stays takes room, and nothing else.
            let _ = fs::remove_file(path);
        }
    }
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let read = fs::read_dir(folder).into_iter().flatten();
    read.filter_map(|entry| Some(entry.ok()?.path()))
}

/// Where a cache folder has the file of a launch plan, if it has it.
pub fn stored_plan_file(cache: &Path, hash: BlobHash) -> PathBuf {
    PlanStore::of(cache).place(hash)
}

/// Reads a file that may be a launch plan, up to the size that one may have.
pub fn read_plan_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = fs::File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other(format!("{} is no regular file", path.display())));
    }
    file.take(MAX_PLAN_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_PLAN_FILE_BYTES {
        let most = MAX_PLAN_FILE_BYTES >> 20;
        let text = format!("{} exceeds the {most} MiB of a launch plan", path.display());
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn stored_plan_is_found_by_its_hash() {
        let cache = tempfile::tempdir().unwrap();
        let store = PlanStore::of(cache.path());
        let hash = store.put(b"plan").unwrap();
        assert_eq!(store.put(b"plan").unwrap(), hash, "again");
        assert_eq!(store.get(hash).unwrap().unwrap(), b"plan");
        assert_eq!(store.get(BlobHash::of(b"other")).unwrap(), None);
        // A shorter file, as after a full disk, is written anew.
        fs::write(store.place(hash), b"pl").unwrap();
        store.put(b"plan").unwrap();
        assert_eq!(store.get(hash).unwrap().unwrap(), b"plan");
    }

    #[test]
    fn least_recently_used_plans_are_evicted() {
        let cache = tempfile::tempdir().unwrap();
        let store =
            PlanStore { most_bytes: 1000, came: AtomicU64::new(0), ..PlanStore::of(cache.path()) };
        let old = SystemTime::now() - Duration::from_hours(1);
        let put = |number: u8| {
            let hash = store.put(&[number; 100]).unwrap();
            let file = fs::OpenOptions::new().write(true).open(store.place(hash)).unwrap();
            file.file().set_modified(old + Duration::from_secs(number.into())).unwrap();
            hash
        };
        let hashes: Vec<BlobHash> = (0..12).map(put).collect();
        let left: Vec<bool> =
            hashes.iter().map(|hash| store.get(*hash).unwrap().is_some()).collect();
        assert!(!left[0] && !left[1] && left[11], "{left:?}");
        assert!(left.iter().filter(|left| **left).count() <= 10, "{left:?}");
    }

    #[test]
    fn folder_is_no_plan_file() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read_plan_file(folder.path()).is_err());
        assert!(read_plan_file(&folder.path().join("missing")).is_err());
    }
}
