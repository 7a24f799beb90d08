//! Losses of one action, with their derivatives.
//!
//! These are definitions: an engine computes the same for many actions at once on its device. The
//! loss of a batch is the mean over all actions of the *global* batch (token mean), not a mean of
//! means per trajectory (DAPO, arXiv 2503.14476), in which tokens of long trajectories would weigh
//! less.

use serde::{Deserialize, Serialize};

/// Log-ratios are clamped to plus or minus this.
pub const LOG_RATIO_LIMIT: f64 = 20.0;

/// The policy's loss: the clipped surrogate (PPO, arXiv 1707.06347) with separate lower and upper
/// clip ranges (DAPO), dual clip (arXiv 1912.09729), and importance sampling against the sampler's
/// distribution, which differs from the trainer's by numerics or older weights.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyLoss {
    /// The importance ratio is clipped to at least 1 minus this.
    pub clip_ratio_low: f64,
    /// The importance ratio is clipped to at most 1 plus this.
    pub clip_ratio_high: f64,
    /// Dual clip: with a negative advantage the importance ratio counts as at most this; `None` is no limit.
    pub clip_ratio_c: Option<f64>,
    /// Truncated importance sampling: the loss of an action is weighted by the ratio of trainer to sampler, at most
    /// this; `None` is no weighting.
    pub rollout_is_threshold: Option<f64>,
    /// The sampler's log-probabilities take the place of the trainer's old ones (verl's
    /// `rollout_correction.bypass_mode`); `rollout_is_threshold` then has no effect.
    pub bypass_mode: bool,
}

/// Log-probabilities (natural) of an action.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Logprobs {
    /// Under the current weights.
    pub now: f64,
    /// Under the weights before the training step, by the trainer.
    pub old: f64,
    /// Under the distribution that it was sampled from, by the sampler.
    pub rollout: f64,
}

/// The loss term of one action.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Term {
    /// Its loss.
    pub loss: f64,
    /// Derivative of the loss with respect to the current log-probability.
    pub gradient: f64,
    /// Importance ratio of the current policy to the old policy.
    pub ratio: f64,
    /// Whether clipping sets the gradient to 0.
    pub is_clipped: bool,
    /// Importance weight of the trainer to the sampler.
    pub weight: f64,
}

fn ratio(above: f64, below: f64) -> f64 {
    (above - below).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
}

impl PolicyLoss {
    /// The loss term of an action.
    pub fn term(&self, logprobs: Logprobs, advantage: f64) -> Term {
        let Logprobs { now, old, rollout } = logprobs;
        let (old, weight) = match self.rollout_is_threshold {
            _ if self.bypass_mode => (rollout, 1.0),
            Some(most) => (old, ratio(old, rollout).min(most)),
            None => (old, 1.0),
        };
        let free = ratio(now, old);
        let clipped = free.clamp(1.0 - self.clip_ratio_low, 1.0 + self.clip_ratio_high);
        // The smaller gain of the two: moving beyond the clip range gains nothing.
        let mut gain = (free * advantage).min(clipped * advantage);
        let mut has_gradient = free * advantage <= clipped * advantage;
        if let Some(most) = self.clip_ratio_c.filter(|_| advantage < 0.0) {
            // Dual clip: an unbounded ratio with a negative advantage would dominate the batch.
            has_gradient &= gain >= most * advantage;
            gain = gain.max(most * advantage);
        }
        has_gradient &= (now - old).abs() < LOG_RATIO_LIMIT;
        let gradient = if has_gradient { -weight * free * advantage } else { 0.0 };
        Term { loss: -weight * gain, gradient, ratio: free, is_clipped: !has_gradient, weight }
    }
}

