//! What `worker` can be told, and what `serve` is told of workers.

use std::path::PathBuf;

use clap::Args;

use super::{Common, ProfileArg};

/// `worker`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  nats-server --jetstream --addr 127.0.0.1
  warpwright serve --nats nats://127.0.0.1:4222 --no-device
  warpwright worker --connect nats://127.0.0.1:4222 --device all
  warpwright worker --connect nats://127.0.0.1:4222 --parked parked/

Judges for the `warpwright serve` of the same fleet, version, profile, baselines, seed and hardware; where one of
them differs the server says so and the worker ends. A first interrupt lets what is begun be judged, a
second one ends at once. `docs/serve.md` has more.")]
pub(crate) struct WorkerArgs {
    /// Where NATS is; may hold a name and a password, which `WARPWRIGHT_NATS` hides from others.
    #[arg(long, value_name = "URL", env = "WARPWRIGHT_NATS", hide_env_values = true)]
    pub(crate) connect: String,
    /// Which fleet, and how long its workers may be silent.
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
    /// Write jobs that no worker survived into this folder, and end.
    #[arg(long, value_name = "DIR")]
    pub(crate) parked: Option<PathBuf>,
    /// Precision and comparison rules.
    #[arg(long, value_enum, default_value_t = ProfileArg::Strict)]
    pub(crate) profile: ProfileArg,
    /// What every command that judges takes.
    #[command(flatten)]
    pub(crate) common: Common,
}

/// What a server and its workers must have in common.
#[derive(Args, Debug)]
pub(crate) struct FleetArgs {
    /// Servers and workers of one NATS that belong together.
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub(crate) fleet: String,
    /// How long a worker may be silent about a job before another gets it.
    #[arg(long, value_name = "SECONDS", default_value_t = 20,
        value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) lease: u64,
}
