//! What `train` can be told.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::Common;

/// `train`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright train run configs/smoke-cpu.toml --device cpu
  warpwright train ppo configs/smoke-cpu.toml --device cpu --out runs/smoke
  warpwright train run configs/smoke-cpu.toml --device cpu --seed 3 --json

The same command goes on where it was stopped. `run` does every stage that the configuration has:
demonstrations by rules, training on source code and on kernels that nobody judged, supervised training
on the demonstrations, PPO on single messages, collection of episodes, rejection fine-tuning, value
pretraining, PPO over whole episodes, evaluation on tasks held out.
`docs/training.md` explains the configuration. The engine is a program of its own: `make engine`.")]
pub(crate) struct TrainArgs {
    /// Which stage, or `run` for all.
    #[arg(value_enum, value_name = "STAGE")]
    pub(crate) stage: StageArg,
    /// The configuration, a TOML file.
    #[arg(value_name = "CONFIG")]
    pub(crate) config: PathBuf,
    /// Folder of the run; by default one under `warpwright-runs/` with the configuration's name.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// What every command that judges takes.
    #[command(flatten)]
    pub(crate) common: Common,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StageArg {
    /// Every stage, in order.
    Run,
    /// Demonstrations by the built-in policy's rules, with flaws.
    Demos,
    /// Training on source code and on kernels that nobody judged.
    Pretrain,
    /// Supervised training on the demonstrations.
    Sft,
    /// PPO on first messages.
    SingleTurn,
    /// Episodes of the policy as it is.
    Collect,
    /// Rejection fine-tuning on the good ones of these.
    Rft,
    /// Value pretraining on all of these.
    Value,
    /// PPO over whole episodes.
    Ppo,
    /// Every stage's policy on tasks held out.
    Eval,
}
