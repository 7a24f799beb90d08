//! Scores of final kernels. Several episodes can end with the same kernel.

use std::collections::BTreeMap;

use super::rows::{Row, RowState};
use super::scores::Shot;
use super::statistics::mean;

/// The final kernels of judged rows, with their scores.
///
/// The score of a kernel is its log-speed-up over the best baseline: the mean over its
/// measurements, whichever policy wrote it. A single measurement is noisy, so the fastest of many
/// would be the luckiest.
#[derive(Clone, Debug, Default)]
pub struct Finals<'a> {
    /// By task and hash of the kernel.
    kernels: BTreeMap<(&'a str, &'a str), f64>,
}

impl<'a> Finals<'a> {
    /// Scores the final kernels of `rows`. Unjudged and unverified rows have no score.
    pub fn of(rows: impl IntoIterator<Item = &'a Row>) -> Self {
        let mut logs: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
        for row in rows {
            if let (Some(log), Some(kernel)) = (measured(row), row.candidate.as_deref()) {
                logs.entry((&row.task, kernel)).or_default().push(log);
            }
        }
        let means = logs.into_iter().filter_map(|(kernel, logs)| Some((kernel, mean(&logs)?)));
        Self { kernels: means.collect() }
    }

    /// The score of a row: that of its final kernel, 0 if the kernel is not verified. A kernel that
    /// is not among the known ones has its own measurement.
    pub fn score(&self, row: &Row) -> f64 {
        let Some(own) = measured(row) else { return 0.0 };
        let known = row.candidate.as_deref().map(|kernel| (row.task.as_str(), kernel));
        known.and_then(|key| self.kernels.get(&key)).copied().unwrap_or(own)
    }

    /// The mean score of each task over its judged rows.
    pub fn means<'r>(&self, rows: impl IntoIterator<Item = &'r Row>) -> BTreeMap<&'r str, f64> {
        let mut sums: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
        for row in rows.into_iter().filter(|row| row.state == RowState::Judged) {
            let (sum, count) = sums.entry(&row.task).or_default();
            *sum += self.score(row);
            *count += 1.0;
        }
        sums.into_iter().map(|(task, (sum, count))| (task, sum / count)).collect()
    }

    /// The highest score of a task; at least 0, the score of the best baseline.
    pub fn fastest(&self, task: &str) -> f64 {
        let of_task = self.kernels.iter().filter(|((known, _), _)| *known == task);
        of_task.map(|(_, score)| *score).fold(0.0, f64::max)
    }
}

/// The log-speed-up of a judged row's final kernel over the best baseline. `None` if it is not
/// verified or was not timed.
fn measured(row: &Row) -> Option<f64> {
    if row.state == RowState::Judged { Shot::last(row).log(|m| m.best) } else { None }
}
