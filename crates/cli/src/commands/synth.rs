//! `warpwright synth`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use warpwright_judge::{BaselineSet, Sharing};
use warpwright_record::verdict::Profile;
use warpwright_synth::{
    Author, Composer, DataSet, Decontamination, Llm, LlmConfig, Shares, Thresholds, TrialLog,
};
use warpwright_task::similarity::OpGraph;
use warpwright_task::{Suite, Task};

use crate::args::compose::RuntimeRangeArg;
use crate::args::synth::SynthArgs;
use crate::contract::VERSION;
use crate::failure::{Failure, chain};
use crate::judging::{JudgeHost, Wanted};
use crate::printer::Printer;
use crate::synth::author::{Model, Spent};
use crate::synth::{Made, Maker, Plan};
use crate::{exit, interrupt};

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
    let log =
        TrialLog::open(&TrialLog::beside(&args.out)).map_err(|e| crate::synth::unlogged(&e))?;
    let suites = args
        .decontaminate_against
        .iter()
        .map(|path| Ok(Suite::read(path)?))
        .collect::<Result<Vec<_>, Failure>>()?;
    let stop = interrupt::watch(printer)?;
    let model = Model::open(&args.composer, &args.remote, &stop, printer)?;
    // Others say little of a task, and take as long again to compile.
    let wanted =
        Wanted { baselines: BaselineSet::Plain, ..Wanted::new(&args.common, Profile::Strict) };
    let benches = JudgeHost::open_all(&args.common, &args.common.device, wanted, printer)?;
    let Some(bench) = benches.first() else {
        return Err(Failure::usage("failed to find a device", None));
    };
    let composer = composer(args, bench, model.clone())?;
    let plan = Plan {
        count: args.count as usize,
        out: args.out.clone(),
        window: runtime_range(args, bench).bounds(),
        jobs: args.jobs.map_or_else(|| crate::examining::usual_jobs(bench), usize::from),
        // What a model writes may leave anything behind.
        processes: if model.is_some() { Sharing::Own } else { Sharing::Shared },
        first_seed: args.common.seed << 32,
    };
    let composer = composer.as_ref();
    let maker = Maker { benches: &benches, composer, plan, stop: &stop, printer };
    let made = maker.make(set, log, |set| copies(args, &suites, set, bench, printer));
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
        device: benches.iter().map(JudgeHost::device).collect::<Vec<_>>().join(","),
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

fn runtime_range(args: &SynthArgs, bench: &JudgeHost) -> RuntimeRangeArg {
    let cuda = bench.judge.config().device.is_cuda();
    args.runtime_range.unwrap_or(if cuda { RuntimeRangeArg::Fast } else { RuntimeRangeArg::Host })
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
    bench: &JudgeHost,
    model: Option<Arc<Model>>,
) -> Result<Box<dyn Composer>, Failure> {
    if args.compose.transformers {
        bench.judge.graph(&Task::from_source("transformers", TRANSFORMERS))?;
    }
    let catalogues = args.compose.catalogues()?;
    let range = runtime_range(args, bench);
    let grammar = args.compose.grammar(&catalogues, range)?;
    let Some(model) = model else { return Ok(Box::new(grammar)) };
    let config = LlmConfig {
        window: range.bounds(),
        device: bench.judge.facts().hardware.clone(),
        repairs: args.repairs,
    };
    let author: Arc<dyn Author> = model;
    Ok(Box::new(Llm::new(author, grammar, &catalogues, config)))
}

/// The operator graphs of a suite's tasks, by name. A task that does not load has no graph, and is
/// compared by its source.
fn graphs(suite: &Suite, bench: &JudgeHost, printer: Printer) -> BTreeMap<String, OpGraph> {
    let (next, graphs) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || {
        // Suites begin with what is small: what takes longest is not to come last.
        while let Some(task) = suite.tasks.iter().rev().nth(next.fetch_add(1, Ordering::Relaxed)) {
            let graph = bench.judge.graph(task);
            let mut graphs = graphs.lock().unwrap_or_else(PoisonError::into_inner);
            graphs.insert(task.name.clone(), graph.ok().flatten());
            if graphs.len().is_multiple_of(50) {
                let (done, of) = (graphs.len(), suite.tasks.len());
                printer.say(&format!("{}: traced {done} of {of} operator graphs", suite.name));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, std::num::NonZero::get) {
            scope.spawn(work);
        }
    });
    let graphs = graphs.into_inner().unwrap_or_else(PoisonError::into_inner);
    graphs.into_iter().filter_map(|(name, graph)| Some((name, graph?))).collect()
}

/// The tasks to decontaminate against: those of the suites, with their operator graphs, and those
/// of the set.
fn copies(
    args: &SynthArgs,
    suites: &[Suite],
    set: &DataSet,
    bench: &JudgeHost,
    printer: Printer,
) -> Result<Decontamination, Failure> {
    let thresholds = Thresholds { ast: args.ast_threshold, graph: args.graph_threshold };
    let mut copies = Decontamination::new(thresholds);
    for suite in suites {
        let graphs = graphs(suite, bench, printer);
        copies.add_suite(suite, &graphs).map_err(|error| Failure::usage(chain(&error), None))?;
        let without = suite.tasks.len() - graphs.len();
        printer.say(&format!(
            "decontaminating against {}: {} tasks, {without} of them without an operator graph",
            suite.name,
            suite.tasks.len()
        ));
    }
    // The suites may be others than those the set was made with.
    let found = copies
        .admit_set(set)
        .map_err(|error| Failure::usage(error.to_string(), error.hint().to_owned()))?;
    if let Some((name, refusal)) = found.first() {
        printer.say(&format!(
            "warning: {} of the tasks in {} are copies, `warpwright task drop` removes them; the first is {name}: {refusal}",
            found.len(),
            args.out.display()
        ));
    }
    Ok(copies)
}
