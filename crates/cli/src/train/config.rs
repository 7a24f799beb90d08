//! `warpwright train`'s configuration: one TOML file for all stages. The reference of its keys,
//! `docs/reference/configuration.md`, is generated from these types.

use std::path::{Path, PathBuf};

use fs_err as fs;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use warpwright_native::SamplingConfig;
use warpwright_record::verdict::{Profile, Scheme};

use crate::engine::EngineConfig;
use crate::failure::Failure;

mod fitting;
mod keys;
mod model;
mod pretraining;
#[cfg(test)]
mod reference;
mod rl;
mod set;
mod tasks;
mod values;

pub(crate) use self::fitting::{
    BaselinePolicy, Collecting, Demos, Evaluating, Fitting, Rejecting, Valuing,
};
pub(crate) use self::model::{Model, Pretrained};
pub(crate) use self::pretraining::Pretraining;
pub(crate) use self::rl::Rl;
pub(crate) use self::tasks::Tasks;
pub(crate) use self::values::{Source, read as read_toml};

/// Everything that a run depends on, except its seed and its device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// Tasks to train on and tasks to hold out.
    pub(crate) tasks: Tasks,
    /// Precision and comparison profile of the judge.
    #[serde(default = "strict")]
    pub(crate) profile: Profile,
    /// Which of a verdict's rewards the policy is trained on.
    #[serde(default)]
    pub(crate) reward: Scheme,
    /// Limit on the policy's messages per episode.
    #[serde(default = "max_turns")]
    #[schemars(extend("x-verl" = ["actor_rollout_ref.rollout.multi_turn.max_assistant_turns"]))]
    pub(crate) max_turns: u32,
    /// Verdicts that are measured per distinct candidate; later requests are answered with one of them. 0 measures every
    /// request.
    #[serde(default = "verdict_cache_samples")]
    pub(crate) verdict_cache_samples: usize,
    /// A model from scratch. Give this table or `[pretrained]`.
    pub(crate) model: Option<Model>,
    /// An existing model.
    pub(crate) pretrained: Option<Pretrained>,
    /// The engine that trains and samples.
    #[serde(default)]
    pub(crate) engine: EngineConfig,
    /// How messages are sampled.
    #[serde(default)]
    pub(crate) sampling: SamplingConfig,
    /// Stage `demos`: demonstrations by the built-in policy.
    pub(crate) demos: Option<Demos>,
    /// Stage `pretrain`: training on source code and on unjudged kernels.
    pub(crate) pretrain: Option<Pretraining>,
    /// Stage `sft`: supervised training on the demonstrations.
    pub(crate) sft: Option<Fitting>,
    /// Stage `single-turn`: reinforcement learning on episodes of one message.
    pub(crate) single_turn: Option<Rl>,
    /// Stage `collect`: stores episodes of the policy.
    pub(crate) collect: Option<Collecting>,
    /// Stage `rft`: rejection fine-tuning on the collected episodes.
    pub(crate) rft: Option<Rejecting>,
    /// Stage `value`: value pretraining on the collected episodes.
    pub(crate) value: Option<Valuing>,
    /// Stage `ppo`: reinforcement learning on whole episodes.
    pub(crate) ppo: Option<Rl>,
    /// Stage `eval`: evaluation on held-out tasks.
    pub(crate) eval: Option<Evaluating>,
}

fn strict() -> Profile {
    Profile::Strict
}
fn max_turns() -> u32 {
    8
}
fn verdict_cache_samples() -> usize {
    1
}

impl Config {
    /// Reads a configuration file and applies `KEY=VALUE` overrides. Returns its text too, with the overrides.
    pub(crate) fn read(path: &Path, overrides: &[String]) -> Result<(Self, String), Failure> {
        let text = fs::read_to_string(path).map_err(|error| {
            let hint = "name a TOML file, e.g. configs/smoke-cpu.toml".to_owned();
            Failure::usage(format!("failed to read the configuration: {error}"), hint)
        })?;
        if is_experiment(&text) {
            let name = path.display();
            let message = format!("failed to read the configuration {name}: it is an experiment");
            return Err(Failure::usage(message, format!("run `warpwright experiment {name}`")));
        }
        let refused = |reason: String| {
            let message = format!("failed to read the configuration {}: {reason}", path.display());
            Failure::usage(message, "docs/reference/configuration.md lists every key".to_owned())
        };
        let text = set::apply(&text, overrides).map_err(refused)?;
        let config = match overrides {
            [] => Self::parse(&text),
            _ => Self::parse_generated(&text).map_err(|reason| format!("{reason} (with --set)")),
        };
        Ok((config.map_err(refused)?, text))
    }

