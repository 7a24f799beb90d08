//! `warpwright rejudge RUN...`: earlier candidates, judged by today's rules.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use fs_err as fs;
use serde::Serialize;
use warpwright_record::event::EpisodeId;
use warpwright_record::history::History;
use warpwright_record::reader::RunReader;
use warpwright_record::rejudged::{Mark, Marks, Origin};
use warpwright_record::run::PROGRAM_VERSION;
use warpwright_report::rejudged::{Rejudged, default_folder};
use warpwright_rollout::campaign::Caller;
use warpwright_rollout::error::RolloutError;
use warpwright_rollout::folders;
use warpwright_rollout::judge_host::HostFiles;
use warpwright_rollout::rejudge::{self, Candidates, Found, Rules, Source, full};
use warpwright_train::report::is_training;

use crate::args::IsolationArg;
use crate::args::rejudge::RejudgeArgs;
use crate::commands::report::width;
use crate::contract::VERSION;
use crate::failure::Failure;
use crate::printer::Printer;
use crate::{episodes, exit};

/// What `rejudge --json` prints.
#[derive(Debug, Serialize)]
struct Report {
    version: u32,
    /// Over all runs.
    judged: u64,
    changed: u64,
    by_reason: BTreeMap<String, u64>,
    not_judged: u64,
    runs: Vec<OneRun>,
}

#[derive(Debug, Serialize)]
struct OneRun {
    /// The earlier run.
    run: String,
    /// The new one.
    rejudged: String,
    device: String,
    only: String,
    verdicts: Rejudged,
}

/// An earlier run with the candidates that are judged again, and the folder of the new run.
struct Job {
    dir: PathBuf,
    out: PathBuf,
    source: Source,
    chosen: Candidates,
    found: Found,
}

pub(crate) fn run(args: &RejudgeArgs, printer: Printer) -> Result<u8, Failure> {
    let jobs = jobs(args)?;
    let cache = folders::cache(args.cache.as_deref());
    let files = HostFiles { python: args.python.clone(), cache };
    let rules = Rules {
        devices: args.device.clone(),
        tier: args.require_tier.required(),
        require_full_isolation: args.require_isolation == IsolationArg::Full,
    };
    if jobs.iter().any(|job| job.found != Found::Complete) {
        episodes::with_caller(&files, printer, |caller| work(&jobs, &rules, caller, printer))?;
    }
    let mut report = Report {
        version: VERSION,
        judged: 0,
        changed: 0,
        by_reason: BTreeMap::new(),
        not_judged: 0,
        runs: Vec::new(),
    };
    for job in &jobs {
        let one = told(job, printer)?;
        report.judged += one.verdicts.judged;
        report.changed += one.verdicts.changed;
        report.not_judged += one.verdicts.not_judged.len() as u64;
        for (reason, count) in &one.verdicts.by_reason {
            *report.by_reason.entry(reason.clone()).or_default() += count;
        }
        report.runs.push(one);
    }
    printer.object(&report);
    Ok(exit::OK)
}

/// Every earlier run, checked before a device is opened.
fn jobs(args: &RejudgeArgs) -> Result<Vec<Job>, Failure> {
    let mut dirs = Vec::new();
    for run in &args.runs {
        if is_training(run) {
            dirs.extend(stages(run)?);
        } else {
            dirs.push(run.clone());
        }
    }
    let alone = dirs.len() == 1;
    let mut jobs: Vec<Job> = Vec::new();
    for dir in dirs {
        let beside = default_folder(&dir, &args.only);
        let out = match &args.out {
            None => beside,
            Some(out) if alone => out.clone(),
            Some(out) => out.join(name_of(&dir, &beside)),
        };
        if jobs.iter().any(|job| job.out == out) {
            let message = format!(
                "failed to judge {} again: two runs would be written to {}",
                dir.display(),
                out.display()
            );
            let hint = "name runs whose folders have different names, or judge one at a time";
            return Err(Failure::usage(message, hint.to_owned()));
        }
        let source = Source::open(&dir)?;
        let changed =
            if args.only == "changed" { last_changed(&dir, &source)? } else { BTreeSet::new() };
        let chosen = source.select(&args.only, &changed)?;
        let found = rejudge::look(&source, &args.only, &out)?;
        jobs.push(Job { dir, out, source, chosen, found });
    }
    Ok(jobs)
}

/// Name of a new run folder among others. Records of training are all called `record`: they get their stage's name.
fn name_of(dir: &Path, beside: &Path) -> String {
    let text = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    match dir.parent() {
        Some(stage) if text(dir) == "record" => format!("{}-{}", text(stage), text(beside)),
        _ => text(beside),
    }
}

