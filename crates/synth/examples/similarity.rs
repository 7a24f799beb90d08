//! How alike the tasks of suites are, and what 10,000 tasks take: the time to find copies among them, the
//! time and bytes of their data set.
//!
//! ```text
//! cargo run --release -p warpwright-synth --example similarity -- SUITE [SUITE ...] [--traces FOLDER]
//! ```
//!
//! The first suite is compared with itself and with every other. `--traces` names a folder with what
//! `utils/trace.py` printed of tasks: `NAME.json`, whichever suite they belong to.

#![expect(clippy::print_stdout, reason = "an example talks on stdout")]

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;

use warpwright_synth::{
    DataSet, Decontamination, Histogram, Likeness, Measured, Proposal, Provenance, Row, TensorForm,
    Thresholds,
};
use warpwright_task::Suite;
use warpwright_task::similarity::OpGraph;

fn main() -> Result<(), Box<dyn Error>> {
    let mut suites = Vec::new();
    let mut graphs = BTreeMap::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--traces" {
            graphs.extend(traces(&PathBuf::from(arguments.next().ok_or("--traces FOLDER")?))?);
        } else {
            suites.push(Suite::read(Path::new(&argument))?);
        }
    }
    if let Some((first, others)) = suites.split_first() {
        within(first, &graphs)?;
        for other in others {
            between(first, other, &graphs)?;
        }
        ten_thousand(first)?;
    }
    Ok(())
}

fn traces(folder: &Path) -> Result<Vec<(String, OpGraph)>, Box<dyn Error>> {
    let mut graphs = Vec::new();
    let mut refused = 0;
    for entry in fs_err::read_dir(folder)? {
        let path = entry?.path();
        match OpGraph::from_trace(&fs_err::read_to_string(&path)?) {
            Ok(graph) => {
                let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                graphs.push((name, graph));
            }
            Err(error) => {
                refused += 1;
                println!("{}: {error}", path.display());
            }
        }
    }
    println!("{}: {} graphs, {refused} refused", folder.display(), graphs.len());
    Ok(graphs)
}

fn likenesses(
    suite: &Suite,
    graphs: &BTreeMap<String, OpGraph>,
) -> Result<Vec<Likeness>, Box<dyn Error>> {
    let all: Result<Vec<_>, _> =
        suite.tasks.iter().map(|task| Likeness::of_task(task, graphs.get(&task.name))).collect();
    Ok(all?)
}

/// Every pair of one suite, and what would be left of it.
fn within(suite: &Suite, graphs: &BTreeMap<String, OpGraph>) -> Result<(), Box<dyn Error>> {
    let all = likenesses(suite, graphs)?;
    println!("\n{}: {} tasks, pairs over 0.9 by source:", suite.name, all.len());
    let (mut over, mut same, mut pairs) = (0, 0, 0);
    let mut highest = vec![0.0_f64; all.len()];
    for (i, a) in all.iter().enumerate() {
        for (j, b) in all.iter().enumerate().skip(i + 1) {
            let alike = a.ast_similarity(b);
            let graph = a.graph_similarity(b);
            highest[i] = highest[i].max(alike);
            highest[j] = highest[j].max(alike);
            pairs += 1;
            let is_same = graph.is_some_and(|graph| graph >= 1.0);
            same += u64::from(is_same);
            if alike > 0.9 {
                over += 1;
            }
            if alike > 0.9 || is_same {
                let graph = graph.map_or("-".to_owned(), |graph| format!("{graph:.3}"));
                let (a, b) = (&suite.tasks[i].name, &suite.tasks[j].name);
                println!("  {alike:.3}  graph {graph}  {a}  {b}");
            }
        }
    }
    println!("  {over} of {pairs} pairs over 0.9 by source; {same} with the same graph");
    let mut histogram = Histogram::default();
    for alike in highest {
        histogram.count(alike);
    }
    show("nearest other task, by source", &histogram);
    let mut found = Decontamination::new(Thresholds::default());
    for (task, likeness) in suite.tasks.iter().zip(all) {
        found.admit(&task.name, likeness);
    }
    println!("  kept: {}; refused: {:?}", found.kept(), found.summary().refused);
    Ok(())
}

