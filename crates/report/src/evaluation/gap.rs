//! How much of what could be won a policy wins over another.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use warpwright_record::interval::Interval;

use super::Evaluation;
use super::rows::RowState;
use super::scores::Shot;
use super::statistics::{Term, ratio};

/// The way from one policy to the best kernels that are known, and how far another went on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gap {
    /// The sum over tasks of how much further it is, over the sum of how much further the best is, in
    /// logarithms of speed-ups over the best baseline; 1 is all of the way. With a 95 % interval,
    /// bootstrapped over tasks. `None` where nothing was to be won, or no task has all three.
    pub closed: Option<Interval>,
    /// Tasks that both policies were judged on.
    pub tasks: u32,
    /// Of these, on how many anything was to be won.
    pub open: u32,
}

impl Gap {
    /// From `from`, by `to`, towards the fastest final candidate of any evaluation for each task. A
    /// candidate that is not right counts as as fast as the baseline, and of several attempts the mean
    /// counts. The best known is the fastest of many measurements, so rather too fast than too slow: what
    /// is closed is rather too little.
    pub fn of(from: &Evaluation, to: &Evaluation, known: &[&Evaluation]) -> Self {
        let (from, to) = (means(from), means(to));
        let mut best: BTreeMap<&str, f64> = BTreeMap::new();
        for (task, log) in known.iter().flat_map(|evaluation| logs(evaluation)) {
            let best = best.entry(task).or_default();
            *best = best.max(log);
        }
        let shared = from.iter().filter_map(|(task, from)| Some((task, *from, *to.get(task)?)));
        let terms: Vec<Term> = shared
            .map(|(task, from, to)| term(from, to, best.get(task).copied().unwrap_or_default()))
            .collect();
        Self {
            closed: ratio(&terms),
            tasks: terms.len() as u32,
            open: terms.iter().filter(|term| term.weight > 0.0).count() as u32,
        }
    }
}

/// What a task adds: how much further `to` is than `from`, and how much further the best known kernel is; mean
/// logarithms of speed-ups.
pub(super) fn term(from: f64, to: f64, best: f64) -> Term {
    Term { sum: to - from, weight: best.max(from).max(to) - from }
}

/// Of each judged attempt the logarithm of the speed-up over the best baseline, 0 where there is none.
fn logs(evaluation: &Evaluation) -> impl Iterator<Item = (&str, f64)> {
    let judged = evaluation.rows.iter().filter(|row| row.state == RowState::Judged);
    judged.map(|row| (row.task.as_str(), Shot::last(row).log(|m| m.best).unwrap_or(0.0)))
}

fn means(evaluation: &Evaluation) -> BTreeMap<&str, f64> {
    let mut sums: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for (task, log) in logs(evaluation) {
        let (sum, count) = sums.entry(task).or_default();
        *sum += log;
        *count += 1.0;
    }
    sums.into_iter().map(|(task, (sum, count))| (task, sum / count)).collect()
}
