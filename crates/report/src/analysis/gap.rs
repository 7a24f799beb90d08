//! How much of the gap between one policy and the fastest known kernels another policy closes.

use std::collections::BTreeMap;
use std::fmt::Write;

use comfy_table::Cell;
use serde::{Deserialize, Serialize};
use warpwright_record::interval::Interval;

use super::pool::Pool;
use super::{AnalysisError, VERSION, speedup_cell};
use crate::evaluation::gap::Gap;
use crate::evaluation::statistics::{Term, geometric};
use crate::evaluation::table::percent;
use crate::figures;
use crate::table::{right, style, trimmed};
use crate::text::one_line;

/// Two policies and the fastest known kernels, over the tasks that both policies were judged on.
/// Speed-ups are over the best baseline; an incorrect kernel counts as 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GapTable {
    /// Version of the serialised form.
    pub version: u32,
    /// The policy that the gap begins at.
    pub from: String,
    /// The policy that closes the gap.
    pub to: String,
    /// One per task, sorted by name.
    pub tasks: Vec<TaskGap>,
    /// Geometric-mean speed-up of `from`.
    pub from_speedup: Option<Interval>,
    /// Geometric-mean speed-up of `to`.
    pub to_speedup: Option<Interval>,
    /// Geometric-mean speed-up of the fastest known kernels.
    pub fastest_speedup: Option<Interval>,
    /// Geometric-mean speed-up of `to` over that of `from`, paired by task.
    pub ratio: Option<Interval>,
    /// The share of the gap that `to` closes.
    pub gap: Gap,
    /// Cost of each policy of the pool, sorted by name.
    pub costs: Vec<PolicyCost>,
}

/// Speed-ups of one task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskGap {
    /// The task.
    pub task: String,
    /// Geometric mean over the episodes of `from`.
    pub from: f64,
    /// Geometric mean over the episodes of `to`.
    pub to: f64,
    /// The fastest final kernel of any policy.
    pub fastest: f64,
}

/// The judged episodes of a policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyCost {
    /// The policy.
    pub policy: String,
    /// Number of episodes.
    pub episodes: u32,
    /// Turns, all episodes together.
    pub turns: u64,
    /// Seconds of judging, all episodes together.
    pub judge_seconds: f64,
}

impl GapTable {
    /// From the policy `from` to the policy `to`; [`Pool::policy`] finds both by name.
    ///
    /// # Errors
    /// [`AnalysisError::Policy`] and [`AnalysisError::NothingShared`].
    pub fn of(pool: &Pool<'_>, from: &str, to: &str) -> Result<Self, AnalysisError> {
        let (from, to) = (pool.policy(from)?, pool.policy(to)?);
        let finals = pool.finals();
        let (before, after) = (finals.means(pool.rows_of(from)), finals.means(pool.rows_of(to)));
        let shared = before.iter().filter_map(|(task, log)| {
            Some((*task, [*log, *after.get(task)?, finals.fastest(task)]))
        });
        let shared: Vec<(&str, [f64; 3])> = shared.collect();
        if shared.is_empty() {
            let (one, other) = (from.to_owned(), to.to_owned());
            return Err(AnalysisError::NothingShared { one, other });
        }
        let mean = |of: fn(&[f64; 3]) -> f64| {
            let terms: Vec<Term> = shared.iter().map(|(_, logs)| Term::counted(of(logs))).collect();
            geometric(&terms)
        };
        Ok(Self {
            version: VERSION,
            from: from.to_owned(),
            to: to.to_owned(),
            from_speedup: mean(|[from, _, _]| *from),
            to_speedup: mean(|[_, to, _]| *to),
            fastest_speedup: mean(|[_, _, fastest]| *fastest),
            ratio: mean(|[from, to, _]| to - from),
            gap: Gap::between(finals, pool.rows_of(from), pool.rows_of(to)),
            tasks: shared
                .iter()
                .map(|(task, logs)| {
                    let [from, to, fastest] = logs.map(f64::exp);
                    TaskGap { task: (*task).to_owned(), from, to, fastest }
                })
                .collect(),
            costs: costs(pool),
        })
    }

    /// The table as text for a terminal `width` columns wide.
    pub fn text(&self, width: Option<u16>) -> String {
        let speedup = |ratio: f64| right(Some(format!("{}x", figures::digits(ratio))));
        let mut grid = style(width);
        grid.set_header(["task", "from", "to", "fastest known"]);
        for task in &self.tasks {
            let cells = [speedup(task.from), speedup(task.to), speedup(task.fastest)];
            grid.add_row(std::iter::once(Cell::new(one_line(&task.task, 60))).chain(cells));
        }
        let mut text =
            format!("from: {}\nto: {}\n{grid}\n", one_line(&self.from, 80), one_line(&self.to, 80));
        let mut grid = style(width);
        grid.set_header([format!("{} tasks", self.gap.tasks), "geometric mean".to_owned()]);
        let rows = [
            ("from, over the best baseline", &self.from_speedup),
            ("to, over the best baseline", &self.to_speedup),
            ("fastest known, over the best baseline", &self.fastest_speedup),
            ("to over from", &self.ratio),
        ];
        for (name, interval) in rows {
            grid.add_row([Cell::new(name), speedup_cell(interval.as_ref())]);
        }
        let _ = writeln!(text, "{grid}");
        let closed = self.gap.closed.as_ref().map_or("none to close".to_owned(), percent);
        let _ = writeln!(
            text,
            "gap closed: {closed}, {} of {} tasks open",
            self.gap.open, self.gap.tasks
        );
        for cost in &self.costs {
            let _ = writeln!(
                text,
                "{}: {} episodes, {} turns, judging {}",
                one_line(&cost.policy, 80),
                cost.episodes,
                cost.turns,
                figures::seconds(cost.judge_seconds)
            );
        }
        text.push_str(
            "Intervals are 95 %, by bootstrap over tasks. A kernel that ended several episodes \
             counts with the mean of its measurements, an incorrect one as 1x.",
        );
        trimmed(&text)
    }
}

