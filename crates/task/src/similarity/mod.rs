//! Similarity of two tasks, by two complementary measures.
//!
//! * [`AstProfile`]: the source of `Model` with names, constants, shapes, docstrings and annotations
//!   abstracted and the names of operators kept, compared by pq-grams. It needs nothing but the
//!   source, and is 1 for tasks that differ in names and constants only.
//! * [`OpGraph`]: the traced operator graph. Two tasks that are written differently and compute the
//!   same have the same graph, and its [`OpGraph::canonical_hash`] knows no shapes.
//!
//! Both are reduced to a [`Bag`] of 64-bit features and compared by Dice's coefficient. Where there are
//! thousands of tasks, [`LshIndex`] proposes candidate pairs (MinHash with banding), which are then compared
//! exactly.
//!
//! `docs/concepts/decontamination.md` describes the abstraction.

mod bag;
mod graph;
mod minhash;
mod normalise;
mod operators;
mod pq_grams;
mod reachable;
mod state;
mod trace;
mod tree;

pub use bag::Bag;
pub use graph::{GraphError, OpGraph, OpNode};
pub use minhash::{Banding, LshIndex, MinHasher};
pub use operators::binary as infix_name;
pub use trace::TraceError;

use crate::facts::deep::on_deep_stack;
use crate::facts::error::{TaskError, TaskErrorKind};
use crate::limits::MAX_SOURCE_BYTES;
use crate::task::Task;

/// The pq-grams of a task's normalised `Model`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AstProfile {
    bag: Bag,
}

impl AstProfile {
    /// Of the class `Model` in `source` and of the functions and classes beside it that `Model` reaches.
    /// Where `Model` is made by assignment, every definition of the module counts.
    ///
    /// # Errors
    ///
    /// If the source is not Python, is too large, or has no `Model`.
    pub fn of(source: &str) -> Result<Self, TaskError> {
        let trees = forest(source)?;
        Ok(Self { bag: trees.into() })
    }

    /// Of a task; the error names where it came from.
    pub fn of_task(task: &Task) -> Result<Self, TaskError> {
        Self::of(&task.source).map_err(|error| match &task.origin {
            Some(path) => error.of(path),
            None => error.of(std::path::Path::new(&task.name)),
        })
    }

    /// Dice's coefficient of the two bags of pq-grams, in \[0, 1\]: 1 minus the pq-gram distance of
    /// Augsten, Böhlen and Gamper (VLDB 2005). 1 where the sources differ in names and constants only.
    pub fn similarity(&self, other: &Self) -> f64 {
        self.bag.dice(&other.bag)
    }

    /// The features, for an index.
    pub fn bag(&self) -> &Bag {
        &self.bag
    }
}

/// The pq-grams of a source, on a stack that is deep enough for any nesting.
fn forest(source: &str) -> Result<Vec<u64>, TaskError> {
    if source.len() > MAX_SOURCE_BYTES {
        return Err(TaskErrorKind::TooLarge { bytes: source.len() }.into());
    }
    on_deep_stack(|| normalise::forest(source).map(|trees| pq_grams::grams(&trees)))
        .unwrap_or(Err(TaskErrorKind::Unreadable))
        .map_err(Into::into)
}

/// A stable 64-bit hash of a label: the first bytes of its BLAKE3.
fn label_hash(label: &str) -> u64 {
    let bytes = *blake3::hash(label.as_bytes()).as_bytes();
    u64::from_le_bytes([
        bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7],
    ])
}

/// Spreads a 64-bit value: the finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A hash of a sequence, from that of its beginning and the next element.
fn then(hash: u64, next: u64) -> u64 {
    mix(mix(hash).wrapping_add(next))
}
