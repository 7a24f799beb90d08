//! One training step from a batch of episodes.
//!
//! ```text
//! episodes ─► Batch ─► engine scores ─► advantages, targets ─► backward ─► optimizer steps ─► Report
//! ```
//!
//! [`Algorithm`] names the algorithms: PPO with a critic, RLOO and GRPO without one, and rejection
//! sampling. All take the same episodes and give the same report, so that a run can swap one for
//! another.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::actions::Actions;
use crate::advantage::{gae, value_targets};
use crate::batch::{Batch, Episode, Unusable};
use crate::engine::{Engine, Loss, Row, Scores, Step, Which};
use crate::group::{deviation, grpo, is_zero_variance, rloo};
use crate::losses::{Logprobs, PolicyLoss, Term};
use crate::moments::mean;
use crate::monitor::{Alarm, Ratios, alarms, explained_variance};
use crate::recipe::Recipe;
use crate::whiten::whiten;

/// The algorithm that updates a policy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Algorithm {
    /// PPO over many turns, with a critic.
    Ppo {
        /// The hyperparameters.
        recipe: Recipe,
        /// Optimizer steps of the critic per step of the policy; two in SAO (arXiv 2607.07508).
        critic_steps_per_step: u32,
        /// Whether only the critic is trained; SAO begins with ten such training steps.
        critic_only: bool,
    },
    /// Compares the episodes of a task with each other, without a critic.
    Group {
        /// The comparison.
        by: Comparison,
        /// The policy's loss.
        loss: PolicyLoss,
    },
    /// Maximises the likelihood of episodes with a reward above `above`.
    Rejection {
        /// 0 in the paper.
        above: f64,
    },
}

/// How the episodes of a task are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Comparison {
    /// The reward minus the mean of the others' (RLOO).
    Rloo,
    /// The reward minus the group's mean, in standard deviations (GRPO).
    Grpo,
}

/// Optimizer steps of a training step, and the groups that they use.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Steps {
    /// Step of the policy.
    pub policy: Step,
    /// Step of the critic, if it has weights of its own; else it is trained with the policy.
    pub critic: Step,
    /// Minibatches of a batch; the policy takes one step per minibatch. 1 in the paper.
    pub minibatches: usize,
    /// Passes over the minibatches, as in PPO (arXiv 1707.06347). 1 in the paper.
    pub epochs: usize,
    /// A task is a zero-variance group if no two rewards of its episodes differ by more: noise of the timing
    /// measurement is not a signal.
    pub zero_variance_tolerance: f64,
}

/// Probability of a rare action.
pub const RARE: f64 = 0.05;

/// Metrics of a training step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Episodes in the batch.
    pub episodes: usize,
    /// Episodes that were trained on.
    pub used: usize,
    /// Actions of the episodes that were trained on.
    pub actions: usize,
    /// Mean reward of all episodes.
    pub reward: f64,
    /// Share of the tasks that are zero-variance groups ([`Steps::zero_variance_tolerance`]).
    pub zero_variance_share: f64,
    /// Standard deviation of the rewards within a task, mean over tasks.
    pub reward_std: f64,
    /// Mean entropy of the policy's distribution per action, nats.
    pub entropy: f64,
    /// Mean entropy of each scored episode, by its number in the batch.
    #[serde(skip)]
    pub entropies: Vec<(usize, f64)>,
    /// The policy's loss, mean of its steps.
    pub loss: f64,
    /// Norm of the policy's gradients, mean of its steps.
    pub grad_norm: f64,
    /// The critic's loss, mean of its steps.
    pub value_loss: Option<f64>,
    /// Share of the returns' variance that the critic explained before this update.
    pub explained_variance: Option<f64>,
    /// Importance ratios of the trainer to the sampler before the update.
    pub rollout_ratios: Option<Ratios>,
    /// The same of actions with a sampling probability of at most [`RARE`].
    pub rare_rollout_ratios: Option<Ratios>,
    /// Importance ratios of the policy after the update to the policy before.
    pub update_ratios: Option<Ratios>,
    /// Alarms that the training step raises.
    pub alarms: Vec<Alarm>,
}

