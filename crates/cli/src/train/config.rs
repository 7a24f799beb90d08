//! `warpwright train`'s configuration: one TOML file for all stages. `docs/training.md` explains it.

use std::path::{Path, PathBuf};

use fs_err as fs;
use serde::{Deserialize, Serialize};
use warpwright_learn::engine::Step;
use warpwright_learn::fit::{Aim, Fit};
use warpwright_native::{Speech, Split};
use warpwright_record::verdict::{Profile, Scheme};
use warpwright_teacher::Flaws;

use crate::engine::{Adapters, EngineConfig};
use crate::failure::Failure;

mod playing;
mod pretraining;
mod tasks;

pub(crate) use self::playing::{Playing, RecipeName, RuleName};
pub(crate) use self::pretraining::Pretraining;
pub(crate) use self::tasks::Tasks;

/// Everything that a run depends on, but for its seed and its device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// What is trained on, and what is not.
    pub(crate) tasks: Tasks,
    /// Precision and comparison rules.
    #[serde(default = "strict")]
    pub(crate) profile: Profile,
    /// Which of a verdict's rewards counts.
    #[serde(default)]
    pub(crate) reward: Scheme,
    /// Most messages of an episode.
    #[serde(default = "turns")]
    pub(crate) turns: u32,
    /// Measured verdicts that are kept of the same files; after these one of them is given again. 0:
    /// everything is measured each time.
    #[serde(default = "verdicts")]
    pub(crate) verdicts: usize,
    /// A model from scratch; or `pretrained`.
    pub(crate) model: Option<Model>,
    /// A model that is there.
    pub(crate) pretrained: Option<Pretrained>,
    /// How the engine computes.
    #[serde(default)]
    pub(crate) engine: EngineConfig,
    /// How messages are drawn.
    #[serde(default)]
    pub(crate) speech: Speech,
    pub(crate) demos: Option<Demos>,
    pub(crate) pretrain: Option<Pretraining>,
    pub(crate) sft: Option<Fitting>,
    pub(crate) single_turn: Option<Playing>,
    pub(crate) collect: Option<Collecting>,
    pub(crate) rft: Option<Rejecting>,
    pub(crate) value: Option<Valuing>,
    pub(crate) ppo: Option<Playing>,
    pub(crate) eval: Option<Evaluating>,
}

/// The shape of a decoder of the Qwen3 family, and its tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Model {
    /// Most tokens that there are; fewer where the demonstrations have fewer.
    pub(crate) vocabulary: usize,
    /// What a token does not reach across.
    #[serde(default)]
    pub(crate) split: Split,
    /// Width of the residual stream.
    pub(crate) hidden: i64,
    /// Width inside the MLP.
    pub(crate) feed_forward: i64,
    /// Blocks.
    pub(crate) layers: i64,
    /// Heads of queries.
    pub(crate) heads: i64,
    /// Heads of keys and values.
    pub(crate) groups: i64,
    /// Tokens of the longest episode.
    pub(crate) positions: i64,
}

/// A model of the Qwen3 family: a folder as Hugging Face has it, or a checkpoint of another run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pretrained {
    /// With `config.json`, `tokenizer.json` and safetensors.
    pub(crate) folder: PathBuf,
    /// Tokens of the longest episode, where that is less than the model can.
    pub(crate) positions: Option<usize>,
    /// Rank of adapters that are trained instead of the model.
    pub(crate) lora: Option<u32>,
    /// What their products are multiplied by.
    #[serde(default = "lora_scale")]
    pub(crate) lora_scale: f64,
}

impl Pretrained {
    /// What is trained instead of it.
    pub(crate) fn adapters(&self) -> Option<Adapters> {
        self.lora.map(|rank| Adapters { rank, scale: self.lora_scale })
    }
}

/// Demonstrations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Demos {
    /// Of each task.
    pub(crate) episodes: usize,
    /// How often what goes wrong in them.
    #[serde(default)]
    pub(crate) flaws: Flaws,
}

impl Demos {
    fn check(&self) -> Result<(), &'static str> {
        check_flaws(&self.flaws, "demos.flaws are shares between 0 and 1")?;
        if self.episodes == 0 {
            return Err("demos.episodes is at least 1");
        }
        Ok(())
    }
}

fn check_flaws(flaws: &Flaws, refused: &'static str) -> Result<(), &'static str> {
    // All of them, so that a new one is not forgotten here.
    let Flaws {
        unfused,
        naive,
        slow,
        wrong,
        errors: _,
        misnamed,
        checked,
        mended,
        edited,
        improved,
    } = *flaws;
    let shares = [unfused, naive, slow, wrong, misnamed, checked, mended, edited, improved];
    let right = shares.iter().all(|share| (0.0..=1.0).contains(share));
    if right { Ok(()) } else { Err(refused) }
}

/// Training on what is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fitting {
    /// Learning rate.
    pub(crate) rate: f64,
    /// Whether it falls linearly, to nothing after the last of `epochs`.
    #[serde(default)]
    pub(crate) anneals: bool,
    /// Weight decay, of matrices.
    #[serde(default = "decay")]
    pub(crate) decay: f64,
    /// Episodes of a step.
    #[serde(default = "batch")]
    pub(crate) batch: usize,
    /// Share of the episodes that are measured with.
    #[serde(default = "held_out")]
    pub(crate) held_out: f64,
    /// Epochs that may be no better before it ends.
    #[serde(default = "patience")]
    pub(crate) patience: u32,
    /// What counts as better.
    #[serde(default = "better_by")]
    pub(crate) better_by: f64,
    /// Most epochs.
    pub(crate) epochs: u32,
}

