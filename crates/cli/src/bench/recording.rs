//! `warpwright bench record`: how many candidates have a launch plan, and why the others have none.
//!
//! ```text
//! a suite      ──► trace, built-in policy ──┐
//!                                           ├──► build for an H200 ──► two recordings, merged ──► one row each
//! a folder of workspaces (`--candidates`) ──┘
//! ```
//!
//! Needs a CUDA compiler and no GPU. Rows are appended to `--out` as they are known; a later run with the same
//! file does what is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use warpwright_agent::judge::DeviceFacts;
use warpwright_agent::tracer::Tracer;
use warpwright_judge::{JudgeError, RecordingTrial, RecordingTrials};
use warpwright_record::candidate::Candidate;
use warpwright_record::verdict::{Failure as Failed, FailureClass, Profile};
use warpwright_rollout::device_choice::DeviceChoice;
use warpwright_task::Task;

use crate::args::bench::BenchRecord;
use crate::contract::VERSION;
use crate::failure::{Failure, chain};
use crate::printer::Printer;
use crate::{interrupt, judging};

mod summary;

pub(crate) use summary::render;

/// Tasks that one process traces: interrupting loses no more.
const TRACED_AT_ONCE: usize = 16;
/// Longest reason, in characters.
const MOST_TEXT: usize = 240;

/// What came of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TrialOutcome {
    /// It has a launch plan.
    Recorded,
    /// The recorder or the merge refuses it.
    Refused,
    /// It breaks a rule: it computes with torch, uses a library that is not allowed, or does not take the
    /// reference's weights. No tier accepts it.
    Forbidden,
    /// Its host code fails where it is recorded.
    Failed,
    /// It does not build.
    NotBuilt,
    /// The built-in policy has no kernels for the task.
    NotWritten,
    /// The task's reference fails.
    NoTask,
}

/// One candidate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) candidate: String,
    pub(crate) outcome: TrialOutcome,
    /// Launches in one call.
    pub(crate) launches: usize,
    /// Other operations in one call.
    pub(crate) others: usize,
    /// Why it is not recorded; empty if it is.
    pub(crate) reason: String,
    pub(crate) seconds: f64,
}

/// The results.
#[derive(Debug, Serialize)]
pub(crate) struct RecordReport {
    pub(crate) version: u32,
    pub(crate) candidates: usize,
    /// Candidates that the judge would accept in some tier: all but those that are forbidden, do not build, or
    /// were not written, and those without a task.
    pub(crate) admissible: usize,
    pub(crate) recorded: usize,
    /// Recorded of those that are admissible.
    pub(crate) share: Option<f64>,
    pub(crate) rows: Vec<Row>,
}

/// A task, and a candidate for it if it was given.
struct Case {
    name: String,
    task: Task,
    candidate: Option<Candidate>,
}

/// Runs the benchmark.
pub(crate) fn run(args: &BenchRecord, printer: Printer) -> Result<RecordReport, Failure> {
    let stop = interrupt::watch(printer)?;
    let cases = cases(args, printer)?;
    let mut rows = known(args.out.as_deref())?;
    let done: BTreeSet<&str> = rows.iter().map(|row| row.candidate.as_str()).collect();
    let total = cases.len();
    let (kept, missing): (Vec<Case>, Vec<Case>) =
        cases.into_iter().partition(|case| done.contains(case.name.as_str()));
    let names: BTreeSet<String> = kept.into_iter().map(|case| case.name).collect();
    rows.retain(|row| names.contains(&row.candidate));
    let options = judging::options(&args.common, Profile::Strict);
    let host = judging::open(&args.common, DeviceChoice::Cpu, options, printer)?;
    let trials = host.judge.recording_trials()?;
    let file = args.out.as_ref().map(|path| {
        fs_err::OpenOptions::new().create(true).append(true).open(path).map_err(unwritten)
    });
    let bench = Bench {
        trials,
        tracer: Tracer {
            jail: &host.jail,
            python: &host.python,
            processes: args.jobs as usize,
            stop: &stop,
        },
        stop: Arc::clone(&stop),
        total,
        sink: Mutex::new(Sink { file: file.transpose()?, rows }),
        printer,
    };
    for part in missing.chunks(TRACED_AT_ONCE) {
        bench.part(part, args.jobs as usize)?;
    }
    let sink = bench.sink.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(RecordReport::of(sink.rows))
}

/// Rows so far, and the file that they are in.
struct Sink {
    file: Option<fs_err::File>,
    rows: Vec<Row>,
}

