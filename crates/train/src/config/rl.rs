//! Keys of the stages that train on their own rollouts: `[single_turn]` and `[ppo]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use warpwright_learn::advantage::Lambda;
use warpwright_learn::engine::Step;
use warpwright_learn::monitor::Alarm;
use warpwright_learn::online::Online;
use warpwright_learn::recipe::Recipe;
use warpwright_learn::schedule::{LrSchedule, LrSchedulerType};
use warpwright_learn::update::{Algorithm, Comparison, Steps};
use warpwright_record::verdict::Scheme;

/// A stage that trains on its own rollouts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct Rl {
    /// Algorithm that updates the policy.
    #[serde(default)]
    #[schemars(extend("x-verl" = ["algorithm.adv_estimator"]))]
    pub algorithm: AlgorithmName,
    /// Defaults of the constants below that have no value: `robust` is ours, `paper` those of arXiv 2602.24286.
    #[serde(default)]
    pub recipe: RecipeName,
    /// Number of training steps. Each samples one batch of rollouts and updates the policy from it.
    #[schemars(extend("x-verl" = ["trainer.total_training_steps", "actor_rollout_ref.actor.optim.total_training_steps", "critic.optim.total_training_steps"], "x-hf" = ["max_steps"]))]
    pub total_training_steps: u32,
    /// Tasks (prompts) per training step; each has `rollout_n` episodes. In a fit, such as `[sft]`, the same key counts
    /// episodes per optimizer step.
    #[schemars(extend("x-verl" = ["data.train_batch_size"]))]
    pub train_batch_size: usize,
    /// Rollouts (episodes) per task and training step.
    #[schemars(extend("x-verl" = ["actor_rollout_ref.rollout.n", "actor_rollout_ref.actor.rollout_n", "critic.rollout_n"], "x-hf" = ["num_generations"]))]
    pub rollout_n: usize,
    /// Tasks (prompts) per minibatch; it divides `train_batch_size`. The policy takes one optimizer step per
    /// minibatch. Episodes are dealt to minibatches in turn, so that each holds some of every task. Default:
    /// `train_batch_size`, that is one minibatch.
    #[schemars(extend("x-verl" = ["actor_rollout_ref.actor.ppo_mini_batch_size", "critic.ppo_mini_batch_size"]))]
    pub ppo_mini_batch_size: Option<usize>,
    /// Passes over the minibatches of a training step.
    #[serde(default = "one_pass")]
    #[schemars(extend("x-verl" = ["actor_rollout_ref.actor.ppo_epochs"], "x-hf" = ["num_ppo_epochs", "num_iterations"]))]
    pub ppo_epochs: usize,
    /// Learning rate of the policy.
    #[schemars(extend("x-verl" = ["actor_rollout_ref.actor.optim.lr"], "x-hf" = ["learning_rate"]))]
    pub lr: f64,
    /// How the policy's learning rate changes after the warm-up.
    #[serde(default)]
    #[schemars(extend("x-verl" = ["actor_rollout_ref.actor.optim.lr_scheduler_type", "actor_rollout_ref.actor.optim.warmup_style"]))]
    pub lr_scheduler_type: LrSchedulerType,
    /// Training steps in which the policy's learning rate rises linearly to `lr`; it is the same for all minibatches of
    /// a training step. In a fit, such as `[sft]`, the same key counts optimizer steps.
    #[serde(default)]
    #[schemars(extend("x-verl" = ["actor_rollout_ref.actor.optim.lr_warmup_steps"], "x-hf" = ["warmup_steps"]))]
    pub lr_warmup_steps: u32,
    /// Weight decay of AdamW; it applies to matrices only.
    #[serde(default)]
    #[schemars(extend("x-verl" = ["actor_rollout_ref.actor.optim.weight_decay", "critic.optim.weight_decay"]))]
    pub weight_decay: f64,
    /// Gradients with a larger norm are scaled down to it.
    #[serde(default = "max_grad_norm")]
    #[schemars(extend("x-verl" = ["actor_rollout_ref.actor.grad_clip", "actor_rollout_ref.actor.optim.clip_grad", "critic.grad_clip", "critic.optim.clip_grad"]))]
    pub max_grad_norm: f64,
    /// Decay rates of AdamW's first and second moment.
    #[serde(default = "adam_betas")]
    #[schemars(extend("x-verl" = ["actor_rollout_ref.actor.optim.betas", "critic.optim.betas"], "x-hf" = ["adam_beta1", "adam_beta2"]))]
    pub adam_betas: (f64, f64),
    /// Discount per action, which is a token that the policy sampled. Recipes: 1.
    #[schemars(extend("x-verl" = ["algorithm.gamma"]))]
    pub gamma: Option<f64>,
    /// `lambda` of GAE for the policy's advantages; 1 uses the return. Recipes: `robust` adapts it to the length of the
    /// trajectory, `paper` has 0.95.
    #[schemars(extend("x-verl" = ["algorithm.lam"], "x-hf" = ["lam"]))]
    pub actor_lambda: Option<f64>,
    /// `lambda` of the critic's targets; 1 uses the return. Recipes: `robust` has 1, `paper` 0.95.
    #[schemars(extend("x-verl" = ["algorithm.lam"]))]
    pub critic_lambda: Option<f64>,
    /// Importance ratios are clipped to at least 1 minus this. Recipes: 0.2.
    #[schemars(extend("x-verl" = ["actor_rollout_ref.actor.clip_ratio_low", "actor_rollout_ref.actor.clip_ratio"], "x-hf" = ["cliprange", "epsilon"]))]
    pub clip_ratio_low: Option<f64>,
    /// Importance ratios are clipped to at most 1 plus this. Recipes: 0.28.
    #[schemars(extend("x-verl" = ["actor_rollout_ref.actor.clip_ratio_high", "actor_rollout_ref.actor.clip_ratio"], "x-hf" = ["epsilon_high"]))]
    pub clip_ratio_high: Option<f64>,
    /// Dual clip: with a negative advantage an importance ratio counts as at most this; 0 disables it. Recipes: `robust`
    /// has 10, `paper` none.
    #[schemars(extend("x-verl" = ["actor_rollout_ref.actor.clip_ratio_c"], "x-hf" = ["delta"]))]
    pub clip_ratio_c: Option<f64>,
    /// Value clipping: the critic's value may differ from its old value by at most this within a training step; 0
    /// disables it. Recipes: none.
    #[schemars(extend("x-verl" = ["critic.cliprange_value"]))]
    pub cliprange_value: Option<f64>,
    /// Truncated importance sampling: an action's loss is weighted by the ratio of the trainer's probability to the
    /// sampler's, at most this; 0 disables it. Recipes: `robust` has 2, `paper` none.
    #[schemars(extend("x-verl" = ["algorithm.rollout_correction.rollout_is_threshold"]))]
    pub rollout_is_threshold: Option<f64>,
    /// Uses the sampler's log-probabilities as the old ones of the importance ratio, instead of the trainer's.
    #[serde(default)]
    #[schemars(extend("x-verl" = ["algorithm.rollout_correction.bypass_mode"]))]
    pub bypass_mode: bool,
    /// The critic has weights of its own, which begin as the policy's unless an earlier stage trained one. Otherwise a
    /// value head shares the policy's trunk; stage `value` adds one to a pretrained model.
    #[serde(default)]
    pub separate_critic: bool,
    /// Learning rate of a separate critic. Default: twice `lr`.
    #[schemars(extend("x-verl" = ["critic.optim.lr"]))]
    pub critic_lr: Option<f64>,
    /// Optimizer steps of a separate critic per training step.
    #[serde(default = "one")]
    #[schemars(extend("x-verl" = ["critic.ppo_epochs"]))]
    pub critic_steps_per_step: u32,
    /// First training steps, in which only the critic is trained. Above 0, the critic is separate.
    #[serde(default)]
    #[schemars(extend("x-verl" = ["trainer.critic_warmup"]))]
    pub critic_warmup_steps: u32,
    /// Weight of the negative log-likelihood of rewarded episodes, added to the loss of `ppo` (VAPO, arXiv 2504.05118,
    /// has 0.1).
    #[serde(default)]
    pub positive_nll_weight: f64,
    /// Zero-variance groups train the critic of `ppo` only. A group is a task's episodes of one training step.
    #[serde(default)]
    #[schemars(extend("x-verl" = ["algorithm.filter_groups.enable"]))]
    pub drop_zero_variance_groups: bool,
    /// A group has zero variance if no two of its rewards differ by more than this.
    #[serde(default)]
    pub zero_variance_tolerance: f64,
    /// Sampling weight of tasks whose last group had zero variance; other tasks have weight 1.
    #[serde(default = "zero_variance_sample_weight")]
    pub zero_variance_sample_weight: f64,
    /// Off-policy staleness limit: a rollout may begin at most this many training steps before the step that trains on
    /// it.
    #[serde(default)]
    pub max_staleness: u32,
    /// Alarms that halt the stage.
    #[serde(default = "halt_on")]
    pub halt_on: Vec<Alarm>,
    /// Alarms that roll the policy back and halve its learning rate.
    #[serde(default)]
    pub rollback_on: Vec<Alarm>,
    /// Sets the learning rate, at most `lr`, such that an update moves the policy by about this KL divergence, in nats
    /// per episode. (verl's `target_kl` belongs to its KL penalty and is something else.)
    pub lr_kl_target_per_episode: Option<f64>,
}

