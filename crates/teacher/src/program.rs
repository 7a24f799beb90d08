//! A whole candidate: the kernel files and `model_new.py`.

use std::collections::{BTreeMap, BTreeSet};

use crate::alike;
use crate::chain;
use crate::constant;
use crate::emit::rows::RowTune;
use crate::emit::{HeavyContext, KernelFile, columns, elementwise, online, rows, scans};
use crate::index::numel;
use crate::ir::{Graph, NodeId, Op};
use crate::module;
use crate::plan::{Plan, Step, Target};
use crate::trace::Trace;
use crate::tune::{self, Knobs};

/// Files by workspace-relative path.
pub(crate) type Files = BTreeMap<String, String>;

/// Writes all files of one graph.
pub(crate) fn write(of: &Of<'_>) -> Result<Files, String> {
    let mut texts = Texts::default();
    let program = of.program(&mut texts, chain::NAME)?;
    let parts = program.parts(of, "");
    let mut files = texts.files;
    files.insert("model_new.py".to_owned(), module::write(of.trace, of.graph, &parts));
    Ok(files)
}

/// Kernel files, each text once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Texts {
    pub(crate) files: Files,
    /// Names of kernels by their skeletons.
    by_text: BTreeMap<String, String>,
}

impl Texts {
    /// Adds kernels. Those that differ from another in nothing but names get its name.
    fn add(&mut self, kernels: &mut [KernelFile], graph: &Graph) {
        let names: BTreeSet<&str> = graph.nodes.iter().map(|n| n.name.as_str()).collect();
        for k in kernels {
            let skeleton = alike::skeleton(&k.text, &k.name, &names);
            let name = self.by_text.entry(skeleton).or_insert_with(|| k.name.clone()).clone();
            if name == k.name {
                self.files.insert(format!("kernels/{name}.cu"), k.text.clone());
            } else {
                k.name = name;
            }
        }
    }

    /// Whether it has the text of every kernel; those get the names under which they are known.
    fn knows(&self, kernels: &mut [KernelFile], graph: &Graph) -> bool {
        let names: BTreeSet<&str> = graph.nodes.iter().map(|n| n.name.as_str()).collect();
        kernels.iter_mut().all(|k| {
            let known = self.by_text.get(&alike::skeleton(&k.text, &k.name, &names));
            known.map(|name| k.name.clone_from(name)).is_some()
        })
    }
}

/// What a program is written from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Of<'d> {
    pub(crate) trace: &'d Trace,
    pub(crate) graph: &'d Graph,
    pub(crate) plan: &'d Plan,
    pub(crate) target: &'d Target,
    pub(crate) knobs: &'d Knobs,
    /// Ends the names of kernels, unless it is empty.
    pub(crate) suffix: &'d str,
}

/// The kernels of one graph, those that run once, and the launcher of the others.
#[derive(Debug)]
pub(crate) struct Program {
    kernels: Vec<KernelFile>,
    once: Vec<bool>,
    chain: Option<chain::Chain>,
}

impl Program {
    /// Statements of `model_new.py`; `prefix` begins the names of what is kept.
    pub(crate) fn parts(&self, of: &Of<'_>, prefix: &str) -> module::Parts {
        let chain = self.chain.as_ref();
        module::parts((of.trace, of.graph), &self.kernels, &self.once, chain, prefix)
    }
}

impl Of<'_> {
    /// Writes kernels and their launcher, which is called `name`.
    pub(crate) fn program(&self, texts: &mut Texts, name: &str) -> Result<Program, String> {
        let mut kernels = self.kernels()?;
        texts.add(&mut kernels, self.graph);
        let Self { trace, graph, target, knobs, .. } = *self;
        let (flow, once) = self.once(&kernels);
        let chain = if knobs.chain && !knobs.safe {
            let known = flow.iter().zip(&once).filter(|(_, once)| **once);
            let known = known.flat_map(|((_, writes), _)| writes.iter().copied()).collect();
            let calls = calls(&kernels, &once, &texts.files);
            calls.and_then(|calls| {
                let span = |node| module::span(trace, graph, node);
                chain::write((graph, target), name, &calls, &known, span)
            })
        } else {
            None
        };
        if let Some(chain) = &chain {
            texts.files.insert(format!("kernels/{name}.cu"), chain.text.clone());
        }
        Ok(Program { kernels, once, chain })
    }

    /// The program without a launcher, if all its kernels are written already.
    pub(crate) fn known_program(&self, texts: &Texts) -> Option<Program> {
        let mut kernels = self.kernels().ok()?;
        if !texts.knows(&mut kernels, self.graph) {
            return None;
        }
        let once = self.once(&kernels).1;
        Some(Program { kernels, once, chain: None })
    }

    /// What kernels read and write, and which of them run once.
    fn once(&self, kernels: &[KernelFile]) -> (Flow, Vec<bool>) {
        let flow: Flow = kernels
            .iter()
            .zip(&self.plan.steps)
            .map(|(k, step)| {
                let writes = step.stores();
                (k.args.iter().copied().filter(|n| !writes.contains(n)).collect(), writes)
            })
            .collect();
        let once = constant::prepared(self.graph, &flow);
        (flow, once)
    }

    /// The kernel of each step.
    fn kernels(&self) -> Result<Vec<KernelFile>, String> {
        let Self { graph, plan, target, knobs, suffix, .. } = *self;
        let mut kernels: Vec<KernelFile> = Vec::new();
        // What the last kernel that touched much memory touched, and whether it ended at the beginning.
        let (mut warm, mut ended_first): (Vec<NodeId>, bool) = (vec![], false);
        for (i, step) in plan.steps.iter().enumerate() {
            let step = &step.named(suffix);
            let mut written = kernel(graph, plan, step, target, knobs, false)?;
            let large: Vec<NodeId> =
                written.args.iter().copied().filter(|n| is_large(graph, *n)).collect();
            let mut is_backwards = written.text.contains("_epilogue_kernel");
            // Where that kernel ended, this one begins: that is still in the cache.
            // A library begins at the beginning, so what comes before it had better end there.
            let again = large.iter().any(|n| warm.contains(n));
            let before_library = !again
                && matches!(plan.steps.get(i + 1), Some(Step::Heavy { node, .. })
                    if reads_any(graph, *node, &step.stores()));
            let turn = (again && !ended_first) || before_library;
            if !target.cpu && !knobs.safe && turn {
                let other = kernel(graph, plan, step, target, knobs, true)?;
                is_backwards |= other.text != written.text;
                written = other;
            }
            if !large.is_empty() {
                (warm, ended_first) = (large, is_backwards);
            }
            kernels.push(written);
        }
        Ok(kernels)
    }
}

