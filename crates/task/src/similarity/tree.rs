//! Trees of labels.

use super::operators::is_commutative;
use super::{label_hash, then};

/// What a node is to the statement it is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The use of an operator: a step of its own.
    Step,
    /// Part of a step: a tuple, a keyword, a slice.
    Part,
    /// Code with steps of its own: a branch, a comprehension, a lambda.
    Block,
}

/// An ordered tree of labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tree {
    pub(crate) kind: Kind,
    pub(crate) label: String,
    pub(crate) children: Vec<Tree>,
    /// Of the label and the children's hashes: an order without walking the tree.
    hash: u64,
}

/// A value that code computes.
pub(crate) const VALUE: &str = "value";
/// A value that is written down or given to `__init__`: a number, a text, a size.
pub(crate) const CONSTANT: &str = "constant";

impl Tree {
    /// Operands that may change places are put in one order.
    fn new(kind: Kind, label: String, mut children: Vec<Self>) -> Self {
        if children.len() == 2 && is_commutative(&label) {
            children.sort_by_key(|child| child.hash);
        }
        let hash = children.iter().map(|child| child.hash).fold(label_hash(&label), then);
        Self { kind, label, children, hash }
    }

    pub(crate) fn step(label: impl Into<String>, children: Vec<Self>) -> Self {
        Self::new(Kind::Step, label.into(), children)
    }

    pub(crate) fn part(label: impl Into<String>, children: Vec<Self>) -> Self {
        Self::new(Kind::Part, label.into(), children)
    }

    pub(crate) fn block(label: impl Into<String>, children: Vec<Self>) -> Self {
        Self::new(Kind::Block, label.into(), children)
    }

    pub(crate) fn value() -> Self {
        Self::part(VALUE, Vec::new())
    }

    pub(crate) fn constant() -> Self {
        Self::part(CONSTANT, Vec::new())
    }

    pub(crate) fn is_constant(&self) -> bool {
        self.children.is_empty() && self.label == CONSTANT
    }

    /// Whether it says nothing as a statement: `return x`, `identity = x`, `self.size = size`.
    pub(crate) fn is_plain(&self) -> bool {
        self.children.is_empty() && (self.label == VALUE || self.label == CONSTANT)
    }

    /// One step after the other: `a(b(x))` as `b(x)` and `a(value)`, which is what it says when it is
    /// written in two statements.
    pub(crate) fn steps(mut self, out: &mut Vec<Self>) {
        if self.kind != Kind::Block {
            for child in &mut self.children {
                child.lift_steps(out);
            }
            // Operands became values, which may change their order.
            self = Self::new(self.kind, self.label, self.children);
        }
        out.push(self);
    }

    fn lift_steps(&mut self, out: &mut Vec<Self>) {
        match self.kind {
            Kind::Step => std::mem::replace(self, Self::value()).steps(out),
            Kind::Part => self.children.iter_mut().for_each(|child| child.lift_steps(out)),
            Kind::Block => {}
        }
    }
}
