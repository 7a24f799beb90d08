//! Named sets of constants: the paper's, and ours.

use serde::{Deserialize, Serialize};

use crate::advantage::Lambda;
use crate::losses::PolicyLoss;

/// What value pretraining aims at.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Targets {
    /// `V + A` with this `lambda`.
    Gae(f64),
    /// What came of it.
    MonteCarlo,
}

impl Targets {
    /// As the critic's `lambda`.
    pub fn lambda(self) -> f64 {
        match self {
            Self::Gae(lambda) => lambda,
            Self::MonteCarlo => 1.0,
        }
    }
}

/// The constants of PPO over many turns. Sources are in `docs/learning.md`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Discount per action.
    pub gamma: f64,
    /// Of the policy's advantages.
    pub lambda_actor: Lambda,
    /// Of the critic's targets while both are trained.
    pub lambda_critic: f64,
    /// The critic's targets before that.
    pub pretraining: Targets,
    /// The policy's loss.
    pub policy: PolicyLoss,
    /// How far a value may move from what it was within a step; without, as far as it will.
    pub value_clip: Option<f64>,
    /// Weight of the likelihood of episodes that were rewarded, beside the policy's loss (VAPO, arXiv 2504.05118,
    /// has 0.1); 0 leaves it out.
    #[serde(default)]
    pub imitation: f64,
    /// Whether episodes of a task that all came to the same move the critic alone: of the policy they say only
    /// where the critic errs (DAPO, arXiv 2503.14476, draws others in their place).
    #[serde(default)]
    pub skips_flat: bool,
}

impl Recipe {
    /// The paper's (arXiv 2602.24286): one `lambda` of 0.95 for all, no correction of the sampler.
    pub const fn paper() -> Self {
        Self {
            gamma: 1.0,
            lambda_actor: Lambda::Fixed(0.95),
            lambda_critic: 0.95,
            pretraining: Targets::Gae(0.95),
            policy: PolicyLoss { clip_low: 0.2, clip_high: 0.28, dual_clip: None, mismatch: None },
            value_clip: None,
            imitation: 0.0,
            skips_flat: false,
        }
    }

    /// Ours: the policy looks as far ahead as its trajectory is long, the critic says what came of it.
    pub const fn robust() -> Self {
        Self {
            gamma: 1.0,
            lambda_actor: Lambda::LengthAdaptive { alpha: 0.05 },
            lambda_critic: 1.0,
            pretraining: Targets::MonteCarlo,
            policy: PolicyLoss {
                clip_low: 0.2,
                clip_high: 0.28,
                dual_clip: Some(10.0),
                mismatch: Some(2.0),
            },
            value_clip: None,
            imitation: 0.0,
            skips_flat: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advantage::{gae, value_targets};

    /// Two turns of 50 tokens, a critic that knows nothing: under the paper's recipe the first turn
    /// hardly hears of the reward, which is why a critic that has not been pretrained ends it.
    #[test]
    fn without_a_critic_the_papers_recipe_hears_nothing_of_early_turns() {
        let (mut rewards, values) = (vec![0.0; 100], vec![0.0; 100]);
        rewards[99] = 1.0;
        let heard = |recipe: Recipe| {
            let lambda = recipe.lambda_actor.at(rewards.len());
            gae(&rewards, &values, recipe.gamma, lambda)[0]
        };
        let paper = heard(Recipe::paper());
        assert!((paper - 0.95f64.powi(99)).abs() < 1e-12 && paper < 0.01, "{paper}");
        // 1 - 1 / (0.05 * 100) = 0.8: it too needs a critic, and gives that one the truth to learn.
        assert!((Recipe::robust().lambda_actor.at(100) - 0.8).abs() < 1e-12);
        let targets = |lambda: f64| value_targets(&rewards, &values, 1.0, lambda)[0];
        assert!((targets(Recipe::robust().pretraining.lambda()) - 1.0).abs() < 1e-12);
        assert!(targets(Recipe::paper().pretraining.lambda()) < 0.01);
    }
}
