//! What `serve` can be told.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use warpwright_agent::episode::DEFAULT_TURNS;

use super::worker::FleetArgs;
use super::{Common, ProfileArg};

/// `serve`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright serve --device all
  warpwright serve --suite suites/starter --listen 127.0.0.1:8000
  warpwright serve --listen 0.0.0.0:8000 --tokens tokens.txt --profile tf32
  warpwright serve --suite suites/starter --sessions 1024 --keep-sessions sessions/
  warpwright serve --nats nats://127.0.0.1:4222 --no-device
  curl -s http://127.0.0.1:8000/judge --json @question.json
  warpwright judge model.py --candidate workspace/ --server http://127.0.0.1:8000

http://127.0.0.1:8000/ is a page to look at; GET /openapi.json says what is served. A first interrupt lets what was asked be judged, a second one
ends at once. Lines of the tokens' file are `CLIENT TOKEN [EXPIRES]`; `openssl rand -hex 32` makes a
token. `docs/serve.md` has more.")]
pub(crate) struct ServeArgs {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8000")]
    pub(crate) listen: SocketAddr,
    /// Who may ask; needed to listen beyond this machine.
    #[arg(long, value_name = "FILE")]
    pub(crate) tokens: Option<PathBuf>,
    /// Tasks that can be asked for by name: files, folders, tables.
    #[arg(long, value_name = "PATH")]
    pub(crate) suite: Vec<PathBuf>,
    /// Precision and comparison rules.
    #[arg(long, value_enum, default_value_t = ProfileArg::Strict)]
    pub(crate) profile: ProfileArg,
    /// Most candidates that wait; who comes then is told when to come again.
    #[arg(long, value_name = "N", default_value_t = 1024,
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) queue: u32,
    /// Most candidates of one client, waiting or judged.
    #[arg(long, value_name = "N", default_value_t = 512,
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) per_client: u32,
    /// Largest body of a request.
    #[arg(long, value_name = "MIB", default_value_t = 16,
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) body_mib: u32,
    /// Deadline of those who name none.
    #[arg(long, value_name = "SECONDS", default_value_t = 900,
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) deadline: u64,
    /// How long what was asked before an interrupt may still be judged.
    #[arg(long, value_name = "SECONDS", default_value_t = 600,
        value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub(crate) drain: u64,
    /// Most episodes that clients play at once (NeMo-Gym, OpenEnv).
    #[arg(long, value_name = "N", default_value_t = 512,
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) sessions: u32,
    /// Most episodes of one client.
    #[arg(long, value_name = "N", default_value_t = 512,
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) sessions_per_client: u32,
    /// How long a client may leave an episode alone before it is ended.
    #[arg(long, value_name = "SECONDS", default_value_t = 1800,
        value_parser = clap::value_parser!(u64).range(1..=604_800))]
    pub(crate) session_idle: u64,
    /// Most messages of an episode.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_TURNS,
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) session_turns: u32,
    /// Keep the records of episodes here, each a run to look at (`report`, `watch`).
    #[arg(long, value_name = "DIR")]
    pub(crate) keep_sessions: Option<PathBuf>,
    /// How many of them; older ones are removed.
    #[arg(long, value_name = "N", default_value_t = 1000, requires = "keep_sessions",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) keep: u32,
    /// Where NATS is, over which workers of other hosts judge (`warpwright worker`); may hold a name and a password, which
    /// `WARPWRIGHT_NATS` hides from others.
    #[arg(long, value_name = "URL", env = "WARPWRIGHT_NATS", hide_env_values = true)]
    pub(crate) nats: Option<String>,
    /// Which fleet, and how long its workers may be silent.
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
    /// Judge on no device of this host; episodes, which are played here, are not served then.
    #[arg(long, requires = "nats")]
    pub(crate) no_device: bool,
    /// What every command that judges takes.
    #[command(flatten)]
    pub(crate) common: Common,
}
