//! Arguments of `serve`.

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
  warpwright serve --suite suites/starter --sessions 1024 --keep-sessions sessions/
  warpwright serve --listen 0.0.0.0:8000 --tokens tokens.txt --profile tf32
  warpwright serve --nats nats://127.0.0.1:4222 --no-device

Clients:
  warpwright judge model.py --candidate workspace/ --server http://127.0.0.1:8000
  curl -s http://127.0.0.1:8000/judge --json @request.json")]
pub(crate) struct ServeArgs {
    /// Address to listen on; port 0 selects a free port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8000")]
    pub(crate) listen: SocketAddr,
    /// File of bearer tokens; required to listen on anything but a loopback address.
    ///
    /// Each line is `CLIENT TOKEN [EXPIRES]`. `openssl rand -hex 32` prints a token.
    #[arg(long, value_name = "FILE")]
    pub(crate) tokens: Option<PathBuf>,
    /// Tasks that requests can refer to by name: files or folders. May be repeated.
    #[arg(long, value_name = "PATH")]
    pub(crate) suite: Vec<PathBuf>,
    /// Precision and comparison rules.
    #[arg(long, value_enum, default_value_t = ProfileArg::Strict)]
    pub(crate) profile: ProfileArg,
    /// Maximum candidates in the queue; beyond it the server answers 429 with `Retry-After`.
    #[arg(long, value_name = "N", default_value_t = 1024,
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) max_queue: u32,
    /// Maximum candidates per client, queued or being judged; beyond it the server answers 429.
    #[arg(long, value_name = "N", default_value_t = 512,
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) per_client: u32,
    /// Maximum size of a request body, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 16,
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) body_mib: u32,
    /// Deadline of requests that name none, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 900,
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) deadline: u64,
    /// Maximum seconds to finish accepted requests after the first interrupt.
    #[arg(long, value_name = "SECONDS", default_value_t = 600,
        value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub(crate) drain: u64,
    /// Maximum concurrent sessions (NeMo-Gym, OpenEnv); beyond it the server answers 429.
    ///
    /// A session is one episode that a client plays.
    #[arg(long, value_name = "N", default_value_t = 512,
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) sessions: u32,
    /// Maximum concurrent sessions per client.
    #[arg(long, value_name = "N", default_value_t = 512,
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) sessions_per_client: u32,
    /// Idle timeout of a session, in seconds; the server then ends the session.
    #[arg(long, value_name = "SECONDS", default_value_t = 1800,
        value_parser = clap::value_parser!(u64).range(1..=604_800))]
    pub(crate) session_idle: u64,
    /// Maximum turns per session.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_TURNS,
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) session_turns: u32,
    /// Folder to record sessions in; by default they are not recorded.
    ///
    /// Each session becomes a run folder, which `report` and `trajectory` read.
    #[arg(long, value_name = "DIR")]
    pub(crate) keep_sessions: Option<PathBuf>,
    /// Maximum recorded sessions; the server removes the oldest ones beyond it.
    #[arg(long, value_name = "N", default_value_t = 1000, requires = "keep_sessions",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) max_kept_sessions: u32,
    /// URL of a NATS server, over which workers of other hosts judge (`warpwright worker`).
    ///
    /// The URL may contain a user name and a password. Set `WARPWRIGHT_NATS` instead to keep them out of
    /// the process list.
    #[arg(long, value_name = "URL", env = "WARPWRIGHT_NATS", hide_env_values = true)]
    pub(crate) nats: Option<String>,
    /// Fleet and lease.
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
    /// Judge on no device of this host, only through workers.
    ///
    /// Such a server has no sessions: a session needs a device of the server.
    #[arg(long, requires = "nats")]
    pub(crate) no_device: bool,
    /// Options of every command that judges.
    #[command(flatten)]
    pub(crate) common: Common,
}
