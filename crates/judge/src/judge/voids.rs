//! The journal of void verdicts: one line per disagreement, in the cache folder. All judges of a machine share it, so
//! that a verdict is known to be void also by those that come later.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fs_err as fs;
use serde::{Deserialize, Serialize};
use warpwright_record::verdict::Verdict;
use warpwright_record::void::VoidTurns;

/// Version of a line. Lines of other versions are passed over.
const VERSION: u32 = 1;
/// Most bytes that are read: a line has some 400.
const MOST_BYTES: u64 = 64 << 20;

/// The journal of a cache folder.
#[derive(Debug)]
pub(crate) struct Voids {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    known: Vec<VoidTurns>,
    /// Bytes of the file that were read, up to the end of a line.
    read: u64,
}

#[derive(Serialize, Deserialize)]
struct Line {
    version: u32,
    voided: VoidTurns,
}

impl Voids {
    /// The journal of a cache folder. It need not exist.
    pub(crate) fn of(cache: &Path) -> Self {
        Self { path: cache.join("void.jsonl"), state: Mutex::default() }
    }

    /// Adds verdicts that do not count any more.
    pub(crate) fn add(&self, voided: VoidTurns) -> io::Result<()> {
        let line = Line { version: VERSION, voided };
        let mut text = serde_json::to_vec(&line)?;
        text.push(b'\n');
        let mut state = self.lock();
        // Known here whatever becomes of the file.
        state.known.push(line.voided);
        // At once: lines of several processes do not mix.
        fs::OpenOptions::new().create(true).append(true).open(&self.path)?.write_all(&text)
    }

    /// All that are known, also those of other processes.
    pub(crate) fn all(&self) -> Vec<VoidTurns> {
        let mut state = self.lock();
        // There is no journal before the first void verdict. This judge's own are known without it.
        let _ = state.read_on(&self.path);
        state.known.clone()
    }

    /// Whether a verdict is void.
    pub(crate) fn covers(&self, verdict: &Verdict) -> bool {
        if verdict.replayer.is_none() {
            return false;
        }
        let mut state = self.lock();
        let _ = state.read_on(&self.path);
        state.known.iter().any(|voided| voided.covers(verdict))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The list is whole after every statement, also after a panic elsewhere.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Reads the lines that came since the last look.
    fn read_on(&mut self, path: &Path) -> io::Result<()> {
        if fs::metadata(path)?.len() <= self.read {
            return Ok(());
        }
        let mut file = fs::File::open(path)?;
        file.seek(SeekFrom::Start(self.read))?;
        let mut bytes = Vec::new();
        file.take(MOST_BYTES.saturating_sub(self.read)).read_to_end(&mut bytes)?;
        for line in bytes.split_inclusive(|byte| *byte == b'\n').filter(|l| l.ends_with(b"\n")) {
            self.read += line.len() as u64;
            let Ok(Line { version: VERSION, voided }) = serde_json::from_slice(line) else {
                continue;
            };
            if !self.known.contains(&voided) {
                self.known.push(voided);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn voided(replayer: &str) -> VoidTurns {
        VoidTurns {
            replayer: replayer.to_owned(),
            after: 2,
            through: 5,
            time: jiff::Timestamp::UNIX_EPOCH,
            task: "task".to_owned(),
            candidate: "ab".repeat(32),
            reason: "verified, then mismatch".to_owned(),
        }
    }

    #[test]
    fn journal_is_shared_and_survives_torn_lines() {
        let cache = tempfile::tempdir().unwrap();
        let (one, other) = (Voids::of(cache.path()), Voids::of(cache.path()));
        assert!(one.all().is_empty(), "no file yet");
        one.add(voided("a")).unwrap();
        assert_eq!(other.all(), [voided("a")]);
        let mut file = fs::OpenOptions::new().append(true).open(&one.path).unwrap();
        file.write_all(b"{\"version\": 9, \"voided\": {}}\nnonsense\n{\"version\"").unwrap();
        assert_eq!(other.all(), [voided("a")]);
        file.write_all(b": 1}\n").unwrap();
        other.add(voided("b")).unwrap();
        assert_eq!(one.all(), [voided("a"), voided("b")]);
        assert_eq!(other.all(), [voided("a"), voided("b")]);
        assert_eq!(Voids::of(cache.path()).all(), [voided("a"), voided("b")]);
    }
}
