//! What `experiment` can be told.

use std::path::PathBuf;

use clap::Args;

use super::Common;

/// `experiment`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright experiment configs/experiments/critic-cpu.toml --device cpu
  warpwright experiment configs/experiments/critic-cpu.toml --device cpu --out runs/critic --json

An experiment is a training configuration that several arms change, each in one thing, with several
seeds of each. What they share is done once; every arm is charged the same. The same command goes on
where it was stopped; what came of it so far is in OUT/experiment.md and OUT/report.html.")]
pub(crate) struct ExperimentArgs {
    /// The experiment, a TOML file.
    #[arg(value_name = "EXPERIMENT")]
    pub(crate) experiment: PathBuf,
    /// Its folder; by default one under `warpwright-runs/` with the file's name.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// What every command that judges takes. `--seed` is that of what the arms share.
    #[command(flatten)]
    pub(crate) common: Common,
}
