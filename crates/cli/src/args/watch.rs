//! What `watch` can be told.

use std::path::PathBuf;

use clap::Args;

/// `watch`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright watch warpwright-runs/rows-h200
  warpwright watch warpwright-runs/rows-h200 --once

Draws the figures of a training run anew every second, from what lies in its folder: the run may be
under way in another terminal, over, or stopped. Left and right choose a stage, q ends. Where
standard output is no terminal, one picture is printed as text. `warpwright report` writes a page.")]
pub(crate) struct WatchArgs {
    /// Folder of a training run.
    #[arg(value_name = "RUN_DIR")]
    pub(crate) run: PathBuf,
    /// Print one picture as text.
    #[arg(long)]
    pub(crate) once: bool,
}