struct Bench<'b> {
    trials: RecordingTrials<'b>,
    tracer: Tracer<'b>,
    stop: Arc<AtomicBool>,
    total: usize,
    sink: Mutex<Sink>,
    printer: Printer,
}

impl Bench<'_> {
    /// Does a few candidates, `jobs` at a time.
    fn part(&self, cases: &[Case], jobs: usize) -> Result<(), Failure> {
        let candidates = self.candidates(cases)?;
        let next = AtomicUsize::new(0);
        let work = || {
            loop {
                let number = next.fetch_add(1, Ordering::SeqCst);
                let Some((case, candidate)) = cases.get(number).zip(candidates.get(number)) else {
                    return Ok(());
                };
                if self.stop.load(Ordering::SeqCst) {
                    return Err(Failure::interrupted());
                }
                self.add(self.tried(case, candidate.as_ref())?)?;
            }
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(work)).collect();
            workers.into_iter().try_for_each(|worker| {
                worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        })
    }

    /// The candidate of each case: as it was given, or the built-in policy's first.
    fn candidates(&self, cases: &[Case]) -> Result<Vec<Result<Candidate, String>>, Failure> {
        let untraced = |case: &&Case| case.candidate.is_none();
        let sources: Vec<&str> =
            cases.iter().filter(untraced).map(|case| case.task.source.as_str()).collect();
        let traced = self.tracer.trace(&sources, &|_| {});
        let traced = traced.map_err(|error| Failure::infrastructure(chain(&error), None))?;
        let mut traced = traced.into_iter();
        let device = DeviceFacts::assumed("cuda:0");
        let candidate = |case: &Case| {
            if let Some(candidate) = &case.candidate {
                return Ok(candidate.clone());
            }
            let trace = traced.next().unwrap_or_else(|| Err("was not traced".to_owned()))?;
            let files = warpwright_teacher::translate(&trace, &device, Profile::Strict, false)?;
            let bytes = |(name, text): (String, String)| (name, text.into_bytes());
            Ok(Candidate::from_files(files.into_iter().map(bytes).collect()))
        };
        Ok(cases.iter().map(candidate).collect())
    }

    fn tried(&self, case: &Case, candidate: Result<&Candidate, &String>) -> Result<Row, Failure> {
        let started = std::time::Instant::now();
        let row = |outcome, reason: &str| Row {
            candidate: case.name.clone(),
            outcome,
            launches: 0,
            others: 0,
            reason: short(reason),
            seconds: started.elapsed().as_secs_f64(),
        };
        let candidate = match candidate {
            Ok(candidate) => candidate,
            Err(reason) => return Ok(row(TrialOutcome::NotWritten, reason)),
        };
        let trial = match self.trials.record(&case.task, candidate) {
            Ok(trial) => trial,
            Err(error @ (JudgeError::Reference { .. } | JudgeError::Memory { .. })) => {
                return Ok(row(TrialOutcome::NoTask, &error.to_string()));
            }
            Err(error) => return Err(error.into()),
        };
        Ok(match trial {
            RecordingTrial::Recorded { launches, others } => {
                Row { launches, others, ..row(TrialOutcome::Recorded, "") }
            }
            RecordingTrial::Refused { reason, forbidden: true } => {
                row(TrialOutcome::Forbidden, &reason)
            }
            RecordingTrial::Refused { reason, .. } => row(TrialOutcome::Refused, &reason),
            RecordingTrial::Failed(failed) if failed.class == FailureClass::StateDict => {
                row(TrialOutcome::Forbidden, &said(&failed))
            }
            RecordingTrial::Failed(failed) => row(TrialOutcome::Failed, &said(&failed)),
            RecordingTrial::NotBuilt(failed) if failed.class == FailureClass::ForbiddenImport => {
                row(TrialOutcome::Forbidden, &said(&failed))
            }
            RecordingTrial::NotBuilt(failed) => row(TrialOutcome::NotBuilt, &said(&failed)),
        })
    }

    fn add(&self, row: Row) -> Result<(), Failure> {
        let mut sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &mut sink.file {
            let text = serde_json::to_string(&row).map_err(|error| unwritten(error.into()))? + "\n";
            file.write_all(text.as_bytes()).map_err(unwritten)?;
        }
        let mut text = format!("{}/{} {}: ", sink.rows.len() + 1, self.total, row.candidate);
        let _ = match row.outcome {
            TrialOutcome::Recorded => write!(text, "recorded, {} launches", row.launches),
            outcome => write!(text, "{}: {}", outcome.name(), row.reason),
        };
        self.printer.say(&format!("{text} ({:.1} s)", row.seconds));
        sink.rows.push(row);
        Ok(())
    }
}

