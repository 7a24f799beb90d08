//! Arguments of `task`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::compose::{ComposeArgs, RuntimeRangeArg};
use super::extract::Extract;
use super::{Common, ProfileArg};

/// `task`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright task lint model.py
  warpwright task show shipped
  warpwright task stats tasks.parquet
  warpwright task extract --model model.py:build --inputs inputs.py --out regions")]
pub(crate) struct TaskArgs {
    /// The action.
    #[command(subcommand)]
    pub(crate) action: TaskAction,
}

/// The actions of `task`.
#[derive(Debug, Subcommand)]
pub(crate) enum TaskAction {
    /// Check that tasks are sound: that they use their inputs and that wrong outputs would fail.
    ///
    /// `lint` runs each reference on several inputs and parameters. It compares wrong outputs (zeros, an
    /// input, the previous output, half precision, a part, permuted rows) with the reference, within the
    /// tolerance that a candidate would get. Then it compiles and times the baselines, which must be
    /// correct themselves.
    ///
    /// Exits with 3 when it objects to a task.
    Lint(Lint),
    /// Show tasks: source, times, shapes, operators and provenance.
    ///
    /// Without NAME, `show` lists the tasks. With NAME it prints the source, with the metadata as comments
    /// before it: the output is a Python file that runs.
    Show(Show),
    /// Print the card of a data set: splits, levels, operators, times per device, sources.
    Stats(StatsArgs),
    /// Compose tasks without running them.
    ///
    /// The tasks are those that `synth` would compose, with the same splits. Nothing runs, so thousands of
    /// tasks take a second; some may be unsound, slow or copies of others. `pretrain.tasks` of
    /// `warpwright train` reads them.
    Compose(Compose),
    /// Divide a whole model into tasks: the modules that take its time, equal ones once.
    ///
    /// `extract` runs the model in the jail on each input set, measures the time of each module, and traces
    /// modules to graphs of torch calls. Each task is a file in KernelBench form with the shapes, dtypes and
    /// strides seen. It was compared with the modules that it stands for, with their weights. `regions.json`
    /// says where each task came from, which share of time it has, and where the model breaks its graph.
    Extract(Extract),
    /// Remove tasks from a data set, for good.
    ///
    /// `drop` rewrites the file atomically. It records the refusal and its reason in the log next to the
    /// data set, so that `synth` does not try the seed again. The next `synth` renews the card.
    Drop(DropArgs),
}

impl TaskArgs {
    pub(crate) fn wants_json(&self) -> bool {
        match &self.action {
            TaskAction::Lint(args) => args.common.host.json,
            TaskAction::Show(args) => args.json,
            TaskAction::Stats(args) => args.json,
            TaskAction::Compose(args) => args.json,
            TaskAction::Extract(args) => args.json,
            TaskAction::Drop(args) => args.json,
        }
    }
}

/// `task show`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright task show
  warpwright task show shipped conv2d_pairwise_distance
  warpwright task show suites/starter --json")]
pub(crate) struct Show {
    /// Tasks: a .py, .jsonl or .parquet file, a folder, or `shipped`.
    ///
    /// `shipped` is the data set that comes with the program.
    #[arg(value_name = "TASKS", default_value = warpwright_rollout::shipped::NAME)]
    pub(crate) tasks: PathBuf,
    /// Names of the tasks to print in full.
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `task stats`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright task stats
  warpwright task stats CUDA-Agent-Ops-6K.parquet --json")]
pub(crate) struct StatsArgs {
    /// Tasks: a .py, .jsonl or .parquet file, a folder, or `shipped`.
    ///
    /// `shipped` is the data set that comes with the program.
    #[arg(value_name = "TASKS", default_value = warpwright_rollout::shipped::NAME)]
    pub(crate) tasks: PathBuf,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `task compose`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright task compose --count 2000 --operators 2-3 --out composed.jsonl
  warpwright task compose --count 500 --only torch.add,torch.exp --shape 8192x4096 --out rows.jsonl")]
pub(crate) struct Compose {
    /// Number of tasks.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) count: u32,
    /// File to write, JSON Lines.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Random seed.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u32,
    /// Range of the run time of one eager call of a task; it determines the tensor sizes.
    #[arg(long, value_enum, default_value = "fast")]
    pub(crate) runtime_range: RuntimeRangeArg,
    /// Options of task composition.
    #[command(flatten)]
    pub(crate) how: ComposeArgs,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `task drop`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright task drop tasks.parquet relu_linear --reason brittle
  warpwright task drop tasks.parquet --names bad.txt --reason lint --note 'lint of 2026-11-24'")]
pub(crate) struct DropArgs {
    /// Data set that `synth` wrote.
    #[arg(value_name = "TASKS")]
    pub(crate) tasks: PathBuf,
    /// Tasks to remove.
    #[arg(value_name = "NAME", required_unless_present = "names")]
    pub(crate) chosen: Vec<String>,
    /// File with further names, one per line.
    #[arg(long, value_name = "FILE")]
    pub(crate) names: Option<PathBuf>,
    /// Reason, one word; statistics count refusals by it.
    #[arg(long, value_name = "WORD")]
    pub(crate) reason: String,
    /// Note for the log, free text.
    #[arg(long, value_name = "TEXT", default_value = "removed by hand")]
    pub(crate) note: String,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `task lint`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright task lint model.py
  warpwright task lint suites/starter --device cuda:0 --json
  warpwright task lint KernelBench/KernelBench/level1 --device all
  warpwright task lint shipped --sample 500 --share-processes --device all")]
pub(crate) struct Lint {
    /// Tasks: .py, .jsonl or .parquet files, folders, or `shipped`.
    ///
    /// `shipped` is the data set that comes with the program.
    #[arg(value_name = "TASK", default_value = warpwright_rollout::shipped::NAME)]
    pub(crate) tasks: Vec<PathBuf>,
    /// Lint only a random sample of N tasks; `--seed` selects the sample.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) sample: Option<u32>,
    /// Reuse processes from task to task: faster, for trusted tasks only.
    ///
    /// In a shared process, a hostile task can tamper with the tasks after it.
    #[arg(long)]
    pub(crate) share_processes: bool,
    /// Precision and comparison rules.
    #[arg(long, value_enum, default_value_t = ProfileArg::Strict)]
    pub(crate) profile: ProfileArg,
    /// Number of concurrent tasks per device; by default one per core, and 4 to 16 on a GPU.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) jobs: Option<u16>,
    /// Options of every command that judges.
    #[command(flatten)]
    pub(crate) common: Common,
}
