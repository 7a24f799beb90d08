//! What a whole decontamination found, for a report.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Finding, Histogram, Thresholds};

/// What was found of all tasks that were checked for admission.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// How alike tasks may be.
    pub thresholds: Thresholds,
    /// Per suite.
    pub suites: Vec<SuiteSummary>,
    /// Tasks checked.
    pub checked: u64,
    /// Of those, how many had a traced graph; of the others only the source was compared.
    pub with_graph: u64,
    /// Tasks kept.
    pub kept: u64,
    /// Tasks refused, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Of every kept task, how alike the nearest source of any suite is.
    pub kept_ast: Histogram,
    /// Of every kept task with a graph, how alike the nearest graph of any suite is.
    pub kept_graph: Histogram,
}

/// What was found against one suite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SuiteSummary {
    /// Its name.
    pub name: String,
    /// Its tasks.
    pub tasks: u64,
    /// How many of them had a traced graph.
    pub with_graph: u64,
    /// Of every checked task, how alike the nearest source is.
    pub ast: Histogram,
    /// Of every checked task with a graph, how alike the nearest graph is.
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
