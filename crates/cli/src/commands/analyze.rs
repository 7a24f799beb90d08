//! `warpwright analyze`: statistics over evaluations, records and training runs, from files alone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fs_err as fs;
use serde::Serialize;
use warpwright_learn::online::State;
use warpwright_learn::run_monitor::Update;
use warpwright_record::history::History;
use warpwright_report::analysis::arms::{ArmRun, ArmTable};
use warpwright_report::analysis::best_of::BestOfTable;
use warpwright_report::analysis::gap::GapTable;
use warpwright_report::analysis::merge::{self, merge};
use warpwright_report::analysis::pool::Pool;
use warpwright_report::analysis::roofline::RooflineTable;
use warpwright_report::analysis::step_times::StepTimes;
use warpwright_report::analysis::steps::{Step, StepsTable};
use warpwright_report::analysis::verdict_times::VerdictTimes;
use warpwright_report::analysis::{AnalysisError, stored};
use warpwright_report::evaluation::Evaluation;
use warpwright_train::error::TrainError;
use warpwright_train::folder::Begun;
use warpwright_train::report::is_training;
use warpwright_train::{experiment, figures};

use crate::args::analyze::{AnalyzeAction, AnalyzeArgs, PlotArgs, StepsArgs};
use crate::commands::report::{say_rejudged, width};
use crate::exit;
use crate::failure::{Failure, chain};
use crate::printer::Printer;

/// The cure for a path that is no run folder.
const RUN: &str = "name a run folder of `warpwright optimize` or `warpwright eval`, or the folder `record` \
                   of a stage of `warpwright train`";
/// The same where it has to be that of an RL stage.
const RL_RECORD: &str = "name the folder `record` of an RL stage of `warpwright train`, e.g. \
                         `OUT/ppo/record`";

pub(crate) fn run(args: &AnalyzeArgs, printer: Printer) -> Result<u8, Failure> {
    match &args.action {
        AnalyzeAction::Gap(args) => {
            let evaluations = evaluations(&args.evaluations, printer)?;
            let table = GapTable::of(&Pool::of(&evaluations)?, &args.from, &args.to)?;
            Ok(show(printer, &table.text(width()), &table))
        }
        AnalyzeAction::BestOf(args) => {
            let evaluations = evaluations(&args.evaluations, printer)?;
            let table = BestOfTable::of(&Pool::of(&evaluations)?, &args.one, &args.other)?;
            Ok(show(printer, &table.text(width()), &table))
        }
        AnalyzeAction::Merge(args) => {
            let merged = merge(&evaluations(&args.evaluations, printer)?)?;
            Ok(show(printer, &merge::text(&merged, width()), &merged))
        }
        AnalyzeAction::Roofline(args) => {
            let (run, history) = history(&args.run, printer)?;
            let table = RooflineTable::of(&run, &history)?;
            Ok(show(printer, &table.text(width()), &table))
        }
        AnalyzeAction::VerdictTimes(args) => {
            let (run, history) = history(&args.run, printer)?;
            let table = VerdictTimes::of(&run, &history)?;
            Ok(show(printer, &table.text(width()), &table))
        }
        AnalyzeAction::StepTimes(args) => {
            let record = stored::record(&args.run, RL_RECORD)?;
            let table = StepTimes::read(&record, args.episodes)?;
            Ok(show(printer, &table.text(width()), &table))
        }
        AnalyzeAction::Steps(args) => {
            let table = steps(args)?;
            Ok(show(printer, &table.text(width()), &table))
        }
        AnalyzeAction::Plot(args) => {
            let table = plot(args)?;
            table.write_svg(&args.out)?;
            printer.say(&format!("plot: {}", args.out.display()));
            Ok(show(printer, &table.text(width()), &table))
        }
    }
}

/// Prints a table as text, or as the JSON object.
fn show<T: Serialize>(printer: Printer, text: &str, table: &T) -> u8 {
    printer.data(&format!("{text}\n"));
    printer.object(table);
    exit::OK
}

fn evaluations(paths: &[PathBuf], printer: Printer) -> Result<Vec<Evaluation>, Failure> {
    let read: Result<Vec<Evaluation>, AnalysisError> =
        paths.iter().map(|path| stored::evaluation(path)).collect();
    let read = read?;
    let named: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    for dir in named.iter().filter(|path| path.is_dir()) {
        say_rejudged(dir, &named, printer)?;
    }
    Ok(read)
}

/// A run's name and history.
fn history(dir: &Path, printer: Printer) -> Result<(String, History), Failure> {
    let record = stored::record(dir, RUN)?;
    let history = History::read(&record)?;
    say_rejudged(dir, &[], printer)?;
    Ok((dir.display().to_string(), history))
}

fn steps(args: &StepsArgs) -> Result<StepsTable, Failure> {
    let (first, second) = (training_steps(&args.first)?, training_steps(&args.second)?);
    let (one, other) = (args.first.display().to_string(), args.second.display().to_string());
    if let (Some(a), Some(b)) = (&first.1, &second.1)
        && a != b
    {
        let message = format!("failed to compare {one} with {other}: their training tasks differ");
        let hint = "name two runs with the same `[tasks]` and task seed".to_owned();
        return Err(Failure::usage(message, hint));
    }
    Ok(StepsTable::of([(&one, &first.0), (&other, &second.0)]))
}

