//! A set of reference tasks for comparison.

use std::collections::HashMap;

use warpwright_task::similarity::LshIndex;

use super::likeness::Likeness;
use super::{Copied, Nearest, Refusal, RefusalKind, Thresholds};

/// The tasks to compare with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Search {
    /// All tasks, except those whose sizes rule out a higher similarity than the best so far.
    All,
    /// Only the tasks that the index proposes.
    Proposed,
}

/// The nearest task by each measure: index and similarity.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found {
    ast: Option<(u32, f64)>,
    graph: Option<(u32, f64)>,
    /// The first task with the same graph.
    same_graph: Option<u32>,
}

#[derive(Clone, Debug)]
pub(super) struct Group {
    thresholds: Thresholds,
    names: Vec<String>,
    tasks: Vec<Likeness>,
    asts: LshIndex,
    graphs: LshIndex,
    /// Maps positions in `graphs` to task indices.
    with_graph: Vec<u32>,
    by_graph: HashMap<String, u32>,
}

impl Group {
    pub(super) fn new(thresholds: Thresholds) -> Self {
        Self {
            thresholds,
            names: Vec::new(),
            tasks: Vec::new(),
            asts: LshIndex::for_dice(thresholds.ast),
            graphs: LshIndex::for_dice(thresholds.graph),
            with_graph: Vec::new(),
            by_graph: HashMap::new(),
        }
    }

    pub(super) fn add(&mut self, name: &str, likeness: Likeness) {
        let number = self.asts.add(likeness.ast());
        if let Some(graph) = likeness.graph() {
            self.graphs.add(&graph.features);
            self.with_graph.push(number);
            self.by_graph.entry(graph.hash.clone()).or_insert(number);
        }
        self.names.push(name.to_owned());
        self.tasks.push(likeness);
    }

    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }

    pub(super) fn with_graph(&self) -> usize {
        self.with_graph.len()
    }

    /// The nearest to `task` by source and by graph; ties go to the first.
    pub(super) fn nearest(&self, task: &Likeness, search: Search) -> Found {
        let ast = nearest_of(self.asts.propose(task.ast()), self.len(), search, |number, least| {
            let other = &self.tasks[number as usize];
            let possible = task.ast().dice_bound(other.ast().len());
            (possible > least).then(|| task.ast_similarity(other))
        });
        let Some(graph) = task.graph() else { return Found { ast, ..Found::default() } };
        let same_graph = self.by_graph.get(&graph.hash).copied();
        if same_graph.is_some() {
            return Found { ast, graph: same_graph.map(|number| (number, 1.0)), same_graph };
        }
        let proposed = self.graphs.propose(&graph.features);
        let nearest = nearest_of(proposed, self.with_graph.len(), search, |number, least| {
            let other = &self.tasks[self.with_graph[number as usize] as usize];
            let features = &other.graph()?.features;
            let possible = graph.features.dice_bound(features.len());
            (possible > least).then(|| graph.features.dice(features))
        });
        let graph = nearest.map(|(number, alike)| (self.with_graph[number as usize], alike));
        Found { ast, graph, same_graph }
    }

    /// Why a task with these nearest tasks is refused; `suite` is the group's suite, if it is one.
    pub(super) fn refusal(
        &self,
        found: &Found,
        task: &Likeness,
        suite: Option<&str>,
    ) -> Option<Refusal> {
        let refuse = |kind, number: u32, similarity, threshold| {
            let copied = Copied {
                suite: suite.map(ToOwned::to_owned),
                task: self.names[number as usize].clone(),
            };
            let other = &self.tasks[number as usize];
            Some(Refusal {
                kind,
                copied,
                similarity,
                threshold,
                ast: task.ast_similarity(other),
                graph: task.graph_similarity(other),
            })
        };
        let Thresholds { ast, graph } = self.thresholds;
        match (found.same_graph, found.ast, found.graph) {
            (Some(number), _, _) => refuse(RefusalKind::SameGraph, number, 1.0, graph),
            (_, Some((number, alike)), _) if alike > ast => {
                refuse(RefusalKind::Ast, number, alike, ast)
            }
            (_, _, Some((number, alike))) if alike > graph => {
                refuse(RefusalKind::Graph, number, alike, graph)
            }
            _ => None,
        }
    }

    /// The nearest tasks by name; `None` if the group is empty.
    pub(super) fn describe(&self, found: &Found, suite: &str, task: &Likeness) -> Option<Nearest> {
        let (by_ast, highest_ast) = found.ast?;
        let number = match found.graph {
            Some((by_graph, alike)) if alike > highest_ast => by_graph,
            _ => by_ast,
        };
        let other = &self.tasks[number as usize];
        Some(Nearest {
            suite: suite.to_owned(),
            task: self.names[number as usize].clone(),
            ast: task.ast_similarity(other),
            graph: task.graph_similarity(other),
            highest_ast,
            highest_graph: found.graph.map(|(_, alike)| alike),
        })
    }
}

/// The nearest among `proposed` and, if all are searched, among the `len` others. `similarity`
/// returns `None` for tasks whose size rules out a similarity above the given one: with a good
/// proposal most are never compared.
fn nearest_of(
    proposed: Vec<u32>,
    len: usize,
    search: Search,
    similarity: impl Fn(u32, f64) -> Option<f64>,
) -> Option<(u32, f64)> {
    let others = match search {
        Search::All => 0..len as u32,
        Search::Proposed => 0..0,
    };
    let mut best: Option<(u32, f64)> = None;
    for number in proposed.into_iter().chain(others) {
        let least = best.map_or(-1.0, |(_, alike)| alike);
        if let Some(alike) = similarity(number, least)
            && alike > least
        {
            best = Some((number, alike));
        }
    }
    best
}
