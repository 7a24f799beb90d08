//! Argument types: what the command line can say. Help, man pages and completions come from here.

pub(crate) mod bench;
pub(crate) mod compose;
pub(crate) mod experiment;
pub(crate) mod serve;
pub(crate) mod share;
pub(crate) mod synth;
pub(crate) mod task;
pub(crate) mod train;
pub(crate) mod trajectory;
pub(crate) mod watch;
pub(crate) mod worker;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use warpwright_record::verdict::{Profile, Stage};

use self::share::Share;
use crate::environment;

/// Makes PyTorch modules faster with verified CUDA kernels.
#[derive(Debug, Parser)]
#[command(
    name = "warpwright",
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  warpwright optimize model.py
  warpwright judge model.py --candidate workspace/
  warpwright eval --suite suites/starter
  warpwright doctor

Exit codes: 0 good; 2 usage; 3 not verified; 4 infrastructure; 5 isolation;
6 record of another version; 7 disk full; 130 interrupted."
)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Let a policy write faster kernels for PyTorch modules, verified and timed by the judge.
    Optimize(Optimize),
    /// Let policies work on a suite, and say how good they are.
    Eval(Eval),
    /// Verify and time one candidate.
    Judge(JudgeArgs),
    /// Show what runs came to, as a table and as a page.
    Report(Report),
    /// Compare two runs over a suite, task by task.
    Compare(trajectory::Compare),
    /// Show episodes as conversations, or export them for training.
    Trajectory(trajectory::Trajectory),
    /// Say what works on this machine, what is missing, and the command that mends it.
    Doctor(Doctor),
    /// Make tasks to train on.
    Synth(synth::SynthArgs),
    /// Look at tasks themselves.
    Task(task::TaskArgs),
    /// Train a policy on the run time of its kernels.
    Train(train::TrainArgs),
    /// Hold ways to train against each other.
    Experiment(experiment::ExperimentArgs),
    /// Watch a training run from another terminal.
    Watch(watch::WatchArgs),
    /// Judge for other programs, over HTTP.
    Serve(serve::ServeArgs),
    /// Judge for a server on another host, over NATS.
    Worker(worker::WorkerArgs),
    /// Measure how fast judging is here.
    Bench(bench::BenchArgs),
    /// Print a completion script for a shell.
    Completions(Completions),
    /// Write man pages into a folder.
    #[command(hide = true)]
    Man(Man),
}

impl Command {
    /// Whether stdout is for a program.
    pub(crate) fn wants_json(&self) -> bool {
        match self {
            Self::Optimize(args) => args.common.json,
            Self::Eval(args) => args.common.json,
            Self::Judge(args) => args.common.json,
            Self::Report(args) => args.json,
            Self::Compare(args) => args.json,
            Self::Trajectory(args) => match &args.action {
                trajectory::TrajectoryAction::Show(args) => args.json,
                trajectory::TrajectoryAction::Export(args) => args.json,
            },
            Self::Doctor(args) => args.json,
            Self::Synth(args) => args.common.json,
            Self::Task(args) => args.wants_json(),
            Self::Train(args) => args.common.json,
            Self::Experiment(args) => args.common.json,
            Self::Serve(args) => args.common.json,
            Self::Worker(args) => args.common.json,
            Self::Bench(args) => args.wants_json(),
            Self::Watch(_) | Self::Completions(_) | Self::Man(_) => false,
        }
    }
}

/// `optimize`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright optimize model.py
  warpwright optimize examples/ --out runs/examples --max-minutes 10
  warpwright optimize model.py --attempts 4 --jobs 4
  warpwright optimize model.py --device cuda:0 --baselines all
  warpwright optimize --resume runs/examples

A task is a Python file in KernelBench form: a class Model, get_inputs() and, where Model
needs arguments, get_init_inputs(). Folders, .jsonl and .parquet files hold several.
Of several attempts the best verified one is kept, by a fresh measurement of each.")]
pub(crate) struct Optimize {
    /// Precision and comparison rules.
    #[arg(long, value_enum, default_value_t = ProfileArg::AsRun)]
    pub(crate) profile: ProfileArg,
    /// What works, on what, how often and how long.
    #[command(flatten)]
    pub(crate) episodes: Episodes,
    /// What every command that judges takes.
    #[command(flatten)]
    pub(crate) common: Common,
}

