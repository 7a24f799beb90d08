//! Operator graphs of many references, without an episode: the output of `utils/trace.py` for each.
//!
//! References are hostile programs: each runs in its own process in a jail, and computes nothing. References of one
//! jail share its output folder: a hostile one can forge the graphs of others, but reaches nothing outside.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use fs_err as fs;
use thiserror::Error;
use warpwright_jail::{Jail, JailError, Limits, Outcome, Spec};

use crate::confined_fs::{ConfinedDir, FileError};
use crate::tools::shell::mountable;
use crate::workspace::UTILS;

const DRIVER: &str = include_str!("../tracer/trace_each.py");
/// Maximum references per process: a crash loses this many.
const AT_ONCE: usize = 256;
/// Timeout of one process: a minute per reference.
const PATIENCE: Duration = Duration::from_hours(5);
/// Memory of one process and its forks.
const MEMORY_BYTES: u64 = 8 << 30;
/// Limit of a graph, bytes: ten times that of a network of a thousand layers.
const MAX_GRAPH_BYTES: u64 = 16 << 20;
/// Interval of counting finished references.
const TICK: Duration = Duration::from_millis(250);

/// Why tracing failed: an infrastructure error.
#[derive(Debug, Error)]
pub enum TracerError {
    /// The jail failed.
    #[error("failed to trace references in a jail: {0}")]
    Jail(#[from] JailError),
    /// A file could not be written.
    #[error("failed to trace references: failed to write their files: {0}")]
    Io(#[from] std::io::Error),
    /// The folder of the graphs could not be opened.
    #[error("failed to trace references: {0}")]
    File(#[from] FileError),
    /// A process ended before it had traced every reference.
    #[error("failed to trace references: the Python process failed: {outcome}: {tail}")]
    Ended {
        /// How the process ended.
        outcome: Outcome,
        /// The end of its output.
        tail: String,
    },
    /// The user interrupted.
    #[error("failed to trace references: interrupted")]
    Interrupted,
}

/// Traces references with a Python that has torch.
#[derive(Debug)]
pub struct Tracer<'a> {
    /// The jail that references run in.
    pub jail: &'a Jail,
    /// The interpreter.
    pub python: &'a Path,
    /// Concurrent processes.
    pub processes: usize,
    /// Set to interrupt tracing.
    pub stop: &'a AtomicBool,
}

impl Tracer<'_> {
    /// The graph of each reference in order, or a sentence that gives the reason why it has none.
    /// `done` receives the number of finished references whenever it grows.
    pub fn trace(
        &self,
        references: &[&str],
        done: &(dyn Fn(usize) + Sync),
    ) -> Result<Vec<Result<String, String>>, TracerError> {
        if references.is_empty() {
            return Ok(Vec::new());
        }
        let size = references.len().div_ceil(self.processes.max(1)).min(AT_ONCE);
        let parts: Vec<&[&str]> = references.chunks(size).collect();
        let (next, count) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let traced: Vec<_> = std::thread::scope(|scope| {
            let work = || {
                let mut traced = Vec::new();
                loop {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    let Some(part) = parts.get(number) else { return Ok(traced) };
                    let tell = |more| done(count.fetch_add(more, Ordering::SeqCst) + more);
                    match self.part(part, &tell) {
                        Ok(graphs) => traced.push((number, graphs)),
                        Err(error) => {
                            // The others end what they are at.
                            next.store(parts.len(), Ordering::SeqCst);
                            return Err(error);
                        }
                    }
                }
            };
            let workers: Vec<_> =
                (0..self.processes.clamp(1, parts.len())).map(|_| scope.spawn(work)).collect();
            let ended = workers.into_iter().map(|worker| {
                worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            ended.collect::<Result<Vec<_>, TracerError>>()
        })?;
        let mut traced = traced.concat();
        traced.sort_by_key(|(number, _)| *number);
        Ok(traced.into_iter().flat_map(|(_, graphs)| graphs).collect())
    }

    fn part(
        &self,
        references: &[&str],
        more: &dyn Fn(usize),
    ) -> Result<Vec<Result<String, String>>, TracerError> {
        let folder = tempfile::tempdir()?;
        let [tools, given, traces] =
            ["tools", "references", "traces"].map(|name| folder.path().join(name));
        for folder in [tools.join("utils"), given.clone(), traces.clone()] {
            fs::create_dir_all(folder)?;
        }
        fs::write(tools.join("trace_each.py"), DRIVER)?;
        for (name, text) in UTILS {
            fs::write(tools.join(name), text)?;
        }
        for (number, reference) in references.iter().enumerate() {
            fs::write(given.join(format!("{number}.py")), reference)?;
        }
        let limits =
            Limits { wall: PATIENCE, memory_bytes: Some(MEMORY_BYTES), ..Limits::default() };
        let python = mountable(self.python);
        let spec = Spec::new(&python)
            .label("tracer")
            .arg("-P")
            .arg(tools.join("trace_each.py").to_string_lossy())
            .args([given.to_string_lossy(), traces.to_string_lossy()])
            .env("PYTHONPATH", tools.to_string_lossy())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("OMP_NUM_THREADS", "1")
            .limits(limits)
            .with_system()
            .with_python(&python)
            .read_only(&tools)
            .read_only(&given)
            .read_write(&traces);
        let confined = ConfinedDir::open(&traces)?;
        let mut child = self.jail.spawn(spec)?;
        let (mut told, mut is_over) = (0, false);
        while !is_over {
            is_over = child.wait_timeout(TICK)?;
            if self.stop.load(Ordering::SeqCst) {
                child.kill();
                return Err(TracerError::Interrupted);
            }
            let is_done = |number: &usize| named(*number).iter().any(|name| confined.exists(name));
            let found = (told..references.len()).take_while(is_done).count();
            if found > 0 {
                told += found;
                more(found);
            }
        }
        let finished = child.wait()?;
        if !finished.outcome.is_success() {
            let text = finished.stderr.text();
            let start = text.char_indices().rev().nth(1999).map_or(0, |(at, _)| at);
            let tail = text[start..].trim().to_owned();
            return Err(TracerError::Ended { outcome: finished.outcome, tail });
        }
        // What a reference left there is its own: a link or a pipe is no graph.
        let text = |name: &str| {
            let bytes = confined.read(name, MAX_GRAPH_BYTES).map_err(|error| error.to_string())?;
            String::from_utf8(bytes).map_err(|_| "the graph is not UTF-8".to_owned())
        };
        let graphs = (0..references.len()).map(|number| {
            let [graph, error] = named(number);
            if confined.exists(&graph) { text(&graph) } else { Err(text(&error)?) }
        });
        Ok(graphs.collect())
    }
}

/// Names of the files with the graph of a reference, and with the reason why there is none.
fn named(number: usize) -> [String; 2] {
    ["json", "error"].map(|kind| format!("{number}.{kind}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use warpwright_jail::Requirement;

    use super::*;
    use crate::scripted::python;

    fn model(forward: &str) -> String {
        format!(
            "import os\nimport torch\n\n\nclass Model(torch.nn.Module):\n\
             \x20   def forward(self, x):\n\x20       {forward}\n\n\n\
             def get_inputs():\n\x20   return [torch.randn(4, 1 << 40)]\n"
        )
    }

    #[test]
    fn crashing_trace_affects_neither_other_traces_nor_the_host() {
        let jail = Jail::detect(Requirement::Any).unwrap();
        let stop = AtomicBool::new(false);
        let tracer = Tracer { jail: &jail, python: &python(), processes: 2, stop: &stop };
        let secret = tempfile::NamedTempFile::new().unwrap();
        fs::write(secret.path(), "a secret").unwrap();
        let link = format!(
            "import sys; os.symlink({:?}, sys.argv[2] + \"/4.json\"); return x",
            secret.path()
        );
        let sources = [
            model("return torch.relu(x)"),
            model("os.kill(os.getpid(), 9)"),
            "class Model".to_owned(),
            model("return torch.sigmoid(x)"),
            model(&link),
        ];
        let references: Vec<&str> = sources.iter().map(String::as_str).collect();
        let told = Mutex::new(Vec::new());
        let traced = tracer.trace(&references, &|done| told.lock().unwrap().push(done)).unwrap();
        assert!(traced[0].as_ref().unwrap().contains("aten.relu"), "{traced:?}");
        assert_eq!(traced[1].as_ref().unwrap_err(), "its process ended: SIGKILL");
        assert!(traced[2].as_ref().unwrap_err().starts_with("SyntaxError"), "{traced:?}");
        assert!(traced[3].as_ref().unwrap().contains("aten.sigmoid"), "{traced:?}");
        let of_link = traced[4].as_ref().map_or_else(Clone::clone, Clone::clone);
        assert!(!of_link.contains("a secret"), "{of_link}");
        assert_eq!(told.into_inner().unwrap().into_iter().max(), Some(5));
    }

    #[test]
    fn stop_flag_interrupts_tracing() {
        let jail = Jail::detect(Requirement::Any).unwrap();
        let stop = AtomicBool::new(true);
        let tracer = Tracer { jail: &jail, python: &python(), processes: 1, stop: &stop };
        let error = tracer.trace(&["import time; time.sleep(600)"], &|_| {}).unwrap_err();
        assert!(matches!(error, TracerError::Interrupted), "{error}");
    }
}
