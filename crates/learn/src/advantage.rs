//! Generalised advantage estimation (GAE) over actions.

use serde::{Deserialize, Serialize};

/// `lambda` of GAE.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lambda {
    /// The same for all trajectories.
    Fixed(f64),
    /// `1 - 1 / (alpha * n)` for a trajectory of `n` actions, at least 0. The sum of GAE's weights
    /// grows with the trajectory's length (VAPO, arXiv 2504.05118).
    LengthAdaptive {
        /// Its `alpha`; 0.05 in VAPO.
        alpha: f64,
    },
}

impl Lambda {
    /// `lambda` for a trajectory of `actions` actions.
    pub fn at(self, actions: usize) -> f64 {
        match self {
            Self::Fixed(lambda) => lambda,
            Self::LengthAdaptive { alpha } => (1.0 - 1.0 / (alpha * actions as f64)).max(0.0),
        }
    }
}

/// GAE (arXiv 1506.02438): `A_t = delta_t + gamma * lambda * A_{t+1}` with `delta_t = r_t + gamma *
/// V_{t+1} - V_t`. `t + 1` is the next *action*; after the last action both terms are 0. `rewards`
/// and `values` have one entry per action.
///
/// # Panics
///
/// If `rewards` and `values` differ in length.
pub fn gae(rewards: &[f64], values: &[f64], gamma: f64, lambda: f64) -> Vec<f64> {
    assert_eq!(rewards.len(), values.len(), "one value for each reward");
    let mut advantages = vec![0.0; rewards.len()];
    let (mut following, mut next_value) = (0.0, 0.0);
    for t in (0..rewards.len()).rev() {
        let delta = rewards[t] + gamma * next_value - values[t];
        following = delta + gamma * lambda * following;
        advantages[t] = following;
        next_value = values[t];
    }
    advantages
}

/// The critic's targets, `V_t + A_t`, with the critic's own `lambda`. With `lambda` 1 they are the
/// Monte-Carlo returns and do not depend on the values.
pub fn value_targets(rewards: &[f64], values: &[f64], gamma: f64, lambda: f64) -> Vec<f64> {
    let advantages = gae(rewards, values, gamma, lambda);
    values.iter().zip(advantages).map(|(value, advantage)| value + advantage).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// By its definition as a sum, forwards: `A_t = sum over l of (gamma * lambda)^l * delta_{t+l}`.
    fn summed(rewards: &[f64], values: &[f64], gamma: f64, lambda: f64) -> Vec<f64> {
        let n = rewards.len();
        let value = |t: usize| if t < n { values[t] } else { 0.0 };
        let delta = |t: usize| rewards[t] + gamma * value(t + 1) - value(t);
        let from =
            |t: usize| (t..n).map(|s| (gamma * lambda).powi((s - t) as i32) * delta(s)).sum();
        (0..n).map(from).collect()
    }

    fn at_the_end(reward: f64, actions: usize) -> Vec<f64> {
        let mut rewards = vec![0.0; actions];
        rewards[actions - 1] = reward;
        rewards
    }

    /// The numbers of `docs/concepts/rl.md`: a turn of 50 tokens, 500 of a tool, a turn of 50, reward 1 at the
    /// end, `lambda` 0.99. The known wrong variants give the other ones.
    #[test]
    fn tool_tokens_are_skipped() {
        let advantages = gae(&at_the_end(1.0, 100), &[0.0; 100], 1.0, 0.99);
        assert!((advantages[49] - 0.605).abs() < 5e-4, "{}", advantages[49]);

        let through = gae(&at_the_end(1.0, 600), &[0.0; 600], 1.0, 0.99);
        assert!((through[49] - 0.004).abs() < 5e-4, "positive control: {}", through[49]);

        let response_mask = |t: usize| !(50..550).contains(&t);
        let zeroed: Vec<f64> = (0..600).map(|t| if response_mask(t) { 0.5 } else { 0.0 }).collect();
        let through = gae(&at_the_end(1.0, 600), &zeroed, 1.0, 0.99);
        assert!((through[49] + 0.495).abs() < 2e-3, "positive control: {}", through[49]);
        let skipped = gae(&at_the_end(1.0, 100), &[0.5; 100], 1.0, 0.99);
        assert!((skipped[49] - 0.5 * 0.99f64.powi(50)).abs() < 1e-9, "{}", skipped[49]);
    }

    #[test]
    fn length_adaptive_lambda_grows_with_actions() {
        let lambda = Lambda::LengthAdaptive { alpha: 0.05 };
        assert_eq!(lambda.at(20).to_bits(), 0.0f64.to_bits());
        assert_eq!(lambda.at(1).to_bits(), 0.0f64.to_bits());
        assert!((lambda.at(200) - 0.9).abs() < 1e-12);
        assert!((lambda.at(4000) - 0.995).abs() < 1e-12);
        assert!((Lambda::Fixed(0.95).at(7) - 0.95).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn gae_recursion_equals_its_sum(
            of in prop::collection::vec((-2.0f64..3.0, -2.0f64..3.0), 1..60),
            gamma in 0.5f64..=1.0,
            lambda in 0.0f64..=1.0,
        ) {
            let (rewards, values): (Vec<f64>, Vec<f64>) = of.into_iter().unzip();
            let (found, wanted) =
                (gae(&rewards, &values, gamma, lambda), summed(&rewards, &values, gamma, lambda));
            for (a, b) in found.iter().zip(&wanted) {
                prop_assert!((a - b).abs() < 1e-9, "{} and {}", a, b);
            }
        }

        /// With `lambda` 1 values cancel: targets are the returns.
        #[test]
        fn with_lambda_one_targets_are_returns(
            of in prop::collection::vec((-2.0f64..3.0, -2.0f64..3.0), 1..60),
            gamma in 0.5f64..=1.0,
        ) {
            let (rewards, values): (Vec<f64>, Vec<f64>) = of.into_iter().unzip();
            let targets = value_targets(&rewards, &values, gamma, 1.0);
            for (t, target) in targets.iter().enumerate() {
                let discounted = |(i, r): (usize, &f64)| gamma.powi(i as i32) * r;
                let returned: f64 = rewards[t..].iter().enumerate().map(discounted).sum();
                prop_assert!((target - returned).abs() < 1e-9, "{} and {}", target, returned);
            }
        }

        /// With `lambda` 0 an advantage is the one-step TD error.
        #[test]
        fn with_lambda_zero_an_advantage_is_one_step(
            of in prop::collection::vec((-2.0f64..3.0, -2.0f64..3.0), 2..60),
        ) {
            let (rewards, values): (Vec<f64>, Vec<f64>) = of.into_iter().unzip();
            let found = gae(&rewards, &values, 1.0, 0.0);
            for t in 0..found.len() - 1 {
                prop_assert!((found[t] - (rewards[t] + values[t + 1] - values[t])).abs() < 1e-12);
            }
        }
    }
}
