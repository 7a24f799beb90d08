//! Why a task is not kept.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// By which measure a task is a copy.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum RefusalKind {
    /// The same operator graph, whatever its shapes.
    SameGraph,
    /// A source over the threshold.
    Ast,
    /// A graph over the threshold.
    Graph,
}

/// Of what a task is a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Copied {
    /// The suite, or `None` for the set itself.
    pub suite: Option<String>,
    /// The task.
    pub task: String,
}

/// Why a task is not kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Refusal {
    /// By which measure.
    pub kind: RefusalKind,
    /// Of what it is a copy.
    pub copied: Copied,
    /// How alike the two are by that measure.
    pub similarity: f64,
    /// How alike they may be.
    pub threshold: f64,
    /// How alike the sources of the two are.
    pub ast: f64,
    /// How alike the graphs of the two are, where both have one.
    pub graph: Option<f64>,
}

impl Refusal {
    /// In a few words, the same for all refusals of a kind: what refusals are counted by.
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
