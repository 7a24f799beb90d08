//! Arguments of `export`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use warpwright_export::Layouts;
use warpwright_rollout::environment;

/// `export`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright export runs/rms_norm --out rms_norm
  warpwright export runs/starter level1-relu --out relu --name fast_relu
  warpwright export verdict.json --out package --layout wheel --json

`warpwright judge model.py --candidate workspace/ --require-tier device --out RUN` writes such a run.")]
pub(crate) struct ExportArgs {
    /// Run folder, or the JSON of `judge --json`.
    #[arg(value_name = "RUN")]
    pub(crate) run: PathBuf,
    /// Task to export; by default every task of RUN that has a verdict that can be exported.
    #[arg(value_name = "TASK")]
    pub(crate) task: Option<String>,
    /// New folder for the package.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Name of the Python package; its operators are `warpwright_NAME::TASK`. By default the name of the task, or of
    /// RUN where there are several.
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Tools that the folder is for.
    #[arg(long, value_enum, default_value_t = LayoutArg::Both)]
    pub(crate) layout: LayoutArg,
    /// Cache folder that has the launch plans of RUN, if RUN has not; by default `~/.cache/warpwright`.
    #[arg(long, value_name = "DIR", env = environment::CACHE)]
    pub(crate) cache: Option<PathBuf>,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `--layout`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LayoutArg {
    /// A project that `pip` builds.
    Wheel,
    /// A project of Hugging Face `kernels`.
    Kernels,
    /// Both, from one source.
    Both,
}

impl From<LayoutArg> for Layouts {
    fn from(layout: LayoutArg) -> Self {
        match layout {
            LayoutArg::Wheel => Self::Wheel,
            LayoutArg::Kernels => Self::Kernels,
            LayoutArg::Both => Self::Both,
        }
    }
}
