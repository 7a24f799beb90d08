//! The gap from a policy to the fastest known kernels, and the share of it that another closes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use warpwright_record::interval::Interval;

use super::Evaluation;
use super::finals::Finals;
use super::rows::Row;
use super::statistics::{Term, ratio};

/// The gap from one policy to the fastest known kernels, and the share of it that another policy
/// closes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gap {
    /// Sum over tasks of `to` minus `from`, divided by the sum of the fastest known kernel minus
    /// `from`. Terms are mean log-speed-ups over the best baseline. With a 95 % interval by bootstrap
    /// over tasks. `None` if no task is open.
    pub closed: Option<Interval>,
    /// Tasks that both policies were judged on.
    pub tasks: u32,
    /// Of these, tasks on which a known kernel is faster than `from`.
    pub open: u32,
}

impl Gap {
    /// The gap from `from` to the fastest final kernel of `known`, closed by `to`. [`Finals`] scores
    /// kernels. A task counts with the mean over its attempts. The fastest of many noisy kernels is
    /// biased high, so `closed` is biased low.
    pub fn of(from: &Evaluation, to: &Evaluation, known: &[&Evaluation]) -> Self {
        let finals = Finals::of(known.iter().flat_map(|evaluation| &evaluation.rows));
        Self::between(&finals, &from.rows, &to.rows)
    }

    /// [`Gap::of`] for rows; `finals` has the known kernels.
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

/// The term of a task: `to` minus `from`, and the fastest known kernel minus `from`, as mean
/// log-speed-ups.
fn term(from: f64, to: f64, best: f64) -> Term {
    Term { sum: to - from, weight: best.max(from).max(to) - from }
}
