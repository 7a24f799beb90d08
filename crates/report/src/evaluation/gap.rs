//! How much of what could be won a policy wins over another.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use warpwright_record::interval::Interval;

use super::Evaluation;
use super::finals::Finals;
use super::rows::Row;
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
    /// From `from`, by `to`, towards the fastest final kernel of the evaluations in `known` for each
    /// task. [`Finals`] defines the score of a kernel; of several attempts the mean counts. The best
    /// known is the fastest of many measurements, so rather too fast than too slow: what is closed is
    /// rather too little.
    pub fn of(from: &Evaluation, to: &Evaluation, known: &[&Evaluation]) -> Self {
        let finals = Finals::of(known.iter().flat_map(|evaluation| &evaluation.rows));
        Self::between(&finals, &from.rows, &to.rows)
    }

    /// The same from the rows of `from` to those of `to`; `finals` are the kernels that are known.
    pub fn between<'r>(
        finals: &Finals<'_>,
        from: impl IntoIterator<Item = &'r Row>,
        to: impl IntoIterator<Item = &'r Row>,
    ) -> Self {
        let (from, to) = (finals.means(from), finals.means(to));
        let shared = from.iter().filter_map(|(task, from)| Some((*task, *from, *to.get(task)?)));
        let terms: Vec<Term> =
            shared.map(|(task, from, to)| term(from, to, finals.fastest(task))).collect();
        Self {
            closed: ratio(&terms),
            tasks: terms.len() as u32,
            open: terms.iter().filter(|term| term.weight > 0.0).count() as u32,
        }
    }
}

/// What a task adds: how much further `to` is than `from`, and how much further the best known kernel is; mean
/// logarithms of speed-ups.
fn term(from: f64, to: f64, best: f64) -> Term {
    Term { sum: to - from, weight: best.max(from).max(to) - from }
}
