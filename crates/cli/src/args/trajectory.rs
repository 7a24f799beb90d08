//! What `trajectory` and `compare` take.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use warpwright_report::trajectory::export::Form;

/// `trajectory`.
#[derive(Args, Debug)]
pub(crate) struct Trajectory {
    /// What to do.
    #[command(subcommand)]
    pub(crate) action: TrajectoryAction,
}

/// What to do with trajectories.
#[derive(Debug, Subcommand)]
pub(crate) enum TrajectoryAction {
    /// Show one episode of a run as the conversation that its policy saw.
    Show(TrajectoryShow),
    /// Write episodes as lines of JSON, for training.
    Export(TrajectoryExport),
}

/// `trajectory show`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright trajectory show runs/starter
  warpwright trajectory show runs/starter --episode 3 --full | less -R
  warpwright trajectory show runs/starter --episode 3 --html episode.html

Without --episode, a run of one episode shows it, and a run of several lists them.")]
pub(crate) struct TrajectoryShow {
    /// A run folder.
    #[arg(value_name = "RUN_DIR")]
    pub(crate) run: PathBuf,
    /// Number of the episode in the run, from 0.
    #[arg(long, value_name = "N")]
    pub(crate) episode: Option<u32>,
    /// Leave nothing out of long texts.
    #[arg(long)]
    pub(crate) full: bool,
    /// Write a page that needs no network, instead of showing the episode here.
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
  warpwright trajectory export runs/starter --form messages --out sft.jsonl
  warpwright trajectory export runs/* --form tokens --out batch.jsonl

Episodes that our own failure ended, or that did not come to their end, have no reward: they are
left out and counted.")]
pub(crate) struct TrajectoryExport {
    /// Run folders.
    #[arg(value_name = "RUN_DIR", required = true)]
    pub(crate) runs: Vec<PathBuf>,
    /// What a line looks like.
    #[arg(long, value_enum)]
    pub(crate) form: FormArg,
    /// The file to write.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Forms of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FormArg {
    /// OpenAI's chat form: a call's arguments are a text.
    #[value(name = "openai")]
    OpenAi,
    /// The `messages` of Hugging Face's data sets: a call's arguments are an object.
    Messages,
    /// Token ids, loss mask and log-probabilities, as they were sampled.
    Tokens,
}

impl From<FormArg> for Form {
    fn from(form: FormArg) -> Self {
        match form {
            FormArg::OpenAi => Self::OpenAi,
            FormArg::Messages => Self::Messages,
            FormArg::Tokens => Self::Tokens,
        }
    }
}

/// `compare`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright compare runs/before runs/after
  warpwright compare runs/both runs/both --policy-a teacher --policy-b openai:gpt
  warpwright compare runs/before runs/after --json

Exits with 2 when the runs cannot be compared: other device, other profile, no task in common.")]
pub(crate) struct Compare {
    /// A run over a suite: what is compared with.
    #[arg(value_name = "RUN_A")]
    pub(crate) a: PathBuf,
    /// Another one: what is compared.
    #[arg(value_name = "RUN_B")]
    pub(crate) b: PathBuf,
    /// The policy of RUN_A, where it has several.
    #[arg(long, value_name = "POLICY")]
    pub(crate) policy_a: Option<String>,
    /// The policy of RUN_B, where it has several; by default that of RUN_A, if it is there.
    #[arg(long, value_name = "POLICY")]
    pub(crate) policy_b: Option<String>,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}
