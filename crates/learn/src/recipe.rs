//! Named sets of hyperparameters: the paper's, and ours.

use serde::{Deserialize, Serialize};

use crate::advantage::Lambda;
use crate::losses::PolicyLoss;

/// Targets of value pretraining.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Targets {
    /// `V + A` with this `lambda`.
    Gae(f64),
    /// Monte-Carlo returns.
    MonteCarlo,
}

impl Targets {
    /// The critic's `lambda` that gives these targets.
    pub fn lambda(self) -> f64 {
        match self {
            Self::Gae(lambda) => lambda,
            Self::MonteCarlo => 1.0,
        }
    }
}

/// Hyperparameters of PPO over many turns. Sources are in `docs/concepts/rl.md`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Discount per action.
    pub gamma: f64,
    /// `lambda` of GAE for the policy's advantages.
    pub actor_lambda: Lambda,
    /// `lambda` of the critic's targets while both are trained.
    pub critic_lambda: f64,
    /// The critic's targets in value pretraining.
    pub pretraining: Targets,
    /// The policy's loss.
    pub policy: PolicyLoss,
    /// Value clipping: a value may differ from its old value by at most this within a step; `None` is no limit.
    pub cliprange_value: Option<f64>,
    /// Weight of the negative log-likelihood of rewarded episodes, added to the policy's loss (VAPO, arXiv
    /// 2504.05118, has 0.1); 0 disables it.
    pub positive_nll_weight: f64,
    /// Zero-variance groups train the critic only: in them the advantages contain only the critic's error (DAPO,
    /// arXiv 2503.14476, samples other tasks in their place).
    pub drop_zero_variance_groups: bool,
}

impl Recipe {
    /// The paper's (arXiv 2602.24286): one `lambda` of 0.95 for all, no correction for the
    /// sampler's mismatch.
    pub const fn paper() -> Self {
        Self {
            gamma: 1.0,
            actor_lambda: Lambda::Fixed(0.95),
            critic_lambda: 0.95,
            pretraining: Targets::Gae(0.95),
            policy: PolicyLoss {
                clip_ratio_low: 0.2,
                clip_ratio_high: 0.28,
                clip_ratio_c: None,
                rollout_is_threshold: None,
                bypass_mode: false,
            },
            cliprange_value: None,
            positive_nll_weight: 0.0,
            drop_zero_variance_groups: false,
        }
    }

    /// Ours: a length-adaptive `lambda` for the policy, Monte-Carlo targets for the critic.
    pub const fn robust() -> Self {
        Self {
            gamma: 1.0,
            actor_lambda: Lambda::LengthAdaptive { alpha: 0.05 },
            critic_lambda: 1.0,
            pretraining: Targets::MonteCarlo,
            policy: PolicyLoss {
                clip_ratio_low: 0.2,
                clip_ratio_high: 0.28,
                clip_ratio_c: Some(10.0),
                rollout_is_threshold: Some(2.0),
                bypass_mode: false,
            },
            cliprange_value: None,
            positive_nll_weight: 0.0,
            drop_zero_variance_groups: false,
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
    fn without_critic_lambda_095_forgets_early_turns() {
        let (mut rewards, values) = (vec![0.0; 100], vec![0.0; 100]);
        rewards[99] = 1.0;
        let heard = |recipe: Recipe| {
            let lambda = recipe.actor_lambda.at(rewards.len());
            gae(&rewards, &values, recipe.gamma, lambda)[0]
        };
        let paper = heard(Recipe::paper());
        assert!((paper - 0.95f64.powi(99)).abs() < 1e-12 && paper < 0.01, "{paper}");
        // 1 - 1 / (0.05 * 100) = 0.8: it too needs a critic, and gives that one the truth to learn.
        assert!((Recipe::robust().actor_lambda.at(100) - 0.8).abs() < 1e-12);
        let targets = |lambda: f64| value_targets(&rewards, &values, 1.0, lambda)[0];
        assert!((targets(Recipe::robust().pretraining.lambda()) - 1.0).abs() < 1e-12);
        assert!(targets(Recipe::paper().pretraining.lambda()) < 0.01);
    }
}
