//! The journal of void verdicts: one line per disagreement, in the cache folder. All judges of a machine share it, so
//! that a verdict is known to be void also by those that come later.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fs_err as fs;
use serde::{Deserialize, Serialize};
use warpwright_record::verdict::Verdict;
use warpwright_record::void::VoidTurns;

use crate::error::JudgeError;

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
    pub(crate) fn all(&self) -> Result<Vec<VoidTurns>, JudgeError> {
        Ok(self.read()?.known.clone())
    }

    /// Whether a verdict is void.
    pub(crate) fn covers(&self, verdict: &Verdict) -> Result<bool, JudgeError> {
        if verdict.replayer_turns().next().is_none() {
            return Ok(false);
        }
        Ok(self.read()?.known.iter().any(|voided| voided.covers(verdict)))
    }

    /// What is known, once the journal is read to its end.
    fn read(&self) -> Result<MutexGuard<'_, State>, JudgeError> {
        let mut state = self.lock();
        let read = state.read_on(&self.path);
        read.map_err(|e| JudgeError::infrastructure("read which verdicts are void", e))?;
        Ok(state)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The list is whole after every statement, also after a panic elsewhere.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a verdict is void by the journal of a cache folder.
///
/// # Errors
/// [`JudgeError::Infrastructure`] if the journal cannot be read.
pub fn is_void(cache: &Path, verdict: &Verdict) -> Result<bool, JudgeError> {
    Voids::of(cache).covers(verdict)
}

impl State {
    /// Reads the lines that came since the last look.
    fn read_on(&mut self, path: &Path) -> io::Result<()> {
        match fs::metadata(path) {
            // There is no journal before the first void verdict.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
            Ok(file) if file.len() <= self.read => return Ok(()),
            Ok(_) => {}
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

    impl Voids {
        fn read_all(&self) -> Vec<VoidTurns> {
            self.all().unwrap()
        }
    }

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
        assert!(one.read_all().is_empty(), "no file yet");
        one.add(voided("a")).unwrap();
        assert_eq!(other.read_all(), [voided("a")]);
        let mut file = fs::OpenOptions::new().append(true).open(&one.path).unwrap();
        file.write_all(b"{\"version\": 9, \"voided\": {}}\nnonsense\n{\"version\"").unwrap();
        assert_eq!(other.read_all(), [voided("a")]);
        file.write_all(b": 1}\n").unwrap();
        other.add(voided("b")).unwrap();
        assert_eq!(one.read_all(), [voided("a"), voided("b")]);
        assert_eq!(other.read_all(), [voided("a"), voided("b")]);
        assert_eq!(Voids::of(cache.path()).read_all(), [voided("a"), voided("b")]);
    }

    #[test]
    fn unreadable_journal_is_an_error_with_its_path() {
        let cache = tempfile::tempdir().unwrap();
        let voids = Voids::of(cache.path());
        fs::create_dir(cache.path().join("void.jsonl")).unwrap();
        let error = voids.all().unwrap_err();
        assert!(matches!(error, JudgeError::Infrastructure { .. }), "{error}");
        let (text, path) = (error.to_string(), voids.path.display().to_string());
        assert!(text.starts_with("failed to read which verdicts are void"), "{text}");
        assert!(text.contains(&path), "{text}");
    }
}
