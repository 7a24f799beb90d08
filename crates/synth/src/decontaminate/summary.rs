//! Summary of a decontamination, for a report.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Finding, Histogram, Thresholds};

/// Results of all tasks checked for admission.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// Maximum similarities.
    pub thresholds: Thresholds,
    /// Per suite.
    pub suites: Vec<SuiteSummary>,
    /// Tasks checked.
    pub checked: u64,
    /// Checked tasks with a traced graph; for the others only the source was compared.
    pub with_graph: u64,
    /// Tasks kept.
    pub kept: u64,
    /// Tasks refused, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Highest source similarity to any suite, over the kept tasks.
    pub kept_ast: Histogram,
    /// Highest graph similarity to any suite, over the kept tasks with a graph.
    pub kept_graph: Histogram,
}

/// Results for one suite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SuiteSummary {
    /// Its name.
    pub name: String,
    /// Its tasks.
    pub tasks: u64,
    /// Number of its tasks with a traced graph.
    pub with_graph: u64,
    /// Highest source similarity, over the checked tasks.
    pub ast: Histogram,
    /// Highest graph similarity, over the checked tasks with a graph.
    pub graph: Histogram,
}

impl SuiteSummary {
    pub(super) fn new(name: &str, tasks: usize, with_graph: usize) -> Self {
        Self {
            name: name.to_owned(),
            tasks: tasks as u64,
            with_graph: with_graph as u64,
            ast: Histogram::default(),
            graph: Histogram::default(),
        }
    }
}

impl Summary {
    pub(super) fn new(thresholds: Thresholds) -> Self {
        Self {
            thresholds,
            suites: Vec::new(),
            checked: 0,
            with_graph: 0,
            kept: 0,
            refused: BTreeMap::new(),
            kept_ast: Histogram::default(),
            kept_graph: Histogram::default(),
        }
    }

    pub(super) fn count(&mut self, finding: &Finding, has_graph: bool) {
        self.checked += 1;
        self.with_graph += u64::from(has_graph);
        for (suite, nearest) in self.suites.iter_mut().zip(&finding.nearest) {
            suite.ast.count(nearest.highest_ast);
            nearest.highest_graph.iter().for_each(|alike| suite.graph.count(*alike));
        }
        if let Some(refusal) = &finding.refusal {
            *self.refused.entry(refusal.reason().to_owned()).or_insert(0) += 1;
            return;
        }
        self.kept += 1;
        let asts = finding.nearest.iter().map(|nearest| nearest.highest_ast);
        let graphs = finding.nearest.iter().filter_map(|nearest| nearest.highest_graph);
        asts.reduce(f64::max).iter().for_each(|alike| self.kept_ast.count(*alike));
        graphs.reduce(f64::max).iter().for_each(|alike| self.kept_graph.count(*alike));
    }
}
