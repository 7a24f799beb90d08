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

/// Writes all files for a plan.
pub(crate) fn write(
    trace: &Trace,
    graph: &Graph,
    plan: &Plan,
    target: &Target,
    knobs: &Knobs,
) -> Result<Files, String> {
    let mut kernels: Vec<KernelFile> = Vec::new();
    // What the last kernel that touched much memory touched, and whether it ended at the beginning.
    let (mut warm, mut ended_first): (Vec<NodeId>, bool) = (vec![], false);
    for (i, step) in plan.steps.iter().enumerate() {
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
    let mut files = Files::new();
    // Kernels that differ in nothing but names are one file.
    let names: BTreeSet<&str> = graph.nodes.iter().map(|n| n.name.as_str()).collect();
    let mut by_text: BTreeMap<String, String> = BTreeMap::new();
    for k in &mut kernels {
        let skeleton = alike::skeleton(&k.text, &k.name, &names);
        let name = by_text.entry(skeleton).or_insert_with(|| k.name.clone()).clone();
        if name == k.name {
            files.insert(format!("kernels/{name}.cu"), k.text.clone());
        } else {
            k.name = name;
        }
    }
    let flow: Vec<(Vec<NodeId>, Vec<NodeId>)> = kernels
        .iter()
        .zip(&plan.steps)
        .map(|(k, step)| {
            let writes = step.stores();
            (k.args.iter().copied().filter(|n| !writes.contains(n)).collect(), writes)
        })
        .collect();
    let once = constant::prepared(graph, &flow);
    let chain = if knobs.chain && !knobs.safe {
        let known = flow.iter().zip(&once).filter(|(_, once)| **once);
        let known = known.flat_map(|((_, writes), _)| writes.iter().copied()).collect();
        let calls = calls(&kernels, &once, &files);
        calls.and_then(|calls| {
            let span = |node| module::span(trace, graph, node);
            chain::write(graph, target, &calls, &known, span)
        })
    } else {
        None
    };
    if let Some(chain) = &chain {
        files.insert(chain::FILE.to_owned(), chain.text.clone());
    }
    let module = module::write(trace, graph, &kernels, &once, chain.as_ref());
    files.insert("model_new.py".to_owned(), module);
    Ok(files)
}

/// The kernels that forward calls, in order.
fn calls(kernels: &[KernelFile], once: &[bool], files: &Files) -> Option<Vec<chain::Call>> {
    let forward = kernels.iter().zip(once).filter(|(_, once)| !**once);
    forward
        .map(|(k, _)| {
            let text = files.get(&format!("kernels/{}.cu", k.name))?;
            let signature = chain::Signature::read(text, &k.name)?;
            Some(chain::Call { signature, args: k.args.clone(), scratch: k.scratch.clone() })
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
                && let Some(program) = tune::as_rows(k, target, graph, &buffers)
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
            };
            op.emit(&mut context)
        }
    }
}
