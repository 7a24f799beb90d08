//! Arguments of `worker`, and those that `serve` shares with it.

use std::path::PathBuf;

use clap::Args;

use super::{Common, ProfileArg};

/// `worker`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright worker --connect nats://127.0.0.1:4222 --device all
  warpwright worker --connect nats://127.0.0.1:4222 --dead-letters dead-letters/

Before it:
  nats-server --jetstream --addr 127.0.0.1
  warpwright serve --nats nats://127.0.0.1:4222 --no-device")]
pub(crate) struct WorkerArgs {
    /// URL of the NATS server.
    ///
    /// The URL may contain a user name and a password. Set `WARPWRIGHT_NATS` instead to keep them out of
    /// the process list.
    #[arg(long, value_name = "URL", env = "WARPWRIGHT_NATS", hide_env_values = true)]
    pub(crate) connect: String,
    /// Fleet and lease.
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
    /// Write the jobs of the dead-letter queue into this folder, and exit.
    ///
    /// A job enters the dead-letter queue when several workers in a row began it and none answered. Each
    /// job is written as a task and a candidate, which `warpwright judge` reads.
    #[arg(long, value_name = "DIR")]
    pub(crate) dead_letters: Option<PathBuf>,
    /// Precision and comparison rules.
    #[arg(long, value_enum, default_value_t = ProfileArg::Strict)]
    pub(crate) profile: ProfileArg,
    /// Options of every command that judges.
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Options that a server and its workers must have in common.
#[derive(Args, Debug)]
pub(crate) struct FleetArgs {
    /// Name of the fleet; servers and workers of one NATS server with the same name work together.
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub(crate) fleet: String,
    /// Seconds without a heartbeat of a worker before its job goes to another worker.
    #[arg(long, value_name = "SECONDS", default_value_t = 20,
        value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) lease: u64,
}