/// The training steps of a run's last RL stage, and the hashes of the run's training tasks. A file with
/// the state of a stage has no hashes.
fn training_steps(path: &Path) -> Result<(Vec<Step>, Option<Vec<String>>), Failure> {
    let unread = |reason: &dyn std::fmt::Display| {
        let message = format!("failed to read training steps from {}: {reason}", path.display());
        let hint = "name a run folder of `warpwright train` with a training step of an RL stage, or \
                    `state.json` or `done.json` of such a stage";
        Failure::usage(message, hint.to_owned())
    };
    let (state, tasks): (State, _) = if path.is_dir() {
        if !is_training(path) {
            return Err(unread(&"the folder has no train.json"));
        }
        let stage = experiment::last_rl_stage(path).ok_or_else(|| unread(&"it has no RL stage"))?;
        let [tasks, _] = Begun::read(path).map_err(unreadable)?.tasks;
        let state = if stage.is_done() { stage.result() } else { stage.state() };
        (state.map_err(unreadable)?, Some(tasks))
    } else {
        let bytes = fs::read(path).map_err(|error| unread(&error))?;
        if bytes.trim_ascii().is_empty() {
            return Err(unread(&"the file is empty"));
        }
        let other_kind = |error: serde_json::Error| {
            unread(&format!("it is not the state of an RL stage: {error}"))
        };
        (serde_json::from_slice(&bytes).map_err(other_kind)?, None)
    };
    if state.updates.is_empty() {
        return Err(unread(&"it has no training step"));
    }
    Ok((state.updates.iter().map(step).collect(), tasks))
}

/// A file of a training run cannot be read: here the cure is not to repeat its stage.
fn unreadable(error: TrainError) -> Failure {
    let failure = Failure::from(error);
    if failure.code != exit::INFRASTRUCTURE {
        return failure;
    }
    let hint = "copy the run folder again from where it was written, or name another run";
    Failure { hint: Some(hint.to_owned()), ..failure }
}

fn step(update: &Update) -> Step {
    let Update { report, judged, .. } = update;
    Step {
        episodes: report.episodes as u64,
        used: report.used as u64,
        pass_rate: update.pass_rate,
        faster_rate: update.faster_rate,
        reward: report.reward,
        zero_variance_share: report.zero_variance_share,
        response_tokens: update.response_tokens,
        seconds: update.play_seconds + update.learn_seconds,
        measured: judged.judged,
        cached: judged.repeated,
        rewards: update.rewards.clone(),
    }
}

fn plot(args: &PlotArgs) -> Result<ArmTable, Failure> {
    let unplotted = |reason: &str, hint: &str| {
        let message = format!("failed to plot {}: {reason}", args.experiment.display());
        Failure::usage(message, hint.to_owned())
    };
    let arms = args.experiment.join("arms");
    if !arms.is_dir() {
        let reason = if args.experiment.is_dir() {
            "the folder has no folder `arms`"
        } else if args.experiment.exists() {
            "it is a file, not a folder"
        } else {
            "there is no such folder"
        };
        return Err(unplotted(reason, "name the `--out` folder of `warpwright experiment`"));
    }
    let mut runs = Vec::new();
    for arm in folders(&arms)? {
        let name = arm.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for run in folders(&arm)?.into_iter().filter(|run| is_training(run)) {
            let Some(state) = experiment::online(&run).map_err(unreadable)? else { continue };
            let steps: Vec<_> = state.updates.iter().map(figures::of_update).collect();
            runs.push(ArmRun { arm: name.clone(), curves: figures::curves(&steps) });
        }
    }
    if runs.is_empty() {
        let hint = "wait until the RL stage of a run is done, or name another experiment";
        return Err(unplotted("it has no finished run with an RL stage", hint));
    }
    let labels: BTreeMap<String, String> = args.label.iter().cloned().collect();
    Ok(ArmTable::of(&runs, &args.metric, &labels)?)
}

/// The folders in a folder, sorted by name.
fn folders(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |error: std::io::Error| Failure::io("list the runs of the experiment", &error);
    let mut folders = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        folders.push(entry.map_err(failed)?.path());
    }
    folders.retain(|path| path.is_dir());
    folders.sort();
    Ok(folders)
}

impl From<AnalysisError> for Failure {
    fn from(error: AnalysisError) -> Self {
        let (message, hint) = (chain(&error), error.hint());
        match error {
            AnalysisError::Read(error) => Self { hint, ..Self::from(error) },
            AnalysisError::NewerFormat { .. } => Self::record_version(message, hint),
            AnalysisError::Write { source, .. } => {
                let failure = Self::io("write the plot", &source);
                Self { message, hint: failure.hint.clone().or(hint), ..failure }
            }
            AnalysisError::Open { .. }
            | AnalysisError::NotARun { .. }
            | AnalysisError::NotAnEvaluation { .. }
            | AnalysisError::Mixed { .. }
            | AnalysisError::Policy { .. }
            | AnalysisError::NothingShared { .. }
            | AnalysisError::Empty { .. }
            | AnalysisError::Metric { .. } => Self::usage(message, hint),
        }
    }
}
