//! The training steps of two runs, compared on the tasks that both trained on.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::{Deserialize, Serialize};
use warpwright_record::interval::Interval;

use super::VERSION;
use crate::evaluation::statistics::{Term, mean, ratio};
use crate::figures;
use crate::table::{right, style, trimmed};
use crate::text::one_line;

/// Number of training steps that a line of metrics averages.
const MEAN_OF: usize = 10;
/// Number of training steps that a difference is taken over.
const PAIRED_OVER: usize = 20;

/// The metrics of a training step that are compared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// Episodes of the step.
    pub episodes: u64,
    /// Episodes that were trained on.
    pub used: u64,
    /// Share of episodes that end with a verified candidate.
    pub pass_rate: f64,
    /// Share of episodes whose candidate is faster than eager.
    pub faster_rate: f64,
    /// Mean reward.
    pub reward: f64,
    /// Share of the tasks that are zero-variance groups.
    pub zero_variance_share: f64,
    /// Mean number of sampled tokens per episode.
    pub response_tokens: f64,
    /// Seconds of the rollouts and of the update.
    pub seconds: f64,
    /// Verdicts that were measured.
    pub measured: u64,
    /// Verdicts that came from the verdict cache.
    pub cached: u64,
    /// By task, the mean reward of its episodes.
    pub rewards: BTreeMap<usize, f64>,
}

/// Two runs, and the differences of their rewards. Both need the same tasks in the same order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepsTable {
    /// Version of the serialised form.
    pub version: u32,
    /// The two runs.
    pub runs: [RunSteps; 2],
    /// For every 20 steps in which both runs played the same tasks.
    pub differences: Vec<RewardDifference>,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunSteps {
    /// The file or folder of the run.
    pub run: String,
    /// Episodes of all steps.
    pub episodes: u64,
    /// Episodes that were trained on.
    pub used: u64,
    /// Verdicts that were requested.
    pub verdicts: u64,
    /// Of these, those that were measured; the others came from the cache.
    pub measured: u64,
    /// Means over every ten steps.
    pub parts: Vec<StepsPart>,
}

/// Means over some training steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepsPart {
    /// Number of the first step, from 1.
    pub first: u32,
    /// Number of the last step.
    pub last: u32,
    /// Share of verified episodes.
    pub pass_rate: f64,
    /// Share of faster episodes.
    pub faster_rate: f64,
    /// Reward.
    pub reward: f64,
    /// Share of zero-variance groups.
    pub zero_variance_share: f64,
    /// Sampled tokens per episode.
    pub response_tokens: f64,
    /// Seconds per step.
    pub seconds: f64,
}

/// The reward of the second run minus that of the first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RewardDifference {
    /// Number of the first step, from 1.
    pub first: u32,
    /// Number of the last step.
    pub last: u32,
    /// Tasks that both runs played in these steps.
    pub tasks: u32,
    /// Mean over these tasks.
    pub reward: Interval,
}

impl StepsTable {
    /// Compares two runs, each with a name and its training steps.
    pub fn of(runs: [(&str, &[Step]); 2]) -> Self {
        let [(_, before), (_, after)] = runs;
        let shortest = before.len().min(after.len());
        let differences = (0..shortest).step_by(PAIRED_OVER).filter_map(|first| {
            let last = shortest.min(first + PAIRED_OVER);
            difference(first, &before[first..last], &after[first..last])
        });
        Self {
            version: VERSION,
            differences: differences.collect(),
            runs: runs.map(|(run, steps)| RunSteps::of(run, steps)),
        }
    }

    /// The table as text for a terminal `width` columns wide.
    pub fn text(&self, width: Option<u16>) -> String {
        let mut text = String::new();
        for run in &self.runs {
            let _ = writeln!(
                text,
                "{}: {} episodes, {} trained on; {} verdicts requested, {} measured",
                one_line(&run.run, 80),
                run.episodes,
                run.used,
                run.verdicts,
                run.measured
            );
            let mut grid = style(width);
            grid.set_header([
                "steps",
                "pass rate",
                "faster rate",
                "reward",
                "zero-variance groups",
                "response tokens",
                "time per step",
            ]);
            for part in &run.parts {
                grid.add_row(
                    [
                        format!("{} to {}", part.first, part.last),
                        format!("{:.1} %", 100.0 * part.pass_rate),
                        format!("{:.1} %", 100.0 * part.faster_rate),
                        format!("{:.2}", part.reward),
                        format!("{:.0} %", 100.0 * part.zero_variance_share),
                        format!("{:.0}", part.response_tokens),
                        figures::seconds(part.seconds),
                    ]
                    .map(|cell| right(Some(cell))),
                );
            }
            let _ = writeln!(text, "{grid}");
        }
        for RewardDifference { first, last, tasks, reward } in &self.differences {
            let _ = writeln!(
                text,
                "steps {first} to {last}, {tasks} tasks: reward, second minus first: \
                 {:+.3} [{:+.3}, {:+.3}]",
                reward.value, reward.low, reward.high
            );
        }
        if self.differences.is_empty() {
            text.push_str("The runs have no task in common in the same steps.\n");
        }
        text.push_str("Intervals are 95 %, by bootstrap over paired tasks.");
        trimmed(&text)
    }
}

