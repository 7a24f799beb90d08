//! The episodes of a run, and the order in which they start.

use std::cmp::Reverse;
use std::collections::VecDeque;

use warpwright_record::event::EpisodeId;

use crate::settings::Settings;

/// One episode of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Its number within the run.
    pub id: EpisodeId,
    /// Index of the task.
    pub task: usize,
    /// Index of the policy.
    pub policy: usize,
    /// Number of the attempt, from 0.
    pub attempt: u32,
}

/// Every episode of a run, in order.
pub fn plan(settings: &Settings) -> VecDeque<Planned> {
    let mut plan = VecDeque::new();
    for task in 0..settings.tasks.len() {
        for policy in 0..settings.policies.len() {
            for attempt in 0..settings.attempts {
                plan.push_back(Planned { id: EpisodeId(plan.len() as u32), task, policy, attempt });
            }
        }
    }
    plan
}

/// Sorts the episodes in the order in which they start. Higher levels take longest: started last,
/// one of them would keep the other devices idle.
pub fn schedule(plan: &mut VecDeque<Planned>, level: impl Fn(usize) -> Option<u8>) {
    plan.make_contiguous().sort_by_key(|planned| Reverse(level(planned.task)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn higher_levels_start_first_and_ties_keep_their_order() {
        let levels = [Some(1), Some(3), None, Some(3), Some(2)];
        let planned = |task| Planned { id: EpisodeId(task as u32), task, policy: 0, attempt: 0 };
        let mut plan: VecDeque<_> = (0..levels.len()).map(planned).collect();
        schedule(&mut plan, |task| levels[task]);
        let order: Vec<usize> = plan.iter().map(|planned| planned.task).collect();
        assert_eq!(order, [1, 3, 4, 0, 2]);
    }
}
