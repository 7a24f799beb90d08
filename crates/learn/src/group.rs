//! Advantages without a critic, from the rewards of several episodes of one task (a group).

use crate::moments::{mean, variance};

/// Rewards that differ by less are equal up to rounding.
const EQUAL: f64 = 1e-9;

/// Whether no two rewards of a group differ by more than `tolerance`: the group has no signal.
pub fn is_zero_variance(rewards: &[f64], tolerance: f64) -> bool {
    let [least, most] =
        [f64::min, f64::max].map(|of| rewards.iter().copied().reduce(of).unwrap_or(0.0));
    most - least <= tolerance.max(EQUAL)
}

/// RLOO: the reward of each episode minus the mean of the others' (REINFORCE leave-one-out, Kool et
/// al. 2019; arXiv 2402.14740). 0 for a group of one.
pub fn rloo(rewards: &[f64]) -> Vec<f64> {
    let others = rewards.len().saturating_sub(1) as f64;
    if others == 0.0 {
        return vec![0.0; rewards.len()];
    }
    let total: f64 = rewards.iter().sum();
    rewards.iter().map(|reward| reward - (total - reward) / others).collect()
}

/// GRPO: the reward of each episode minus the group's mean, divided by the group's standard
/// deviation (arXiv 2402.03300). 0 if the standard deviation is 0.
pub fn grpo(rewards: &[f64]) -> Vec<f64> {
    let deviation = deviation(rewards);
    if deviation <= EQUAL {
        return vec![0.0; rewards.len()];
    }
    let mean = mean(rewards);
    rewards.iter().map(|reward| (reward - mean) / deviation).collect()
}

/// Standard deviation of the population.
pub(crate) fn deviation(values: &[f64]) -> f64 {
    variance(values).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rloo_and_grpo_match_hand_computed_values() {
        assert_eq!(rloo(&[1.0, 3.0]), [-2.0, 2.0]);
        assert_eq!(rloo(&[-1.0, 1.0, 3.0]), [-3.0, 0.0, 3.0]);
        assert_eq!(grpo(&[1.0, 3.0]), [-1.0, 1.0]);
        let equal = [2.0, 2.0, 2.0];
        assert!(is_zero_variance(&equal, 0.0) && !is_zero_variance(&[2.0, 2.1], 0.0));
        assert!(
            is_zero_variance(&[2.0, 2.1, 2.05], 0.15) && !is_zero_variance(&[2.0, 2.1, 1.9], 0.15)
        );
        assert!(is_zero_variance(&[], 0.0));
        assert_eq!((rloo(&equal), grpo(&equal)), (vec![0.0; 3], vec![0.0; 3]));
        assert_eq!((rloo(&[5.0]), grpo(&[5.0])), (vec![0.0], vec![0.0]));
        assert!(rloo(&[]).is_empty() && grpo(&[]).is_empty());
    }

    proptest! {
        #[test]
        fn rloo_subtracts_the_mean_of_others(rewards in prop::collection::vec(-1.0f64..3.0, 2..16)) {
            for (i, advantage) in rloo(&rewards).into_iter().enumerate() {
                let mut others = rewards.clone();
                let own = others.remove(i);
                prop_assert!((advantage - (own - mean(&others))).abs() < 1e-9);
            }
        }

        #[test]
        fn group_advantages_sum_to_zero(rewards in prop::collection::vec(-1.0f64..3.0, 2..16)) {
            prop_assert!(mean(&rloo(&rewards)).abs() < 1e-9);
            let of_group = grpo(&rewards);
            prop_assert!(mean(&of_group).abs() < 1e-9);
            prop_assert!(is_zero_variance(&rewards, 0.0) || (deviation(&of_group) - 1.0).abs() < 1e-6);
        }
    }
}
