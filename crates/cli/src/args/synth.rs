//! Arguments of `synth`.

use std::path::PathBuf;

use clap::Args;

use super::Common;
use super::compose::{ComposeArgs, RuntimeRangeArg};

/// `synth`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright synth --count 200 --out tasks.parquet --device cpu
  warpwright synth --count 6000 --out tasks.parquet --decontaminate-against KernelBench/
  warpwright synth --count 500 --out hard.parquet --level 5 --operators 3-5
  warpwright synth --count 50 --out llm.parquet --composer openai:MODEL --base-url URL")]
pub(crate) struct SynthArgs {
    /// Number of tasks in the finished data set, including those that it already has.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) count: u32,
    /// Data set to write or to extend, a .parquet file.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Suite to decontaminate against: no new task may be a copy of its tasks. May be repeated.
    #[arg(long, value_name = "SUITE")]
    pub(crate) decontaminate_against: Vec<PathBuf>,
    /// Maximum similarity of the sources of two tasks, from 0 to 1.
    ///
    /// The similarity is the Dice coefficient of the syntax trees. Tasks with equal operator graphs are
    /// refused in any case.
    #[arg(long, value_name = "SIMILARITY", default_value_t = 0.9, value_parser = similarity)]
    pub(crate) ast_threshold: f64,
    /// Maximum similarity of the operator graphs of two tasks, from 0 to 1.
    ///
    /// The similarity is the Dice coefficient of the graphs. With 1, only equal graphs are refused.
    #[arg(long, value_name = "SIMILARITY", default_value_t = 1.0, value_parser = similarity)]
    pub(crate) graph_threshold: f64,
    /// Range of the run time of one eager call of a task; by default `fast` on a GPU, `host` on the cpu device.
    #[arg(long, value_enum)]
    pub(crate) runtime_range: Option<RuntimeRangeArg>,
    /// Composer of the tasks: `grammar`, or a model such as `openai:MODEL`.
    ///
    /// `grammar` needs no model. `openai:MODEL` (chat completions), `responses:MODEL` and
    /// `anthropic:MODEL` are models behind an HTTP endpoint.
    #[arg(long, value_name = "COMPOSER", default_value = "grammar")]
    pub(crate) composer: String,
    /// Limit on the attempts of the model to repair a refused task; each attempt gets the reason of the refusal.
    #[arg(long, value_name = "N", default_value_t = 2,
        value_parser = clap::value_parser!(u32).range(0..=20))]
    pub(crate) repairs: u32,
    /// Options of task composition.
    #[command(flatten)]
    pub(crate) compose: ComposeArgs,
    /// Number of concurrent tasks per device; by default one per core, and 4 to 16 on a GPU.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) jobs: Option<u16>,
    /// Options of every command that judges.
    #[command(flatten)]
    pub(crate) common: Common,
    /// Options of models behind an endpoint.
    #[command(flatten)]
    pub(crate) remote: super::remote::PolicyArgs,
}

fn similarity(text: &str) -> Result<f64, String> {
    let expected = || "expected a number from 0 to 1".to_owned();
    let value: f64 = text.parse().map_err(|_| expected())?;
    if (0.0..=1.0).contains(&value) { Ok(value) } else { Err(expected()) }
}