impl Fitting {
    pub(crate) fn fit(&self, aim: Aim, seed: u64) -> Fit {
        Fit {
            aim,
            step: Step { rate: self.rate, decay: self.decay, ..Step::default() },
            anneals: self.anneals,
            episodes: self.batch,
            held_out: self.held_out,
            patience: self.patience,
            better_by: self.better_by,
            most: self.epochs,
            seed,
        }
    }
}

/// Episodes of the policy as it is, to learn from later.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Collecting {
    /// Of each task.
    pub(crate) episodes: usize,
    /// Most tasks, the first of those that are trained on; all if none is named.
    pub(crate) tasks: Option<usize>,
}

/// Rejection fine-tuning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rejecting {
    /// Episodes count with a reward above this.
    #[serde(default)]
    pub(crate) above: f64,
    /// How it is learned.
    pub(crate) fit: Fitting,
}

/// Value pretraining.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Valuing {
    /// Whose targets.
    #[serde(default)]
    pub(crate) recipe: RecipeName,
    /// How it is learned.
    pub(crate) fit: Fitting,
}

/// Evaluation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Evaluating {
    /// Episodes of each task.
    pub(crate) episodes: usize,
    /// The first message of each policy is measured too, in as many episodes of its own.
    #[serde(default)]
    pub(crate) first: bool,
    /// Policies without weights that play beside, an episode of each task.
    #[serde(default)]
    pub(crate) rivals: Vec<Rival>,
}

/// A policy without weights to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Rival {
    /// The built-in one.
    #[serde(rename = "teacher")]
    Teacher,
    /// The same, which measures every version it could write.
    #[serde(rename = "teacher:exhaustive")]
    Exhaustive,
}

fn strict() -> Profile {
    Profile::Strict
}
fn turns() -> u32 {
    8
}
fn verdicts() -> usize {
    1
}
fn lora_scale() -> f64 {
    2.0
}
fn decay() -> f64 {
    0.1
}
fn batch() -> usize {
    16
}
fn held_out() -> f64 {
    0.1
}
fn patience() -> u32 {
    2
}
fn better_by() -> f64 {
    1e-3
}

impl Config {
    /// Reads it; the text as it stands comes with it.
    pub(crate) fn read(path: &Path) -> Result<(Self, String), Failure> {
        let text = fs::read_to_string(path).map_err(|error| {
            let hint = "name a TOML file, e.g. configs/smoke-cpu.toml".to_owned();
            Failure::usage(format!("failed to read the configuration: {error}"), hint)
        })?;
        let config = Self::parse(&text).map_err(|reason| {
            let message = format!("failed to read the configuration {}: {reason}", path.display());
            Failure::usage(message, "docs/training.md lists every key".to_owned())
        })?;
        Ok((config, text))
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let config: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        config.check().map_err(str::to_owned)?;
        Ok(config)
    }

    fn check(&self) -> Result<(), &'static str> {
        if let Some(demos) = &self.demos {
            demos.check()?;
        }
        if let Some(pretrain) = &self.pretrain {
            pretrain.check()?;
        }
        self.tasks.check()?;
        if self.eval.is_some() && self.tasks.held_out.is_empty() {
            return Err("eval needs tasks.held_out");
        }
        if self.turns == 0 {
            return Err("turns are at least 1");
        }
        if (self.rft.is_some() || self.value.is_some()) && self.collect.is_none() {
            return Err("rft and value need the episodes of collect");
        }
        if self.sft.is_some() && self.demos.is_none() {
            return Err("sft needs demos");
        }
        let model = match (&self.model, &self.pretrained) {
            (Some(_), None) if self.sft.is_none() && self.pretrain.is_none() => {
                return Err("a model from scratch needs pretrain, or demos and sft");
            }
            (Some(model), None) => model,
            (None, Some(_)) if self.pretrain.is_some() => {
                return Err("pretrain is for a model from scratch");
            }
            (None, Some(pretrained)) if pretrained.lora == Some(0) => {
                return Err("pretrained.lora is a rank, at least 1");
            }
            (None, Some(_)) => return self.check_playing(),
            _ => return Err("give it [model], from scratch, or [pretrained], and not both"),
        };
        let sizes = [model.hidden, model.feed_forward, model.layers, model.heads, model.groups];
        if sizes.iter().any(|size| *size < 1)
            || model.hidden % (2 * model.heads) != 0
            || model.heads % model.groups != 0
        {
            return Err(
                "model.hidden is a multiple of twice model.heads, and these of model.groups",
            );
        }
        self.check_playing()
    }

    fn check_playing(&self) -> Result<(), &'static str> {
        for playing in [&self.single_turn, &self.ppo].into_iter().flatten() {
            if playing.tasks == 0 || playing.episodes == 0 || playing.updates == 0 {
                return Err("tasks, episodes and updates of a stage are at least 1");
            }
            let lambdas = [playing.actor_lambda, playing.critic_lambda];
            if lambdas.into_iter().flatten().any(|lambda| !(0.0..=1.0).contains(&lambda)) {
                return Err("actor_lambda and critic_lambda of a stage lie between 0 and 1");
            }
            let is_weight = playing.imitation >= 0.0 && playing.imitation.is_finite();
            let is_special = playing.imitation > 0.0 || playing.skips_flat;
            if !is_weight || is_special && playing.rule != RuleName::Ppo {
                return Err(
                    "imitation, a weight of 0 or more, and skips_flat of a stage are for rule ppo",
                );
            }
            if !(playing.alike >= 0.0 && playing.alike.is_finite()) {
                return Err("alike of a stage is 0 or more");
            }
            if playing.trust.is_some_and(|trust| trust <= 0.0 || !trust.is_finite()) {
                return Err("trust of a stage is above 0");
            }
        }
        Ok(())
    }
}
