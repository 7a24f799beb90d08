//! Runs whose candidates were judged again: which run they came from, and the mark that the older run gets.
//!
//! The new run names the old one in its configuration ([`Origin`]). The old run gets a small file,
//! `rejudged.json` ([`Marks`]), so that its reports can say where its figures no longer hold. The file is no
//! part of the record: it may be deleted, and a copy of the run without it is complete.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::Path;

use fs_err as fs;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::run::RunHeader;

/// Version of [`Origin`] and of [`Marks`].
pub const REJUDGED_VERSION: u32 = 1;
/// Name of the file in the older run's folder.
pub const MARKS_FILE: &str = "rejudged.json";
/// Key of the [`Origin`] in the configuration of a run.
pub const ORIGIN_KEY: &str = "rejudged";
/// Most bytes of the file that are read.
const MAX_BYTES: u64 = 1 << 20;
/// Most entries that are kept; older ones leave first.
const MAX_MARKS: usize = 100;

/// The run that the candidates of a rejudged run came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Origin {
    /// [`REJUDGED_VERSION`] of the writer.
    pub version: u32,
    /// The older run's folder, as an absolute path.
    pub run: String,
    /// When the older run began. With its command it tells the run from others, wherever it lies.
    pub created: jiff::Timestamp,
    /// Version of the program that began the older run.
    pub program: String,
    /// The older run's command line.
    pub command: String,
    /// Which of its candidates were judged: `all`, `changed`, `failed`, or the name of a task.
    pub only: String,
}

impl Origin {
    /// The origin that a run's configuration names; `None` where its candidates are its own.
    pub fn of(header: &RunHeader) -> Option<Self> {
        serde_json::from_value(header.config.get(ORIGIN_KEY)?.clone()).ok()
    }

    /// Whether this is the run with that header.
    pub fn is(&self, header: &RunHeader) -> bool {
        self.created == header.created && self.command == header.command
    }
}

/// One run in which the candidates of this run were judged again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Mark {
    /// The newer run's folder, as an absolute path.
    pub run: String,
    /// When it was completed.
    pub time: jiff::Timestamp,
    /// Version of the program that judged.
    pub program: String,
    /// The device that judged.
    pub device: String,
    /// Which candidates were judged, as in [`Origin::only`].
    pub only: String,
    /// Candidates that were judged.
    pub judged: u64,
    /// Verdicts among them that changed.
    pub changed: u64,
    /// Those, by reason.
    pub reasons: BTreeMap<String, u64>,
}

/// `rejudged.json`: every run in which the candidates of this run were judged again, the oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Marks {
    /// [`REJUDGED_VERSION`] of the writer.
    pub version: u32,
    /// The runs.
    pub runs: Vec<Mark>,
}

impl Marks {
    /// The marks of the run in `dir`; `None` where there are none. An error names what is wrong with the file.
    pub fn read(dir: &Path) -> io::Result<Option<Self>> {
        let file = match fs::File::open(dir.join(MARKS_FILE)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
        let invalid = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
        if bytes.len() as u64 > MAX_BYTES {
            return Err(invalid(format!("{MARKS_FILE} exceeds {} KiB", MAX_BYTES >> 10)));
        }
        let marks: Self = serde_json::from_slice(&bytes)
            .map_err(|error| invalid(format!("{MARKS_FILE} cannot be read: {error}")))?;
        if marks.version > REJUDGED_VERSION {
            let found = marks.version;
            return Err(invalid(format!(
                "{MARKS_FILE} has version {found}, this program reads version {REJUDGED_VERSION}"
            )));
        }
        Ok(Some(marks))
    }

    /// Adds a mark to the run in `dir`. A later mark of the same newer run replaces an earlier one.
    pub fn add(dir: &Path, mark: Mark) -> io::Result<()> {
        let known = Self::read(dir)?;
        let mut runs = known.map(|marks| marks.runs).unwrap_or_default();
        runs.retain(|known| known.run != mark.run);
        runs.push(mark);
        let surplus = runs.len().saturating_sub(MAX_MARKS);
        runs.drain(..surplus);
        let json = serde_json::to_vec_pretty(&Self { version: REJUDGED_VERSION, runs })?;
        let path = dir.join(MARKS_FILE);
        let temporary = path.with_extension(format!("json.{}.tmp", std::process::id()));
        let written = fs::File::create(&temporary)
            .and_then(|mut file| file.write_all(&json))
            .and_then(|()| fs::rename(&temporary, &path));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(run: &str, changed: u64) -> Mark {
        Mark {
            run: run.to_owned(),
            time: jiff::Timestamp::UNIX_EPOCH,
            program: "0.1.0".to_owned(),
            device: "cpu".to_owned(),
            only: "all".to_owned(),
            judged: 3,
            changed,
            reasons: BTreeMap::new(),
        }
    }

    #[test]
    fn a_mark_replaces_that_of_the_same_run() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Marks::read(dir.path()).unwrap(), None);
        for (run, changed) in [("a", 1), ("b", 2), ("a", 0)] {
            Marks::add(dir.path(), mark(run, changed)).unwrap();
        }
        let runs = Marks::read(dir.path()).unwrap().unwrap().runs;
        assert_eq!(runs, [mark("b", 2), mark("a", 0)]);
        let names: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, [MARKS_FILE]);
    }

    #[test]
    fn damaged_and_newer_marks_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(MARKS_FILE);
        for (text, reason) in [
            ("{", "cannot be read"),
            (r#"{"version":2,"runs":[]}"#, "has version 2"),
            (&" ".repeat(MAX_BYTES as usize + 1), "exceeds 1024 KiB"),
        ] {
            fs::write(&path, text).unwrap();
            let error = Marks::read(dir.path()).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
            assert!(Marks::add(dir.path(), mark("a", 0)).is_err(), "nothing is overwritten");
        }
    }
}
