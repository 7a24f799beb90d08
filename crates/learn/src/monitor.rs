//! Diagnostics of a training step, and the alarms that they raise.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::losses::Term;
use crate::moments::variance;

/// Explained variance of the returns by the values: 1 for a perfect critic, 0 for a constant one,
/// negative for one worse than a constant. `None` if the returns do not vary.
pub fn explained_variance(values: &[f64], returns: &[f64]) -> Option<f64> {
    let errors: Vec<f64> = returns.iter().zip(values).map(|(r, v)| r - v).collect();
    let (of_errors, of_returns) = (variance(&errors), variance(returns));
    (of_returns > 1e-12).then(|| 1.0 - of_errors / of_returns)
}

/// Importance ratios of one step's actions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratios {
    /// Mean ratio of the current to the old probability.
    pub mean: f64,
    /// `(sum w)^2 / (n * sum w^2)` of the ratios: 1 where all are equal (Kish's effective sample size,
    /// as a share).
    pub effective_share: f64,
    /// KL divergence from the old to the current policy, estimated from the sampled actions by
    /// `ratio - 1 - ln ratio`, which is never negative (Schulman, "Approximating KL divergence",
    /// 2020).
    pub kl: f64,
    /// Share of the actions whose gradient is clipped to 0.
    pub clipped: f64,
}

impl Ratios {
    /// Statistics of a step's actions; `None` without actions.
    pub fn of(terms: &[Term]) -> Option<Self> {
        let count = terms.len() as f64;
        if terms.is_empty() {
            return None;
        }
        let sum: f64 = terms.iter().map(|term| term.ratio).sum();
        let squares: f64 = terms.iter().map(|term| term.ratio.powi(2)).sum();
        let kl: f64 = terms.iter().map(|term| term.ratio - 1.0 - term.ratio.ln()).sum();
        Some(Self {
            mean: sum / count,
            effective_share: sum * sum / (count * squares),
            kl: kl / count,
            clipped: terms.iter().filter(|term| term.is_clipped).count() as f64 / count,
        })
    }
}

/// A condition that can halt a run or roll it back. `docs/reference/training-metrics.md` has the thresholds.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Alarm {
    /// The critic's explained variance is below 0.
    ExplainedVariance,
    /// The mean ratio is beyond 0.5 to 2.
    MeanRatio,
    /// The effective sample size of the update is small.
    EffectiveSampleSize,
    /// The KL divergence of one update is too large.
    Divergence,
    /// A loss, gradient norm or ratio is not finite.
    NotFinite,
    /// More messages reach `max_new_tokens` than before.
    Truncation,
    /// Entropy has doubled.
    EntropySurge,
    /// Entropy has fallen to a small share of its first values.
    EntropyCollapse,
    /// The standard deviation of rewards within a task has collapsed without a higher mean.
    RewardStdCollapse,
    /// The same tasks have lower rewards than before.
    RewardRegression,
    /// The gradient norm is ten times that of the last updates.
    GradientNorm,
    /// Sampler and trainer disagree about rare tokens, and more than before.
    Mismatch,
    /// The sampled tokens do not come from the policy's weights.
    SamplerWeightMismatch,
    /// The share of clipped actions grows.
    Clipping,
    /// Many episodes end with an infrastructure failure.
    Failures,
}

impl fmt::Display for Alarm {
    /// Writes the configuration's spelling.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(out)
    }
}

impl Alarm {
    /// Whether the training step that raises the alarm is itself at fault. Otherwise its episodes
    /// are at fault, and so the policy that sampled them, which earlier steps trained.
    pub fn is_of_update(self) -> bool {
        match self {
            Self::MeanRatio
            | Self::EffectiveSampleSize
            | Self::Divergence
            | Self::NotFinite
            | Self::GradientNorm
            | Self::Clipping => true,
            Self::ExplainedVariance
            | Self::Truncation
            | Self::EntropySurge
            | Self::EntropyCollapse
            | Self::RewardStdCollapse
            | Self::RewardRegression
            | Self::Mismatch
            | Self::SamplerWeightMismatch
            | Self::Failures => false,
        }
    }
}

/// Bounds of `docs/reference/training-metrics.md`.
const MEAN_RATIO: std::ops::RangeInclusive<f64> = 0.5..=2.0;
const EFFECTIVE_SHARE: f64 = 0.3;
const KL: f64 = 0.1;

