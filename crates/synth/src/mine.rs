//! Runs the Python process that mines catalogues and tries snippets, in a jail.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use warpwright_jail::{Finished, Jail, JailError, Limits, Outcome, Spec, Stdin};

use crate::catalogue::{Catalogue, CatalogueError};

/// Timeout of mining: a thousand operators of up to 40 s each, on two cores.
const MINE_PATIENCE: Duration = Duration::from_hours(3);

/// Timeout of a batch of snippets.
const TRY_PATIENCE: Duration = Duration::from_mins(20);

/// Memory of the process and its forks.
const MEMORY_BYTES: u64 = 12 << 30;

macro_rules! package {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../python/warpwright_synth/", $name)))),*]
    };
}

/// The files of `python/warpwright_synth`, embedded in the program.
const PACKAGE: &[(&str, &str)] = package![
    "__init__.py",
    "candidates.py",
    "cost.py",
    "domains.py",
    "entries.py",
    "fit.py",
    "forms.py",
    "mine.py",
    "models.py",
    "shapes.py",
    "signature.py",
    "trial.py",
    "tryout.py",
    "values.py",
];

/// The library to mine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// torch itself.
    Torch,
    /// The model code of transformers, which the interpreter must have.
    Transformers,
}

/// Python code to try.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Snippet {
    /// Name in messages.
    pub name: String,
    /// The code; raising an exception means failure.
    pub code: String,
}

/// A snippet that failed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Failed {
    /// The snippet's name.
    pub name: String,
    /// The end of the traceback, or how the process ended.
    pub reason: String,
}

/// Why mining the catalogue or trying snippets failed.
#[derive(Debug, thiserror::Error)]
pub enum MineError {
    /// The jail could not run the process.
    #[error("failed to {action}: {source}")]
    Jail {
        /// What was attempted.
        action: &'static str,
        /// The cause.
        source: JailError,
    },
    /// Files for the process could not be written or read.
    #[error("failed to {action}: {source}")]
    Io {
        /// What was attempted.
        action: &'static str,
        /// The cause.
        source: std::io::Error,
    },
    /// The process ended without a result.
    #[error("failed to {action}: {outcome}: {tail}")]
    Ended {
        /// What was attempted.
        action: &'static str,
        /// How it ended.
        outcome: Outcome,
        /// The end of its output.
        tail: String,
    },
    /// The process printed a malformed result.
    #[error("failed to {action}: the result is malformed: {source}")]
    Result {
        /// What was attempted.
        action: &'static str,
        /// The cause.
        source: serde_json::Error,
    },
    /// The process wrote an invalid catalogue.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
}

/// A Python interpreter with torch, and the jail to run it in.
#[derive(Debug)]
pub struct Miner {
    jail: Arc<Jail>,
    python: PathBuf,
    /// Package folders outside the interpreter's own folders.
    packages: Vec<PathBuf>,
}

impl Miner {
    /// `python` is an interpreter with torch. A link is not resolved, because it identifies a
    /// virtual environment.
    pub fn new(jail: Arc<Jail>, python: impl Into<PathBuf>) -> Self {
        let python = python.into();
        // Inside, the working folder is another.
        let python = std::path::absolute(&python).unwrap_or(python);
        Self { jail, python, packages: Vec::new() }
    }

    /// Mounts another folder for the process: for an environment that takes torch from another one.
    #[must_use]
    pub fn packages(mut self, folder: impl Into<PathBuf>) -> Self {
        self.packages.push(folder.into());
        self
    }

    /// Mines a catalogue; returns its text, which can be stored unchanged. Takes minutes.
    pub fn mine(&self, source: Source) -> Result<String, MineError> {
        let action = "mine the catalogue";
        let io = |source| MineError::Io { action, source };
        let folder = tempfile::tempdir().map_err(io)?;
        let out = folder.path().join("catalogue.json");
        let source = match source {
            Source::Torch => "torch",
            Source::Transformers => "transformers",
        };
        let spec = |spec: Spec| {
            spec.args(["--source", source, "--out", &out.to_string_lossy()])
                .read_write(folder.path())
        };
        self.run("mine", action, MINE_PATIENCE, spec)?;
        let text = fs_err::read_to_string(&out).map_err(io)?;
        Catalogue::from_json(&text)?;
        Ok(text)
    }

    /// Runs each snippet in its own process; returns the failing ones.
    pub fn failing(&self, snippets: &[Snippet]) -> Result<Vec<Failed>, MineError> {
        #[derive(Serialize)]
        struct Request<'a> {
            snippets: &'a [Snippet],
        }
        #[derive(Deserialize)]
        struct Answer {
            failed: Vec<Failed>,
        }
        let action = "try code snippets";
        let result = |source| MineError::Result { action, source };
        let request = serde_json::to_vec(&Request { snippets }).map_err(result)?;
        let spec = |mut spec: Spec| {
            spec.stdin = Stdin::Bytes(request);
            spec
        };
        let finished = self.run("tryout", action, TRY_PATIENCE, spec)?;
        let answer: Answer = serde_json::from_slice(&finished.stdout.bytes).map_err(result)?;
        Ok(answer.failed)
    }

    fn run(
        &self,
        module: &str,
        action: &'static str,
        wall: Duration,
        with: impl FnOnce(Spec) -> Spec,
    ) -> Result<Finished, MineError> {
        let io = |source| MineError::Io { action, source };
        let folder = tempfile::tempdir().map_err(io)?;
        write_package(folder.path()).map_err(io)?;
        let limits = Limits {
            wall,
            memory_bytes: Some(MEMORY_BYTES),
            output_bytes: 16 << 20,
            open_files: 4096,
            ..Limits::default()
        };
        let mut spec = Spec::new(&self.python)
            .label(module)
            .args(["-P", "-m", &format!("warpwright_synth.{module}")])
            .env("PYTHONPATH", folder.path().to_string_lossy())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("OMP_NUM_THREADS", "1")
            .limits(limits)
            .with_system()
            .with_python(&self.python)
            .read_only(folder.path());
        for packages in &self.packages {
            spec = spec.read_only(packages);
        }
        let jail = |source| MineError::Jail { action, source };
        let finished = self.jail.run(with(spec)).map_err(jail)?;
        if !finished.outcome.is_success() {
            let text = String::from_utf8_lossy(&finished.stderr.bytes);
            let start = text.char_indices().rev().nth(1999).map_or(0, |(i, _)| i);
            let tail = text[start..].trim().to_owned();
            return Err(MineError::Ended { action, outcome: finished.outcome, tail });
        }
        Ok(finished)
    }
}

fn write_package(folder: &Path) -> std::io::Result<()> {
    let package = folder.join("warpwright_synth");
    fs_err::create_dir_all(&package)?;
    for (name, text) in PACKAGE {
        fs_err::write(package.join(name), text)?;
    }
    Ok(())
}
