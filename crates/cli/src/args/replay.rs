//! Arguments of `replay`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use warpwright_rollout::device_choice::DeviceChoice;

use super::HostArgs;

/// `replay`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright replay verdict.json --device cuda:0
  warpwright replay runs/starter --episode 3 --json
  warpwright replay verdict.json --plan plan.bin

`warpwright judge model.py --candidate workspace/ --json > verdict.json` writes such a verdict.")]
pub(crate) struct ReplayArgs {
    /// Verdict: the JSON of `judge --json`, of the HTTP API or of a verdict alone, or a run folder.
    #[arg(value_name = "VERDICT")]
    pub(crate) verdict: PathBuf,
    /// Number of the episode in the run folder, from 0; needed when it has several.
    #[arg(long, value_name = "N")]
    pub(crate) episode: Option<u32>,
    /// File of the launch plan; by default the one in the run folder, else the one in the cache folder. Not for a
    /// verdict on several workloads.
    #[arg(long, value_name = "FILE")]
    pub(crate) plan: Option<PathBuf>,
    /// Device to replay on: `auto` or `cuda:N`; it must be of the kind that the kernels were compiled for.
    #[arg(long, value_name = "DEVICE", default_value = "auto", value_parser = DeviceChoice::from_str)]
    pub(crate) device: DeviceChoice,
    /// Options of every judge on this machine.
    #[command(flatten)]
    pub(crate) host: HostArgs,
}
