//! The trial log: one line of JSON per tried seed, next to the data set. It gives the reason of
//! each refusal, and the seeds that need not be tried again.
//!
//! A seed is logged as admitted only when its task is on the disk. A seed that is refused after
//! that was removed from the data set. After a kill the last line may be incomplete; it is ignored,
//! and its seed is tried again.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use fs_err as fs;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// One seed and its outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// The composer's seed.
    pub seed: u64,
    /// Name of the task, if there was one.
    pub name: String,
    /// Its operators.
    pub operators: Vec<String>,
    /// Whether the task was kept.
    pub outcome: Outcome,
}

/// The outcome of a seed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Outcome {
    /// The task was added to the data set.
    Admitted,
    /// The task was refused.
    Refused {
        /// The reason in one word, for counting.
        reason: String,
        /// The reason as a sentence.
        detail: String,
    },
}

/// Why a trial log cannot be used.
#[derive(Debug, Error)]
pub enum LogError {
    /// Reading or writing failed.
    #[error("failed to read or write the trial log {path}: {source}")]
    Io {
        /// The log.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A line other than the last is not a trial.
    #[error("failed to read the trial log {path}, line {line}: {reason}")]
    Broken {
        /// The log.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// The fault.
        reason: String,
    },
}

/// The trial log of a data set: one line per seed that was tried.
#[derive(Debug)]
pub struct TrialLog {
    path: PathBuf,
    file: fs::File,
    tried: BTreeSet<u64>,
    /// The tried seeds whose tasks are in the data set.
    admitted: BTreeSet<u64>,
    refused: BTreeMap<String, u64>,
}

impl TrialLog {
    /// Path of a data set's log: `tasks.tried.jsonl` next to `tasks.parquet`.
    pub fn beside(data_set: &Path) -> PathBuf {
        data_set.with_extension("tried.jsonl")
    }

    /// Opens a log; creates it if it does not exist.
    pub fn open(path: &Path) -> Result<Self, LogError> {
        let io = |source| LogError::Io { path: path.to_owned(), source };
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(io(error)),
        };
        // What follows the last line's end was being written when the program was killed.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let file = fs::OpenOptions::new().create(true).append(true).open(path).map_err(io)?;
        if whole < text.len() {
            file.set_len(whole as u64).map_err(io)?;
        }
        let mut log = Self {
            path: path.to_owned(),
            file,
            tried: BTreeSet::new(),
            admitted: BTreeSet::new(),
            refused: BTreeMap::new(),
        };
        for (i, line) in text[..whole].lines().enumerate() {
            let trial: Trial = serde_json::from_str(line).map_err(|error| LogError::Broken {
                path: path.to_owned(),
                line: i + 1,
                reason: error.to_string(),
            })?;
            log.count(&trial);
        }
        Ok(log)
    }

    /// Appends the outcome of a seed.
    pub fn append(&mut self, trial: &Trial) -> Result<(), LogError> {
        let io = |source| LogError::Io { path: self.path.clone(), source };
        let mut line = serde_json::to_string(trial).map_err(|error| io(error.into()))?;
        line.push('\n');
        self.file.write_all(line.as_bytes()).map_err(io)?;
        self.count(trial);
        Ok(())
    }

    fn count(&mut self, trial: &Trial) {
        self.tried.insert(trial.seed);
        match &trial.outcome {
            Outcome::Admitted => {
                self.admitted.insert(trial.seed);
            }
            Outcome::Refused { reason, .. } => {
                // It may have been in the data set until now.
                self.admitted.remove(&trial.seed);
                *self.refused.entry(reason.clone()).or_default() += 1;
            }
        }
    }

    /// Whether this seed was tried.
    pub fn knows(&self, seed: u64) -> bool {
        self.tried.contains(&seed)
    }

    /// Number of tried seeds.
    pub fn tried(&self) -> u64 {
        self.tried.len() as u64
    }

    /// Number of tried seeds whose tasks are in the data set.
    pub fn admitted(&self) -> u64 {
        self.admitted.len() as u64
    }

    /// Number of refused proposals by reason; one seed may have several.
    pub fn refused(&self) -> &BTreeMap<String, u64> {
        &self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(seed: u64, reason: Option<&str>) -> Trial {
        let outcome = reason.map_or(Outcome::Admitted, |reason| Outcome::Refused {
            reason: reason.to_owned(),
            detail: "why".to_owned(),
        });
        Trial { seed, name: "a".to_owned(), operators: vec!["torch.relu".to_owned()], outcome }
    }

    #[test]
    fn reopened_log_continues_and_drops_a_torn_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = TrialLog::beside(&folder.path().join("tasks.parquet"));
        assert!(path.ends_with("tasks.tried.jsonl"));
        let mut log = TrialLog::open(&path).unwrap();
        for trial in [trial(1, None), trial(2, Some("too_fast")), trial(3, Some("too_fast"))] {
            log.append(&trial).unwrap();
        }
        drop(log);
        let whole = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{whole}{{\"seed\":4,\"na")).unwrap();
        let mut log = TrialLog::open(&path).unwrap();
        assert_eq!((log.tried(), log.admitted()), (3, 1));
        assert_eq!(log.refused()["too_fast"], 2);
        assert!(log.knows(3) && !log.knows(4));
        log.append(&trial(4, None)).unwrap();
        assert_eq!(TrialLog::open(&path).unwrap().admitted(), 2);
        // Taken out of the data set later.
        log.append(&trial(4, Some("brittle"))).unwrap();
        let log = TrialLog::open(&path).unwrap();
        assert_eq!((log.tried(), log.admitted(), log.refused()["brittle"]), (4, 1, 1));
    }

    #[test]
    fn malformed_line_is_an_error_with_its_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        fs::write(&path, "{\"seed\":1}\n{}\n").unwrap();
        let error = TrialLog::open(&path).unwrap_err().to_string();
        assert!(error.contains("line 1"), "{error}");
    }
}
