//! What `synth` can be told.

use std::path::PathBuf;

use clap::Args;

use super::Common;
use super::compose::{ComposeArgs, WindowArg};

/// `synth`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright synth --count 200 --out tasks.parquet --device cpu
  warpwright synth --count 6000 --out tasks.parquet --against KernelBench/KernelBench --device all
  warpwright synth --count 500 --out hard.parquet --level 5 --operators 3-5
  warpwright synth --count 150 --out rows.parquet --only torch.nn.functional.relu,torch.nn.functional.softmax --shape 8192x4096
  warpwright synth --count 50 --out written.parquet --composer openai:MODEL --base-url http://127.0.0.1:8000/v1

Tasks are composed from the catalogue of operators, tried in the judge's processes, and kept when
nothing speaks against them (see `task lint`), a call of eager takes as long as is wanted, and they are
no copies of the suites named nor of each other. The same command goes on where it was stopped: beside
the data set lie a log of all that was tried, with the reasons, and a card that describes the set.")]
pub(crate) struct SynthArgs {
    /// Tasks that the data set is to have.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) count: u32,
    /// The data set, a Parquet file; one that is there is added to.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Suites of which no task may be like a copy. May be repeated.
    #[arg(long, value_name = "SUITE")]
    pub(crate) against: Vec<PathBuf>,
    /// How alike two sources may be, from 0 to 1; the same operator graph is refused in any case.
    #[arg(long, value_name = "SHARE", default_value_t = 0.9, value_parser = share)]
    pub(crate) ast_threshold: f64,
    /// How alike two operator graphs may be, from 0 to 1.
    #[arg(long, value_name = "SHARE", default_value_t = 1.0, value_parser = share)]
    pub(crate) graph_threshold: f64,
    /// How long a call of eager may take; by default `fast` on a GPU and `host` on the cpu device.
    #[arg(long, value_enum)]
    pub(crate) window: Option<WindowArg>,
    /// What composes tasks: `grammar`, which needs no model; or `openai:MODEL` (chat completions),
    /// `responses:MODEL` or `anthropic:MODEL`, a model behind an endpoint.
    #[arg(long, value_name = "COMPOSER", default_value = "grammar")]
    pub(crate) composer: String,
    /// How often a model may mend a task that was refused, once it was told why.
    #[arg(long, value_name = "N", default_value_t = 2,
        value_parser = clap::value_parser!(u32).range(0..=20))]
    pub(crate) repairs: u32,
    /// How tasks are composed.
    #[command(flatten)]
    pub(crate) compose: ComposeArgs,
    /// Tasks at once on each device; by default one per core, on a GPU 4 to 16.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) jobs: Option<u16>,
    /// What every command that judges takes.
    #[command(flatten)]
    pub(crate) common: Common,
    /// What a model behind an endpoint is asked.
    #[command(flatten)]
    pub(crate) remote: crate::remote::PolicyArgs,
}

fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err("not between 0 and 1".to_owned()) }
}
