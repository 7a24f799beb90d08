//! `warpwright synth`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::Serialize;
use warpwright_judge::{BaselineSet, Sharing};
use warpwright_record::verdict::Profile;
use warpwright_rollout::judge_host::{JudgeHost, JudgeOptions};
use warpwright_rollout::synthesis::author::{Model, Spent};
use warpwright_rollout::synthesis::{Made, Maker, Plan, copies, unlogged};
use warpwright_synth::{Author, Composer, DataSet, Llm, LlmConfig, Shares, Thresholds, TrialLog};
use warpwright_task::{Suite, Task};

use crate::args::compose::RuntimeRangeArg;
use crate::args::synth::SynthArgs;
use crate::contract::VERSION;
use crate::failure::Failure;
use crate::printer::Printer;
use crate::{exit, interrupt, judging};

/// Output of `synth`.
#[derive(Serialize)]
struct Synthesised<'a> {
    version: u32,
    device: String,
    out: &'a Path,
    composer: &'a str,
    admitted: usize,
    tried: u64,
    refused: &'a BTreeMap<String, u64>,
    added: usize,
    seconds: f64,
    admitted_per_second: f64,
    /// Use of the model; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<Spent>,
}

pub(crate) fn run(args: &SynthArgs, printer: Printer) -> Result<u8, Failure> {
    // What cannot be read or written is found before anything starts.
    let set = existing(&args.out)?;
    let log = TrialLog::open(&TrialLog::beside(&args.out)).map_err(unlogged)?;
    let suites = args
        .decontaminate_against
        .iter()
        .map(|path| Ok(Suite::read(path)?))
        .collect::<Result<Vec<_>, Failure>>()?;
    let stop = interrupt::watch(printer)?;
    let model = Model::open(&args.composer, &args.remote.options(), &stop, &printer.notice())?;
    // Others say little of a task, and take as long again to compile.
    let wanted = JudgeOptions {
        baselines: BaselineSet::Plain,
        ..judging::options(&args.common, Profile::Strict)
    };
    let hosts = judging::open_all(&args.common, wanted, printer)?;
    let Some(host) = hosts.first() else {
        return Err(Failure::usage("failed to find a device", None));
    };
    let composer = composer(args, host, model.clone())?;
    let plan = Plan {
        count: args.count as usize,
        out: args.out.clone(),
        window: runtime_range(args, host).bounds(),
        jobs: args
            .jobs
            .map_or_else(|| warpwright_rollout::examining::usual_jobs(host), usize::from),
        // What a model writes may leave anything behind.
        processes: if model.is_some() { Sharing::Own } else { Sharing::Shared },
        first_seed: args.common.seed << 32,
    };
    let composer = composer.as_ref();
    let maker = Maker { hosts: &hosts, composer, plan, stop: &stop, notice: printer.notice() };
    let thresholds = Thresholds { ast: args.ast_threshold, graph: args.graph_threshold };
    let made = maker
        .make(set, log, |set| copies(thresholds, &args.out, &suites, set, host, &printer.notice()));
    let spent = model.map(|model| model.spent());
    if let Some(spent) = spent.filter(|spent| spent.answers > 0) {
        // Also where it failed: the tokens are gone.
        printer.say(&spent.line(composer.name()));
    }
    let made = made?;
    let Made { admitted, tried, refused, added, seconds } = &made;
    let interrupted = stop.load(Ordering::SeqCst) && *admitted < args.count as usize;
    printer.data(&format!("{admitted} tasks in {}\n", args.out.display()));
    if interrupted {
        printer.label("hint", "36", "run the same command again to resume");
    }
    printer.object(&Synthesised {
        version: VERSION,
        device: hosts.iter().map(JudgeHost::device).collect::<Vec<_>>().join(","),
        out: &args.out,
        composer: composer.name(),
        admitted: *admitted,
        tried: *tried,
        refused,
        added: *added,
        seconds: *seconds,
        admitted_per_second: *added as f64 / seconds.max(1e-9),
        model: spent,
    });
    Ok(if interrupted { exit::INTERRUPTED } else { exit::OK })
}

fn runtime_range(args: &SynthArgs, host: &JudgeHost) -> RuntimeRangeArg {
    let is_gpu = host.judge.is_accelerator();
    args.runtime_range.unwrap_or(if is_gpu { RuntimeRangeArg::Fast } else { RuntimeRangeArg::Host })
}

/// The existing data set, or an empty one.
fn existing(path: &Path) -> Result<DataSet, Failure> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder {
        fs_err::create_dir_all(folder)
            .map_err(|error| Failure::io("create the folder of the data set", &error))?;
    }
    if !path.exists() {
        return Ok(DataSet::new(Shares::default()));
    }
    Ok(DataSet::read(path)?)
}

/// A task with the imports of tasks from transformers.
const TRANSFORMERS: &str = "import torch
import transformers


class Model(torch.nn.Module):
    def forward(self, x):
        return x


def get_inputs():
    return [torch.rand(4)]
";

/// The grammar, or the model, which gets compositions of the grammar.
fn composer(
    args: &SynthArgs,
    host: &JudgeHost,
    model: Option<Arc<Model>>,
) -> Result<Box<dyn Composer>, Failure> {
    if args.compose.transformers {
        host.judge.graph(&Task::from_source("transformers", TRANSFORMERS))?;
    }
    let catalogues = args.compose.catalogues()?;
    let range = runtime_range(args, host);
    let grammar = args.compose.grammar(&catalogues, range)?;
    let Some(model) = model else { return Ok(Box::new(grammar)) };
    let config = LlmConfig {
        window: range.bounds(),
        device: host.judge.facts().hardware.clone(),
        repairs: args.repairs,
    };
    let author: Arc<dyn Author> = model;
    Ok(Box::new(Llm::new(author, grammar, &catalogues, config)))
}
