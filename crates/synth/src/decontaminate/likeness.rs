//! The comparable features of a task.

use warpwright_task::similarity::{AstProfile, Bag, OpGraph};
use warpwright_task::{Task, TaskError};

/// A task's source and, if it was traced, its operator graph, prepared for comparison.
#[derive(Clone, Debug)]
pub struct Likeness {
    ast: AstProfile,
    graph: Option<GraphLikeness>,
}

/// A graph's hash and features.
#[derive(Clone, Debug)]
pub(super) struct GraphLikeness {
    pub(super) hash: String,
    pub(super) features: Bag,
}

impl Likeness {
    /// The likeness of a source. Fails if the source is not a task.
    pub fn of(source: &str, graph: Option<&OpGraph>) -> Result<Self, TaskError> {
        Ok(Self::new(AstProfile::of(source)?, graph))
    }

    /// The likeness of a task; the error names its origin.
    pub fn of_task(task: &Task, graph: Option<&OpGraph>) -> Result<Self, TaskError> {
        Ok(Self::new(AstProfile::of_task(task)?, graph))
    }

    fn new(ast: AstProfile, graph: Option<&OpGraph>) -> Self {
        let graph = graph.map(|graph| GraphLikeness {
            hash: graph.canonical_hash(),
            features: graph.features(),
        });
        Self { ast, graph }
    }

    /// Whether it has a graph.
    pub fn has_graph(&self) -> bool {
        self.graph.is_some()
    }

    /// Similarity of the sources.
    pub fn ast_similarity(&self, other: &Self) -> f64 {
        self.ast.similarity(&other.ast)
    }

    /// Similarity of the graphs: 1 for equal graphs; `None` if one task has no graph.
    pub fn graph_similarity(&self, other: &Self) -> Option<f64> {
        let (a, b) = (self.graph.as_ref()?, other.graph.as_ref()?);
        Some(if a.hash == b.hash { 1.0 } else { a.features.dice(&b.features) })
    }

    pub(super) fn ast(&self) -> &Bag {
        self.ast.bag()
    }

    pub(super) fn graph(&self) -> Option<&GraphLikeness> {
        self.graph.as_ref()
    }
}
