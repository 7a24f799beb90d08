//! Advantage whitening: mean 0 and variance 1 over a batch.

use crate::moments::{mean, variance};

/// Added to the standard deviation.
const EPSILON: f64 = 1e-8;

/// Whitens the advantages of all actions of the global batch in place. Call it once, over actions
/// only, after the returns are computed. Advantages that do not vary become 0.
pub fn whiten(advantages: &mut [f64]) {
    let (centre, scale) = (mean(advantages), variance(advantages).sqrt() + EPSILON);
    for advantage in advantages {
        *advantage = (*advantage - centre) / scale;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn whitening_matches_hand_computed_values() {
        let mut advantages = [1.0, 2.0, 3.0, 4.0];
        whiten(&mut advantages);
        let wanted = [-1.341_640_786, -0.447_213_595, 0.447_213_595, 1.341_640_786];
        assert!(advantages.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-6), "{advantages:?}");
        let mut equal = [0.3; 5];
        whiten(&mut equal);
        assert!(equal.iter().all(|a| a.abs() < 1e-6), "{equal:?}");
        whiten(&mut []);
    }

    proptest! {
        #[test]
        fn whitened_advantages_have_zero_mean_unit_variance(
            mut advantages in prop::collection::vec(-5.0f64..5.0, 2..200),
        ) {
            let before = advantages.clone();
            whiten(&mut advantages);
            let count = advantages.len() as f64;
            let mean = advantages.iter().sum::<f64>() / count;
            let variance = advantages.iter().map(|a| a * a).sum::<f64>() / count;
            prop_assert!(mean.abs() < 1e-6);
            prop_assert!((variance - 1.0).abs() < 1e-3 || variance < 1e-6, "{}", variance);
            // Order stays.
            for (i, j) in (0..before.len()).zip(1..before.len()) {
                prop_assert!((before[i] < before[j]) == (advantages[i] < advantages[j]));
            }
        }
    }
}
