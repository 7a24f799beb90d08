//! Options of `warpwright experiment`.

use std::path::PathBuf;

use clap::Args;

use super::Common;

/// `experiment`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright experiment configs/experiments/critic-cpu.toml --device cpu
  warpwright experiment configs/experiments/critic-cpu.toml --device cpu --out runs/critic --json

An experiment compares arms. Each arm changes one thing in a base training configuration and runs with
several seeds. The shared stages run once; all arms are rewarded by the same judge. The same command
resumes an interrupted experiment. OUT/experiment.md and OUT/report.html have the results so far.")]
pub(crate) struct ExperimentArgs {
    /// The experiment's file (TOML).
    #[arg(value_name = "EXPERIMENT")]
    pub(crate) experiment: PathBuf,
    /// Output folder. Default: one under `warpwright-runs/` with the file's name.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Options of every command that judges. `--seed` is the seed of the shared stages.
    #[command(flatten)]
    pub(crate) common: Common,
}
