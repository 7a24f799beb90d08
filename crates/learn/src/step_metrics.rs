//! The metrics of a run's training steps.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use warpwright_record::history;
use warpwright_record::message::StopReason;

use crate::moments::mean;
use crate::rollouts::Judged;
use crate::update::Report;

/// Metrics of a training step and of its episodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Update {
    /// Its number, from 0.
    pub number: u32,
    /// Episodes that ended with an infrastructure failure; they are not trained on.
    pub failed: usize,
    /// Share of the other episodes that end with a verified candidate.
    pub pass_rate: f64,
    /// Share of the other episodes whose candidate is faster than eager by its reward (`paper`, 2 or more).
    pub faster_rate: f64,
    /// Share of the other episodes in which a message reached `max_new_tokens`.
    pub truncated_rate: f64,
    /// Mean number of turns.
    pub turns: f64,
    /// Mean number of tokens that the policy sampled per episode.
    pub response_tokens: f64,
    /// By task, the mean reward of its episodes.
    #[serde(default)]
    pub rewards: BTreeMap<usize, f64>,
    /// By task, the mean entropy of its episodes, nats per action.
    #[serde(default)]
    pub entropies: BTreeMap<usize, f64>,
    /// The policy's learning rate.
    pub lr: f64,
    /// Metrics of the update.
    pub report: Report,
    /// Use of the judge by the step's episodes.
    #[serde(default)]
    pub judged: Judged,
    /// Seconds of the rollouts.
    pub play_seconds: f64,
    /// Seconds of the update.
    pub learn_seconds: f64,
}

impl Update {
    /// KL divergence between the policies before and after the training step, nats per episode.
    /// `None` if the policy was not trained.
    pub fn kl_per_episode(&self) -> Option<f64> {
        let actions = self.report.actions as f64 / self.report.used.max(1) as f64;
        Some(self.report.update_ratios?.kl * actions)
    }

    /// Averages the report's entropies of episodes by task.
    pub(crate) fn tell_entropies(&mut self, task_of: impl Fn(usize) -> usize) {
        let mut by_task: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for (episode, entropy) in std::mem::take(&mut self.report.entropies) {
            by_task.entry(task_of(episode)).or_default().push(entropy);
        }
        self.entropies = by_task.into_iter().map(|(task, all)| (task, mean(&all))).collect();
    }

    pub(crate) fn tell_of<'e>(&mut self, episodes: impl Iterator<Item = &'e history::Episode>) {
        let mut count = 0.0;
        for episode in episodes {
            count += 1.0;
            let verdict = episode.end.as_ref().and_then(|end| end.final_verdict.as_ref());
            self.pass_rate += f64::from(verdict.is_some_and(|v| v.verified));
            self.faster_rate += f64::from(verdict.is_some_and(|v| v.reward.paper >= 2.0));
            let is_cut = |turn: &history::Turn| turn.message.stop == StopReason::Length;
            self.truncated_rate += f64::from(episode.turns.iter().any(is_cut));
            self.turns += episode.turns.len() as f64;
            let generations = episode.turns.iter().filter_map(|t| t.message.generation.as_ref());
            self.response_tokens += generations.map(|g| g.usage.output_tokens as f64).sum::<f64>();
        }
        for mean in [
            &mut self.pass_rate,
            &mut self.faster_rate,
            &mut self.truncated_rate,
            &mut self.turns,
            &mut self.response_tokens,
        ] {
            *mean /= f64::max(count, 1.0);
        }
    }
}

/// Mean rewards of the first and of the last fifth of the training steps, weighted by episodes.
/// `None` before the first step.
pub fn first_and_last(updates: &[Update]) -> Option<(f64, f64)> {
    let fifth = updates.len().div_ceil(5);
    let mean = |updates: &[Update]| {
        let count: usize = updates.iter().map(|update| update.report.episodes).sum();
        let sum: f64 = updates.iter().map(|u| u.report.reward * u.report.episodes as f64).sum();
        (count > 0).then(|| sum / count as f64)
    };
    Some((mean(&updates[..fifth])?, mean(&updates[updates.len() - fifth..])?))
}
