//! A folder of build results, addressed by the hash of their inputs.
//!
//! An entry is a folder that appears atomically, by a rename, and never changes. Its `hashes.json`
//! lists the BLAKE3 of every other file in it. An entry that does not match its list (a full disk,
//! a crash, tampering) is removed and rebuilt.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use fs_err as fs;
use tempfile::TempDir;

use crate::entry::{HASHES, Kind, files_below, hash_file, open_to_readers, whole};
use crate::evict::{Bound, size};

/// The cache's folder. Several processes may use it concurrently.
#[derive(Debug)]
pub(crate) struct Cache {
    root: PathBuf,
    bound: Bound,
}

impl Cache {
    /// A cache of at most about `bytes`.
    pub(crate) fn open(root: &Path, bytes: u64) -> std::io::Result<Self> {
        for folder in Kind::ALL.map(Kind::folder).iter().chain(&["scratch", "prefixes"]) {
            fs::create_dir_all(root.join(folder))?;
        }
        Ok(Self { root: fs::canonicalize(root)?, bound: Bound::new(bytes) })
    }

    /// The cache's root folder.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// A folder for work in progress, on the cache's file system so that a rename can publish it.
    pub(crate) fn scratch(&self) -> std::io::Result<TempDir> {
        let made = tempfile::Builder::new().prefix("b").tempdir_in(self.root.join("scratch"))?;
        fs::set_permissions(made.path(), std::fs::Permissions::from_mode(0o755))?;
        Ok(made)
    }

    fn place(&self, kind: Kind, key: &str) -> PathBuf {
        self.root.join(kind.folder()).join(&key[..2]).join(key)
    }

    /// The entry under `key`, if it exists and is intact.
    pub(crate) fn find(&self, kind: Kind, key: &str) -> Option<PathBuf> {
        let place = self.place(kind, key);
        if !place.is_dir() {
            return None;
        }
        if whole(&place) {
            Self::used(&place);
            return Some(place);
        }
        self.discard(&place);
        None
    }

    /// Marks an entry as used. A read-only cache has no size limit.
    pub(crate) fn used(place: &Path) {
        if let Ok(list) = fs::File::open(place.join(HASHES)) {
            let _ = list.file().set_modified(SystemTime::now());
        }
    }

    /// Removes the entry under `key`.
    pub(crate) fn remove(&self, kind: Kind, key: &str) {
        self.discard(&self.place(kind, key));
    }

    /// Publishes the folder `staged` as the entry under `key`. If another builder was faster, its
    /// entry stays and `staged` is dropped: both have the same content.
    pub(crate) fn publish(&self, kind: Kind, key: &str, staged: &Path) -> std::io::Result<PathBuf> {
        let mut hashes = BTreeMap::new();
        for (name, path) in files_below(staged)? {
            if name != HASHES {
                hashes.insert(name, hash_file(&path)?);
            }
        }
        fs::write(staged.join(HASHES), serde_json::to_vec_pretty(&hashes)?)?;
        open_to_readers(staged)?;
        let published = self.publish_only(kind, key, staged)?;
        for place in self.bound.grown(&self.root, size(&published)) {
            self.discard(&place);
        }
        Ok(published)
    }

    fn publish_only(&self, kind: Kind, key: &str, staged: &Path) -> std::io::Result<PathBuf> {
        let place = self.place(kind, key);
        if let Some(parent) = place.parent() {
            fs::create_dir_all(parent)?;
        }
        for _ in 0..3 {
            match fs::rename(staged, &place) {
                Ok(()) => return Ok(place),
                Err(e) if place.is_dir() => {
                    if whole(&place) {
                        return Ok(place);
                    }
                    // Broken and in the way. Next round it is gone.
                    self.discard(&place);
                    drop(e);
                }
                Err(e) => return Err(e),
            }
        }
        let what = format!("the broken entry {} cannot be replaced", place.display());
        Err(std::io::Error::other(what))
    }

    /// Renames an entry before deleting it, so that no reader sees a partial one.
    fn discard(&self, place: &Path) {
        if let Ok(grave) = self.scratch() {
            let _ = fs::rename(place, grave.path().join("discarded"));
        }
    }
}

/// A key from parts; different lists of parts have different keys.
pub(crate) fn key<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize().to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn staged(cache: &Cache, text: &str) -> TempDir {
        let folder = cache.scratch().unwrap();
        fs::create_dir(folder.path().join("inline")).unwrap();
        fs::write(folder.path().join("inline/a.so"), text).unwrap();
        folder
    }

    #[test]
    fn modified_cache_entry_is_not_found() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::open(root.path(), 1 << 30).unwrap();
        let key = key([&b"a"[..]]);
        assert!(cache.find(Kind::Artifact, &key).is_none());
        let place = cache.publish(Kind::Artifact, &key, staged(&cache, "one").path()).unwrap();
        assert_eq!(cache.find(Kind::Artifact, &key), Some(place.clone()));
        assert!(cache.find(Kind::Object, &key).is_none());

        fs::write(place.join("inline/a.so"), "two").unwrap();
        assert!(cache.find(Kind::Artifact, &key).is_none());
        assert!(!place.exists(), "a broken entry is removed");

        let place = cache.publish(Kind::Artifact, &key, staged(&cache, "one").path()).unwrap();
        fs::write(place.join("inline/extra.so"), "x").unwrap();
        assert!(cache.find(Kind::Artifact, &key).is_none(), "a file too many");
    }

    #[test]
    fn first_published_entry_stays_unless_damaged() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::open(root.path(), 1 << 30).unwrap();
        let key = key([&b"a"[..]]);
        let place = cache.publish(Kind::Object, &key, staged(&cache, "one").path()).unwrap();
        cache.publish(Kind::Object, &key, staged(&cache, "two").path()).unwrap();
        assert_eq!(fs::read_to_string(place.join("inline/a.so")).unwrap(), "one");
        fs::write(place.join("inline/a.so"), "").unwrap();
        cache.publish(Kind::Object, &key, staged(&cache, "two").path()).unwrap();
        assert_eq!(fs::read_to_string(place.join("inline/a.so")).unwrap(), "two");
    }

    #[test]
    fn keys_of_differently_split_lists_differ() {
        assert_ne!(key([&b"ab"[..], b"c"]), key([&b"a"[..], b"bc"]));
    }
}
