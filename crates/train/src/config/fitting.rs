//! Keys of the stages that train on stored episodes, and of those that make the episodes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use warpwright_learn::engine::Step;
use warpwright_learn::fit::{Aim, Fit};
use warpwright_learn::schedule::{LrSchedule, LrSchedulerType};
use warpwright_teacher::Flaws;

use super::rl::{RecipeName, adam_betas, max_grad_norm};

/// Demonstrations: episodes of the built-in policy with deliberate flaws.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Demos {
    /// Demonstrations per task.
    pub episodes_per_task: usize,
    /// Rates of the flaws.
    #[serde(default)]
    pub flaws: Flaws,
}

impl Demos {
    pub(super) fn check(&self) -> Result<(), String> {
        check_flaws(&self.flaws, "demos")?;
        if self.episodes_per_task == 0 {
            return Err("demos.episodes_per_task must be at least 1".to_owned());
        }
        Ok(())
    }
}

pub(super) fn check_flaws(flaws: &Flaws, table: &str) -> Result<(), String> {
    // All fields, so that a new one is not forgotten here.
    let Flaws {
        unfused,
        naive,
        slow,
        off_by_one,
        max_errors: _,
        undefined_name,
        judge_rate,
        repair_rate,
        edit_rate,
        improve_rate,
    } = *flaws;
    let rates = [
        ("unfused", unfused),
        ("naive", naive),
        ("slow", slow),
        ("off_by_one", off_by_one),
        ("undefined_name", undefined_name),
        ("judge_rate", judge_rate),
        ("repair_rate", repair_rate),
        ("edit_rate", edit_rate),
        ("improve_rate", improve_rate),
    ];
    match rates.iter().find(|(_, rate)| !(0.0..=1.0).contains(rate)) {
        Some((name, _)) => Err(format!("{table}.flaws.{name} must lie between 0 and 1")),
        None => Ok(()),
    }
}

/// Training on stored episodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fitting {
    /// Learning rate.
    #[schemars(extend("x-hf" = ["learning_rate"]))]
    pub lr: f64,
    /// How the learning rate changes after the warm-up; `linear` and `cosine` reach 0 after `total_epochs`.
    #[serde(default)]
    #[schemars(extend("x-hf" = ["lr_scheduler_type"]))]
    pub lr_scheduler_type: LrSchedulerType,
    /// Optimizer steps in which the learning rate rises linearly to `lr`; `train_batch_size` sets the steps per epoch.
    /// In `[ppo]` and `[single_turn]` the same key counts training steps.
    #[serde(default)]
    #[schemars(extend("x-hf" = ["warmup_steps"]))]
    pub lr_warmup_steps: u32,
    /// Weight decay of AdamW; it applies to matrices only.
    #[serde(default = "weight_decay")]
    #[schemars(extend("x-hf" = ["weight_decay"]))]
    pub weight_decay: f64,
    /// Gradients with a larger norm are scaled down to it.
    #[serde(default = "max_grad_norm")]
    #[schemars(extend("x-hf" = ["max_grad_norm"]))]
    pub max_grad_norm: f64,
    /// Decay rates of AdamW's first and second moment.
    #[serde(default = "adam_betas")]
    #[schemars(extend("x-hf" = ["adam_beta1", "adam_beta2"]))]
    pub adam_betas: (f64, f64),
    /// Episodes per optimizer step; in `[pretrain.fit]`, kernels and pieces of source code. In `[ppo]` and
    /// `[single_turn]` the same key counts tasks (prompts) per training step.
    #[serde(default = "train_batch_size")]
    #[schemars(extend("x-hf" = ["per_device_train_batch_size"]))]
    pub train_batch_size: usize,
    /// Share of the episodes that is used for validation and not trained on.
    #[serde(default = "validation_fraction")]
    pub validation_fraction: f64,
    /// Training stops after this many epochs without an improvement.
    #[serde(default = "patience")]
    #[schemars(extend("x-hf" = ["early_stopping_patience"]))]
    pub patience: u32,
    /// Smallest change of the validation metric that counts as an improvement.
    #[serde(default = "min_delta")]
    #[schemars(extend("x-hf" = ["early_stopping_threshold"]))]
    pub min_delta: f64,
    /// Limit on the number of epochs.
    #[schemars(extend("x-hf" = ["num_train_epochs"]))]
    pub total_epochs: u32,
}

impl Fitting {
    /// The settings of a fit with this aim.
    pub fn fit(&self, aim: Aim, seed: u64) -> Fit {
        Fit {
            aim,
            step: Step {
                lr: self.lr,
                adam_betas: self.adam_betas,
                weight_decay: self.weight_decay,
                max_grad_norm: self.max_grad_norm,
            },
            schedule: LrSchedule {
                kind: self.lr_scheduler_type,
                warmup_steps: self.lr_warmup_steps,
            },
            train_batch_size: self.train_batch_size,
            validation_fraction: self.validation_fraction,
            patience: self.patience,
            min_delta: self.min_delta,
            total_epochs: self.total_epochs,
            seed,
        }
    }
}

/// Episodes of the policy as it is, stored for `rft` and `value`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Collecting {
    /// Episodes per task.
    pub episodes_per_task: usize,
    /// Limit on the training tasks: episodes of the first ones are collected. Default: all. `pretrain.max_tasks`
    /// samples its tasks instead.
    pub max_tasks: Option<usize>,
}

/// Rejection fine-tuning: supervised training on the collected episodes with a high reward.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rejecting {
    /// Trains on episodes with a reward above this.
    #[serde(default)]
    pub reward_threshold: f64,
    /// How it trains.
    pub fit: Fitting,
}

/// Value pretraining: trains the critic on the collected episodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Valuing {
    /// Recipe whose targets the critic is trained on: `robust` uses returns, `paper` GAE targets.
    #[serde(default)]
    pub recipe: RecipeName,
    /// How it trains.
    pub fit: Fitting,
}

/// Evaluation on held-out tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Evaluating {
    /// Episodes per held-out task and policy.
    #[schemars(extend("x-verl" = ["actor_rollout_ref.rollout.val_kwargs.n"]))]
    pub episodes_per_task: usize,
    /// Also evaluates each policy's first message alone, in as many further episodes.
    #[serde(default)]
    pub single_turn: bool,
    /// Policies without weights to compare with, one episode per task.
    #[serde(default)]
    pub baseline_policies: Vec<BaselinePolicy>,
}

/// A policy without weights to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BaselinePolicy {
    /// The built-in policy.
    #[serde(rename = "teacher")]
    Teacher,
    /// The built-in policy; it has every version that it could write judged.
    #[serde(rename = "teacher:exhaustive")]
    Exhaustive,
}

fn weight_decay() -> f64 {
    0.1
}
fn train_batch_size() -> usize {
    16
}
fn validation_fraction() -> f64 {
    0.1
}
fn patience() -> u32 {
    2
}
fn min_delta() -> f64 {
    1e-3
}
