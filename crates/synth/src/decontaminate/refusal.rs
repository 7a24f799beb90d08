//! Why a task is refused.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The measure by which a task is a copy.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum RefusalKind {
    /// An equal operator graph, for any shapes.
    SameGraph,
    /// A source over the threshold.
    Ast,
    /// A graph over the threshold.
    Graph,
}

/// The original of a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Copied {
    /// The suite, or `None` for the set itself.
    pub suite: Option<String>,
    /// The task.
    pub task: String,
}

/// Why a task is refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Refusal {
    /// The measure.
    pub kind: RefusalKind,
    /// The original.
    pub copied: Copied,
    /// Similarity of the two by that measure.
    pub similarity: f64,
    /// Maximum similarity allowed.
    pub threshold: f64,
    /// Source similarity of the two.
    pub ast: f64,
    /// Graph similarity of the two, if both have a graph.
    pub graph: Option<f64>,
}

impl Refusal {
    /// A short reason, equal for all refusals of a kind: refusals are counted by it.
    pub fn reason(&self) -> &'static str {
        match (self.kind, self.copied.suite.is_some()) {
            (RefusalKind::SameGraph, true) => "same graph as a suite's",
            (RefusalKind::SameGraph, false) => "same graph as another's",
            (RefusalKind::Ast, true) => "source like a suite's",
            (RefusalKind::Ast, false) => "source like another's",
            (RefusalKind::Graph, true) => "graph like a suite's",
            (RefusalKind::Graph, false) => "graph like another's",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Copied { suite, task } = &self.copied;
        let of = suite.as_ref().map_or("this set".to_owned(), |suite| format!("suite `{suite}`"));
        let what = match self.kind {
            RefusalKind::SameGraph => {
                return write!(f, "it has the same operator graph as `{task}` of {of}");
            }
            RefusalKind::Ast => "source",
            RefusalKind::Graph => "operator graph",
        };
        write!(
            f,
            "its {what} is like `{task}` of {of}: {:.3}, over {:.3}",
            self.similarity, self.threshold
        )
    }
}