/// Inputs and outputs of each kernel.
type Flow = Vec<(Vec<NodeId>, Vec<NodeId>)>;

/// The kernels that forward calls, in order.
fn calls(kernels: &[KernelFile], once: &[bool], files: &Files) -> Option<Vec<chain::Call>> {
    let forward = kernels.iter().zip(once).filter(|(_, once)| !**once);
    forward
        .map(|(k, _)| {
            let text = files.get(&format!("kernels/{}.cu", k.name))?;
            let signature = chain::Signature::read(text, &k.name)?;
            let (args, scratch, sizes) = (k.args.clone(), k.scratch.clone(), k.sizes.clone());
            Some(chain::Call { signature, args, scratch, sizes })
        })
        .collect()
}

/// Size of a tensor in bytes from which the order of two kernels that access it matters.
const MUCH: i64 = 4 << 20;

/// Whether a node's operands are among `nodes`, or views of them.
fn reads_any(graph: &Graph, node: NodeId, nodes: &[NodeId]) -> bool {
    graph.operands(node).into_iter().any(|mut operand| {
        while let Op::View { src, .. } = graph.node(operand).op
            && !nodes.contains(&operand)
        {
            operand = src;
        }
        nodes.contains(&operand) && is_large(graph, operand)
    })
}

fn is_large(graph: &Graph, node: NodeId) -> bool {
    numel(graph.shape(node)) * graph.dtype(node).size() >= MUCH
}

fn kernel(
    graph: &Graph,
    plan: &Plan,
    step: &Step,
    target: &Target,
    knobs: &Knobs,
    backwards: bool,
) -> Result<KernelFile, String> {
    // What the step computes itself is not loaded.
    let own = step.stores();
    let mut buffers = plan.buffers.clone();
    buffers.retain(|n, _| !own.contains(n));
    match step {
        Step::Elementwise(k) => {
            if target.cpu
                && let Some(program) = tune::as_rows(k, knobs, target, graph, &buffers)
            {
                let how = tune::row(&program, knobs, target, graph, &buffers);
                return rows::emit(&program, &how, graph, &buffers);
            }
            let mut how = tune::element(k, knobs, target, graph, &buffers);
            if target.cpu {
                how.vec = 1;
                how.streaming = false;
            }
            how.backwards = backwards;
            elementwise::emit(k, &how, graph, &buffers)
        }
        Step::Rows(k) => {
            if tune::is_column(k, None, target, graph, &buffers) {
                let how = tune::column(k, knobs, target, false, (graph, &buffers));
                return columns::emit(k, None, &how, graph, &buffers);
            }
            let merged = (!target.cpu && !knobs.safe).then(|| online::merge(k, graph));
            let k = merged.as_ref().unwrap_or(k);
            let how = tune::row(k, knobs, target, graph, &buffers);
            rows::emit(k, &RowTune { backwards, ..how }, graph, &buffers)
        }
        Step::Scan(k, node) if !target.cpu && !knobs.safe => {
            let how = tune::scan(k, *node, target, graph, &buffers);
            scans::emit(k, *node, &how, graph, &buffers)
        }
        Step::Scan(k, node) => {
            let how = tune::column(k, knobs, target, true, (graph, &buffers));
            columns::emit(k, Some(*node), &how, graph, &buffers)
        }
        Step::Heavy { name, node, stores } => {
            let Op::Heavy { op, args } = &graph.node(*node).op else {
                return Err(format!("{name} is not a heavy operator"));
            };
            let mut context = HeavyContext {
                graph,
                buffers: &buffers,
                target,
                name: name.clone(),
                node: *node,
                args: args.clone(),
                stores: stores.clone(),
                variant: knobs.heavy,
                sizes: knobs.sizes,
                like: knobs.like,
            };
            op.emit(&mut context)
        }
    }
}
