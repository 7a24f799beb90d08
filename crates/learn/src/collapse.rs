//! Detects a collapsed training run, by criteria fixed before the run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::monitor::Alarm;
use crate::run_monitor::Update;

/// The lowest possible reward.
const WORST: f64 = -1.0;

/// Criteria of a collapse.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Collapse {
    /// Reward collapse: the mean reward's distance from the lowest possible reward is below this
    /// share of its best so far...
    pub reward_share: f64,
    /// ...for this many consecutive training steps.
    pub training_steps: usize,
    /// Truncation collapse: more than this share of the episodes has a message that reached
    /// `max_new_tokens`.
    pub truncated_rate: f64,
    /// Alarm collapse: the same alarm is raised in this many consecutive training steps.
    pub alarms: usize,
}

impl Default for Collapse {
    fn default() -> Self {
        Self { reward_share: 0.5, training_steps: 10, truncated_rate: 0.25, alarms: 10 }
    }
}

/// How a run collapsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum Collapsed {
    /// The mean reward stayed low.
    Reward {
        /// The training step at which the criterion was met, from 0.
        at: u32,
    },
    /// Messages were truncated.
    Truncated {
        /// The first such training step, from 0.
        at: u32,
    },
    /// An alarm did not clear.
    Alarm {
        /// The training step at which the criterion was met, from 0.
        at: u32,
        /// The alarm.
        alarm: Alarm,
    },
}

impl Collapse {
    /// The first collapse of a run, if any. A run whose rate of truncated messages is above the
    /// limit at the first training step never collapses by truncation.
    pub fn of(&self, updates: &[Update]) -> Option<Collapsed> {
        let (mut best, mut low) = (f64::NEG_INFINITY, 0);
        let mut raised: Vec<(Alarm, usize)> = Vec::new();
        let cut_at_first =
            updates.first().is_some_and(|update| update.truncated_rate > self.truncated_rate);
        for update in updates {
            let at = update.number;
            let report = &update.report;
            best = best.max(report.reward);
            // A reward of NaN counts as low.
            let is_low = (report.reward - WORST) < self.reward_share * (best - WORST);
            low = if is_low || !report.reward.is_finite() { low + 1 } else { 0 };
            if low >= self.training_steps {
                return Some(Collapsed::Reward { at });
            }
            if update.truncated_rate > self.truncated_rate && !cut_at_first {
                return Some(Collapsed::Truncated { at });
            }
            raised.retain(|(alarm, _)| report.alarms.contains(alarm));
            for alarm in &report.alarms {
                match raised.iter_mut().find(|(known, _)| known == alarm) {
                    Some((_, times)) => *times += 1,
                    None => raised.push((*alarm, 1)),
                }
            }
            if let Some((alarm, _)) = raised.iter().find(|(_, times)| *times >= self.alarms) {
                return Some(Collapsed::Alarm { at, alarm: *alarm });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::update::Report;

    fn run(rewards: &[f64]) -> Vec<Update> {
        let each = rewards.iter().zip(0u32..).map(|(reward, number)| Update {
            number,
            report: Report { reward: *reward, ..Report::default() },
            ..Update::default()
        });
        each.collect()
    }

    #[test]
    fn reward_collapse_needs_consecutive_low_steps() {
        let rule = Collapse { training_steps: 3, ..Collapse::default() };
        // From the worst one on, -0.3 is less than half of 0.5.
        assert_eq!(rule.of(&run(&[0.0, 0.5, -0.3, -0.4, -0.3])), Some(Collapsed::Reward { at: 4 }));
        assert_eq!(rule.of(&run(&[0.0, 0.5, -0.3, -0.4, -0.2, -0.9, -0.9])), None);
        assert_eq!(rule.of(&run(&[-0.9, -0.95, -0.95, -0.95])), None, "it was never better");
        let lost = [0.5, f64::NAN, f64::NAN, f64::NAN];
        assert_eq!(rule.of(&run(&lost)), Some(Collapsed::Reward { at: 3 }));
    }

    #[test]
    fn truncation_and_persistent_alarms_are_collapses() {
        let rule = Collapse { alarms: 2, ..Collapse::default() };
        let mut cut = run(&[0.1; 4]);
        cut[2].truncated_rate = 0.3;
        assert_eq!(rule.of(&cut), Some(Collapsed::Truncated { at: 2 }));
        cut[0].truncated_rate = 0.3;
        assert_eq!(rule.of(&cut), None, "it began so");
        let mut alarmed = run(&[0.1; 5]);
        for (at, alarm) in [(0, Alarm::Divergence), (2, Alarm::Divergence), (3, Alarm::MeanRatio)] {
            alarmed[at].report.alarms = vec![alarm];
        }
        assert_eq!(rule.of(&alarmed), None);
        alarmed[4].report.alarms = vec![Alarm::Clipping, Alarm::MeanRatio];
        let expected = Collapsed::Alarm { at: 4, alarm: Alarm::MeanRatio };
        assert_eq!(rule.of(&alarmed), Some(expected));
    }
}
