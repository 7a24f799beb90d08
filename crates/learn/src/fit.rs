//! Training on stored episodes: the policy by supervised or rejection fine-tuning, the critic by
//! value pretraining.
//!
//! Training runs epoch after epoch until the validation metric stops improving. The seed and the
//! epoch's number determine the validation episodes and the order of the others. A run that is
//! resumed after an epoch therefore gives the same result as an uninterrupted run.

use std::ops::ControlFlow;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::advantage::value_targets;
use crate::batch::{Batch, Episode};
use crate::engine::{Engine, Loss, Scores, Step, Which};
use crate::moments::mean;
use crate::monitor::explained_variance;
use crate::recipe::Targets;
use crate::schedule::LrSchedule;
use crate::update::UpdateError;

/// The objective of the training.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aim {
    /// Negative log-likelihood of the actions.
    Likelihood,
    /// The values of the actions: of the critic if it has weights of its own, else of the value
    /// head together with the policy.
    Values(Targets),
}

/// Settings of a training on stored episodes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fit {
    /// The objective.
    pub aim: Aim,
    /// The optimizer step.
    pub step: Step,
    /// How the learning rate changes over the steps of `total_epochs`.
    pub schedule: LrSchedule,
    /// Episodes per step.
    pub train_batch_size: usize,
    /// Share of the episodes that is used for validation and not trained on.
    pub validation_fraction: f64,
    /// Training ends after this many epochs without an improvement (early stopping).
    pub patience: u32,
    /// Smallest change of the validation metric that counts as an improvement.
    pub min_delta: f64,
    /// Training ends after this many epochs.
    pub total_epochs: u32,
    /// Seed of the split and of the order.
    pub seed: u64,
}

/// Metrics of one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Epoch {
    /// Its number, from 0.
    pub number: u32,
    /// Mean loss of its steps.
    pub loss: f64,
    /// Mean gradient norm of its steps.
    pub norm: f64,
    /// Validation loss after the epoch: mean negative log-likelihood per action, or half the mean
    /// squared error of the values.
    pub validation_loss: f64,
    /// Explained variance of the values on the validation episodes, after the epoch.
    pub explained_variance: Option<f64>,
}

impl Epoch {
    /// The validation metric; higher is better.
    fn figure(&self) -> f64 {
        self.explained_variance.unwrap_or(-self.validation_loss)
    }
}

impl Fit {
    /// Trains until the validation metric stops improving. Returns all epochs in order, beginning
    /// with `done`, those of an earlier run. `each` is called after each new epoch, when the engine
    /// has all its steps, and may end the training.
    pub fn run<E: Engine>(
        &self,
        engine: &mut E,
        episodes: &[Episode],
        done: Vec<Epoch>,
        each: impl FnMut(&mut E, &Epoch) -> ControlFlow<()>,
    ) -> Result<Vec<Epoch>, UpdateError<E::Error>>
    where
        E::Error: 'static,
    {
        self.run_watched(engine, episodes, done, each, &mut |_, _, _| {})
    }

    /// Like [`Fit::run`]; calls `step` after each optimizer step with the epoch's number, the steps
    /// taken in it and its number of steps.
    pub fn run_watched<E: Engine>(
        &self,
        engine: &mut E,
        episodes: &[Episode],
        done: Vec<Epoch>,
        mut each: impl FnMut(&mut E, &Epoch) -> ControlFlow<()>,
        step: &mut dyn FnMut(u32, usize, usize),
    ) -> Result<Vec<Epoch>, UpdateError<E::Error>>
    where
        E::Error: 'static,
    {
        let (train, held_out) = self.split(episodes);
        let mut epochs = done;
        while !train.is_empty() && !self.is_over(&epochs) {
            let number = epochs.len() as u32;
            let (loss, norm) = self.steps(engine, &train, number, step)?;
            // Without validation episodes the training metrics decide.
            let measured = if held_out.is_empty() { &train } else { &held_out };
            let (validation_loss, explained_variance) = self.measure(engine, measured)?;
            let epoch = Epoch { number, loss, norm, validation_loss, explained_variance };
            epochs.push(epoch);
            if !epoch.figure().is_finite() || each(engine, &epoch).is_break() {
                break;
            }
        }
        Ok(epochs)
    }