/// The algorithm that updates a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AlgorithmName {
    /// PPO with a critic and GAE; verl's `adv_estimator = "gae"`.
    #[default]
    Ppo,
    /// REINFORCE leave-one-out.
    Rloo,
    /// Group-relative policy optimization.
    Grpo,
    /// The likelihood of rewarded episodes.
    RejectionSampling,
}

/// A named set of constants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RecipeName {
    /// Ours.
    #[default]
    Robust,
    /// The paper's.
    Paper,
}

impl RecipeName {
    pub fn recipe(self) -> Recipe {
        match self {
            Self::Robust => Recipe::robust(),
            Self::Paper => Recipe::paper(),
        }
    }
}

impl Rl {
    /// Whether it needs a critic with weights of its own.
    pub fn needs_critic(&self) -> bool {
        self.algorithm == AlgorithmName::Ppo
            && (self.separate_critic || self.critic_warmup_steps > 0)
    }

    /// Whether it needs values: of a critic, or of a value head.
    pub fn is_ppo(&self) -> bool {
        self.algorithm == AlgorithmName::Ppo
    }

    /// Checks the values; `name` is the table's name.
    pub(super) fn check(&self, name: &str) -> Result<(), String> {
        let at_least_one = [
            ("train_batch_size", self.train_batch_size),
            ("rollout_n", self.rollout_n),
            ("total_training_steps", self.total_training_steps as usize),
            ("ppo_epochs", self.ppo_epochs),
            ("ppo_mini_batch_size", self.mini_batch_size()),
        ];
        if let Some((key, _)) = at_least_one.iter().find(|(_, value)| *value == 0) {
            return Err(format!("{name}.{key} must be at least 1"));
        }
        if !self.train_batch_size.is_multiple_of(self.mini_batch_size()) {
            let (mini, batch) = (self.mini_batch_size(), self.train_batch_size);
            return Err(format!(
                "{name}.ppo_mini_batch_size is {mini} and must divide train_batch_size, which is {batch}"
            ));
        }
        let shares = [
            ("gamma", self.gamma),
            ("actor_lambda", self.actor_lambda),
            ("critic_lambda", self.critic_lambda),
            ("clip_ratio_low", self.clip_ratio_low),
        ];
        let is_share = |value: f64| (0.0..=1.0).contains(&value);
        if let Some((key, _)) = shares.iter().find(|(_, v)| v.is_some_and(|v| !is_share(v))) {
            return Err(format!("{name}.{key} must lie between 0 and 1"));
        }
        let not_negative = [
            ("lr", Some(self.lr)),
            ("critic_lr", self.critic_lr),
            ("weight_decay", Some(self.weight_decay)),
            ("clip_ratio_high", self.clip_ratio_high),
            ("clip_ratio_c", self.clip_ratio_c),
            ("cliprange_value", self.cliprange_value),
            ("rollout_is_threshold", self.rollout_is_threshold),
            ("positive_nll_weight", Some(self.positive_nll_weight)),
            ("zero_variance_tolerance", Some(self.zero_variance_tolerance)),
            ("zero_variance_sample_weight", Some(self.zero_variance_sample_weight)),
        ];
        let is_sound = |value: f64| value >= 0.0 && value.is_finite();
        if let Some((key, _)) = not_negative.iter().find(|(_, v)| v.is_some_and(|v| !is_sound(v))) {
            return Err(format!("{name}.{key} must be finite and at least 0"));
        }
        if self.max_grad_norm.is_nan() || self.max_grad_norm <= 0.0 {
            return Err(format!("{name}.max_grad_norm must be more than 0"));
        }
        let (first, second) = self.adam_betas;
        if ![first, second].iter().all(|beta| (0.0..1.0).contains(beta)) {
            return Err(format!("{name}.adam_betas must be at least 0 and below 1"));
        }
        if self.clip_ratio_c.is_some_and(|c| c > 0.0 && c <= 1.0) {
            return Err(format!("{name}.clip_ratio_c must be more than 1, or 0 to disable it"));
        }
        let is_special = self.positive_nll_weight > 0.0 || self.drop_zero_variance_groups;
        if is_special && self.algorithm != AlgorithmName::Ppo {
            return Err(format!(
                "{name}.positive_nll_weight and {name}.drop_zero_variance_groups need algorithm = \"ppo\""
            ));
        }
        if self.bypass_mode && self.rollout_is_threshold.is_some_and(|threshold| threshold > 0.0) {
            return Err(format!(
                "{name}.rollout_is_threshold has no effect with bypass_mode: give one of them"
            ));
        }
        if self.lr_kl_target_per_episode.is_some_and(|kl| kl <= 0.0 || !kl.is_finite()) {
            return Err(format!("{name}.lr_kl_target_per_episode must be finite and more than 0"));
        }
        Ok(())
    }

