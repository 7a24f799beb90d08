//! The tasks that a synthesis decontaminates against.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use warpwright_synth::{DataSet, Decontamination, Thresholds};
use warpwright_task::Suite;
use warpwright_task::similarity::OpGraph;

use crate::Notice;
use crate::error::{RolloutError, chain};
use crate::judge_host::JudgeHost;

/// The operator graphs of a suite's tasks, by name. A task that does not load has no graph, and is
/// compared by its source.
fn graphs(suite: &Suite, host: &JudgeHost, notice: &Notice) -> BTreeMap<String, OpGraph> {
    let (next, graphs) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || {
        // Suites begin with what is small: what takes longest is not to come last.
        while let Some(task) = suite.tasks.iter().rev().nth(next.fetch_add(1, Ordering::Relaxed)) {
            let graph = host.judge.graph(task);
            let mut graphs = graphs.lock().unwrap_or_else(PoisonError::into_inner);
            graphs.insert(task.name.clone(), graph.ok().flatten());
            if graphs.len().is_multiple_of(50) {
                let (done, of) = (graphs.len(), suite.tasks.len());
                notice(&format!("{}: traced {done} of {of} operator graphs", suite.name));
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
pub fn copies(
    thresholds: Thresholds,
    out: &Path,
    suites: &[Suite],
    set: &DataSet,
    host: &JudgeHost,
    notice: &Notice,
) -> Result<Decontamination, RolloutError> {
    let mut copies = Decontamination::new(thresholds);
    for suite in suites {
        let graphs = graphs(suite, host, notice);
        copies
            .add_suite(suite, &graphs)
            .map_err(|error| RolloutError::usage(chain(&error), None))?;
        let without = suite.tasks.len() - graphs.len();
        notice(&format!(
            "decontaminating against {}: {} tasks, {without} of them without an operator graph",
            suite.name,
            suite.tasks.len()
        ));
    }
    // The suites may be others than those the set was made with.
    let found = copies
        .admit_set(set)
        .map_err(|error| RolloutError::usage(error.to_string(), error.hint().to_owned()))?;
    if let Some((name, refusal)) = found.first() {
        notice(&format!(
            "warning: {} of the tasks in {} are copies, `warpwright task drop` removes them; the first is {name}: {refusal}",
            found.len(),
            out.display()
        ));
    }
    Ok(copies)
}