/// `eval`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright eval --suite suites/starter --policy teacher
  warpwright eval --suite KernelBench/KernelBench --levels 1,2 --device cuda:0,cuda:1
  warpwright eval --suite tasks.parquet --policy teacher --profile tf32 --attempts 3
  warpwright eval --resume runs/starter

Figures are of the final candidate of each task, measured afresh; best-of-trajectory figures are
shown beside them. One run has one profile. Exits with 0 when every task was evaluated, whatever the
figures are. `docs/evaluation.md` defines each figure.")]
pub(crate) struct Eval {
    /// The suite; the same as naming its path.
    #[arg(long, value_name = "PATH", conflicts_with = "resume")]
    pub(crate) suite: Vec<PathBuf>,
    /// Only these levels, e.g. `1,3`.
    #[arg(long, value_name = "LEVELS", value_delimiter = ',', conflicts_with = "resume")]
    pub(crate) levels: Vec<u8>,
    /// Only this share of the tasks, e.g. `2/4` for the second quarter: for several machines.
    #[arg(long, value_name = "K/N", value_parser = share::parse, conflicts_with = "resume")]
    pub(crate) share: Option<Share>,
    /// Count tasks as well on which there is nothing to earn: constant, independent of their inputs, and
    /// the like. Unless this is given they are listed beside the tables, and not worked on.
    #[arg(long, conflicts_with = "resume")]
    pub(crate) include_degenerate: bool,
    /// Also write the rows to this file: .jsonl, .parquet or .html. May be repeated.
    #[arg(long, value_name = "FILE")]
    pub(crate) export: Vec<PathBuf>,
    /// Precision and comparison rules.
    #[arg(long, value_enum, default_value_t = ProfileArg::Strict)]
    pub(crate) profile: ProfileArg,
    /// What works, on what, how often and how long.
    #[command(flatten)]
    pub(crate) episodes: Episodes,
    /// What every command that judges takes.
    #[command(flatten)]
    pub(crate) common: Common,
}

/// What commands take that let policies work on tasks.
#[derive(Args, Debug)]
pub(crate) struct Episodes {
    /// Tasks: .py, .jsonl or .parquet files, or folders.
    #[arg(value_name = "TASK", conflicts_with = "resume")]
    pub(crate) tasks: Vec<PathBuf>,
    /// What writes the kernels: `teacher`, built in; `teacher:exhaustive`, which measures every version
    /// it could write (raise `--max-turns`); `openai:MODEL` (chat completions),
    /// `responses:MODEL` or `anthropic:MODEL`, a model behind an endpoint; `native`, the small model
    /// that comes with the program, with the teacher for what it does not know; `native:CHECKPOINT`, a model
    /// that `train` made or one of the Qwen3 family; or `replay:RUN_DIR`.
    /// Repeated: each in turn.
    #[arg(long, value_name = "POLICY", default_value = "teacher")]
    pub(crate) policy: Vec<String>,
    /// Folder of the run; by default a new one under `warpwright-runs/`.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Go on with the run in this folder, with the settings it was begun with.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["out", "max_turns", "max_minutes"],
        conflicts_with_all = crate::remote::OPTIONS)]
    pub(crate) resume: Option<PathBuf>,
    /// What the policy is told, instead of the built-in skill: a template (see `docs/agent.md`).
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    pub(crate) skill: Option<PathBuf>,
    /// With `--resume`: mix versions of the program in one record.
    #[arg(long, requires = "resume")]
    pub(crate) force: bool,
    /// Episodes of each policy on each task, with seeds of their own.
    #[arg(long, value_name = "K", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) attempts: u32,
    /// Episodes at once, at least one for each device; by default four for each GPU, one on the cpu
    /// device. Measurements on one device never overlap.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) jobs: Option<u32>,
    /// Most turns of an episode; 150 for `optimize`, 200 for `eval`.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_turns: Option<u32>,
    /// Most minutes of an episode, without its final measurement; no limit by default.
    #[arg(long, value_name = "MINUTES", value_parser = positive)]
    pub(crate) max_minutes: Option<f64>,
    /// Most tokens that a model may read and write in an episode; no limit by default.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_tokens: Option<u64>,
    /// Most minutes of the device that judging may take in an episode; no limit by default.
    #[arg(long, value_name = "MINUTES", value_parser = positive)]
    pub(crate) max_device_minutes: Option<f64>,
    /// What a model behind an endpoint is asked.
    #[command(flatten)]
    pub(crate) remote: crate::remote::PolicyArgs,
}