    /// Whether training has ended.
    pub fn is_over(&self, epochs: &[Epoch]) -> bool {
        let (mut best, mut since) = (f64::NEG_INFINITY, 0);
        for epoch in epochs {
            if epoch.figure() > best + self.min_delta {
                (best, since) = (epoch.figure(), 0);
            } else {
                since += 1;
            }
        }
        epochs.len() >= self.total_epochs as usize || since >= self.patience.max(1)
    }

    fn split<'e>(&self, episodes: &'e [Episode]) -> (Vec<&'e Episode>, Vec<&'e Episode>) {
        let mut order: Vec<&Episode> = episodes.iter().collect();
        order.shuffle(&mut StdRng::seed_from_u64(self.seed));
        let count =
            (self.validation_fraction.clamp(0.0, 1.0) * order.len() as f64).round() as usize;
        let held_out = order.split_off(order.len() - count.min(order.len().saturating_sub(1)));
        (order, held_out)
    }

    /// Step `step` (from 0) of epoch `epoch`, where an epoch has `per_epoch` steps.
    fn step_at(&self, epoch: u32, step: u32, per_epoch: usize) -> Step {
        let per_epoch = per_epoch as f64;
        let (step, total) = (
            f64::from(epoch) * per_epoch + f64::from(step),
            f64::from(self.total_epochs) * per_epoch,
        );
        Step { lr: self.step.lr * self.schedule.factor(step, total), ..self.step }
    }

    /// One epoch; the means of its steps' losses and norms.
    fn steps<E: Engine>(
        &self,
        engine: &mut E,
        train: &[&Episode],
        number: u32,
        made: &mut dyn FnMut(u32, usize, usize),
    ) -> Result<(f64, f64), UpdateError<E::Error>>
    where
        E::Error: 'static,
    {
        let mut order = train.to_vec();
        let mut random = StdRng::seed_from_u64(self.seed ^ (u64::from(number) + 1) << 32);
        order.shuffle(&mut random);
        // The rotation puts other episodes into the last, smaller batch of each epoch.
        order.rotate_left(random.random_range(0..train.len()));
        let own = engine.describe().map_err(UpdateError::Engine)?.has_critic;
        let (mut losses, mut norms) = (Vec::new(), Vec::new());
        let parts = order.chunks(self.train_batch_size.max(1));
        let of = parts.len();
        for (part, step) in parts.zip(0u32..) {
            let part: Vec<Episode> = part.iter().map(|episode| (*episode).clone()).collect();
            let mut batch = Batch::new(&part)?;
            let (loss, which) = match self.aim {
                Aim::Likelihood => (Loss::Likelihood, Which::Policy),
                Aim::Values(targets) => {
                    put_targets(engine, &mut batch, targets)?;
                    let which = if own { Which::Critic } else { Which::Policy };
                    (Loss::Value { clip: None }, which)
                }
            };
            let over = batch.actions() as f64;
            let passed = engine.backward(batch.rows(), &loss, over);
            losses.push(passed.map_err(UpdateError::Engine)?.loss);
            let step = self.step_at(number, step, of);
            norms.push(engine.step(which, &step).map_err(UpdateError::Engine)?);
            made(number, norms.len(), of);
        }
        Ok((mean(&losses), mean(&norms)))
    }

    /// Loss and explained variance of some episodes.
    fn measure<E: Engine>(
        &self,
        engine: &mut E,
        episodes: &[&Episode],
    ) -> Result<(f64, Option<f64>), UpdateError<E::Error>>
    where
        E::Error: 'static,
    {
        let episodes: Vec<Episode> = episodes.iter().map(|episode| (*episode).clone()).collect();
        let batch = Batch::new(&episodes)?;
        let scores = engine.score(batch.rows()).map_err(UpdateError::Engine)?;
        if self.aim == Aim::Likelihood {
            return Ok((-mean(&batch.gather(&scores, |s| &s.logprobs).concat()), None));
        }
        let values = values_of(&batch, &scores)?.concat();
        let returns = batch.decided().flat_map(|actions| vec![actions.reward(); actions.len()]);
        let returns: Vec<f64> = returns.collect();
        let errors = values.iter().zip(&returns).map(|(v, r)| (v - r).powi(2) / 2.0);
        Ok((mean(&errors.collect::<Vec<_>>()), explained_variance(&values, &returns)))
    }
}

