//! `warpwright experiment FILE`: compares training configurations.

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Serialize;
use warpwright_train::experiment::{ArmResult, Experiment, Laboratory, table};

use crate::args::experiment::ExperimentArgs;
use crate::commands::judge::command;
use crate::failure::Failure;
use crate::printer::Printer;
use crate::train_printer::TrainPrinter;
use crate::{contract, exit, interrupt, judging};

/// Output of `experiment --json`.
#[derive(Serialize)]
struct Told {
    version: u32,
    out: PathBuf,
    arms: Vec<ArmResult>,
    seconds: f64,
}

pub(crate) fn run(args: &ExperimentArgs, printer: Printer) -> Result<u8, Failure> {
    let began = Instant::now();
    let experiment = Experiment::read(&args.experiment)?;
    let usual =
        || Path::new("warpwright-runs").join(args.experiment.file_stem().unwrap_or_default());
    let out = std::path::absolute(args.out.clone().unwrap_or_else(usual))
        .map_err(|error| Failure::io("find the experiment's folder", &error))?;
    let stop = interrupt::watch(printer)?;
    let config = &experiment.base.config;
    let wanted = judging::training_options(&args.common, config.profile);
    let wanted = wanted.with_libraries(&config.libraries);
    let hosts = judging::open_all(&args.common, wanted, printer)?;
    let laboratory = Laboratory {
        experiment: &experiment,
        out: &out,
        seed: args.common.seed,
        hosts: &hosts,
        stop: &stop,
        observer: &TrainPrinter::new(printer),
        command: command(),
    };
    let arms = laboratory.run()?;
    printer.data(&table(&arms));
    printer.say(&format!("page: {}", out.join("report.html").display()));
    let seconds = began.elapsed().as_secs_f64();
    printer.object(&Told { version: contract::VERSION, out, arms, seconds });
    Ok(exit::OK)
}