fn costs(pool: &Pool<'_>) -> Vec<PolicyCost> {
    let mut costs: BTreeMap<&str, PolicyCost> = BTreeMap::new();
    for row in pool.rows() {
        let cost = costs.entry(&row.policy).or_insert_with(|| PolicyCost {
            policy: row.policy.clone(),
            episodes: 0,
            turns: 0,
            judge_seconds: 0.0,
        });
        cost.episodes += 1;
        cost.turns += u64::from(row.turns);
        cost.judge_seconds += row.judge_seconds;
    }
    costs.into_values().collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::analysis::sample::{evaluation, row};
    use crate::evaluation::Evaluation;

    fn table(evaluations: &[Evaluation]) -> GapTable {
        GapTable::of(&Pool::of(evaluations).unwrap(), "from", "to").unwrap()
    }

    #[test]
    fn gap_table_matches_hand_computed_values() {
        let evaluations = [
            evaluation([
                row("from", "a", Some(2.0)),
                row("from", "b", None),
                row("from", "c", None),
            ]),
            evaluation([row("to", "a", Some(4.0)), row("to", "b", Some(2.0))]),
            evaluation([row("best", "a", Some(8.0)), row("best", "b", Some(2.0))]),
        ];
        let table = table(&evaluations);
        // In powers of two: from 1 and 0, to 2 and 1, fastest 3 and 1.
        let value = |interval: &Option<Interval>| interval.unwrap().value;
        assert!((value(&table.from_speedup) - 2f64.powf(0.5)).abs() < 1e-12);
        assert!((value(&table.to_speedup) - 2f64.powf(1.5)).abs() < 1e-12);
        assert!((value(&table.fastest_speedup) - 4.0).abs() < 1e-12);
        assert!((value(&table.ratio) - 2.0).abs() < 1e-12);
        assert!((value(&table.gap.closed) - 2.0 / 3.0).abs() < 1e-12);
        assert_eq!((table.gap.tasks, table.gap.open), (2, 2), "c was judged for one policy only");
        let first = &table.tasks[0];
        assert!((first.from - 2.0).abs() < 1e-12 && (first.fastest - 8.0).abs() < 1e-12);
        let costs: Vec<(&str, u32, u64)> =
            table.costs.iter().map(|c| (c.policy.as_str(), c.episodes, c.turns)).collect();
        assert_eq!(costs, [("best", 2, 6), ("from", 3, 9), ("to", 2, 6)]);
        let text = table.text(None);
        assert!(text.contains("gap closed: 66.7 %"), "{text}");
        assert!(text.contains("from: 3 episodes, 9 turns, judging 6.0 s"), "{text}");
    }

    #[test]
    fn kernel_counts_with_the_mean_of_its_measurements() {
        let same = |policy: &str, speedup| {
            let mut row = row(policy, "a", Some(speedup));
            row.candidate = Some("same kernel".to_owned());
            row
        };
        let evaluations = [evaluation([same("from", 2.0), same("to", 8.0)])];
        let table = table(&evaluations);
        assert!((table.tasks[0].from - 4.0).abs() < 1e-12);
        assert!((table.tasks[0].to - 4.0).abs() < 1e-12);
        assert!((table.tasks[0].fastest - 4.0).abs() < 1e-12, "not the luckiest measurement");
        assert_eq!(table.gap.closed, None);
    }

    #[test]
    fn policies_without_a_common_task_are_refused() {
        let evaluations = [evaluation([row("from", "a", Some(2.0)), row("to", "b", Some(2.0))])];
        let error = GapTable::of(&Pool::of(&evaluations).unwrap(), "from", "to").unwrap_err();
        let message = "failed to compare from with to: no task was judged for both";
        assert_eq!(error.to_string(), message);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        /// Equal gains on all tasks have an interval without width.
        #[test]
        fn interval_of_equal_values_is_their_mean(speedup in 1.1f64..4.0, tasks in 1usize..6) {
            let rows = (0..tasks).flat_map(|n| {
                let task = format!("t{n}");
                [row("from", &task, None), row("to", &task, Some(speedup))]
            });
            let table = table(&[evaluation(rows)]);
            let Interval { value, low, high } = table.to_speedup.unwrap();
            prop_assert!((value - speedup).abs() < 1e-9);
            prop_assert!((low - speedup).abs() < 1e-9 && (high - speedup).abs() < 1e-9);
            prop_assert!((table.gap.closed.unwrap().value - 1.0).abs() < 1e-9);
        }
    }
}