/// Writes the critic's target of each action.
fn put_targets<E: Engine>(
    engine: &mut E,
    batch: &mut Batch,
    targets: Targets,
) -> Result<(), UpdateError<E::Error>>
where
    E::Error: 'static,
{
    let values = match targets {
        // Monte-Carlo returns do not depend on the values.
        Targets::MonteCarlo => batch.decided().map(|actions| vec![0.0; actions.len()]).collect(),
        Targets::Gae(_) => {
            let scores = engine.score(batch.rows()).map_err(UpdateError::Engine)?;
            values_of(batch, &scores)?
        }
    };
    let each = batch
        .decided()
        .zip(&values)
        .map(|(actions, values)| value_targets(&actions.rewards(), values, 1.0, targets.lambda()));
    let each: Vec<Vec<f64>> = each.collect();
    batch.put(|row| &mut row.returns, &each);
    Ok(())
}

/// The engine's value of each action, by episode.
fn values_of<X: std::error::Error>(
    batch: &Batch,
    scores: &[Scores],
) -> Result<Vec<Vec<f64>>, UpdateError<X>> {
    let values = batch.gather(scores, |s| &s.values);
    let all_there = batch.decided().zip(&values).all(|(actions, v)| actions.len() == v.len());
    if all_there { Ok(values) } else { Err(UpdateError::NoValues) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Table, episode};

    fn fit(aim: Aim) -> Fit {
        let step = Step { lr: 0.5, ..Step::default() };
        Fit {
            aim,
            step,
            schedule: LrSchedule::CONSTANT,
            train_batch_size: 25,
            validation_fraction: 0.25,
            patience: 3,
            min_delta: 1e-3,
            total_epochs: 100,
            seed: 1,
        }
    }

    /// After 0 comes 1 as a rule, which is worth 1; 2 is worth nothing, whatever follows.
    fn episodes() -> Vec<Episode> {
        let of = |n: usize| match n % 4 {
            3 => episode("a", &[2, 3], 0.0),
            _ => episode("a", &[1, 1], 1.0),
        };
        (0..200).map(of).collect()
    }

    fn all(fit: &Fit, table: &mut Table) -> Vec<Epoch> {
        fit.run(table, &episodes(), vec![], |_, _| ControlFlow::Continue(())).unwrap()
    }

    #[test]
    fn supervised_training_stops_when_validation_stops_improving() {
        let mut table = Table::new();
        let epochs = all(&fit(Aim::Likelihood), &mut table);
        assert!(epochs.len() > 3 && epochs.len() < 100, "{}", epochs.len());
        let (first, last) = (epochs[0], epochs[epochs.len() - 1]);
        assert!(
            last.validation_loss < first.validation_loss && last.loss < first.loss,
            "{first:?} {last:?}"
        );
        assert_eq!(last.explained_variance, None);
        let after = table.logprobs(0).map(f64::exp);
        assert!((after[1] - 0.75).abs() < 0.1 && (after[2] - 0.25).abs() < 0.1, "{after:?}");
        let still = Table::new();
        assert!(table.values.iter().eq(&still.values), "values are not what was learned");
    }

    #[test]
    fn step_callback_sees_every_step() {
        let mut told = Vec::new();
        let few = Fit { total_epochs: 2, ..fit(Aim::Likelihood) };
        let on = |_: &mut Table, _: &Epoch| ControlFlow::Continue(());
        let step = &mut |epoch, made, of| told.push((epoch, made, of));
        few.run_watched(&mut Table::new(), &episodes(), vec![], on, step).unwrap();
        let expected = (0..2).flat_map(|epoch| (1..=6).map(move |made| (epoch, made, 6)));
        assert_eq!(told, expected.collect::<Vec<_>>());
    }

    #[test]
    fn linear_schedule_falls_from_lr_to_zero() {
        const LINEAR: LrSchedule =
            LrSchedule { kind: crate::schedule::LrSchedulerType::Linear, warmup_steps: 0 };
        let falls = Fit { schedule: LINEAR, total_epochs: 4, patience: 9, ..fit(Aim::Likelihood) };
        for ((epoch, step), lr) in [((0, 0), 0.5), ((1, 0), 0.375), ((2, 2), 0.1875), ((4, 0), 0.0)]
        {
            assert!((falls.step_at(epoch, step, 4).lr - lr).abs() < 1e-12, "{epoch} {step}");
        }
        let (mut falling, mut steady) = (Table::new(), Table::new());
        assert_eq!(all(&falls, &mut falling).len(), 4);
        all(&Fit { schedule: LrSchedule::CONSTANT, ..falls }, &mut steady);
        let moved = |table: &Table| table.odds.iter().flatten().map(|odds| odds.abs()).sum::<f64>();
        assert!(moved(&falling) < moved(&steady), "{:?} {:?}", falling.odds, steady.odds);
    }

    #[test]
    fn critic_fits_the_returns() {
        for targets in [Targets::MonteCarlo, Targets::Gae(0.95)] {
            let mut table = Table::new();
            let epochs = all(&fit(Aim::Values(targets)), &mut table);
            assert!((table.values[0] - 0.75).abs() < 0.15, "{targets:?} {:?}", table.values);
            assert!((table.values[1] - 1.0).abs() < 0.1, "{targets:?} {:?}", table.values);
            assert!(table.values[2].abs() < 0.1, "{targets:?} {:?}", table.values);
            let last = epochs[epochs.len() - 1];
            assert!(last.explained_variance.unwrap() > 0.4, "{targets:?} {last:?}");
            assert_eq!(table.odds, Table::new().odds, "the policy does not move");
        }
    }

    #[test]
    fn resumed_fit_equals_uninterrupted_fit() {
        let fit = fit(Aim::Likelihood);
        let mut straight = Table::new();
        let epochs = all(&fit, &mut straight);
        let mut table = Table::new();
        let stop = |_: &mut Table, epoch: &Epoch| {
            if epoch.number == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let first = fit.run(&mut table, &episodes(), vec![], stop).unwrap();
        assert_eq!(first.len(), 3);
        let on = |_: &mut Table, _: &Epoch| ControlFlow::Continue(());
        assert_eq!(fit.run(&mut table, &episodes(), first, on).unwrap(), epochs);
        assert_eq!(table, straight);
        // One that is over stays as it is.
        assert_eq!(fit.run(&mut table, &episodes(), epochs.clone(), on).unwrap(), epochs);
        assert_eq!(table, straight);
    }

    #[test]
    fn no_episodes_or_nan_ends_training() {
        let on = |_: &mut Table, _: &Epoch| ControlFlow::Continue(());
        let mut table = Table::new();
        assert_eq!(fit(Aim::Likelihood).run(&mut table, &[], vec![], on).unwrap(), []);
        let one = &episodes()[..1];
        let few = Fit { total_epochs: 2, ..fit(Aim::Likelihood) };
        assert_eq!(
            few.run(&mut table, one, vec![], on).unwrap().len(),
            2,
            "no validation episodes"
        );
        let lost = Fit { step: Step { lr: f64::NAN, ..Step::default() }, ..few };
        assert_eq!(lost.run(&mut Table::new(), one, vec![], on).unwrap().len(), 1);
        let mut none = Table { has_values: false, ..Table::new() };
        let refused = fit(Aim::Values(Targets::MonteCarlo)).run(&mut none, one, vec![], on);
        assert!(matches!(refused, Err(UpdateError::NoValues)));
    }
}