/// The records of a training run, by stage.
pub(crate) fn stages(run: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |error: std::io::Error| Failure::io("list the stages of the training run", &error);
    let mut records = Vec::new();
    for entry in fs::read_dir(run).map_err(failed)? {
        let record = entry.map_err(failed)?.path().join("record");
        if record.join("run.json").exists() {
            records.push(record);
        }
    }
    records.sort();
    if records.is_empty() {
        let message =
            format!("failed to judge {} again: no stage has recorded episodes", run.display());
        let hint = "name a training run with an RL stage, or another run folder".to_owned();
        return Err(Failure::usage(message, hint));
    }
    Ok(records)
}

/// The episodes whose verdict changed when the run was judged again the last time.
fn last_changed(dir: &Path, source: &Source) -> Result<BTreeSet<EpisodeId>, Failure> {
    let marks = Marks::read(dir).map_err(|error| Failure::io("read rejudged.json", &error))?;
    let marked = marks.into_iter().flat_map(|marks| marks.runs).rev().map(|mark| mark.run.into());
    let own = RunReader::open(dir)?;
    for run in marked.chain([default_folder(dir, "all")]) {
        let Ok(reader) = RunReader::open(&run) else { continue };
        if !Origin::of(reader.header()).is_some_and(|origin| origin.is(own.header())) {
            continue;
        }
        return Ok(Rejudged::of(&source.history, &History::read(&reader)?).changed_episodes());
    }
    let run = dir.display();
    let message =
        format!("failed to find what changed in {run}: its candidates were not judged again yet");
    Err(Failure::usage(message, format!("run `warpwright rejudge {run}` first")))
}

fn work(
    jobs: &[Job],
    rules: &Rules,
    caller: &Caller<'_>,
    printer: Printer,
) -> Result<(), RolloutError> {
    let mut failed = None;
    for (number, job) in jobs.iter().enumerate() {
        let Job { dir, out, source, chosen, found } = job;
        if *found == Found::Complete {
            continue;
        }
        printer.say(&format!(
            "run {} of {}: {} candidates of {}",
            number + 1,
            jobs.len(),
            chosen.episodes.len(),
            dir.display()
        ));
        let went = rejudge::run(source, chosen, out, rules, caller);
        if let Err(error) = went.and_then(|()| mark(job, printer)) {
            if caller.stop.load(Ordering::SeqCst) {
                return Err(error);
            }
            // The other runs can be judged all the same.
            printer.say(&format!("error: {}: {error}", dir.display()));
            failed.get_or_insert(error);
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Marks the earlier run, so that its reports say where its figures no longer hold.
fn mark(job: &Job, printer: Printer) -> Result<(), RolloutError> {
    let reader = RunReader::open(&job.out)?;
    let history = History::read(&reader)?;
    let verdicts = Rejudged::of(&job.source.history, &history);
    let mark = Mark {
        run: full(&job.out),
        time: history.last.unwrap_or_else(jiff::Timestamp::now),
        program: PROGRAM_VERSION.to_owned(),
        device: devices(&history),
        only: job.chosen.only.clone(),
        judged: verdicts.judged,
        changed: verdicts.changed,
        reasons: verdicts.by_reason,
    };
    if let Err(error) = Marks::add(&job.dir, mark) {
        // The new run is complete. A copy of the mark is not needed where both lie side by side.
        printer.label(
            "warning",
            "33",
            &format!(
                "{} could not be marked: {error}; name {} too where you report on it",
                job.dir.display(),
                job.out.display()
            ),
        );
    }
    Ok(())
}

/// Prints what changed.
fn told(job: &Job, printer: Printer) -> Result<OneRun, Failure> {
    let history = History::read(&RunReader::open(&job.out)?)?;
    let verdicts = Rejudged::of(&job.source.history, &history);
    if job.found == Found::Complete {
        let text = format!(
            "{} has been judged again already; name another folder with `--out` to do it once more",
            job.dir.display()
        );
        printer.label("note", "36", &text);
    }
    printer.data(&format!(
        "{}, judged again into {} on {}\n{}\n",
        job.dir.display(),
        job.out.display(),
        devices(&history),
        verdicts.text(width())
    ));
    Ok(OneRun {
        run: job.dir.display().to_string(),
        rejudged: job.out.display().to_string(),
        device: devices(&history),
        only: job.chosen.only.clone(),
        verdicts,
    })
}

/// The devices that judged, e.g. `cuda:0, cuda:1`.
fn devices(history: &History) -> String {
    let all: BTreeSet<&str> =
        history.episodes.values().map(|episode| episode.setup.device.as_str()).collect();
    all.into_iter().collect::<Vec<_>>().join(", ")
}
