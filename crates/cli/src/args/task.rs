//! What `task` can be told.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::compose::{ComposeArgs, WindowArg};
use super::{Common, ProfileArg};

/// `task`.
#[derive(Args, Debug)]
pub(crate) struct TaskArgs {
    /// What to do with tasks.
    #[command(subcommand)]
    pub(crate) action: TaskAction,
}

/// What `task` does.
#[derive(Debug, Subcommand)]
pub(crate) enum TaskAction {
    /// Find out whether tasks are worth being judged against: what they ignore, and which wrong
    /// answers would pass.
    Lint(Lint),
    /// Show tasks and what is known of them: times, shapes, operators, where they come from.
    Show(Show),
    /// Show a set of tasks in numbers.
    Stats(StatsArgs),
    /// Compose tasks that nobody has looked at, to write kernels for or to look at elsewhere.
    Compose(Compose),
    /// Take tasks out of a data set of your own, for good.
    Drop(DropArgs),
}

impl TaskArgs {
    pub(crate) fn wants_json(&self) -> bool {
        match &self.action {
            TaskAction::Lint(args) => args.common.json,
            TaskAction::Show(args) => args.json,
            TaskAction::Stats(args) => args.json,
            TaskAction::Compose(args) => args.json,
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
  warpwright task show suites/starter --json

Without a name, several tasks are listed. What is known of a task is printed as comments before its
source, so that it can be saved as a file and run.")]
pub(crate) struct Show {
    /// A data set, or any tasks: a .py, .jsonl or .parquet file, or a folder; or `shipped`, the data
    /// set that comes with the program.
    #[arg(value_name = "TASKS", default_value = crate::shipped::NAME)]
    pub(crate) tasks: PathBuf,
    /// Tasks to show whole.
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `task stats`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright task stats
  warpwright task stats CUDA-Agent-Ops-6K.parquet --json

Prints the card of a data set: splits, levels, operators, times by device, sources.")]
pub(crate) struct StatsArgs {
    /// A data set, or any tasks: a .py, .jsonl or .parquet file, or a folder; or `shipped`, the data
    /// set that comes with the program.
    #[arg(value_name = "TASKS", default_value = crate::shipped::NAME)]
    pub(crate) tasks: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `task compose`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright task compose --count 2000 --operators 2-3 --out written.jsonl
  warpwright task compose --count 500 --only torch.add,torch.nn.functional.softmax --shape 8192x4096 --out rows.jsonl

Tasks as `synth` composes them, with the splits that they would have, but not tried: some may be wrong,
slow, or copies of others. Nothing is run; thousands take a second. `pretrain.tasks` of `warpwright
train` reads them.")]
pub(crate) struct Compose {
    /// How many.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) count: u32,
    /// Where they go, JSON Lines.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Which ones: others for another number.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u32,
    /// Sizes for a call of eager that takes so long.
    #[arg(long, value_enum, default_value = "fast")]
    pub(crate) window: WindowArg,
    /// How they are composed.
    #[command(flatten)]
    pub(crate) how: ComposeArgs,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `task drop`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright task drop tasks.parquet relu_linear --because brittle
  warpwright task drop tasks.parquet --names bad.txt --because lint --detail 'lint of 2026-11-24'

The file is written anew, or stays as it was. The log of what was tried, beside it, says of each task
that it was refused, and why, so that `synth` does not try its seed again. The card is made anew by the
next `synth`.")]
pub(crate) struct DropArgs {
    /// A data set that `synth` wrote.
    #[arg(value_name = "TASKS")]
    pub(crate) tasks: PathBuf,
    /// Tasks to take out.
    #[arg(value_name = "NAME", required_unless_present = "names")]
    pub(crate) chosen: Vec<String>,
    /// A file with further names, one a line.
    #[arg(long, value_name = "FILE")]
    pub(crate) names: Option<PathBuf>,
    /// Why, in a word that counts are made by.
    #[arg(long, value_name = "WORD")]
    pub(crate) because: String,
    /// Why, for people.
    #[arg(long, value_name = "TEXT", default_value = "taken out by hand")]
    pub(crate) detail: String,
    /// Print one JSON object.
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
  warpwright task lint shipped --sample 500 --share-processes --device all

Runs each reference, draws other inputs and moves parameters, and compares answers that compute
nothing or too little (zeros, an input, the previous result, half precision, a part, rows in another
order) within the tolerance that a candidate would get. Then compiles and times the baselines, which
must be right themselves. Exits with 3 when something speaks against one of the tasks.")]
pub(crate) struct Lint {
    /// Tasks: .py, .jsonl or .parquet files, or folders; or `shipped`, the data set that comes with the
    /// program.
    #[arg(value_name = "TASK", default_value = crate::shipped::NAME)]
    pub(crate) tasks: Vec<PathBuf>,
    /// Only so many of them, drawn at random by `--seed`.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) sample: Option<u32>,
    /// Let processes go on from one task to the next, which is quicker: for tasks of one author whom you
    /// trust. What a hostile one leaves behind would meet the next.
    #[arg(long)]
    pub(crate) share_processes: bool,
    /// Precision and comparison rules.
    #[arg(long, value_enum, default_value_t = ProfileArg::Strict)]
    pub(crate) profile: ProfileArg,
    /// Tasks at once on each device; by default one per core, on a GPU 4 to 16.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) jobs: Option<u16>,
    /// What every command that judges takes.
    #[command(flatten)]
    pub(crate) common: Common,
}
