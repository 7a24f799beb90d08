//! Learning-rate schedules, with the names of Hugging Face's `lr_scheduler_type`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The shape of a learning-rate schedule after its warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LrSchedulerType {
    /// The learning rate stays the same.
    #[default]
    Constant,
    /// The learning rate falls linearly to 0 after the last step.
    Linear,
    /// The learning rate falls along half a cosine period to 0 after the last step.
    Cosine,
}

/// A learning-rate schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LrSchedule {
    /// Its shape after the warm-up.
    pub kind: LrSchedulerType,
    /// Steps in which the learning rate rises linearly: step `n` (from 0) of `w` uses `(n + 1) / w` of it.
    /// Hugging Face uses `n / w`, whose first step changes nothing.
    pub warmup_steps: u32,
}

impl LrSchedule {
    /// A constant learning rate.
    pub const CONSTANT: Self = Self { kind: LrSchedulerType::Constant, warmup_steps: 0 };

    /// The schedule's factor for step `step` (from 0) of `total`; between 0 and 1.
    ///
    /// The decay follows `transformers.get_linear_schedule_with_warmup` and
    /// `get_cosine_schedule_with_warmup`: it begins after the warm-up.
    pub fn factor(&self, step: f64, total: f64) -> f64 {
        let warmup = f64::from(self.warmup_steps);
        if step < warmup {
            return (step + 1.0).min(warmup) / warmup;
        }
        let done = ((step - warmup) / (total - warmup).max(1.0)).clamp(0.0, 1.0);
        match self.kind {
            LrSchedulerType::Constant => 1.0,
            LrSchedulerType::Linear => 1.0 - done,
            LrSchedulerType::Cosine => f64::midpoint(1.0, (std::f64::consts::PI * done).cos()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn factors(kind: LrSchedulerType, warmup_steps: u32) -> Vec<f64> {
        let schedule = LrSchedule { kind, warmup_steps };
        (0..8).map(|step| schedule.factor(f64::from(step), 8.0)).collect()
    }

    fn near(found: &[f64], wanted: &[f64]) {
        assert_eq!(found.len(), wanted.len());
        for (found, wanted) in found.iter().zip(wanted) {
            assert!((found - wanted).abs() < 1e-12, "{found} and {wanted}");
        }
    }

    #[test]
    fn schedules_match_hand_computed_factors() {
        near(&factors(LrSchedulerType::Constant, 0), &[1.0; 8]);
        let linear = [1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125];
        near(&factors(LrSchedulerType::Linear, 0), &linear);
        let root = std::f64::consts::FRAC_1_SQRT_2;
        let cosine = factors(LrSchedulerType::Cosine, 0);
        near(
            &[cosine[0], cosine[2], cosine[4], cosine[6]],
            &[1.0, f64::midpoint(1.0, root), 0.5, (1.0 - root) / 2.0],
        );
    }

    #[test]
    fn warmup_rises_and_decay_begins_after_it() {
        near(&factors(LrSchedulerType::Constant, 4), &[0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0]);
        near(&factors(LrSchedulerType::Linear, 4), &[0.25, 0.5, 0.75, 1.0, 1.0, 0.75, 0.5, 0.25]);
    }

    #[test]
    fn a_warmup_longer_than_the_run_stays_finite() {
        let schedule = LrSchedule { kind: LrSchedulerType::Linear, warmup_steps: 8 };
        assert!((schedule.factor(7.0, 4.0) - 1.0).abs() < 1e-12);
        assert!(schedule.factor(9.0, 4.0).abs() < 1e-12);
    }
}
