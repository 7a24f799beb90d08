//! `warpwright train`'s configuration: one TOML file for all stages. The reference of its keys,
//! `docs/reference/configuration.md`, is generated from these types.

use std::path::Path;

use fs_err as fs;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::Table;
use warpwright_native::SamplingConfig;
use warpwright_record::libraries::Library;
use warpwright_record::verdict::{Profile, Scheme};
use warpwright_rollout::engine::EngineConfig;

use crate::error::TrainError;

mod document;
mod fitting;
mod keys;
mod kind;
mod model;
mod pretraining;
#[cfg(test)]
mod reference;
mod rl;
mod set;
mod tasks;
mod values;

pub use self::document::{Document, Source};
pub use self::fitting::{
    BaselinePolicy, Collecting, Demos, Evaluating, Fitting, Rejecting, Valuing,
};
pub use self::model::{InitialModel, Model, Pretrained};
pub use self::pretraining::Pretraining;
pub use self::rl::Rl;
pub use self::tasks::Tasks;

/// Everything that a run depends on, except its seed and its device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Tasks to train on and tasks to hold out.
    pub tasks: Tasks,
    /// Precision and comparison profile of the judge.
    #[serde(default = "strict")]
    pub profile: Profile,
    /// Header libraries that kernels for a GPU may use, in addition to those of `--libraries`: `cutlass`, `cccl`.
    #[serde(default)]
    pub libraries: Vec<Library>,
    /// Which of a verdict's rewards the policy is trained on.
    #[serde(default)]
    pub reward: Scheme,
    /// Limit on the policy's messages per episode.
    #[serde(default = "max_turns")]
    #[schemars(extend("x-verl" = ["actor_rollout_ref.rollout.multi_turn.max_assistant_turns"]))]
    pub max_turns: u32,
    /// Verdicts that are measured per distinct candidate; later requests are answered with one of them. 0 measures every
    /// request.
    #[serde(default = "verdict_cache_samples")]
    pub verdict_cache_samples: usize,
    /// A model from scratch. Give this table or `[pretrained]`.
    pub model: Option<Model>,
    /// An existing model.
    pub pretrained: Option<Pretrained>,
    /// The engine that trains and samples.
    #[serde(default)]
    pub engine: EngineConfig,
    /// How messages are sampled.
    #[serde(default)]
    pub sampling: SamplingConfig,
    /// Stage `demos`: demonstrations by the built-in policy.
    pub demos: Option<Demos>,
    /// Stage `pretrain`: training on source code and on unjudged kernels.
    pub pretrain: Option<Pretraining>,
    /// Stage `sft`: supervised training on the demonstrations.
    pub sft: Option<Fitting>,
    /// Stage `single-turn`: reinforcement learning on episodes of one message.
    pub single_turn: Option<Rl>,
    /// Stage `collect`: stores episodes of the policy.
    pub collect: Option<Collecting>,
    /// Stage `rft`: rejection fine-tuning on the collected episodes.
    pub rft: Option<Rejecting>,
    /// Stage `value`: value pretraining on the collected episodes.
    pub value: Option<Valuing>,
    /// Stage `ppo`: reinforcement learning on whole episodes.
    pub ppo: Option<Rl>,
    /// Stage `eval`: evaluation on held-out tasks.
    pub eval: Option<Evaluating>,
}

