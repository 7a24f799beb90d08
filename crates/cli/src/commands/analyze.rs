//! `warpwright analyze`: statistics over evaluations, records and training runs, from files alone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fs_err as fs;
use serde::Serialize;
use warpwright_learn::online::State;
use warpwright_learn::run_monitor::Update;
use warpwright_record::history::History;
use warpwright_record::reader::RunReader;
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

use crate::args::analyze::{AnalyzeAction, AnalyzeArgs, PlotArgs, StepsArgs};
use crate::commands::report::width;
use crate::exit;
use crate::failure::{Failure, chain};
use crate::printer::Printer;
use crate::train::report::{is_training, outline};
use crate::train::stage::Stage;

/// The RL stages, the last one first.
const RL_STAGES: [Stage; 2] = [Stage::Ppo, Stage::SingleTurn];

pub(crate) fn run(args: &AnalyzeArgs, printer: Printer) -> Result<u8, Failure> {
    match &args.action {
        AnalyzeAction::Gap(args) => {
            let evaluations = evaluations(&args.evaluations)?;
            let table = GapTable::of(&Pool::of(&evaluations)?, &args.from, &args.to)?;
            Ok(show(printer, &table.text(width()), &table))
        }
        AnalyzeAction::BestOf(args) => {
            let evaluations = evaluations(&args.evaluations)?;
            let table = BestOfTable::of(&Pool::of(&evaluations)?, &args.one, &args.other)?;
            Ok(show(printer, &table.text(width()), &table))
        }
        AnalyzeAction::Merge(args) => {
            let merged = merge(&evaluations(&args.evaluations)?)?;
            Ok(show(printer, &merge::text(&merged, width()), &merged))
        }
        AnalyzeAction::Roofline(args) => {
            let (run, history) = history(&args.run)?;
            let table = RooflineTable::of(&run, &history);
            Ok(show(printer, &table.text(width()), &table))
        }
        AnalyzeAction::VerdictTimes(args) => {
            let (run, history) = history(&args.run)?;
            let table = VerdictTimes::of(&run, &history)?;
            Ok(show(printer, &table.text(width()), &table))
        }
        AnalyzeAction::StepTimes(args) => {
            let table = StepTimes::read(&RunReader::open(&args.run)?, args.episodes)?;
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

fn evaluations(paths: &[PathBuf]) -> Result<Vec<Evaluation>, AnalysisError> {
    paths.iter().map(|path| stored::evaluation(path)).collect()
}

/// A run's name and history.
fn history(dir: &Path) -> Result<(String, History), Failure> {
    Ok((dir.display().to_string(), History::read(&RunReader::open(dir)?)?))
}

fn steps(args: &StepsArgs) -> Result<StepsTable, Failure> {
    let name = |path: &Path| path.display().to_string();
    let (first, second) = (training_steps(&args.first)?, training_steps(&args.second)?);
    Ok(StepsTable::of([(&name(&args.first), &first), (&name(&args.second), &second)]))
}

/// The training steps of a run folder's last RL stage, or of a file with the state of a stage.
fn training_steps(path: &Path) -> Result<Vec<Step>, Failure> {
    let mut files = RL_STAGES.iter().flat_map(|stage| {
        let folder = path.join(stage.name());
        [folder.join("done.json"), folder.join("checkpoint/state.json")]
    });
    let found = if path.is_dir() { files.find(|file| file.is_file()) } else { None };
    let file = found.unwrap_or_else(|| path.to_owned());
    let unread = |reason: &dyn std::fmt::Display| {
        let message = format!("failed to read training steps from {}: {reason}", file.display());
        let hint = "name a run folder of `warpwright train` with an RL stage, or `state.json` of \
                    such a stage";
        Failure::usage(message, hint.to_owned())
    };
    let bytes = fs::read(&file).map_err(|error| unread(&error))?;
    let state: State = serde_json::from_slice(&bytes).map_err(|error| unread(&error))?;
    Ok(state.updates.iter().map(step).collect())
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
    let mut runs = Vec::new();
    for arm in folders(&args.experiment.join("arms"))? {
        let name = arm.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for run in folders(&arm)?.into_iter().filter(|run| is_training(run)) {
            let stages = outline(&run)?.stages;
            let stage = RL_STAGES.iter().find_map(|stage| {
                stages.iter().find(|known| known.is_done && known.name == stage.name())
            });
            let Some(stage) = stage else { continue };
            let curves =
                stage.curves.iter().map(|curve| (curve.name.clone(), curve.values.clone()));
            runs.push(ArmRun { arm: name.clone(), curves: curves.collect() });
        }
    }
    if runs.is_empty() {
        let experiment = args.experiment.display();
        let message =
            format!("failed to plot {experiment}: it has no finished run with an RL stage");
        let hint = "name the `--out` folder of `warpwright experiment`".to_owned();
        return Err(Failure::usage(message, hint));
    }
    let labels: BTreeMap<String, String> = args.label.iter().cloned().collect();
    Ok(ArmTable::of(&runs, &args.metric, &labels)?)
}

/// The folders in a folder, sorted by name; none if it does not exist.
fn folders(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |error: std::io::Error| Failure::io("list the runs of the experiment", &error);
    let mut folders = Vec::new();
    if dir.is_dir() {
        for entry in fs::read_dir(dir).map_err(failed)? {
            folders.push(entry.map_err(failed)?.path());
        }
    }
    folders.retain(|path| path.is_dir());
    folders.sort();
    Ok(folders)
}

impl From<AnalysisError> for Failure {
    fn from(error: AnalysisError) -> Self {
        let (message, hint) = (chain(&error), error.hint());
        match error {
            AnalysisError::Read(error) => error.into(),
            AnalysisError::NewerFormat { .. } => Self::record_version(message, hint),
            AnalysisError::Write { source, .. } => {
                let failure = Self::io("write the plot", &source);
                Self { message, hint: failure.hint.clone().or(hint), ..failure }
            }
            AnalysisError::Open { .. }
            | AnalysisError::NotAnEvaluation { .. }
            | AnalysisError::Mixed { .. }
            | AnalysisError::Policy { .. }
            | AnalysisError::NothingShared { .. }
            | AnalysisError::Empty { .. }
            | AnalysisError::Metric { .. } => Self::usage(message, hint),
        }
    }
}