/// Every task of one suite against another.
fn between(
    suite: &Suite,
    other: &Suite,
    graphs: &BTreeMap<String, OpGraph>,
) -> Result<(), Box<dyn Error>> {
    let mut found = Decontamination::new(Thresholds::default());
    found.add_suite(suite, graphs)?;
    println!("\n{} against {}:", other.name, suite.name);
    for (task, likeness) in other.tasks.iter().zip(likenesses(other, graphs)?) {
        let finding = found.admit(&task.name, likeness);
        let nearest = &finding.nearest[0];
        if nearest.highest_ast > 0.7 || nearest.highest_graph.is_some_and(|graph| graph > 0.7) {
            println!(
                "  {}: nearest {} (source {:.3}, graph {:?})",
                task.name, nearest.task, nearest.ast, nearest.graph
            );
        }
        if let Some(refusal) = finding.refusal {
            println!("    refused: {refusal}");
        }
    }
    let summary = found.summary();
    println!("  checked {}, refused {:?}", summary.checked, summary.refused);
    show("nearest by source", &summary.suites[0].ast);
    show("nearest by graph", &summary.suites[0].graph);
    Ok(())
}

fn show(what: &str, histogram: &Histogram) {
    println!("  {what}: highest {:.3}", histogram.highest);
    for (bin, count) in histogram.bins.iter().enumerate().filter(|(_, count)| **count > 0) {
        let (from, to) = Histogram::range(bin);
        println!("    {from:.2}-{to:.2}  {count}");
    }
}

const OPERATORS: [&str; 40] = [
    "relu",
    "tanh",
    "sigmoid",
    "exp",
    "abs",
    "sin",
    "cos",
    "erf",
    "square",
    "floor",
    "ceil",
    "log1p",
    "neg",
    "sqrt",
    "rsqrt",
    "round",
    "trunc",
    "sign",
    "expm1",
    "log2",
    "atan",
    "asinh",
    "sinh",
    "cosh",
    "frac",
    "softmax",
    "log_softmax",
    "cumsum",
    "cumprod",
    "logcumsumexp",
    "sum",
    "mean",
    "amax",
    "amin",
    "argmax",
    "std",
    "var",
    "prod",
    "flip",
    "sort",
];

