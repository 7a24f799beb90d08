//! Losses of many actions at once on a device. `warpwright_learn::losses` defines them for one
//! action; a test compares both.

use tch::{Device, Kind, Tensor};
use warpwright_learn::engine::{Loss, Row};
use warpwright_learn::losses::{LOG_RATIO_LIMIT, PolicyLoss};

use crate::error::EngineError;

/// Training signals of the rows of one micro-batch: each `[actions]`, float32.
#[derive(Debug)]
pub(crate) enum Signals {
    Likelihood,
    Policy { loss: PolicyLoss, advantages: Tensor, before: Tensor, behaviour: Tensor },
    Value { clip: Option<f64>, targets: Tensor, expected: Option<Tensor> },
}

impl Signals {
    /// The signals that `loss` needs, of all rows, concatenated. A row without them is an error.
    pub(crate) fn of(rows: &[&Row], loss: &Loss, device: Device) -> Result<Self, EngineError> {
        let gather = |name: &str, of: fn(&Row) -> &Vec<f32>| {
            let mut all = Vec::new();
            for row in rows {
                if of(row).len() != row.actions.len() {
                    let (has, wants) = (of(row).len(), row.actions.len());
                    let message = format!("a row has {has} {name} but {wants} actions");
                    return Err(EngineError::request(message));
                }
                all.extend_from_slice(of(row));
            }
            Ok(Tensor::from_slice(&all).to_device(device))
        };
        Ok(match *loss {
            Loss::Likelihood => Self::Likelihood,
            Loss::Policy(loss) => Self::Policy {
                loss,
                advantages: gather("advantages", |row| &row.advantages)?,
                before: gather("old_log_probs", |row| &row.old_log_probs)?,
                behaviour: gather("rollout_log_probs", |row| &row.rollout_log_probs)?,
            },
            Loss::Value { clip } => Self::Value {
                clip,
                targets: gather("returns", |row| &row.returns)?,
                expected: match clip {
                    Some(_) => Some(gather("values", |row| &row.values)?),
                    None => None,
                },
            },
        })
    }

    /// Whether the loss is the critic's.
    pub(crate) fn is_value(&self) -> bool {
        matches!(self, Self::Value { .. })
    }

    /// The sum of the losses of actions `from..from + now.len()`. `now` are their
    /// log-probabilities, or their values for the critic's loss.
    pub(crate) fn sum(&self, now: &Tensor, from: i64) -> Tensor {
        let part = |all: &Tensor| all.narrow(0, from, now.size()[0]);
        match self {
            Self::Likelihood => -now.sum(Kind::Float),
            Self::Policy { loss, advantages, before, behaviour } => {
                policy(loss, now, (&part(before), &part(behaviour)), &part(advantages))
            }
            Self::Value { clip, targets, expected } => {
                let near = expected.as_ref().zip(*clip);
                let near = near.map(|(expected, clip)| (part(expected), clip));
                value(now, &part(targets), near)
            }
        }
    }
}

fn ratio(above: &Tensor, below: &Tensor) -> Tensor {
    (above - below).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
}

/// See [`PolicyLoss::term`].
fn policy(
    loss: &PolicyLoss,
    now: &Tensor,
    (before, behaviour): (&Tensor, &Tensor),
    advantages: &Tensor,
) -> Tensor {
    let before = if loss.bypass_mode { behaviour } else { before };
    let free = ratio(now, before);
    let clipped = free.clamp(1.0 - loss.clip_ratio_low, 1.0 + loss.clip_ratio_high);
    let mut gain = (&free * advantages).minimum(&(clipped * advantages));
    if let Some(most) = loss.clip_ratio_c {
        let bounded = gain.maximum(&(advantages * most));
        gain = bounded.where_self(&advantages.lt(0.0), &gain);
    }
    let gain = match loss.rollout_is_threshold.filter(|_| !loss.bypass_mode) {
        Some(most) => gain * ratio(before, behaviour).clamp_max(most),
        None => gain,
    };
    -gain.sum(Kind::Float)
}

