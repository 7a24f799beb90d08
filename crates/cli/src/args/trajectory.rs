//! Arguments of `trajectory` and `compare`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use warpwright_report::trajectory::export::Form;

/// `trajectory`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright trajectory show runs/starter --episode 3
  warpwright trajectory export runs/starter --format messages --out sft.jsonl")]
pub(crate) struct Trajectory {
    /// The action.
    #[command(subcommand)]
    pub(crate) action: TrajectoryAction,
}

/// The actions of `trajectory`.
#[derive(Debug, Subcommand)]
pub(crate) enum TrajectoryAction {
    /// Show one episode of a run as the conversation that its policy saw.
    ///
    /// Without `--episode`, `show` prints the episode of a run with one episode, and lists the episodes of
    /// a run with several.
    Show(TrajectoryShow),
    /// Export episodes as JSON Lines, for training.
    ///
    /// Episodes without a reward are skipped and counted: those that an infrastructure failure ended and
    /// those that did not finish.
    Export(TrajectoryExport),
}

/// `trajectory show`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright trajectory show runs/starter
  warpwright trajectory show runs/starter --episode 3 --full | less -R
  warpwright trajectory show runs/starter --episode 3 --html episode.html")]
pub(crate) struct TrajectoryShow {
    /// Run folder.
    #[arg(value_name = "RUN_DIR")]
    pub(crate) run: PathBuf,
    /// Number of the episode in the run, from 0.
    #[arg(long, value_name = "N")]
    pub(crate) episode: Option<u32>,
    /// Print long texts in full.
    #[arg(long)]
    pub(crate) full: bool,
    /// Write the episode to this HTML page, which needs no network, instead of printing it.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `trajectory export`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright trajectory export runs/starter --format messages --out sft.jsonl
  warpwright trajectory export runs/* --format tokens --out batch.jsonl")]
pub(crate) struct TrajectoryExport {
    /// Run folders.
    #[arg(value_name = "RUN_DIR", required = true)]
    pub(crate) runs: Vec<PathBuf>,
    /// Format of a line.
    #[arg(long, value_enum)]
    pub(crate) format: FormatArg,
    /// File to write.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Formats of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FormatArg {
    /// OpenAI's chat format: the arguments of a tool call are a JSON string.
    #[value(name = "openai")]
    OpenAi,
    /// `messages` of Hugging Face data sets: the arguments of a tool call are an object.
    Messages,
    /// Sampled token ids with loss mask and log-probabilities.
    Tokens,
}

impl From<FormatArg> for Form {
    fn from(format: FormatArg) -> Self {
        match format {
            FormatArg::OpenAi => Self::OpenAi,
            FormatArg::Messages => Self::Messages,
            FormatArg::Tokens => Self::Tokens,
        }
    }
}

/// `compare`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright compare runs/before runs/after
  warpwright compare runs/both runs/both --policy-a teacher --policy-b openai:gpt
  warpwright compare runs/before runs/after --json")]
pub(crate) struct Compare {
    /// Run of `eval`: the baseline of the comparison.
    #[arg(value_name = "RUN_A")]
    pub(crate) a: PathBuf,
    /// Run of `eval` to compare with RUN_A.
    #[arg(value_name = "RUN_B")]
    pub(crate) b: PathBuf,
    /// Policy of RUN_A; needed when the run has several.
    #[arg(long, value_name = "POLICY")]
    pub(crate) policy_a: Option<String>,
    /// Policy of RUN_B; by default the policy of RUN_A, if RUN_B has it.
    #[arg(long, value_name = "POLICY")]
    pub(crate) policy_b: Option<String>,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}