impl TrialOutcome {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Recorded => "recorded",
            Self::Refused => "refused",
            Self::Forbidden => "forbidden",
            Self::Failed => "failed",
            Self::NotBuilt => "not built",
            Self::NotWritten => "not written",
            Self::NoTask => "no task",
        }
    }

    /// Whether some tier accepts it, as far as is known.
    fn is_admissible(self) -> bool {
        matches!(self, Self::Recorded | Self::Refused | Self::Failed)
    }
}

impl RecordReport {
    fn of(mut rows: Vec<Row>) -> Self {
        rows.sort_by(|one, other| one.candidate.cmp(&other.candidate));
        let admissible = rows.iter().filter(|row| row.outcome.is_admissible()).count();
        let is_recorded = |row: &&Row| row.outcome == TrialOutcome::Recorded;
        let recorded = rows.iter().filter(is_recorded).count();
        let share = (admissible > 0).then(|| recorded as f64 / admissible as f64);
        Self { version: VERSION, candidates: rows.len(), admissible, recorded, share, rows }
    }
}

/// The tasks of a suite, or the workspaces of a folder.
fn cases(args: &BenchRecord, printer: Printer) -> Result<Vec<Case>, Failure> {
    let mut cases = if let Some(folder) = &args.candidates {
        workspaces(folder)?
    } else {
        written_for(&args.suite, &args.levels, printer)?
    };
    if let Some(shard) = args.shard {
        let mut number = 0;
        cases.retain(|_| {
            number += 1;
            (number - 1) % shard.of == shard.this - 1
        });
    }
    if cases.is_empty() {
        let hint = "name a suite, or `--candidates` with a folder of workspaces".to_owned();
        return Err(Failure::usage("failed to find candidates: there are none", hint));
    }
    Ok(cases)
}

/// The tasks that the built-in policy writes candidates for.
fn written_for(suite: &[PathBuf], levels: &[u8], printer: Printer) -> Result<Vec<Case>, Failure> {
    let tasks = warpwright_rollout::tasks::read_suite(suite, &|text| printer.say(text))?;
    let is_wanted =
        |task: &Task| levels.is_empty() || task.level.is_some_and(|level| levels.contains(&level));
    let case = |task: Task| Case { name: task.name.clone(), task, candidate: None };
    Ok(tasks.into_iter().filter(is_wanted).map(case).collect())
}

/// Folders with `model.py`, the reference, and a candidate.
fn workspaces(folder: &Path) -> Result<Vec<Case>, Failure> {
    let unread = |error: &dyn std::error::Error| {
        let hint = "each folder in it needs model.py and model_new.py".to_owned();
        Failure::usage(format!("failed to read candidates: {error}"), hint)
    };
    let mut found = BTreeMap::new();
    for entry in fs_err::read_dir(folder).map_err(|error| unread(&error))? {
        let path = entry.map_err(|error| unread(&error))?.path();
        if !path.is_dir() {
            continue;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let source =
            fs_err::read_to_string(path.join("model.py")).map_err(|error| unread(&error))?;
        let candidate = Candidate::read(&path).map_err(|error| unread(&error))?;
        let task = Task::from_source(&name, source);
        found.insert(name.clone(), Case { name, task, candidate: Some(candidate) });
    }
    Ok(found.into_values().collect())
}

/// Rows of an earlier run.
fn known(file: Option<&Path>) -> Result<Vec<Row>, Failure> {
    let Some(file) = file else { return Ok(Vec::new()) };
    if !file.exists() {
        return Ok(Vec::new());
    }
    let text = fs_err::read_to_string(file).map_err(unwritten)?;
    let rows: Result<Vec<Row>, _> = text.lines().map(serde_json::from_str).collect();
    rows.map_err(|error| {
        let hint = "name another file with `--out`".to_owned();
        Failure::usage(format!("failed to read rows from {}: {error}", file.display()), hint)
    })
}

/// A failure in one line: the first error of a compiler if there is one.
fn said(failed: &Failed) -> String {
    let first = failed.diagnostics.first().map(|diagnostic| diagnostic.message.as_str());
    first.unwrap_or(&failed.message).to_owned()
}

/// The first line of a reason, shortened.
fn short(reason: &str) -> String {
    let line = reason.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    line.trim().chars().take(MOST_TEXT).collect()
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn unwritten(error: std::io::Error) -> Failure {
    let hint = "name another file with `--out`".to_owned();
    Failure::usage(format!("failed to read or write the rows: {error}"), hint)
}
