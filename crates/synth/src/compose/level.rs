//! The difficulty of optimising a task.

use serde::{Deserialize, Serialize};

use crate::catalogue::{Class, Form};

/// Difficulty from 1, one simple pass over memory, to 5, a graph of several products and
/// reductions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Level(u8);

impl Level {
    /// The highest level.
    pub const MOST: Self = Self(5);

    /// `None` outside 1 to 5.
    pub fn new(level: u8) -> Option<Self> {
        (1..=Self::MOST.0).contains(&level).then_some(Self(level))
    }

    /// As a number.
    pub fn get(self) -> u8 {
        self.0
    }

    /// The level of a graph of these forms, in which `joins` steps take more than one value.
    ///
    /// Points:
    ///
    /// - one per operator after the first;
    /// - the effort of each kind of work ([`effort`]);
    /// - one per join, which keeps a value alive;
    /// - one if several operators read all of their input, because these do not fuse into one pass.
    ///
    /// The bounds were set so that sampled tasks spread over all levels.
    pub(super) fn of(forms: &[&Form], joins: usize) -> Self {
        let efforts: usize = forms.iter().map(|form| effort(form.class)).sum();
        let barriers = forms.iter().filter(|form| effort(form.class) > 0).count();
        let points = forms.len().saturating_sub(1) + efforts + joins + usize::from(barriers > 1);
        Self(match points {
            0..=1 => 1,
            2..=3 => 2,
            4..=6 => 3,
            7..=10 => 4,
            _ => 5,
        })
    }
}

/// Effort of a fast kernel for this kind of work: none for elementwise work, cooperating threads
/// for a reduction, tiles for a product.
fn effort(class: Class) -> usize {
    match class {
        Class::Elementwise | Class::Layout | Class::Gather => 0,
        Class::Reduction | Class::Pooling | Class::Resample | Class::Window | Class::Scatter => 1,
        Class::Normalisation | Class::Scan | Class::Pairwise => 2,
        Class::Product
        | Class::Convolution
        | Class::Sort
        | Class::Transform
        | Class::Factorisation => 3,
        Class::Attention | Class::Recurrent => 4,
    }
}
