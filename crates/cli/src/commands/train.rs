//! `warpwright train STAGE CONFIG`: a policy from scratch, trained on the run time of its kernels.

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Serialize;
use warpwright_judge::SessionPool;
use warpwright_task::Task;

use crate::args::train::{StageArg, TrainArgs};
use crate::engine::Host;
use crate::failure::Failure;
use crate::judging::{Bench, Wanted};
use crate::place::Place;
use crate::printer::Printer;
use crate::train::config::{Config, Pretraining};
use crate::train::corpus;
use crate::train::folder::Begun;
use crate::train::players::Field;
use crate::train::sources::Places;
use crate::train::stage::Stage;
use crate::train::stages::Run;
use crate::train::verdicts::Verdicts;
use crate::{contract, exit, interrupt};

/// What `train --json` prints.
#[derive(Debug, Serialize)]
struct Trained {
    version: u32,
    out: PathBuf,
    /// Stages that are done.
    stages: Vec<Stage>,
    /// Mean rewards of the first and the last fifth of the PPO episodes.
    reward_first: Option<f64>,
    reward_last: Option<f64>,
    /// Verdicts that this command measured, and that it gave again.
    judged: u64,
    repeated: u64,
    seconds: f64,
}

pub(crate) fn run(args: &TrainArgs, printer: Printer) -> Result<u8, Failure> {
    let began = Instant::now();
    let (config, text) = Config::read(&args.config)?;
    let stages = asked(args.stage, &config)?;
    let folder = args.config.parent().unwrap_or(Path::new(".")).to_owned();
    let (train, held_out) = config.tasks.read(&folder, args.common.seed, printer)?;
    let read =
        |pretrain: &Pretraining| pretrain.read(&folder, args.common.seed, &held_out, printer);
    let written = config.pretrain.as_ref().map(read).transpose()?.unwrap_or_default();
    let out = std::path::absolute(args.out.clone().unwrap_or_else(|| usual(&args.config)))
        .map_err(|error| Failure::io("find the run's folder", &error))?;

    let pretrained =
        config.pretrained.as_ref().map(|p| std::path::absolute(folder.join(&p.folder)));
    let pretrained =
        pretrained.transpose().map_err(|error| Failure::io("find the model", &error))?;

    let stop = interrupt::watch(printer)?;
    let wanted = Wanted::new(&args.common, config.profile);
    let benches = Bench::open_all(&args.common, &args.common.device, wanted, printer)?;
    let computing = config.engine.gpus.unwrap_or(benches.len());
    if computing == 0 || computing > benches.len() {
        return Err(too_many(computing, benches.len()));
    }
    let devices: Vec<String> = benches.iter().map(Bench::device).collect();
    let hashes = |tasks: &[Task]| tasks.iter().map(|task| task.hash.clone()).collect::<Vec<_>>();
    let tasks = [[hashes(&train), hashes(&written)].concat(), hashes(&held_out)];
    let seed = args.common.seed;
    Begun { version: Begun::VERSION, config: text, folder: folder.clone(), tasks, seed, devices }
        .enter(&out)?;
    printer.say(&format!("run: {}", out.display()));

    if let Some(from) = &pretrained {
        corpus::take_model(from, &config.speech, &out.join("model"))?;
    }
    let pools: Vec<_> = benches.iter().map(|bench| SessionPool::new(&bench.judge)).collect();
    let places = || -> Result<Vec<Place<'_>>, Failure> {
        let each = benches.iter().zip(&pools);
        each.map(|(bench, pool)| Place::new(bench, pool, None, config.profile)).collect()
    };
    let kept = Verdicts::open(&out.join("verdicts.jsonl"), config.verdicts)?;
    let fresh = Verdicts::open(&out.join("verdicts.jsonl"), 0)?;
    let field = |verdicts| -> Result<Field<'_>, Failure> {
        let (profile, turns) = (config.profile, config.turns);
        Ok(Field { places: places()?.into(), verdicts, profile, turns, stop: &stop })
    };
    let (field, afresh) = (field(&kept)?, field(&fresh)?);
    let host = Host::beside(&benches[..computing], Some(&out));
    let run = Run {
        config: &config,
        seed: args.common.seed,
        folder: &folder,
        out: &out,
        pretrained,
        host,
        field: &field,
        afresh: &afresh,
        train: &train,
        written: &written,
        places: Places::of(&benches[0]),
        held_out: &held_out,
        stop: &stop,
        printer,
    };
    let done = stages.iter().try_for_each(|stage| run.stage(*stage));
    let (kept, fresh) = (kept.count(), fresh.count());
    let judged = kept.judged + fresh.judged;
    printer.say(&format!("{judged} verdicts measured, {} given again", kept.repeated));
    done?;
    let rewards = run.first_and_last()?;
    if let Some((first, last)) = rewards {
        printer.say(&format!("mean reward of the first fifth {first:.3}, of the last {last:.3}"));
    }
    let (reward_first, reward_last) = rewards.unzip();
    let mut done = Vec::new();
    for stage in Stage::ALL {
        if stage.is_in(&config) && run.stage_folder(stage)?.is_done() {
            done.push(stage);
        }
    }
    printer.object(&Trained {
        version: contract::VERSION,
        out: out.clone(),
        stages: done,
        reward_first,
        reward_last,
        judged,
        repeated: kept.repeated,
        seconds: began.elapsed().as_secs_f64(),
    });
    Ok(exit::OK)
}

fn too_many(wanted: usize, devices: usize) -> Failure {
    let message = format!("failed to compute on {wanted} devices: the run has {devices}");
    let hint = "name as many by `--device cuda:0,cuda:1`, or fewer as `engine.gpus`".to_owned();
    Failure::usage(message, hint)
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
    let hint = format!("give it a table of that name: [{}]", name.replace('-', "_"));
    Err(Failure::usage(format!("failed to find stage {name} in the configuration"), hint))
}