/// Why a training step failed.
#[derive(Debug, Error)]
pub enum UpdateError<E: std::error::Error + 'static> {
    /// An episode cannot be used.
    #[error(transparent)]
    Episode(#[from] Unusable),
    /// The engine failed; its accumulated gradients are discarded.
    #[error(transparent)]
    Engine(E),
    /// PPO without a critic.
    #[error("failed to update: the engine has no critic and no value head")]
    NoValues,
    /// Only the critic is to be trained, but it shares the policy's weights.
    #[error("failed to update the critic alone: it has no weights of its own")]
    SharedTrunk,
}

/// Makes one training step.
pub fn update<E: Engine>(
    engine: &mut E,
    algorithm: &Algorithm,
    steps: &Steps,
    episodes: &[Episode],
) -> Result<Report, UpdateError<E::Error>>
where
    E::Error: 'static,
{
    let batch = Batch::new(episodes)?;
    let rewards = batch.rewards();
    let groups = batch.groups();
    let rewards_of = |group: &Vec<usize>| group.iter().map(|i| rewards[*i]).collect::<Vec<_>>();
    let zero_variance = groups
        .iter()
        .filter(|group| is_zero_variance(&rewards_of(group), steps.zero_variance_tolerance))
        .count();
    let spreads: Vec<f64> = groups.iter().map(|group| deviation(&rewards_of(group))).collect();
    let mut report = Report {
        episodes: batch.len(),
        reward: mean(&rewards),
        zero_variance_share: zero_variance as f64 / groups.len().max(1) as f64,
        reward_std: mean(&spreads),
        ..Report::default()
    };
    if batch.is_empty() {
        return Ok(report);
    }
    let mut update = Update { engine, steps, batch, report: &mut report };
    match *algorithm {
        Algorithm::Ppo { recipe, critic_steps_per_step, critic_only } => {
            let critic = (critic_steps_per_step, critic_only);
            update.ppo(&recipe, critic, &groups, &rewards)?;
        }
        Algorithm::Group { by, loss } => update.group(by, loss, &groups, &rewards)?,
        Algorithm::Rejection { above } => update.rejection(above, &rewards)?,
    }
    Ok(report)
}

/// Losses beside the policy's own that train its weights, and their weights.
struct AuxLosses<'a> {
    /// Weight of the policy's own loss: its episodes' share of all actions.
    own: f64,
    /// The critic's loss and its episodes, if it shares the policy's weights.
    value: Option<(Loss, &'a [usize])>,
    /// Episodes whose negative log-likelihood is added.
    imitated: Vec<usize>,
    weight: f64,
}

impl AuxLosses<'_> {
    fn nothing() -> Self {
        Self { own: 1.0, value: None, imitated: Vec::new(), weight: 0.0 }
    }
}

/// The episodes of groups that are not zero-variance, or that have a single episode.
fn informative(groups: &[Vec<usize>], outcomes: &[f64], tolerance: f64) -> Vec<usize> {
    let of = |group: &&Vec<usize>| group.iter().map(|i| outcomes[*i]).collect::<Vec<_>>();
    let tell =
        groups.iter().filter(|group| group.len() == 1 || !is_zero_variance(&of(group), tolerance));
    let mut informative: Vec<usize> = tell.flatten().copied().collect();
    informative.sort_unstable();
    informative
}

/// Minibatch `number` of `parts`. Episodes of a task are adjacent, so that each minibatch has some
/// of every task.
fn minibatch(which: &[usize], number: usize, parts: usize) -> Vec<usize> {
    which.iter().copied().skip(number).step_by(parts).collect()
}

struct Update<'a, E: Engine> {
    engine: &'a mut E,
    steps: &'a Steps,
    batch: Batch,
    report: &'a mut Report,
}

