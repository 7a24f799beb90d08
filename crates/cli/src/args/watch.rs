//! Arguments of `watch`.

use std::path::PathBuf;

use clap::Args;

/// `watch`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright watch warpwright-runs/smoke-cpu
  warpwright watch warpwright-runs/smoke-cpu --once")]
pub(crate) struct WatchArgs {
    /// Run folder of `train`.
    #[arg(value_name = "RUN_DIR")]
    pub(crate) run: PathBuf,
    /// Print one frame as text, and exit.
    #[arg(long)]
    pub(crate) once: bool,
}
