//! Configuration of learning from episodes that are played.

use serde::{Deserialize, Serialize};
use warpwright_learn::advantage::Lambda;
use warpwright_learn::engine::Step;
use warpwright_learn::monitor::Alarm;
use warpwright_learn::online::{Online, how_many};
use warpwright_learn::recipe::Recipe;
use warpwright_learn::update::{Comparison, Rule, Steps};
use warpwright_record::verdict::Scheme;

/// Learning from episodes that are played.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Playing {
    /// By what rule.
    #[serde(default)]
    pub(crate) rule: RuleName,
    /// Constants of `ppo` and of the losses.
    #[serde(default)]
    pub(crate) recipe: RecipeName,
    /// Another `lambda` than the recipe's for the policy's advantages; 1: what came of it.
    pub(crate) actor_lambda: Option<f64>,
    /// Another one for the critic's targets.
    pub(crate) critic_lambda: Option<f64>,
    /// How many updates.
    pub(crate) updates: u32,
    /// Tasks of an update.
    pub(crate) tasks: usize,
    /// Episodes of each.
    pub(crate) episodes: usize,
    /// Learning rate of the policy.
    pub(crate) rate: f64,
    /// Whether that rate falls linearly, to reach nothing after the last update.
    #[serde(default)]
    pub(crate) anneals: bool,
    /// Whether there is a critic with weights of its own, begun from the policy's where no stage before
    /// made one; else a value head shares the policy's.
    #[serde(default)]
    pub(crate) own_critic: bool,
    /// Learning rate of a critic with weights of its own.
    #[serde(default)]
    pub(crate) critic_rate: Option<f64>,
    /// Steps of that critic for one of the policy.
    #[serde(default = "one")]
    pub(crate) critic_steps: u32,
    /// Updates in which only the critic moves, first.
    #[serde(default)]
    pub(crate) critic_first: u32,
    /// Weight of the likelihood of rewarded episodes, beside the loss of `ppo`.
    #[serde(default)]
    pub(crate) imitation: f64,
    /// Whether episodes of a task that all came to the same move the critic of `ppo` alone.
    #[serde(default)]
    pub(crate) skips_flat: bool,
    /// A task of which no two rewards are further apart counts as one whose episodes all came to the same.
    #[serde(default)]
    pub(crate) alike: f64,
    /// Into how many parts an update's episodes are cut, with a step for each.
    #[serde(default = "one_part")]
    pub(crate) parts: usize,
    /// How often a task is taken whose last episodes came to the same.
    #[serde(default = "flat_share")]
    pub(crate) flat_share: f64,
    /// Of how many later updates episodes may begin before those of this one are over; `true` is one.
    #[serde(default, deserialize_with = "how_many")]
    pub(crate) ahead: u32,
    /// Alarms that end the stage.
    #[serde(default = "stop_at")]
    pub(crate) stop_at: Vec<Alarm>,
    /// Alarms that take the policy back, to go on with half the rate.
    #[serde(default)]
    pub(crate) back_at: Vec<Alarm>,
    /// How far an update should move the policy at most, nats an episode; `rate` is then the most.
    pub(crate) trust: Option<f64>,
}

/// How a policy is updated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RuleName {
    #[default]
    Ppo,
    Rloo,
    Grpo,
    Rejection,
}

/// A named set of constants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RecipeName {
    #[default]
    Robust,
    Paper,
}

impl RecipeName {
    pub(crate) fn recipe(self) -> Recipe {
        match self {
            Self::Robust => Recipe::robust(),
            Self::Paper => Recipe::paper(),
        }
    }
}

impl Playing {
    /// Whether it needs a critic with weights of its own.
    pub(crate) fn needs_critic(&self) -> bool {
        self.rule == RuleName::Ppo && (self.own_critic || self.critic_first > 0)
    }

    pub(crate) fn online(&self, reward: Scheme, seed: u64) -> Online {
        let mut recipe = self.recipe.recipe();
        recipe.lambda_actor = self.actor_lambda.map_or(recipe.lambda_actor, Lambda::Fixed);
        recipe.lambda_critic = self.critic_lambda.unwrap_or(recipe.lambda_critic);
        (recipe.imitation, recipe.skips_flat) = (self.imitation, self.skips_flat);
        let rule = match self.rule {
            RuleName::Ppo => {
                Rule::Ppo { recipe, critic_steps: self.critic_steps, critic_only: false }
            }
            RuleName::Rloo => Rule::Group { by: Comparison::Rloo, loss: recipe.policy },
            RuleName::Grpo => Rule::Group { by: Comparison::Grpo, loss: recipe.policy },
            RuleName::Rejection => Rule::Rejection { above: 0.0 },
        };
        // Without decay: it would pull towards knowing nothing, and there is no data to hold against it.
        let step = |rate| Step { rate, decay: 0.0, ..Step::default() };
        let critic = step(self.critic_rate.unwrap_or(2.0 * self.rate));
        Online {
            rule,
            steps: Steps { policy: step(self.rate), critic, parts: self.parts, alike: self.alike },
            anneals: self.anneals,
            updates: self.updates,
            critic_first: self.critic_first,
            tasks: self.tasks,
            episodes: self.episodes,
            reward,
            flat_share: self.flat_share,
            stop_at: self.stop_at.clone(),
            back_at: self.back_at.clone(),
            trust: self.trust,
            ahead: self.ahead,
            seed,
        }
    }
}

fn one() -> u32 {
    1
}
fn one_part() -> usize {
    1
}
fn flat_share() -> f64 {
    0.25
}
fn stop_at() -> Vec<Alarm> {
    vec![Alarm::NotFinite, Alarm::ForeignSampler]
}