impl RunSteps {
    fn of(run: &str, steps: &[Step]) -> Self {
        let sum = |of: fn(&Step) -> u64| steps.iter().map(of).sum::<u64>();
        let parts = steps.chunks(MEAN_OF).enumerate();
        Self {
            run: run.to_owned(),
            episodes: sum(|step| step.episodes),
            used: sum(|step| step.used),
            verdicts: sum(|step| step.measured + step.cached),
            measured: sum(|step| step.measured),
            parts: parts.map(|(n, part)| StepsPart::of(n * MEAN_OF, part)).collect(),
        }
    }
}

impl StepsPart {
    /// Of the steps after the first `before` ones.
    fn of(before: usize, steps: &[Step]) -> Self {
        let mean = |of: fn(&Step) -> f64| {
            mean(&steps.iter().map(of).collect::<Vec<_>>()).unwrap_or_default()
        };
        Self {
            first: before as u32 + 1,
            last: (before + steps.len()) as u32,
            pass_rate: mean(|step| step.pass_rate),
            faster_rate: mean(|step| step.faster_rate),
            reward: mean(|step| step.reward),
            zero_variance_share: mean(|step| step.zero_variance_share),
            response_tokens: mean(|step| step.response_tokens),
            seconds: mean(|step| step.seconds),
        }
    }
}

/// Over the steps after the first `begin` ones; `None` if no task is in both.
fn difference(begin: usize, before: &[Step], after: &[Step]) -> Option<RewardDifference> {
    let (rewards, others) = (by_task(before), by_task(after));
    let pairs = rewards.iter().filter_map(|(task, reward)| Some(others.get(task)? - reward));
    let terms: Vec<Term> = pairs.map(Term::counted).collect();
    Some(RewardDifference {
        first: begin as u32 + 1,
        last: (begin + before.len()) as u32,
        tasks: terms.len() as u32,
        reward: ratio(&terms)?,
    })
}

/// Each task's mean reward over the steps that it was played in.
fn by_task(steps: &[Step]) -> BTreeMap<usize, f64> {
    let mut rewards: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for (task, reward) in steps.iter().flat_map(|step| &step.rewards) {
        rewards.entry(*task).or_default().push(*reward);
    }
    rewards.into_iter().filter_map(|(task, rewards)| Some((task, mean(&rewards)?))).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn step(rewards: &[(usize, f64)]) -> Step {
        Step {
            episodes: 8,
            used: 6,
            pass_rate: 0.5,
            reward: rewards.iter().map(|(_, reward)| reward).sum::<f64>() / rewards.len() as f64,
            measured: 3,
            cached: 4,
            rewards: rewards.iter().copied().collect(),
            ..Step::default()
        }
    }

    #[test]
    fn rewards_are_paired_by_task() {
        let before = vec![step(&[(0, 1.0), (1, 0.0)]), step(&[(0, 0.0), (2, 5.0)])];
        let after = vec![step(&[(0, 1.5), (1, 1.0)]), step(&[(3, 9.0)]), step(&[(2, 9.0)])];
        let table = StepsTable::of([("a", &before), ("b", &after)]);
        // Task 0: 1.5 minus the mean of 1 and 0. Task 1: 1 minus 0. The third step is in one run only.
        let [difference] = &table.differences[..] else { unreachable!("one part of 20 steps") };
        assert_eq!((difference.first, difference.last, difference.tasks), (1, 2, 2));
        let Interval { value, low, high } = difference.reward;
        assert!(
            (value - 1.0).abs() < 1e-12 && (low - 1.0).abs() < 1e-12 && (high - 1.0).abs() < 1e-12
        );
        let [first, second] = &table.runs;
        assert_eq!((first.episodes, first.used, first.verdicts, first.measured), (16, 12, 14, 6));
        assert_eq!((second.parts.len(), second.parts[0].first, second.parts[0].last), (1, 1, 3));
        let text = table.text(None);
        let line = "steps 1 to 2, 2 tasks: reward, second minus first: +1.000 [+1.000, +1.000]";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn metrics_are_averaged_over_ten_steps() {
        let steps: Vec<Step> = (0..12).map(|n| step(&[(0, f64::from(n))])).collect();
        let table = StepsTable::of([("a", &steps), ("b", &[])]);
        let [run, empty] = &table.runs;
        let spans: Vec<(u32, u32)> = run.parts.iter().map(|part| (part.first, part.last)).collect();
        assert_eq!(spans, [(1, 10), (11, 12)]);
        assert!((run.parts[0].reward - 4.5).abs() < 1e-12);
        assert!((run.parts[1].reward - 10.5).abs() < 1e-12);
        assert!(empty.parts.is_empty() && table.differences.is_empty());
        assert!(table.text(None).contains("no task in common"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        /// A run does not differ from itself, and one that is better by a constant is so everywhere.
        #[test]
        fn constant_difference_has_no_width(
            rewards in prop::collection::vec(-1.0f64..3.0, 1..8), shift in -1.0f64..1.0
        ) {
            let run = |shift: f64| {
                let rewards: Vec<(usize, f64)> =
                    rewards.iter().map(|reward| reward + shift).enumerate().collect();
                vec![step(&rewards)]
            };
            let table = StepsTable::of([("a", &run(0.0)), ("b", &run(shift))]);
            let Interval { value, low, high } = table.differences[0].reward;
            for end in [value, low, high] {
                prop_assert!((end - shift).abs() < 1e-9);
            }
        }
    }
}