    fn mini_batch_size(&self) -> usize {
        self.ppo_mini_batch_size.unwrap_or(self.train_batch_size)
    }

    /// The recipe, with the constants that are set here.
    fn constants(&self) -> Recipe {
        let mut recipe = self.recipe.recipe();
        // 0 disables a limit that has no neutral value.
        let limit = |given: Option<f64>, usual: Option<f64>| match given {
            Some(value) => Some(value).filter(|value| *value > 0.0),
            None => usual,
        };
        recipe.gamma = self.gamma.unwrap_or(recipe.gamma);
        recipe.actor_lambda = self.actor_lambda.map_or(recipe.actor_lambda, Lambda::Fixed);
        recipe.critic_lambda = self.critic_lambda.unwrap_or(recipe.critic_lambda);
        recipe.cliprange_value = limit(self.cliprange_value, recipe.cliprange_value);
        recipe.positive_nll_weight = self.positive_nll_weight;
        recipe.drop_zero_variance_groups = self.drop_zero_variance_groups;
        let policy = &mut recipe.policy;
        policy.clip_ratio_low = self.clip_ratio_low.unwrap_or(policy.clip_ratio_low);
        policy.clip_ratio_high = self.clip_ratio_high.unwrap_or(policy.clip_ratio_high);
        policy.clip_ratio_c = limit(self.clip_ratio_c, policy.clip_ratio_c);
        policy.rollout_is_threshold = limit(self.rollout_is_threshold, policy.rollout_is_threshold);
        policy.bypass_mode = self.bypass_mode;
        recipe
    }

