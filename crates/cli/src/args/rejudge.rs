//! Arguments of `rejudge`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use warpwright_rollout::device_choice::DeviceChoice;
use warpwright_rollout::environment;

use super::{IsolationArg, TierArg};

/// `rejudge`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright rejudge runs/starter
  warpwright rejudge runs/kernelbench runs/examples --device cuda:0,cuda:1
  warpwright rejudge runs/ppo --only failed --json
  warpwright rejudge runs/starter --only level1-relu --out again --require-tier device")]
pub(crate) struct RejudgeArgs {
    /// Run folders whose final candidates are judged again.
    #[arg(value_name = "RUN", required = true)]
    pub(crate) runs: Vec<PathBuf>,
    /// New run folder; by default `RUN-rejudged`, beside each RUN. With several RUNs, a folder for the new
    /// run folders.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Candidates to judge: `all`, `changed`, `failed`, or those of the task NAME.
    ///
    /// `changed`: whose verdict changed when the run was judged again the last time.
    ///
    /// `failed`: whose recorded verdict is not verified.
    #[arg(long, value_name = "WHICH", default_value = "all")]
    pub(crate) only: String,
    /// Device to judge on: `auto`, `cpu`, `cuda:N`, or `all` GPUs; also a list. On another kind of device
    /// than that of RUN, times are not compared.
    #[arg(long, value_name = "DEVICE", default_value = "auto", value_parser = DeviceChoice::from_str,
        value_delimiter = ',')]
    pub(crate) device: Vec<DeviceChoice>,
    /// Tier in which candidates are judged; each verdict records it.
    #[arg(long, value_enum, default_value_t = TierArg::Any)]
    pub(crate) require_tier: TierArg,
    /// Minimum isolation; with less, the command exits with 5.
    #[arg(long, value_enum, default_value_t = IsolationArg::Any)]
    pub(crate) require_isolation: IsolationArg,
    /// Python interpreter that has torch; by default one found in `.venv` or on the PATH.
    #[arg(long, value_name = "PATH", env = environment::PYTHON)]
    pub(crate) python: Option<PathBuf>,
    /// Cache folder for compiled artifacts; by default `~/.cache/warpwright`.
    #[arg(long, value_name = "DIR", env = environment::CACHE)]
    pub(crate) cache: Option<PathBuf>,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}