/// `judge`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright judge model.py --candidate workspace/
  warpwright judge model.py --candidate model_new.py --profile paper --json
  warpwright judge model.py --candidate workspace/ --server http://127.0.0.1:8000

Exits with 0 when the candidate is verified and with 3 when it is not.")]
pub(crate) struct JudgeArgs {
    /// The task: one .py file.
    #[arg(value_name = "TASK")]
    pub(crate) task: PathBuf,
    /// The candidate: a workspace folder with model_new.py, or one Python file with ModelNew.
    #[arg(long, value_name = "DIR_OR_FILE")]
    pub(crate) candidate: PathBuf,
    /// How far to go.
    #[arg(long, value_enum, default_value_t = StageArg::Measured)]
    pub(crate) stage: StageArg,
    /// Precision and comparison rules.
    #[arg(long, value_enum, default_value_t = ProfileArg::Strict)]
    pub(crate) profile: ProfileArg,
    /// Folder to record the verdict in; by default nothing is recorded.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Have it judged by `warpwright serve` elsewhere, by its rules and on its devices.
    #[arg(long, value_name = "URL", conflicts_with_all = ["profile", "device", "baselines",
        "require_isolation"])]
    pub(crate) server: Option<String>,
    /// The server's token.
    #[arg(long, value_name = "TOKEN", env = environment::SERVER_TOKEN, hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// How long the server is waited for.
    #[arg(long, value_name = "SECONDS", default_value_t = 900, requires = "server",
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) deadline: u64,
    /// What every command that judges takes.
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Shared by the commands that execute tasks.
#[derive(Args, Debug)]
pub(crate) struct Common {
    /// `auto`, `cpu` or `cuda:N`; `auto` takes the first GPU that works. `optimize` and `eval` take
    /// several, e.g. `cuda:0,cuda:1`, or `all` GPUs.
    #[arg(long, value_name = "DEVICE", default_value = "auto", value_parser = device,
        value_delimiter = ',')]
    pub(crate) device: Vec<DeviceArg>,
    /// Seed of inputs and of the policy.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Which baselines to time; `all` adds `max-autotune`, which may compile for minutes.
    #[arg(long, value_enum, default_value_t = BaselinesArg::Default)]
    pub(crate) baselines: BaselinesArg,
    /// Refuse to run with less isolation than this.
    #[arg(long, value_enum, default_value_t = IsolationArg::Any)]
    pub(crate) require_isolation: IsolationArg,
    /// Python interpreter that has torch.
    #[arg(long, value_name = "PATH", env = environment::PYTHON)]
    pub(crate) python: Option<PathBuf>,
    /// Folder for compiled artifacts.
    #[arg(long, value_name = "DIR", env = environment::CACHE)]
    pub(crate) cache: Option<PathBuf>,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `report`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright report runs/examples
  warpwright report runs/* --out compared.html")]
pub(crate) struct Report {
    /// Run folders.
    #[arg(value_name = "RUN_DIR", required = true)]
    pub(crate) runs: Vec<PathBuf>,
    /// Where to write the page; by default `report.html` in the first run folder.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `doctor`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright doctor
  warpwright doctor --calibrate --json
  warpwright doctor --calibrate --device cuda:0 --pairs 300")]
pub(crate) struct Doctor {
    /// Measure copy bandwidth, launch cost, and how exactly kernels of known speed are judged; later
    /// runs use the figures and print them.
    #[arg(long)]
    pub(crate) calibrate: bool,
    /// With `--calibrate`: pairs of identical kernels to judge, and half as many of others.
    #[arg(long, value_name = "N", requires = "calibrate")]
    pub(crate) pairs: Option<u32>,
    /// With `--calibrate`: seconds to judge such kernels for; 75 unless `--pairs` is given.
    #[arg(long, value_name = "SECONDS", requires = "calibrate")]
    pub(crate) seconds: Option<u64>,
    /// With `--calibrate`: length of a measured window, to find out how exactly others than the usual
    /// ones measure. What is found is shown and not kept.
    #[arg(long, value_name = "MS", requires = "calibrate",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) window_ms: Option<u32>,
    /// With `--calibrate`: the device to measure.
    #[arg(long, value_name = "DEVICE", default_value = "auto", value_parser = device)]
    pub(crate) device: DeviceArg,
    /// Python interpreter that has torch.
    #[arg(long, value_name = "PATH", env = environment::PYTHON)]
    pub(crate) python: Option<PathBuf>,
    /// Folder for compiled artifacts.
    #[arg(long, value_name = "DIR", env = environment::CACHE)]
    pub(crate) cache: Option<PathBuf>,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `completions`.
#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// The shell.
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

/// `man`.
#[derive(Args, Debug)]
pub(crate) struct Man {
    /// Folder to write into; made if need be.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
}

/// Which device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceArg {
    /// The first GPU that works, else the cpu device.
    Auto,
    /// The host.
    Cpu,
    /// A GPU.
    Cuda(u32),
    /// Every GPU.
    All,
}

/// Precision and comparison rules, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProfileArg {
    /// Full float32 on both sides; tolerance scaled to eager's own error.
    Strict,
    /// TF32 on both sides.
    Tf32,
    /// The dtype and flags that the task sets, on both sides.
    AsRun,
    /// The paper's: 1e-2, five inputs.
    Paper,
}

impl From<ProfileArg> for Profile {
    fn from(profile: ProfileArg) -> Self {
        match profile {
            ProfileArg::Strict => Self::Strict,
            ProfileArg::Tf32 => Self::Tf32,
            ProfileArg::AsRun => Self::AsRun,
            ProfileArg::Paper => Self::Paper,
        }
    }
}

/// How far to judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StageArg {
    /// Build only.
    Built,
    /// Build and compare.
    Verified,
    /// Build, compare and time.
    Measured,
}

impl From<StageArg> for Stage {
    fn from(stage: StageArg) -> Self {
        match stage {
            StageArg::Built => Self::Built,
            StageArg::Verified => Self::Verified,
            StageArg::Measured => Self::Measured,
        }
    }
}

/// Which baselines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BaselinesArg {
    /// Eager, `torch.compile` and, on a GPU, `reduce-overhead`.
    Default,
    /// Also `max-autotune`.
    All,
}

/// Least isolation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum IsolationArg {
    /// Whatever this machine can do; verdicts say what it was.
    Any,
    /// Everything the rules ask.
    Full,
}

pub(crate) fn device(text: &str) -> Result<DeviceArg, String> {
    match text {
        "auto" => Ok(DeviceArg::Auto),
        "cpu" => Ok(DeviceArg::Cpu),
        "cuda" => Ok(DeviceArg::Cuda(0)),
        "all" => Ok(DeviceArg::All),
        _ => text
            .strip_prefix("cuda:")
            .and_then(|number| number.parse().ok())
            .map(DeviceArg::Cuda)
            .ok_or_else(|| "expected auto, cpu, cuda:N or all".to_owned()),
    }
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value.is_finite() => Ok(value),
        _ => Err("expected a number above zero".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn devices_are_named() {
        assert_eq!(device("cuda:3"), Ok(DeviceArg::Cuda(3)));
        assert!(device("cuda:-1").is_err() && device("gpu").is_err());
    }
}