/// Alarms of a single training step; [`crate::run_monitor`] has those that compare it with earlier
/// ones. Explained variance counts only once the critic has `warmed_up`.
pub fn alarms(ratios: &Ratios, explained: Option<f64>, warmed_up: bool) -> Vec<Alarm> {
    let figures = [ratios.mean, ratios.effective_share, ratios.kl, explained.unwrap_or(0.0)];
    let raised = [
        (warmed_up && explained.is_some_and(|share| share < 0.0), Alarm::ExplainedVariance),
        (!MEAN_RATIO.contains(&ratios.mean), Alarm::MeanRatio),
        (ratios.effective_share < EFFECTIVE_SHARE, Alarm::EffectiveSampleSize),
        (ratios.kl > KL, Alarm::Divergence),
        (figures.iter().any(|figure| !figure.is_finite()), Alarm::NotFinite),
    ];
    raised.into_iter().filter(|(is_raised, _)| *is_raised).map(|(_, alarm)| alarm).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::losses::{Logprobs, PolicyLoss};
    use crate::recipe::Recipe;
    use proptest::prelude::*;

    fn terms(ratios: &[f64]) -> Vec<Term> {
        let loss: PolicyLoss = Recipe::robust().policy;
        let at = |r: &f64| Logprobs { now: r.ln(), old: 0.0, rollout: 0.0 };
        ratios.iter().map(|ratio| loss.term(at(ratio), 1.0)).collect()
    }

    #[test]
    fn explained_variance_is_one_zero_or_negative() {
        let returns = [1.0, 2.0, 3.0, 4.0];
        let near = |a: Option<f64>, b: f64| (a.unwrap() - b).abs() < 1e-12;
        assert!(near(explained_variance(&returns, &returns), 1.0));
        assert!(near(explained_variance(&[2.5; 4], &returns), 0.0));
        assert!(near(explained_variance(&[4.0, 3.0, 2.0, 1.0], &returns), -3.0));
        // Off by a constant it still tells good from bad.
        assert!(near(explained_variance(&[11.0, 12.0, 13.0, 14.0], &returns), 1.0));
        assert_eq!(explained_variance(&returns, &[2.0; 4]), None);
    }

    #[test]
    fn each_fault_raises_its_alarm() {
        let quiet = Ratios::of(&terms(&[0.95, 1.0, 1.05])).unwrap();
        assert_eq!(alarms(&quiet, Some(0.4), true), []);
        assert_eq!(alarms(&quiet, Some(-0.1), true), [Alarm::ExplainedVariance]);
        assert_eq!(alarms(&quiet, Some(-0.1), false), []);
        assert_eq!(alarms(&quiet, None, true), []);
        let of = |change: fn(&mut Ratios)| {
            let mut ratios = quiet;
            change(&mut ratios);
            alarms(&ratios, Some(0.4), true)
        };
        assert_eq!(of(|r| r.mean = 2.1), [Alarm::MeanRatio]);
        assert_eq!(of(|r| r.effective_share = 0.2), [Alarm::EffectiveSampleSize]);
        assert_eq!(of(|r| r.kl = 0.2), [Alarm::Divergence]);
        assert_eq!(of(|r| r.kl = f64::NAN), [Alarm::NotFinite]);
        assert_eq!(Ratios::of(&[]), None);
    }

    #[test]
    fn one_dominant_ratio_gives_small_effective_sample() {
        let mut many = vec![0.1; 99];
        many.push(50.0);
        let ratios = Ratios::of(&terms(&many)).unwrap();
        assert!(ratios.effective_share < 0.05, "{ratios:?}");
        assert!((Ratios::of(&terms(&[1.2; 9])).unwrap().effective_share - 1.0).abs() < 1e-12);
        assert!((Ratios::of(&terms(&[1.0, 1.3, 1.4])).unwrap().clipped - 2.0 / 3.0).abs() < 1e-12);
    }

    proptest! {
        /// Over few actions the divergence of two distributions is known, and so is what is to be
        /// expected of the estimate.
        #[test]
        fn kl_estimate_matches_exact_divergence(
            before in prop::collection::vec(0.05f64..1.0, 4),
            now in prop::collection::vec(0.05f64..1.0, 4),
        ) {
            let normalised = |p: &[f64]| -> Vec<f64> {
                let sum: f64 = p.iter().sum();
                p.iter().map(|p| p / sum).collect()
            };
            let (before, now) = (normalised(&before), normalised(&now));
            let exact: f64 = before.iter().zip(&now).map(|(b, n)| b * (b / n).ln()).sum();
            // The expectation over actions of the old policy.
            let expected: f64 = before.iter().zip(&now).map(|(b, n)| {
                let terms = terms(&[n / b]);
                b * Ratios::of(&terms).unwrap().kl
            }).sum();
            prop_assert!((expected - exact).abs() < 1e-9, "{} and {}", expected, exact);
        }
    }
}