    /// The settings of a stage of reinforcement learning.
    pub fn online(&self, reward: Scheme, seed: u64) -> Online {
        let recipe = self.constants();
        let algorithm = match self.algorithm {
            AlgorithmName::Ppo => Algorithm::Ppo {
                recipe,
                critic_steps_per_step: self.critic_steps_per_step,
                critic_only: false,
            },
            AlgorithmName::Rloo => Algorithm::Group { by: Comparison::Rloo, loss: recipe.policy },
            AlgorithmName::Grpo => Algorithm::Group { by: Comparison::Grpo, loss: recipe.policy },
            AlgorithmName::RejectionSampling => Algorithm::Rejection { above: 0.0 },
        };
        let step = |lr| Step {
            lr,
            adam_betas: self.adam_betas,
            weight_decay: self.weight_decay,
            max_grad_norm: self.max_grad_norm,
        };
        Online {
            algorithm,
            steps: Steps {
                policy: step(self.lr),
                critic: step(self.critic_lr.unwrap_or(2.0 * self.lr)),
                minibatches: self.train_batch_size / self.mini_batch_size(),
                epochs: self.ppo_epochs,
                zero_variance_tolerance: self.zero_variance_tolerance,
            },
            schedule: LrSchedule {
                kind: self.lr_scheduler_type,
                warmup_steps: self.lr_warmup_steps,
            },
            total_training_steps: self.total_training_steps,
            critic_warmup_steps: self.critic_warmup_steps,
            train_batch_size: self.train_batch_size,
            rollout_n: self.rollout_n,
            reward,
            zero_variance_sample_weight: self.zero_variance_sample_weight,
            halt_on: self.halt_on.clone(),
            rollback_on: self.rollback_on.clone(),
            lr_kl_target_per_episode: self.lr_kl_target_per_episode,
            max_staleness: self.max_staleness,
            seed,
        }
    }
}

