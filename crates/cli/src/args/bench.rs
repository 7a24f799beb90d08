//! What `bench` can be told.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{Common, StageArg};
use crate::bench::Form;
use crate::bench::serving::Way;

/// `bench`.
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// What to measure.
    #[command(subcommand)]
    pub(crate) what: BenchWhat,
}

impl BenchArgs {
    pub(crate) fn wants_json(&self) -> bool {
        match &self.what {
            BenchWhat::Judge(args) => args.common.json,
            BenchWhat::Serve(args) => args.common.json,
        }
    }
}

/// What `bench` can measure.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchWhat {
    /// How long a verdict takes, by stage; how many an hour there can be; and how long the same work
    /// takes in a new process each time.
    Judge(BenchJudge),
    /// What asking over HTTP, and from other hosts, costs beside asking the judge in this process.
    Serve(BenchServe),
}

/// `bench serve`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright bench serve --device cpu --stage verified
  warpwright bench serve --device cuda:0,cuda:1 --ways http,http-one-device --seconds 120
  warpwright bench serve --device all --nats nats://127.0.0.1:4222

The same judge with as many hands is asked each way in turn, for new candidates of its own without an end.
With several devices also on the first alone.")]
pub(crate) struct BenchServe {
    /// For how long verdicts are counted, each time: after as long, ten seconds at most, in which
    /// everybody comes to have something to do.
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: u64,
    /// Which ways; if not given, all that there are.
    #[arg(long, value_enum, value_name = "LIST", value_delimiter = ',')]
    pub(crate) ways: Vec<Way>,
    /// Times that each way is gone.
    #[arg(long, value_name = "N", default_value_t = 3,
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// How far candidates are taken.
    #[arg(long, value_enum, default_value_t = StageArg::Measured)]
    pub(crate) stage: StageArg,
    /// Also over NATS with JetStream, there.
    #[arg(long, value_name = "URL", env = "WARPWRIGHT_NATS", hide_env_values = true)]
    pub(crate) nats: Option<String>,
    /// Also write every figure to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// What every command that judges takes.
    #[command(flatten)]
    pub(crate) common: Common,
}

/// `bench judge`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright bench judge --device cpu
  warpwright bench judge --device cuda:0 --out judge.json
  warpwright bench judge --builders 8 --seconds 120 --cold 0

Candidates are its own: small, right, and never seen before. The build cache is a new one, removed
at the end. The cold way builds an extension with torch's headers, compares five calls, compiles the
reference and times all three, in a process of its own.")]
pub(crate) struct BenchJudge {
    /// Candidates that are judged one after the other, of each form.
    #[arg(long, value_name = "N", default_value_t = 7,
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) candidates: u32,
    /// Which forms: with a C++ binding, of which compiling takes most of the time, or `.cu` only.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "binding,launcher")]
    pub(crate) forms: Vec<Form>,
    /// Then so many at once, one number after the other.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,4,8,16",
        value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) builders: Vec<u32>,
    /// For so many seconds each.
    #[arg(long, value_name = "SECONDS", default_value_t = 30,
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: u64,
    /// Times that the cold way is gone; 0 leaves it out.
    #[arg(long, value_name = "N", default_value_t = 2,
        value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(crate) cold: u32,
    /// Length of a measured window, if not the device's usual one.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) window_ms: Option<u32>,
    /// Also write every figure to this file as it comes, as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// What every command that judges takes.
    #[command(flatten)]
    pub(crate) common: Common,
}
