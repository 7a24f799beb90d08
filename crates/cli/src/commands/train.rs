//! `warpwright train STAGE CONFIG`: trains a policy on the run time of its kernels.

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Serialize;
use warpwright_train::config::Config;
use warpwright_train::launch::{Launch, Plan};
use warpwright_train::stage::Stage;

use crate::args::train::{StageArg, TrainArgs};
use crate::commands::judge::command;
use crate::failure::Failure;
use crate::printer::Printer;
use crate::train_printer::TrainPrinter;
use crate::{contract, exit, interrupt, judging};

/// Output of `train --json`.
#[derive(Debug, Serialize)]
struct Trained {
    version: u32,
    out: PathBuf,
    /// Stages that are done.
    stages: Vec<Stage>,
    /// Mean rewards of the first and the last fifth of the training steps of the last stage of
    /// reinforcement learning.
    reward_first: Option<f64>,
    reward_last: Option<f64>,
    /// Candidates that this command measured, and verdicts from the verdict cache.
    judged: u64,
    repeated: u64,
    seconds: f64,
}

pub(crate) fn run(args: &TrainArgs, printer: Printer) -> Result<u8, Failure> {
    let began = Instant::now();
    let (config, text) = Config::read(&args.config, &args.overrides)?;
    let stages = asked(args.stage, &config)?;
    let folder = args.config.parent().unwrap_or(Path::new(".")).to_owned();
    let out = std::path::absolute(args.out.clone().unwrap_or_else(|| usual(&args.config)))
        .map_err(|error| Failure::io("find the run's folder", &error))?;
    let (seed, profile) = (args.common.seed, config.profile);
    let libraries = config.libraries.clone();
    let verdicts = out.join("verdicts.jsonl");
    let plan = Plan {
        config,
        text,
        folder,
        out,
        seed,
        task_seed: seed,
        stages,
        verdicts,
        command: command(),
    };
    let observer = TrainPrinter::new(printer);
    let launch = Launch::prepare(plan, &observer)?;
    let stop = interrupt::watch(printer)?;
    let wanted = judging::training_options(&args.common, profile).with_libraries(&libraries);
    let hosts = judging::open_all(&args.common, wanted, printer)?;
    let landed = launch.go(&hosts, &stop, &observer)?;
    if let Some((first, last)) = landed.rewards {
        printer.say(&format!(
            "mean reward: {first:.3} in the first fifth of the steps, {last:.3} in the last"
        ));
    }
    let (reward_first, reward_last) = landed.rewards.unzip();
    printer.object(&Trained {
        version: contract::VERSION,
        out: launch.plan.out,
        stages: landed.done,
        reward_first,
        reward_last,
        judged: landed.judged,
        repeated: landed.repeated,
        seconds: began.elapsed().as_secs_f64(),
    });
    Ok(exit::OK)
}

fn usual(config: &Path) -> PathBuf {
    Path::new("warpwright-runs").join(config.file_stem().unwrap_or_default())
}

fn asked(stage: StageArg, config: &Config) -> Result<Vec<Stage>, Failure> {
    let one = match stage {
        StageArg::Run => {
            return Ok(Stage::ALL.into_iter().filter(|stage| stage.is_in(config)).collect());
        }
        StageArg::Demos => Stage::Demos,
        StageArg::Pretrain => Stage::Pretrain,
        StageArg::Sft => Stage::Sft,
        StageArg::SingleTurn => Stage::SingleTurn,
        StageArg::Collect => Stage::Collect,
        StageArg::Rft => Stage::Rft,
        StageArg::Value => Stage::Value,
        StageArg::Ppo => Stage::Ppo,
        StageArg::Eval => Stage::Eval,
    };
    if one.is_in(config) {
        return Ok(vec![one]);
    }
    let name = one.name();
    let hint = format!("add the table [{}] to the configuration", one.table());
    Err(Failure::usage(
        format!("failed to run stage {name}: the configuration does not have it"),
        hint,
    ))
}
