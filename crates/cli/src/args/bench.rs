//! Arguments of `bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::shard::Shard;
use super::{Common, StageArg};
use crate::bench::Form;
use crate::bench::serving::Transport;

/// `bench`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright bench judge --device cpu
  warpwright bench serve --device cpu --stage verified")]
pub(crate) struct BenchArgs {
    /// The benchmark.
    #[command(subcommand)]
    pub(crate) what: BenchWhat,
}

impl BenchArgs {
    pub(crate) fn wants_json(&self) -> bool {
        match &self.what {
            BenchWhat::Judge(args) => args.common.host.json,
            BenchWhat::Record(args) => args.common.host.json,
            BenchWhat::Serve(args) => args.common.host.json,
        }
    }
}

/// The benchmarks.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchWhat {
    /// Measure the latency of a verdict per stage, the verdicts per hour, and the cold-start baseline.
    ///
    /// The benchmark judges candidates of its own: small, correct, each built for the first time. It uses
    /// a new build cache, which it removes at the end.
    ///
    /// A cold-start run does the same work without a judge, in a new process: it builds an extension with
    /// torch's headers, compares five calls, compiles the reference, and times all three.
    Judge(BenchJudge),
    /// Measure how many candidates can be recorded as launch plans, and why the others cannot.
    ///
    /// Builds candidates for an H200 and records them as the judge does for the device tier. Needs a CUDA
    /// compiler and no GPU: nothing is launched, compared or timed.
    Record(BenchRecord),
    /// Measure the throughput of the judge over HTTP and NATS, relative to calls in this process.
    ///
    /// The same judge with the same number of threads serves each transport in turn. Clients send new
    /// candidates without a pause. With several devices, HTTP is also measured with the first device
    /// alone.
    Serve(BenchServe),
}

/// `bench record`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright bench record suites/starter
  warpwright bench record KernelBench/KernelBench --levels 1,2 --shard 1/4 --out rows.jsonl
  warpwright bench record --candidates workspaces --out rows.jsonl")]
pub(crate) struct BenchRecord {
    /// Suites whose tasks the built-in policy writes candidates for.
    #[arg(value_name = "SUITE", required_unless_present = "candidates")]
    pub(crate) suite: Vec<PathBuf>,
    /// Folder of candidates instead: one workspace each, with model.py (the reference) and model_new.py.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["suite", "levels"])]
    pub(crate) candidates: Option<PathBuf>,
    /// Levels of the suite; by default all.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) levels: Vec<u8>,
    /// Every Nth candidate from the Kth on, as K/N.
    #[arg(long, value_name = "K/N", value_parser = super::shard::parse)]
    pub(crate) shard: Option<Shard>,
    /// Candidates to build and record at a time. Each takes two cores.
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) jobs: u32,
    /// Append each result to this file, as a line of JSON. Candidates that are in it are not repeated.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Options of every command that judges.
    #[command(flatten)]
    pub(crate) common: Common,
}

/// `bench serve`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright bench serve --device cpu --stage verified
  warpwright bench serve --device cuda:0,cuda:1 --transports http,http-one-device --seconds 120
  warpwright bench serve --device all --nats nats://127.0.0.1:4222")]
pub(crate) struct BenchServe {
    /// Seconds that verdicts are counted for, per transport and round.
    ///
    /// A warm-up of the same length, at most 10 seconds, precedes each measurement.
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: u64,
    /// Transports to measure; by default all that are available.
    ///
    /// `nats` needs `--nats`; `http-one-device` needs several devices.
    #[arg(long, value_enum, value_name = "LIST", value_delimiter = ',')]
    pub(crate) transports: Vec<Transport>,
    /// Number of rounds; each round measures every transport once.
    #[arg(long, value_name = "N", default_value_t = 3,
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// Last stage of each verdict.
    #[arg(long, value_enum, default_value_t = StageArg::Measured)]
    pub(crate) stage: StageArg,
    /// URL of a NATS server with JetStream; adds the transport `nats`.
    #[arg(long, value_name = "URL", env = "WARPWRIGHT_NATS", hide_env_values = true)]
    pub(crate) nats: Option<String>,
    /// Also write the results to this JSON file.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Options of every command that judges.
    #[command(flatten)]
    pub(crate) common: Common,
}

/// `bench judge`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright bench judge --device cpu
  warpwright bench judge --device cuda:0 --out judge.json
  warpwright bench judge --concurrency 8 --seconds 120 --cold-runs 0")]
pub(crate) struct BenchJudge {
    /// Number of candidates to judge one after the other, per form.
    #[arg(long, value_name = "N", default_value_t = 7,
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) candidates: u32,
    /// Forms of candidates: `binding` has a C++ binding with torch's headers, `launcher` is a .cu only.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "binding,launcher")]
    pub(crate) forms: Vec<Form>,
    /// Numbers of concurrent workers to measure the throughput with.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,4,8,16",
        value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) concurrency: Vec<u32>,
    /// Seconds per entry of `--concurrency`.
    #[arg(long, value_name = "SECONDS", default_value_t = 30,
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: u64,
    /// Number of cold-start runs; 0 skips them.
    #[arg(long, value_name = "N", default_value_t = 2,
        value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(crate) cold_runs: u32,
    /// Time the baselines anew for each candidate; by default candidates of a task share most of their windows for
    /// half a minute.
    #[arg(long)]
    pub(crate) own_baselines: bool,
    /// Length of a timing window; by default the device's.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) window_ms: Option<u32>,
    /// Also write the results to this JSON file, after each measurement.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Options of every command that judges.
    #[command(flatten)]
    pub(crate) common: Common,
}