/// The critic's loss: half the squared error. With a clip, the larger of the losses of the value
/// and of the value clipped to `before` plus or minus `clip` (as in PPO's reference
/// implementation). Returns the loss and its derivative with respect to the value.
pub fn value_term(value: f64, before: f64, target: f64, clip: Option<f64>) -> (f64, f64) {
    let (error, loss) = (value - target, (value - target).powi(2) / 2.0);
    let Some(clip) = clip else { return (loss, error) };
    let near = value.clamp(before - clip, before + clip);
    let near_loss = (near - target).powi(2) / 2.0;
    if loss >= near_loss {
        (loss, error)
    } else {
        // The clipped value has no gradient.
        (near_loss, 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ROBUST: PolicyLoss = PolicyLoss {
        clip_ratio_low: 0.2,
        clip_ratio_high: 0.28,
        clip_ratio_c: Some(10.0),
        rollout_is_threshold: Some(2.0),
        bypass_mode: false,
    };

    fn at(ratio: f64) -> Logprobs {
        Logprobs { now: ratio.ln() - 1.0, old: -1.0, rollout: -1.0 }
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn policy_loss_matches_hand_computed_values() {
        let term = |ratio: f64, advantage: f64| ROBUST.term(at(ratio), advantage);
        assert!(near(term(1.0, 2.0).loss, -2.0) && near(term(1.0, 2.0).gradient, -2.0));
        assert!(near(term(1.5, 1.0).loss, -1.28) && near(term(1.5, 1.0).gradient, 0.0));
        assert!(near(term(0.5, -1.0).loss, 0.8) && near(term(0.5, -1.0).gradient, 0.0));
        // The side on which nothing is bounded.
        assert!(near(term(0.5, 1.0).loss, -0.5) && near(term(0.5, 1.0).gradient, -0.5));
        assert!(near(term(3.0, -1.0).loss, 3.0) && near(term(3.0, -1.0).gradient, 3.0));
        // Dual clip.
        assert!(near(term(30.0, -1.0).loss, 10.0) && near(term(30.0, -1.0).gradient, 0.0));
        let single = PolicyLoss { clip_ratio_c: None, ..ROBUST };
        assert!(near(single.term(at(30.0), -1.0).loss, 30.0));
    }

    #[test]
    fn sampler_mismatch_weight_is_truncated() {
        let sampled = |rollout: f64| Logprobs { now: -1.0, old: -1.0, rollout };
        let weight = |rollout: f64| ROBUST.term(sampled(rollout), 1.0).weight;
        assert!(near(weight(-1.0), 1.0) && near(weight(-1.0 - 1.5f64.ln()), 1.5));
        assert!(near(weight(-9.0), 2.0), "truncated");
        assert!(near(weight(-1.0 + 2.0f64.ln()), 0.5));
        let off = PolicyLoss { rollout_is_threshold: None, ..ROBUST };
        assert!(near(off.term(sampled(-9.0), 1.0).weight, 1.0));
    }

    #[test]
    fn bypass_mode_compares_with_the_sampler() {
        let bypass = PolicyLoss { bypass_mode: true, ..ROBUST };
        let logprobs = Logprobs { now: -1.0, old: -3.0, rollout: -1.1 };
        let term = bypass.term(logprobs, 1.0);
        assert!(near(term.ratio, 0.1f64.exp()) && near(term.weight, 1.0), "{term:?}");
        assert!(near(term.loss, -(0.1f64.exp())), "{term:?}");
        assert!(ROBUST.term(logprobs, 1.0).ratio > 7.0, "positive control");
    }

    #[test]
    fn extreme_ratio_stays_finite() {
        let far = Logprobs { now: 0.0, old: -800.0, rollout: -800.0 };
        let term = PolicyLoss { clip_ratio_c: None, ..ROBUST }.term(far, -1.0);
        assert!(term.loss.is_finite() && near(term.gradient, 0.0) && term.is_clipped, "{term:?}");
    }

    #[test]
    fn clipped_value_has_no_gradient() {
        assert_eq!(value_term(1.0, 0.0, 3.0, None), (2.0, -2.0));
        assert!(near(value_term(0.1, 0.0, 3.0, Some(0.2)).1, 0.1 - 3.0));
        // Nearer to the target than it may be after one step: the bounded one is the larger loss.
        assert_eq!(value_term(2.0, 0.0, 3.0, Some(0.2)), ((0.2f64 - 3.0).powi(2) / 2.0, 0.0));
        // Away from it: nothing is bounded.
        assert_eq!(value_term(-2.0, 0.0, 3.0, Some(0.2)), (12.5, -5.0));
    }

    /// The surrogate by its cases, as the papers' figures have it, and not by `min` and `max`.
    fn by_cases(loss: &PolicyLoss, ratio: f64, advantage: f64) -> f64 {
        let (low, high) = (1.0 - loss.clip_ratio_low, 1.0 + loss.clip_ratio_high);
        let counted = if advantage >= 0.0 {
            if ratio > high { high } else { ratio }
        } else {
            let least = if ratio < low { low } else { ratio };
            match loss.clip_ratio_c {
                Some(most) if least > most => most,
                _ => least,
            }
        };
        -counted * advantage
    }

    proptest! {
        #[test]
        fn policy_loss_equals_case_analysis(
            log_ratio in -3.0f64..4.0,
            advantage in -3.0f64..3.0,
            dual in any::<bool>(),
        ) {
            let loss = PolicyLoss { clip_ratio_c: dual.then_some(10.0), ..ROBUST };
            let term = loss.term(at(log_ratio.exp()), advantage);
            prop_assert!((term.loss - by_cases(&loss, log_ratio.exp(), advantage)).abs() < 1e-9);
        }

        /// The derivative is that of the loss, wherever that has one.
        #[test]
        fn policy_gradient_matches_finite_differences(
            log_ratio in -3.0f64..4.0,
            advantage in -3.0f64..3.0,
            rollout in -4.0f64..0.0,
        ) {
            let logprobs = |now: f64| Logprobs { now, old: -1.0, rollout };
            let (now, step) = (log_ratio - 1.0, 1e-6);
            for bound in [0.8f64, 1.28, 10.0] {
                prop_assume!((log_ratio - bound.ln()).abs() > 1e-4);
            }
            let term = ROBUST.term(logprobs(now), advantage);
            let (above, below) = (now + step, now - step);
            let slope = (ROBUST.term(logprobs(above), advantage).loss
                - ROBUST.term(logprobs(below), advantage).loss) / (2.0 * step);
            prop_assert!(
                (term.gradient - slope).abs() < 1e-4 * (1.0 + slope.abs()), "{:?} {}", term, slope
            );
            prop_assert!(!term.is_clipped || term.gradient == 0.0);
        }

        #[test]
        fn value_gradient_matches_finite_differences(
            value in -3.0f64..3.0, before in -3.0f64..3.0, target in -3.0f64..3.0,
            clipped in any::<bool>(),
        ) {
            let clip = clipped.then_some(0.2);
            let step = 1e-6;
            for edge in [before - 0.2, before + 0.2] {
                prop_assume!((value - edge).abs() > 1e-4);
                // Where both losses are equal there is a corner.
                prop_assume!(((value - target).abs() - (edge - target).abs()).abs() > 1e-4);
            }
            let of = |value: f64| value_term(value, before, target, clip).0;
            let slope = (of(value + step) - of(value - step)) / (2.0 * step);
            prop_assert!((value_term(value, before, target, clip).1 - slope).abs() < 1e-4);
        }
    }
}
