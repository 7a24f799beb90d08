//! Arguments of `train`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::Common;

/// `train`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright train run configs/smoke-cpu.toml --device cpu
  warpwright train ppo configs/smoke-cpu.toml --device cpu --out runs/smoke
  warpwright train run configs/smoke-cpu.toml --device cpu --set ppo.lr=3e-5 --set ppo.ppo_epochs=2
  warpwright train run configs/smoke-cpu.toml --device cpu --seed 3 --json")]
pub(crate) struct TrainArgs {
    /// Stage to run, or `run` for every stage that the configuration has.
    #[arg(value_enum, value_name = "STAGE")]
    pub(crate) stage: StageArg,
    /// Configuration, a TOML file; `docs/reference/configuration.md` lists its keys.
    #[arg(value_name = "CONFIG")]
    pub(crate) config: PathBuf,
    /// Folder of the run. Default: a folder in `warpwright-runs/` with the configuration's name.
    ///
    /// A run that was stopped resumes when the same command is run again.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Overrides a key of the configuration, e.g. `ppo.lr=3e-5`; may be given several times.
    ///
    /// VALUE is TOML. A value that is not, such as `rloo`, is a string.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) overrides: Vec<String>,
    /// Options of every command that judges.
    #[command(flatten)]
    pub(crate) common: Common,
}

/// A stage of training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StageArg {
    /// Every stage of the configuration, in order.
    Run,
    /// Demonstrations by the built-in policy, with deliberate flaws.
    Demos,
    /// Pretraining on source code and on kernels that are not judged.
    Pretrain,
    /// Supervised fine-tuning on the demonstrations.
    Sft,
    /// Reinforcement learning on episodes of one message.
    SingleTurn,
    /// Episodes of the policy, stored for rft and value.
    Collect,
    /// Rejection fine-tuning on the collected episodes.
    Rft,
    /// Value pretraining on the collected episodes.
    Value,
    /// Reinforcement learning on whole episodes.
    Ppo,
    /// Evaluation of every stage's policy on held-out tasks.
    Eval,
}