/// See [`warpwright_learn::losses::value_term`].
fn value(now: &Tensor, targets: &Tensor, near: Option<(Tensor, f64)>) -> Tensor {
    let loss = (now - targets).square() * 0.5;
    let Some((expected, clip)) = near else { return loss.sum(Kind::Float) };
    let near = &expected + (now - &expected).clamp(-clip, clip);
    loss.maximum(&((near - targets).square() * 0.5)).sum(Kind::Float)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use warpwright_learn::losses::{Logprobs, value_term};

    /// One action; the loss, and its derivative by what is computed now.
    fn on_device(signals: &Signals, now: f32) -> (f64, f64) {
        let now = Tensor::from_slice(&[now]).set_requires_grad(true);
        let loss = signals.sum(&now, 0);
        loss.backward();
        (loss.double_value(&[]), now.grad().double_value(&[0]))
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() <= 2e-5 * (1.0 + a.abs().max(b.abs()))
    }

    proptest! {
        #[test]
        fn policy_loss_matches_its_definition(
            (now, before, behaviour) in (-6.0f32..-0.01, -6.0f32..-0.01, -6.0f32..-0.01),
            advantage in -3.0f32..3.0,
            dual in prop::option::of(2.0f64..12.0),
            rollout_is_threshold in prop::option::of(1.0f64..3.0),
            bypass_mode in any::<bool>(),
        ) {
            let loss =
                PolicyLoss { clip_ratio_low: 0.2, clip_ratio_high: 0.28, clip_ratio_c: dual, rollout_is_threshold, bypass_mode };
            let row = Row {
                ids: vec![0, 1],
                actions: vec![1],
                advantages: vec![advantage],
                old_log_probs: vec![before],
                rollout_log_probs: vec![behaviour],
                ..Row::default()
            };
            let signals = Signals::of(&[&row], &Loss::Policy(loss), Device::Cpu).unwrap();
            let (found, slope) = on_device(&signals, now);
            let term = loss.term(
                Logprobs {
                    now: f64::from(now),
                    old: f64::from(before),
                    rollout: f64::from(behaviour),
                },
                f64::from(advantage),
            );
            prop_assert!(near(found, term.loss), "{found} {term:?}");
            prop_assert!(near(slope, term.gradient), "{slope} {term:?}");
        }

        #[test]
        fn value_loss_matches_its_definition(
            (now, expected, target) in (-2.0f32..2.0, -2.0f32..2.0, -2.0f32..2.0),
            clip in prop::option::of(0.05f64..0.5),
        ) {
            let row = Row {
                ids: vec![0, 1],
                actions: vec![1],
                returns: vec![target],
                values: vec![expected],
                ..Row::default()
            };
            let signals = Signals::of(&[&row], &Loss::Value { clip }, Device::Cpu).unwrap();
            let (found, slope) = on_device(&signals, now);
            let (loss, gradient) =
                value_term(f64::from(now), f64::from(expected), f64::from(target), clip);
            prop_assert!(near(found, loss), "{found} {loss}");
            prop_assert!(near(slope, gradient), "{slope} {gradient}");
        }
    }

    #[test]
    fn first_update_has_the_whole_gradient() {
        // Both sides of the minimum are equal: neither may lose half of the slope.
        let row = Row {
            ids: vec![0, 1],
            actions: vec![1],
            advantages: vec![1.5],
            old_log_probs: vec![-2.0],
            rollout_log_probs: vec![-2.0],
            ..Row::default()
        };
        let loss = PolicyLoss {
            clip_ratio_low: 0.2,
            clip_ratio_high: 0.28,
            clip_ratio_c: None,
            rollout_is_threshold: None,
            bypass_mode: false,
        };
        let signals = Signals::of(&[&row], &Loss::Policy(loss), Device::Cpu).unwrap();
        assert_eq!(on_device(&signals, -2.0), (-1.5, -1.5));
    }

    #[test]
    fn rows_without_required_signals_are_refused() {
        let row = Row { ids: vec![0, 1], actions: vec![1], ..Row::default() };
        let refused = Signals::of(&[&row], &Loss::Value { clip: None }, Device::Cpu);
        let message = refused.unwrap_err().to_string();
        assert!(message.contains("a row has 0 returns but 1 actions"), "{message}");
    }
}