/// 10,000 tasks of five operators with a residual, one in ten a copy of an earlier one.
fn ten_thousand(suite: &Suite) -> Result<(), Box<dyn Error>> {
    const TASKS: usize = 10_000;
    let mut state = 1_u64;
    let mut next = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % below
    };
    let mut chains: Vec<Vec<usize>> = Vec::new();
    for i in 0..TASKS {
        let copied = (i > 0 && next(10) == 0).then(|| chains[next(i)].clone());
        chains.push(copied.unwrap_or_else(|| (0..5).map(|_| next(OPERATORS.len())).collect()));
    }
    let sources: Vec<String> = chains.iter().map(|chain| source(chain)).collect();
    let start = Instant::now();
    let mut tasks = Vec::new();
    for (source, chain) in sources.iter().zip(&chains) {
        tasks.push(Likeness::of(source, Some(&graph(chain)?))?);
    }
    println!("\n{TASKS} tasks read: {:.2} s", start.elapsed().as_secs_f64());
    let mut found = Decontamination::new(Thresholds::default());
    found.add_suite(suite, &BTreeMap::new())?;
    let copies = tasks.clone();
    let start = Instant::now();
    let mut kept = Vec::new();
    for (i, task) in tasks.into_iter().enumerate() {
        if found.admit(&i.to_string(), task).refusal.is_none() {
            kept.push(i);
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let summary = found.summary();
    println!("checked against {} and each other: {seconds:.2} s", suite.name);
    println!("kept {}, refused {:?}", summary.kept, summary.refused);
    let start = Instant::now();
    let mut over = 0;
    for (i, a) in copies.iter().enumerate() {
        over += copies[..i].iter().filter(|b| a.ast_similarity(b) > 0.9).count();
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("all pairs by source, for comparison: {seconds:.2} s, {over} over 0.9");
    let mut rows = Vec::new();
    for i in kept {
        let operators = chains[i].iter().map(|&operator| ["torch.", OPERATORS[operator]].concat());
        rows.push((sources[i].clone(), graph(&chains[i])?, operators.collect()));
    }
    as_data_set(rows.into_iter())?;
    Ok(())
}

/// The tasks that were kept as a file, with figures as irregular as measured ones.
fn as_data_set(
    kept: impl Iterator<Item = (String, OpGraph, Vec<String>)>,
) -> Result<(), Box<dyn Error>> {
    let mut set = DataSet::default();
    let mut state = 7_u64;
    let mut noise = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    for (number, (source, graph, operators)) in kept.enumerate() {
        let form = |axes: &[u64]| TensorForm { shape: axes.to_vec(), dtype: "float32".to_owned() };
        let rows = 64 * (1 + (noise() * 64.0) as u64);
        let columns = 128 * (1 + (noise() * 32.0) as u64);
        let proposal = Proposal {
            name: operators.iter().map(|op| op.replace("torch.", "")).collect::<Vec<_>>().join("_"),
            source: format!(
                "{source}\n\ndef get_inputs():\n    return [torch.randn({rows}, {columns})]\n\n\n\
                 def get_init_inputs():\n    return [{columns}]\n"
            ),
            operators,
            level: 1 + (number % 4) as u8,
            provenance: Provenance {
                composer: "grammar".to_owned(),
                seed: number as u64,
                catalogue: "0".repeat(64),
                parent: None,
            },
        };
        let measured = Measured {
            inputs: vec![form(&[rows, columns])],
            outputs: vec![form(&[rows, columns])],
            bytes: 4 * (2 * rows * columns + columns),
            eager_ms: 0.05 + noise(),
            compile_ms: 0.05 + noise(),
            floor_ms: 0.001 + noise() / 100.0,
            fingerprint: "{\"hardware\":\"of a test\"}".to_owned(),
        };
        set.push(Row::admitted(proposal, measured, Some(graph)))?;
    }
    let path = std::env::temp_dir().join(format!("similarity-{}.parquet", std::process::id()));
    let start = Instant::now();
    set.write(&path)?;
    let written = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let again = DataSet::read(&path)? == set;
    let read = start.elapsed().as_secs_f64();
    let bytes = fs_err::metadata(&path)?.len();
    let code: usize = set.rows().iter().map(|row| row.code.len()).sum();
    println!(
        "as a data set: {} rows, {code} bytes of code in {bytes} bytes; written {written:.2} s, \
         read {read:.2} s, the same: {again}",
        set.rows().len()
    );
    fs_err::remove_file(&path)?;
    Ok(())
}

fn source(chain: &[usize]) -> String {
    let steps: String = chain
        .iter()
        .map(|&operator| ["        x = torch.", OPERATORS[operator], "(x)\n"].concat())
        .collect();
    format!(
        "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n    def __init__(self, features):\n\
         \x20       super().__init__()\n        self.scale = nn.Parameter(torch.ones(features))\n\n\
         \x20   def forward(self, x):\n        y = x\n{steps}        return x * self.scale + y\n"
    )
}

fn graph(chain: &[usize]) -> Result<OpGraph, Box<dyn Error>> {
    let node = |op: String, inputs: Vec<usize>| warpwright_task::similarity::OpNode { op, inputs };
    let mut nodes = vec![node("input".to_owned(), vec![]), node("parameter".to_owned(), vec![])];
    let mut last = 0;
    for &operator in chain {
        nodes.push(node(format!("aten.{}.default", OPERATORS[operator]), vec![last]));
        last = nodes.len() - 1;
    }
    nodes.push(node("aten.mul.Tensor".to_owned(), vec![last, 1]));
    nodes.push(node("aten.add.Tensor".to_owned(), vec![nodes.len() - 1, 0]));
    let result = nodes.len() - 1;
    Ok(OpGraph::new(nodes, vec![result])?)
}