impl<E: Engine> Update<'_, E>
where
    E::Error: 'static,
{
    fn ppo(
        &mut self,
        recipe: &Recipe,
        (critic_steps_per_step, critic_only): (u32, bool),
        groups: &[Vec<usize>],
        outcomes: &[f64],
    ) -> Result<(), UpdateError<E::Error>> {
        let description = self.engine.describe().map_err(UpdateError::Engine)?;
        if !description.has_values {
            return Err(UpdateError::NoValues);
        }
        if critic_only && !description.has_critic {
            return Err(UpdateError::SharedTrunk);
        }
        let scores = self.score()?;
        let values = self.batch.gather(&scores, |s| &s.values);
        let (mut advantages, mut targets, mut returns) = (Vec::new(), Vec::new(), Vec::new());
        for (actions, values) in self.batch.decided().zip(&values) {
            let (rewards, gamma) = (actions.rewards(), recipe.gamma);
            let lambda = recipe.actor_lambda.at(actions.len());
            advantages.push(gae(&rewards, values, gamma, lambda));
            targets.push(value_targets(&rewards, values, gamma, recipe.critic_lambda));
            returns.extend(value_targets(&rewards, values, gamma, 1.0));
        }
        self.report.explained_variance = explained_variance(&values.concat(), &returns);
        self.batch.put(|row| &mut row.returns, &targets);
        self.batch.put(|row| &mut row.values, &values);
        let all: Vec<usize> = (0..self.batch.len()).collect();
        let moving = if recipe.drop_zero_variance_groups {
            informative(groups, outcomes, self.steps.zero_variance_tolerance)
        } else {
            all.clone()
        };
        self.whitened(&advantages, &moving);

        // The critic first: without weights of its own, its gradient waits for the policy's step.
        let own = description.has_critic;
        let mut losses = Vec::new();
        for _ in 0..if own { critic_steps_per_step } else { 0 } {
            losses.push(self.back(&all, &Loss::Value { clip: recipe.cliprange_value }, 1.0)?.0);
            self.step(Which::Critic)?;
        }
        if !critic_only {
            let rewarded = all.iter().copied().filter(|&i| outcomes[i] > 0.0);
            let aux = AuxLosses {
                own: self.share(&moving),
                value: (!own).then_some((Loss::Value { clip: recipe.cliprange_value }, &all[..])),
                weight: recipe.positive_nll_weight,
                imitated: if recipe.positive_nll_weight > 0.0 {
                    rewarded.collect()
                } else {
                    Vec::new()
                },
            };
            losses.extend(self.move_policy(&Loss::Policy(recipe.policy), &aux, &moving)?);
            self.watch(&recipe.policy, &scores)?;
        }
        self.report.value_loss = (!losses.is_empty()).then(|| mean(&losses));
        self.count(if critic_only { &all } else { &moving });
        self.raise(critic_only);
        Ok(())
    }

    fn group(
        &mut self,
        by: Comparison,
        loss: PolicyLoss,
        groups: &[Vec<usize>],
        rewards: &[f64],
    ) -> Result<(), UpdateError<E::Error>> {
        let scores = self.score()?;
        let mut of_episode = vec![0.0; self.batch.len()];
        for group in groups {
            let rewards: Vec<f64> = group.iter().map(|i| rewards[*i]).collect();
            if is_zero_variance(&rewards, self.steps.zero_variance_tolerance) {
                continue;
            }
            let advantages = match by {
                Comparison::Rloo => rloo(&rewards),
                Comparison::Grpo => grpo(&rewards),
            };
            for (number, advantage) in group.iter().zip(advantages) {
                of_episode[*number] = advantage;
            }
        }
        let each = self.batch.decided().zip(&of_episode);
        let each = each.map(|(actions, advantage)| vec![*advantage; actions.len()]);
        let advantages: Vec<Vec<f64>> = each.collect();
        match by {
            Comparison::Rloo => {
                let all: Vec<usize> = (0..self.batch.len()).collect();
                self.whitened(&advantages, &all);
            }
            // GRPO has normalised each group already.
            Comparison::Grpo => self.batch.put(|row| &mut row.advantages, &advantages),
        }
        // Episodes of a zero-variance group would contribute nothing but weight decay.
        let used: Vec<usize> =
            (0..self.batch.len()).filter(|&i| of_episode[i].abs() > 0.0).collect();
        if !used.is_empty() {
            self.move_policy(&Loss::Policy(loss), &AuxLosses::nothing(), &used)?;
            self.watch(&loss, &scores)?;
        }
        self.count(&used);
        self.raise(false);
        Ok(())
    }

    fn rejection(&mut self, above: f64, rewards: &[f64]) -> Result<(), UpdateError<E::Error>> {
        let kept: Vec<usize> = (0..self.batch.len()).filter(|&i| rewards[i] > above).collect();
        if !kept.is_empty() {
            self.move_policy(&Loss::Likelihood, &AuxLosses::nothing(), &kept)?;
        }
        self.count(&kept);
        self.raise(false);
        Ok(())
    }

    /// Scores the batch before the training step and writes the scores into the rows.
    fn score(&mut self) -> Result<Vec<Scores>, UpdateError<E::Error>> {
        let scores = self.engine.score(self.batch.rows()).map_err(UpdateError::Engine)?;
        let before = self.batch.gather(&scores, |s| &s.logprobs);
        let entropies = self.batch.gather(&scores, |s| &s.entropies);
        self.batch.put(|row| &mut row.old_log_probs, &before);
        self.record_entropy(entropies.into_iter().enumerate().collect());
        let drawn = self.batch.decided().flat_map(Actions::rollout_log_probs);
        let pairs: Vec<(f64, f64)> = before.concat().into_iter().zip(drawn.copied()).collect();
        let of = |pairs: &mut dyn Iterator<Item = &(f64, f64)>| {
            Ratios::of(&pairs.copied().map(of_mismatch).collect::<Vec<_>>())
        };
        self.report.rollout_ratios = of(&mut pairs.iter());
        self.report.rare_rollout_ratios = of(&mut pairs.iter().filter(|pair| pair.1 < RARE.ln()));
        Ok(scores)
    }

    /// Writes the advantages of these episodes, whitened over their actions; other episodes get
    /// none.
    fn whitened(&mut self, advantages: &[Vec<f64>], which: &[usize]) {
        let mut all: Vec<f64> = which.iter().flat_map(|&i| &advantages[i]).copied().collect();
        whiten(&mut all);
        let mut all = all.into_iter();
        let mut by_episode: Vec<Vec<f64>> =
            advantages.iter().map(|of| vec![0.0; of.len()]).collect();
        for &i in which {
            by_episode[i] = all.by_ref().take(advantages[i].len()).collect();
        }
        self.batch.put(|row| &mut row.advantages, &by_episode);
    }

    /// Takes an optimizer step per minibatch of these episodes. Returns the critic's losses if it
    /// shares the policy's weights.
    fn move_policy(
        &mut self,
        loss: &Loss,
        aux: &AuxLosses<'_>,
        which: &[usize],
    ) -> Result<Vec<f64>, UpdateError<E::Error>> {
        let parts = self.steps.minibatches.clamp(1, which.len().max(1));
        let (mut losses, mut norms, mut values, mut entropies) = (vec![], vec![], vec![], vec![]);
        let epochs = self.steps.epochs.max(1);
        for number in (0..epochs).flat_map(|_| 0..parts) {
            let part = minibatch(which, number, parts);
            let imitated = minibatch(&aux.imitated, number, parts);
            if let Some((value, of)) = &aux.value {
                values.push(self.back(&minibatch(of, number, parts), value, 1.0)?.0);
            } else if part.is_empty() && imitated.is_empty() {
                // Adam's moments of earlier steps would update it.
                continue;
            }
            if !imitated.is_empty() {
                self.back(&imitated, &Loss::Likelihood, aux.weight)?;
            }
            if !part.is_empty() {
                let (sum, scores) = self.back(&part, loss, aux.own)?;
                losses.push(sum);
                let mut scores = scores.into_iter();
                entropies.extend(part.iter().map(|&i| {
                    let own = scores.by_ref().take(self.batch.rows_of(i).len());
                    (i, own.flat_map(|s| s.entropies).map(f64::from).collect())
                }));
            }
            norms.push(self.step(Which::Policy)?);
        }
        (self.report.loss, self.report.grad_norm) = (mean(&losses), mean(&norms));
        if matches!(loss, Loss::Likelihood) {
            self.record_entropy(entropies);
        }
        Ok(values)
    }

    /// These episodes' share of all actions. A training step with few usable episodes changes the
    /// policy less.
    fn share(&self, which: &[usize]) -> f64 {
        let actions =
            |i: usize| -> usize { self.batch.rows_of(i).iter().map(|row| row.actions.len()).sum() };
        let some: usize = which.iter().map(|&i| actions(i)).sum();
        let all: usize = (0..self.batch.len()).map(actions).sum();
        some as f64 / all.max(1) as f64
    }

    /// Reports entropies of each action, by the episode's number.
    fn record_entropy(&mut self, entropies: Vec<(usize, Vec<f64>)>) {
        self.report.entropies = entropies.iter().map(|(i, of)| (*i, mean(of))).collect();
        let all: Vec<Vec<f64>> = entropies.into_iter().map(|(_, of)| of).collect();
        self.report.entropy = mean(&all.concat());
    }

    /// Backward pass over some episodes: the mean over their actions, times `weight`. Returns their
    /// scores.
    fn back(
        &mut self,
        which: &[usize],
        loss: &Loss,
        weight: f64,
    ) -> Result<(f64, Vec<Scores>), UpdateError<E::Error>> {
        let rows: Vec<Row> = which.iter().flat_map(|&i| self.batch.rows_of(i).to_vec()).collect();
        let over: usize = rows.iter().map(|row| row.actions.len()).sum();
        let over = over as f64 / weight;
        let passed = self.engine.backward(&rows, loss, over).map_err(UpdateError::Engine)?;
        Ok((passed.loss, passed.scores))
    }

    fn step(&mut self, which: Which) -> Result<f64, UpdateError<E::Error>> {
        let step = match which {
            Which::Policy => &self.steps.policy,
            Which::Critic => &self.steps.critic,
        };
        self.engine.step(which, step).map_err(UpdateError::Engine)
    }

    /// Measures the importance ratios and KL divergence of the training step.
    fn watch(&mut self, loss: &PolicyLoss, before: &[Scores]) -> Result<(), UpdateError<E::Error>> {
        let after = self.engine.score(self.batch.rows()).map_err(UpdateError::Engine)?;
        let mut terms = Vec::new();
        for ((row, before), after) in self.batch.rows().iter().zip(before).zip(&after) {
            let lists = before.logprobs.iter().zip(&after.logprobs).zip(&row.advantages);
            let each =
                lists.zip(&row.rollout_log_probs).map(|(((before, now), advantage), behaviour)| {
                    let logprobs = Logprobs {
                        now: f64::from(*now),
                        old: f64::from(*before),
                        rollout: f64::from(*behaviour),
                    };
                    loss.term(logprobs, f64::from(*advantage))
                });
            terms.extend(each);
        }
        self.report.update_ratios = Ratios::of(&terms);
        Ok(())
    }

    fn count(&mut self, used: &[usize]) {
        self.report.used = used.len();
        let rows = used.iter().flat_map(|&i| self.batch.rows_of(i));
        self.report.actions = rows.map(|row| row.actions.len()).sum();
    }

    fn raise(&mut self, warming_up: bool) {
        let report = &mut *self.report;
        if let Some(moved) = &report.update_ratios {
            report.alarms = alarms(moved, report.explained_variance, !warming_up);
        }
        let figures = [report.loss, report.grad_norm, report.value_loss.unwrap_or(0.0)];
        let lost = figures.iter().any(|figure| !figure.is_finite());
        if lost && !report.alarms.contains(&Alarm::NotFinite) {
            report.alarms.push(Alarm::NotFinite);
        }
    }
}

fn of_mismatch((trainer, sampler): (f64, f64)) -> Term {
    let without = PolicyLoss {
        clip_ratio_low: 1.0,
        clip_ratio_high: f64::MAX,
        clip_ratio_c: None,
        rollout_is_threshold: None,
        bypass_mode: false,
    };
    without.term(Logprobs { now: trainer, old: sampler, rollout: sampler }, 1.0)
}

#[cfg(test)]
mod tests;
