//! Evicts the least recently used entries from a full cache.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use fs_err as fs;

use crate::entry::{HASHES, Kind, files_below};

/// Entries used more recently than this stay: a runner may be about to copy one.
const IN_USE: Duration = Duration::from_mins(10);

/// The cache's size limit, and the bytes added since the last scan.
#[derive(Debug)]
pub(crate) struct Bound {
    bytes: u64,
    came: AtomicU64,
}

/// An entry, its time of last use, and its size in bytes.
#[derive(Debug)]
struct Entry {
    place: PathBuf,
    used: SystemTime,
    bytes: u64,
}

impl Bound {
    /// The first new entry triggers a scan: an earlier process may have filled the cache.
    pub(crate) fn new(bytes: u64) -> Self {
        Self { bytes, came: AtomicU64::new(bytes) }
    }

    /// Records new bytes; returns the entries to remove. A scan is slow, so it runs once per
    /// sixteenth of the limit.
    pub(crate) fn grown(&self, root: &Path, bytes: u64) -> Vec<PathBuf> {
        if self.came.fetch_add(bytes, Ordering::Relaxed) + bytes < self.bytes / 16 {
            return Vec::new();
        }
        self.came.store(0, Ordering::Relaxed);
        leaving(entries(root), self.bytes, SystemTime::now())
    }
}

/// The least recently used entries, so that the rest is at most three quarters of `bytes`.
fn leaving(mut entries: Vec<Entry>, bytes: u64, now: SystemTime) -> Vec<PathBuf> {
    let mut all: u64 = entries.iter().map(|entry| entry.bytes).sum();
    if all <= bytes {
        return Vec::new();
    }
    entries.sort_by_key(|entry| entry.used);
    let old = |entry: &Entry| now.duration_since(entry.used).is_ok_and(|age| age > IN_USE);
    let mut gone = Vec::new();
    for entry in entries.into_iter().filter(old) {
        if all <= bytes / 4 * 3 {
            break;
        }
        all -= entry.bytes;
        gone.push(entry.place);
    }
    gone
}

/// All entries, except those that vanish during the scan.
fn entries(root: &Path) -> Vec<Entry> {
    let folders = |path: PathBuf| {
        let read = fs::read_dir(path).into_iter().flatten();
        read.filter_map(|entry| Some(entry.ok()?.path()))
    };
    let kinds = Kind::ALL.iter().map(|kind| root.join(kind.folder()));
    let entry = |place: PathBuf| {
        let used = fs::metadata(place.join(HASHES)).ok()?.modified().ok()?;
        Some(Entry { bytes: size(&place), used, place })
    };
    kinds.flat_map(folders).flat_map(folders).filter_map(entry).collect()
}

/// Bytes of an entry's files; 0 if another process is removing it.
pub(crate) fn size(place: &Path) -> u64 {
    let files = files_below(place).unwrap_or_default();
    files.values().filter_map(|path| Some(fs::metadata(path).ok()?.len())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(name: usize, age_secs: u64, bytes: u64, now: SystemTime) -> Entry {
        let used = now - Duration::from_secs(age_secs);
        Entry { place: PathBuf::from(name.to_string()), used, bytes }
    }

    #[test]
    fn least_recently_used_entries_are_evicted_first() {
        let now = SystemTime::now();
        let made = [(3000, 40), (10, 50), (2000, 40), (4000, 10)];
        let entries =
            made.iter().enumerate().map(|(i, &(age, bytes))| entry(i, age, bytes, now)).collect();
        assert_eq!(leaving(entries, 120, now), [PathBuf::from("3"), PathBuf::from("0")]);
    }

    proptest! {
        #[test]
        fn eviction_removes_no_more_than_needed(
            made in prop::collection::vec((0u64..5000, 0u64..100), 0..30),
            bytes in 0u64..2000,
        ) {
            let now = SystemTime::now();
            let entries: Vec<Entry> =
                made.iter().enumerate().map(|(i, &(age, size))| entry(i, age, size, now)).collect();
            let gone = leaving(entries, bytes, now);
            let gone: Vec<usize> =
                gone.iter().map(|p| p.display().to_string().parse().unwrap()).collect();
            let all: u64 = made.iter().map(|(_, size)| size).sum();
            prop_assert!(gone.iter().all(|&i| made[i].0 >= IN_USE.as_secs()));
            let left = all - gone.iter().map(|&i| made[i].1).sum::<u64>();
            let old_left = (0..made.len()).any(|i| made[i].0 > IN_USE.as_secs() && !gone.contains(&i));
            prop_assert!(left <= bytes || !old_left);
            if let Some(&last) = gone.last() {
                prop_assert!(all > bytes && left + made[last].1 > bytes / 4 * 3);
            }
        }
    }
}
