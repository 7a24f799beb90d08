//! How much of a verdict's effort falls on one session: all of it, or the share of one of several workloads.
//!
//! The speed-up of a task with several workloads is their geometric mean. With `n` workloads, intervals of each may
//! be `sqrt(n)` times as wide as a single one's, and that of the mean is as narrow. So windows are shorter and fewer
//! calls are compared.

use warpwright_record::inputs::InputFamily;

/// Workloads up to which each gets all of the effort.
const WHOLE: f64 = 2.0;
/// Least part of it: shorter windows would be mostly the noise of their ends.
const LEAST: f64 = 0.25;

/// The share of one session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Share {
    /// Families to verify on, besides the task's own inputs; `None` for all that the task allows.
    pub(crate) families: Option<Vec<InputFamily>>,
}

impl Share {
    /// Whether calls are verified on a family.
    pub(crate) fn has(&self, family: InputFamily) -> bool {
        self.families.as_ref().is_none_or(|families| families.contains(&family))
    }
}

/// The part of the usual effort that each of `of` workloads gets.
pub(crate) fn part(of: usize) -> f64 {
    (WHOLE / of.max(1) as f64).clamp(LEAST, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_workloads_cost_at_most_twice_as_much() {
        for (of, all) in [(1, 1.0), (2, 2.0), (3, 2.0), (5, 2.0), (8, 2.0), (64, 16.0)] {
            assert!((of as f64 * part(of) - all).abs() < 1e-9, "{of}");
        }
    }
}