fn one() -> u32 {
    1
}
fn one_pass() -> usize {
    1
}
pub(super) fn max_grad_norm() -> f64 {
    1.0
}
pub(super) fn adam_betas() -> (f64, f64) {
    (0.9, 0.95)
}
fn zero_variance_sample_weight() -> f64 {
    0.25
}
fn halt_on() -> Vec<Alarm> {
    vec![Alarm::NotFinite, Alarm::SamplerWeightMismatch]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(rest: &str) -> Rl {
        let needed = "total_training_steps = 4\ntrain_batch_size = 6\nrollout_n = 2\nlr = 1e-3\n";
        toml::from_str(&format!("{needed}{rest}")).unwrap()
    }

    fn recipe(rl: &Rl) -> Recipe {
        match rl.online(Scheme::Paper, 1).algorithm {
            Algorithm::Ppo { recipe, .. } => recipe,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn constants_default_to_the_recipe_and_zero_disables() {
        assert_eq!(recipe(&read("")), Recipe::robust());
        assert_eq!(recipe(&read("recipe = \"paper\"")), Recipe::paper());
        let other = recipe(&read(
            "gamma = 0.9\nactor_lambda = 1\ncritic_lambda = 0.5\nclip_ratio_low = 0.1\nclip_ratio_high = 0.4\n\
             clip_ratio_c = 0\ncliprange_value = 0.5\nrollout_is_threshold = 0\nbypass_mode = true",
        ));
        assert!((other.gamma - 0.9).abs() < 1e-12 && (other.critic_lambda - 0.5).abs() < 1e-12);
        assert_eq!(other.actor_lambda, Lambda::Fixed(1.0));
        assert_eq!(other.cliprange_value, Some(0.5));
        assert_eq!((other.policy.clip_ratio_c, other.policy.rollout_is_threshold), (None, None));
        assert!(other.policy.bypass_mode);
        let dual = recipe(&read("recipe = \"paper\"\nclip_ratio_c = 3.0"));
        assert_eq!(dual.policy.clip_ratio_c, Some(3.0));
    }

    #[test]
    fn minibatches_and_optimizer_keys_reach_the_update() {
        let online = read(
            "ppo_mini_batch_size = 2\nppo_epochs = 3\nweight_decay = 0.01\nmax_grad_norm = 0.5\n\
             adam_betas = [0.8, 0.9]\nlr_scheduler_type = \"cosine\"\nlr_warmup_steps = 2",
        )
        .online(Scheme::Paper, 1);
        assert_eq!((online.steps.minibatches, online.steps.epochs), (3, 3));
        let policy =
            Step { lr: 1e-3, adam_betas: (0.8, 0.9), weight_decay: 0.01, max_grad_norm: 0.5 };
        assert_eq!(online.steps.policy, policy);
        assert_eq!(online.steps.critic, Step { lr: 2e-3, ..policy });
        let schedule = LrSchedule { kind: LrSchedulerType::Cosine, warmup_steps: 2 };
        assert_eq!(online.schedule, schedule);
    }

    #[test]
    fn values_out_of_range_are_refused_by_name() {
        let cases = [
            ("ppo_mini_batch_size = 4", "ppo.ppo_mini_batch_size is 4 and must divide"),
            ("ppo_epochs = 0", "ppo.ppo_epochs must be at least 1"),
            ("gamma = 1.5", "ppo.gamma must lie between 0 and 1"),
            ("clip_ratio_c = 0.5", "ppo.clip_ratio_c must be more than 1"),
            ("adam_betas = [0.9, 1.0]", "ppo.adam_betas"),
            ("max_grad_norm = 0.0", "ppo.max_grad_norm"),
            ("weight_decay = -0.1", "ppo.weight_decay"),
            ("bypass_mode = true\nrollout_is_threshold = 2.0", "has no effect with bypass_mode"),
            ("algorithm = \"grpo\"\npositive_nll_weight = 0.1", "need algorithm = \"ppo\""),
            ("lr_kl_target_per_episode = 0.0", "ppo.lr_kl_target_per_episode"),
        ];
        for (text, told) in cases {
            let error = read(text).check("ppo").unwrap_err();
            assert!(error.contains(told), "{text}: {error}");
        }
        assert_eq!(read("ppo_mini_batch_size = 3").check("ppo"), Ok(()));
    }
}