/// The error for a configuration without a model, or with two.
const ONE_MODEL: &str = "give either [model], from scratch, or [pretrained]";

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
    pub fn read(path: &Path, overrides: &[String]) -> Result<(Self, String), TrainError> {
        let refused = |reason: String| refused_file(path, &reason);
        let text = text_of(path)?;
        if overrides.is_empty() {
            let config = Self::of(&open(path, &text)?).map_err(refused)?;
            return Ok((config, text));
        }
        let table = open(path, &text)?.table().map_err(refused)?;
        let table = set::apply(table, overrides).map_err(refused)?;
        Self::of_table(&table).map_err(|reason| refused(format!("{reason} (with --set)")))
    }

    /// Reads the keys and values of a configuration file, and checks them.
    pub fn read_table(path: &Path) -> Result<Table, TrainError> {
        let refused = |reason: String| refused_file(path, &reason);
        let text = text_of(path)?;
        let document = open(path, &text)?;
        Self::of(&document).map_err(refused)?;
        document.table().map_err(refused)
    }

    /// Reads keys and values that the program put together: errors name no lines. Returns their text too.
    pub fn of_table(table: &Table) -> Result<(Self, String), String> {
        let text = toml::to_string(table).map_err(|error| error.to_string())?;
        let config = Self::of(&Document::parse(&text, Source::Generated)?)?;
        Ok((config, text))
    }

    fn of(document: &Document<'_>) -> Result<Self, String> {
        keys::check(document.root())?;
        let config: Self = document.read()?;
        config.check()?;
        Ok(config)
    }

    /// Finds the model that a run starts from and checks its `config.json`. A launch calls it once, before anything
    /// starts. `folder` is the configuration's.
    pub fn find_model(&self, folder: &Path) -> Result<InitialModel, TrainError> {
        match (&self.model, &self.pretrained) {
            (Some(model), None) => {
                let shape = model.shape(folder).map_err(refused_model)?;
                Ok(InitialModel::Scratch { shape, pretokenizer: model.pretokenizer })
            }
            (None, Some(pretrained)) => {
                Ok(InitialModel::Pretrained { path: pretrained.find(folder)? })
            }
            _ => Err(refused_model(ONE_MODEL)),
        }
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
            _ => return Err(ONE_MODEL.to_owned()),
        }
        for (name, stage) in [("single_turn", &self.single_turn), ("ppo", &self.ppo)] {
            if let Some(stage) = stage {
                stage.check(name)?;
            }
        }
        Ok(())
    }
}

fn text_of(path: &Path) -> Result<String, TrainError> {
    fs::read_to_string(path).map_err(|error| {
        let hint = "name a TOML file, e.g. configs/smoke-cpu.toml".to_owned();
        TrainError::usage(format!("failed to read the configuration: {error}"), hint)
    })
}

/// Parses a configuration file's text. An experiment's file is refused.
fn open<'t>(path: &Path, text: &'t str) -> Result<Document<'t>, TrainError> {
    let document =
        Document::parse(text, Source::File).map_err(|reason| refused_file(path, &reason))?;
    if document.has("arms") || document.has("base") {
        let name = path.display();
        let message = format!("failed to read the configuration {name}: it is an experiment");
        return Err(TrainError::usage(message, format!("run `warpwright experiment {name}`")));
    }
    Ok(document)
}

fn refused_file(path: &Path, reason: &str) -> TrainError {
    let message = format!("failed to read the configuration {}: {reason}", path.display());
    TrainError::usage(message, "docs/reference/configuration.md lists every key".to_owned())
}

/// The model's sizes cannot be used.
fn refused_model(reason: impl std::fmt::Display) -> TrainError {
    let hint = "docs/reference/configuration.md lists the keys of [model]".to_owned();
    TrainError::usage(format!("failed to use the model's sizes: {reason}"), hint)
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
        assert!(failure.to_string().contains("it is an experiment"), "{failure}");
        assert!(failure.hint().unwrap().contains("warpwright experiment"));
    }

    #[test]
    fn only_overrides_change_the_text() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/smoke-cpu.toml");
        let written = fs::read_to_string(&path).unwrap();
        assert_eq!(Config::read(&path, &[]).unwrap().1, written);
        let (config, text) = Config::read(&path, &["max_turns=7".to_owned()]).unwrap();
        assert_eq!(config.max_turns, 7);
        let table: Table = toml::from_str(&text).unwrap();
        assert_eq!(Config::of_table(&table).unwrap(), (config, text));
    }

    #[test]
    fn oversized_number_hides_no_unknown_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.toml");
        fs::write(&path, "max_turns = 99999999999999999999\nmax_turn = 3\n").unwrap();
        let failure = Config::read(&path, &[]).unwrap_err();
        assert!(failure.to_string().contains("there is no key `max_turn`"), "{failure}");
    }

    #[test]
    fn overrides_with_a_wrong_value_name_the_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.toml");
        fs::write(&path, "max_turns = 3\n[tasks]\ntrain = [\"a.py\"]\n").unwrap();
        let failure = Config::read(&path, &["max_turns=many".to_owned()]).unwrap_err();
        let told = "`max_turns` is the string \"many\"; it must be a whole number of at least 0 (with --set)";
        assert!(failure.to_string().ends_with(told), "{failure}");
    }
}
