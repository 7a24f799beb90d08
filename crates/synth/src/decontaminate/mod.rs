//! Decontamination: refuses copies of benchmark tasks, and near-duplicates within the set.
//!
//! [`Decontamination`] holds the suites, read once, and the tasks kept so far. For each task it
//! computes the similarity to each suite, by source and by operator graph, and decides whether and
//! why the task is refused. The comparison with suites is exact: no kept task exceeds a threshold.
//! Within the set, where pairs are many, MinHash proposes the comparisons (see
//! `docs/concepts/decontamination.md` for what it misses).
//!
//! ```
//! use warpwright_synth::{Decontamination, Likeness, Thresholds};
//!
//! let source = |op: &str| {
//!     format!("import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return torch.{op}(x)\n")
//! };
//! let mut set = Decontamination::new(Thresholds::default());
//! assert!(set.admit("a", Likeness::of(&source("relu"), None)?).refusal.is_none());
//! assert!(set.admit("b", Likeness::of(&source("tanh"), None)?).refusal.is_none());
//! let copy = set.admit("c", Likeness::of(&source("relu"), None)?);
//! assert_eq!(
//!     copy.refusal.map(|refusal| refusal.to_string()).as_deref(),
//!     Some("its source is like `a` of this set: 1.000, over 0.900")
//! );
//! # Ok::<(), warpwright_task::TaskError>(())
//! ```

mod group;
mod histogram;
mod likeness;
mod refusal;
mod summary;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use warpwright_task::similarity::OpGraph;
use warpwright_task::{Suite, TaskError};

pub use histogram::Histogram;
pub use likeness::Likeness;
pub use refusal::{Copied, Refusal, RefusalKind};
pub use summary::{SuiteSummary, Summary};

use group::{Group, Search};

use crate::dataset::DataSet;

/// Maximum similarities of two tasks. Both are Dice coefficients in \[0, 1\]; a task *over* a
/// threshold is refused.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Thresholds {
    /// Of sources; 0.9 as in the CUDA Agent paper.
    pub ast: f64,
    /// Of operator graphs. 1, the default, refuses only equal graphs; those are always refused.
    pub graph: f64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { ast: 0.9, graph: 1.0 }
    }
}

/// A suite that cannot be used for comparison. A usage error.
#[derive(Debug, Error)]
#[error("failed to use suite `{suite}` for decontamination: {source}")]
pub struct SuiteError {
    /// The suite.
    pub suite: String,
    /// The fault of one of its tasks.
    pub source: TaskError,
}

/// Similarity of a task to one suite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Nearest {
    /// The suite.
    pub suite: String,
    /// Its most similar task, by the higher of source and graph similarity.
    pub task: String,
    /// Source similarity of that task.
    pub ast: f64,
    /// Graph similarity of that task; `None` if one of the two has no graph.
    pub graph: Option<f64>,
    /// Highest source similarity of any task.
    pub highest_ast: f64,
    /// Highest graph similarity of any task; `None` if no graphs could be compared.
    pub highest_graph: Option<f64>,
}

/// Result for one task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// One entry per suite, in the order in which they were added.
    pub nearest: Vec<Nearest>,
    /// Why it is refused.
    pub refusal: Option<Refusal>,
}

/// The suites to compare with, the tasks kept so far, and the summary.
#[derive(Clone, Debug)]
pub struct Decontamination {
    thresholds: Thresholds,
    suites: Vec<(String, Group)>,
    set: Group,
    summary: Summary,
}

impl Decontamination {
    /// A decontamination without suites and tasks.
    pub fn new(thresholds: Thresholds) -> Self {
        Self {
            thresholds,
            suites: Vec::new(),
            set: Group::new(thresholds),
            summary: Summary::new(thresholds),
        }
    }

    /// Adds a suite to compare with, and the traced graphs of its tasks by name, if any.
    ///
    /// Fails if a task of it cannot be read, so that no suite is compared partially.
    pub fn add_suite(
        &mut self,
        suite: &Suite,
        graphs: &BTreeMap<String, OpGraph>,
    ) -> Result<(), SuiteError> {
        if suite.tasks.is_empty() {
            return Ok(());
        }
        let mut group = Group::new(self.thresholds);
        for task in &suite.tasks {
            let likeness = Likeness::of_task(task, graphs.get(&task.name))
                .map_err(|source| SuiteError { suite: suite.name.clone(), source })?;
            group.add(&task.name, likeness);
        }
        self.summary.suites.push(SuiteSummary::new(&suite.name, group.len(), group.with_graph()));
        self.suites.push((suite.name.clone(), group));
        Ok(())
    }

    /// Checks a task, without keeping or counting it.
    pub fn check(&self, likeness: &Likeness) -> Finding {
        let mut nearest = Vec::new();
        let mut refusal = None;
        for (suite, group) in &self.suites {
            let found = group.nearest(likeness, Search::All);
            refusal = refusal.or_else(|| group.refusal(&found, likeness, Some(suite)));
            if let Some(found) = group.describe(&found, suite, likeness) {
                nearest.push(found);
            }
        }
        let refusal = refusal.or_else(|| {
            let found = self.set.nearest(likeness, Search::Proposed);
            self.set.refusal(&found, likeness, None)
        });
        Finding { nearest, refusal }
    }

    /// Checks a task, and counts it only if it is refused.
    pub fn refuse(&mut self, likeness: &Likeness) -> Option<Refusal> {
        let finding = self.check(likeness);
        if finding.refusal.is_some() {
            self.summary.count(&finding, likeness.has_graph());
        }
        finding.refusal
    }

    /// Checks a task, keeps it if it is not refused, and counts it. Of similar tasks the first is
    /// kept.
    pub fn admit(&mut self, name: &str, likeness: Likeness) -> Finding {
        let finding = self.check(&likeness);
        self.summary.count(&finding, likeness.has_graph());
        if finding.refusal.is_none() {
            self.set.add(name, likeness);
        }
        finding
    }

    /// Checks and counts the rows of a data set in their order, keeps them all, and returns the
    /// names and refusals of the copies. There are none if the set was made with the same suites
    /// and thresholds.
    ///
    /// Fails if a row is not a task.
    pub fn admit_set(&mut self, set: &DataSet) -> Result<Vec<(String, Refusal)>, TaskError> {
        let mut refused = Vec::new();
        for row in set.rows() {
            let likeness = Likeness::of_task(&row.task(), row.graph.as_ref())?;
            let again = likeness.clone();
            if let Some(refusal) = self.admit(&row.name, likeness).refusal {
                refused.push((row.name.clone(), refusal));
                self.set.add(&row.name, again);
            }
        }
        Ok(refused)
    }

    /// Number of kept tasks.
    pub fn kept(&self) -> usize {
        self.set.len()
    }

    /// The summary so far.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }
}