    /// Reads a person's text; errors name its lines.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        Self::parse_from(text, Source::File)
    }

    /// Reads a text that no person wrote: errors name no lines.
    pub(crate) fn parse_generated(text: &str) -> Result<Self, String> {
        Self::parse_from(text, Source::Generated)
    }

    fn parse_from(text: &str, source: Source) -> Result<Self, String> {
        if let Ok(table) = toml::from_str(text) {
            keys::check(&table)?;
        }
        let config: Self = read_toml(text, source)?;
        config.check()?;
        Ok(config)
    }

    /// Checks the model's `config.json`, before anything starts. Returns the folder of an existing model. `folder` is
    /// the configuration's.
    pub(crate) fn check_model(&self, folder: &Path) -> Result<Option<PathBuf>, Failure> {
        if let Some(model) = &self.model {
            model.shape(folder).map_err(refused_model)?;
        }
        self.pretrained.as_ref().map(|pretrained| pretrained.find(folder)).transpose()
    }

    fn check(&self) -> Result<(), String> {
        if let Some(demos) = &self.demos {
            demos.check()?;
        }
        if let Some(pretrain) = &self.pretrain {
            pretrain.check()?;
        }
        self.tasks.check()?;
        if self.eval.is_some() && self.tasks.held_out.is_empty() {
            return Err("[eval] needs tasks.held_out".to_owned());
        }
        if self.max_turns == 0 {
            return Err("max_turns must be at least 1".to_owned());
        }
        if (self.rft.is_some() || self.value.is_some()) && self.collect.is_none() {
            return Err("[rft] and [value] need the episodes of [collect]".to_owned());
        }
        if self.sft.is_some() && self.demos.is_none() {
            return Err("[sft] needs [demos]".to_owned());
        }
        match (&self.model, &self.pretrained) {
            (Some(_), None) if self.sft.is_none() && self.pretrain.is_none() => {
                return Err(
                    "a [model] from scratch needs [pretrain], or [demos] and [sft]".to_owned()
                );
            }
            // The file is read when the run begins, relative to the configuration's folder.
            (Some(model), None) if model.config.is_none() => {
                model.shape(Path::new("."))?;
            }
            (Some(_), None) => {}
            (None, Some(_)) if self.pretrain.is_some() => {
                return Err("[pretrain] needs a [model] from scratch".to_owned());
            }
            (None, Some(pretrained)) => pretrained.check()?,
            _ => return Err("give either [model], from scratch, or [pretrained]".to_owned()),
        }
        for (name, stage) in [("single_turn", &self.single_turn), ("ppo", &self.ppo)] {
            if let Some(stage) = stage {
                stage.check(name)?;
            }
        }
        Ok(())
    }
}

/// Whether a text is an experiment's file.
fn is_experiment(text: &str) -> bool {
    let table = toml::from_str::<toml::Table>(text);
    table.is_ok_and(|table| table.contains_key("arms") || table.contains_key("base"))
}

/// The model's sizes cannot be used.
pub(crate) fn refused_model(reason: impl std::fmt::Display) -> Failure {
    let hint = "docs/reference/configuration.md lists the keys of [model]".to_owned();
    Failure::usage(format!("failed to use the model's sizes: {reason}"), hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experiment_file_names_its_command() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.toml");
        fs::write(&path, "base = \"b.toml\"\nseeds = [1]\nshared = []\narms = []\n").unwrap();
        let failure = Config::read(&path, &[]).unwrap_err();
        assert!(failure.message.contains("it is an experiment"), "{}", failure.message);
        assert!(failure.hint.unwrap().contains("warpwright experiment"));
    }

    #[test]
    fn overrides_with_a_wrong_value_name_the_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.toml");
        fs::write(&path, "max_turns = 3\n[tasks]\ntrain = [\"a.py\"]\n").unwrap();
        let failure = Config::read(&path, &["max_turns=many".to_owned()]).unwrap_err();
        let told = "`max_turns` is the string \"many\"; it must be a whole number of at least 0 (with --set)";
        assert!(failure.message.ends_with(told), "{}", failure.message);
    }
}
