//! The definition of an experiment: a base configuration, and arms that each change it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use fs_err as fs;
use schemars::JsonSchema;
use serde::Deserialize;
use toml::{Table, Value};
use warpwright_learn::collapse::Collapse;

use crate::config::{Config, Document, Source};
use crate::error::TrainError;
use crate::stage::Stage;

/// Keys of a training configuration, of any type.
type Keys = BTreeMap<String, serde_json::Value>;

/// An experiment's file.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Written {
    /// The base configuration, relative to this file's folder.
    base: PathBuf,
    /// Each arm is run once per seed.
    seeds: Vec<u64>,
    /// Stages that are done once, before the arms diverge.
    shared: Vec<String>,
    /// Criteria of a collapse.
    #[serde(default)]
    collapse: Collapse,
    /// Keys that replace those of the base, for all arms and the shared stages.
    #[serde(default)]
    #[schemars(with = "Keys")]
    with: Table,
    arms: Vec<WrittenArm>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WrittenArm {
    name: String,
    /// Tables of the base that the arm removes.
    #[serde(default)]
    without: Vec<String>,
    /// Keys that replace those of the base.
    #[serde(default)]
    #[schemars(with = "Keys")]
    with: Table,
}

/// A validated experiment.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Seeds of the runs of each arm.
    pub seeds: Vec<u64>,
    /// Stages that are done once, for all runs.
    pub shared: Vec<Stage>,
    /// When a run counts as collapsed.
    pub collapse: Collapse,
    /// The configuration of the shared stages.
    pub base: Variant,
    /// The arms, the first of which the others are compared with.
    pub arms: Vec<Arm>,
    /// Folder that the configurations' paths are relative to.
    pub folder: PathBuf,
}

/// A complete configuration.
#[derive(Clone, Debug)]
pub struct Variant {
    pub config: Config,
    pub text: String,
    table: Table,
}

/// An arm of the experiment.
#[derive(Clone, Debug)]
pub struct Arm {
    pub name: String,
    pub variant: Variant,
}

impl Experiment {
    /// Reads an experiment's file and the model's `config.json`.
    pub fn read(path: &Path) -> Result<Self, TrainError> {
        let experiment = Self::parse(path)?;
        // Arms have the base's model: `differs` refuses others.
        experiment.base.config.find_model(&experiment.folder)?;
        Ok(experiment)
    }

    /// Reads an experiment's file; its model may be absent.
    fn parse(path: &Path) -> Result<Self, TrainError> {
        let refused = |reason: String| {
            let message = format!("failed to read the experiment {}: {reason}", path.display());
            TrainError::usage(
                message,
                "docs/guides/run-an-experiment.md lists every key".to_owned(),
            )
        };
        let text = fs::read_to_string(path).map_err(|error| {
            let hint = "name a TOML file, e.g. configs/experiments/critic-cpu.toml".to_owned();
            TrainError::usage(format!("failed to read the experiment: {error}"), hint)
        })?;
        let document = Document::parse(&text, Source::File).map_err(refused)?;
        if is_training(&document) {
            let name = path.display();
            let message =
                format!("failed to read the experiment {name}: it is a training configuration");
            return Err(TrainError::usage(message, format!("run `warpwright train run {name}`")));
        }
        let written: Written = document.read().map_err(refused)?;
        let base = path.parent().unwrap_or(Path::new(".")).join(&written.base);
        let table = Config::read_table(&base)?;
        let folder = base.parent().unwrap_or(Path::new(".")).to_owned();
        Self::of(&written, table, folder).map_err(refused)
    }

    fn of(written: &Written, mut base: Table, folder: PathBuf) -> Result<Self, String> {
        lay_over(&mut base, &written.with);
        let first = Variant::of(&base)?;
        let shared = shared(&written.shared, &first.config)?;
        if written.seeds.is_empty() || written.arms.len() < 2 {
            return Err("it needs `seeds` and at least two arms".to_owned());
        }
        if written.seeds.iter().collect::<BTreeSet<_>>().len() < written.seeds.len() {
            return Err("its seeds must be distinct".to_owned());
        }
        let mut arms: Vec<Arm> = Vec::new();
        for arm in &written.arms {
            let name = &arm.name;
            let is_plain =
                |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
            if name.is_empty() || !name.chars().all(is_plain) || name.starts_with('.') {
                return Err(format!(
                    "arm `{name}`: a name may have a-z, 0-9, `-` and `.`, since it names a folder"
                ));
            }
            if arms.iter().any(|other| other.name == *name) {
                return Err(format!("two arms have the name `{name}`"));
            }
            let mut table = base.clone();
            for key in &arm.without {
                if table.remove(key).is_none() {
                    return Err(format!(
                        "arm `{name}` removes `{key}`, which the base does not have"
                    ));
                }
            }
            lay_over(&mut table, &arm.with);
            let variant =
                Variant::of(&table).map_err(|reason| format!("arm `{name}`: {reason}"))?;
            if let Some(key) = differs(&base, &table, &shared) {
                return Err(format!(
                    "arm `{name}` changes `{key}`, on which the shared stages depend"
                ));
            }
            let online = variant.config.ppo.is_some() || variant.config.single_turn.is_some();
            if !online {
                return Err(format!("arm `{name}` needs [ppo] or [single_turn]"));
            }
            arms.push(Arm { name: name.clone(), variant });
        }
        let (seeds, collapse) = (written.seeds.clone(), written.collapse);
        Ok(Self { seeds, shared, collapse, base: first, arms, folder })
    }
}

impl Variant {
    fn of(table: &Table) -> Result<Self, String> {
        let (config, text) = Config::of_table(table)?;
        Ok(Self { config, text, table: table.clone() })
    }

    /// Its stages after the shared ones.
    pub fn own(&self, shared: &[Stage]) -> Vec<Stage> {
        let own = |stage: &Stage| stage.is_in(&self.config) && !shared.contains(stage);
        Stage::ALL.into_iter().filter(own).collect()
    }

    /// The first stages that have the same configuration in both; none if anything other than
    /// stages differs.
    pub fn common_stages(&self, other: &Self) -> Vec<Stage> {
        let beside = |table: &Table| {
            let mut table = table.clone();
            for stage in Stage::ALL {
                table.remove(&stage.table());
            }
            table
        };
        if beside(&self.table) != beside(&other.table) {
            return Vec::new();
        }
        let same = |stage: &Stage| {
            let key = stage.table();
            self.table.get(&key) == other.table.get(&key)
        };
        let first = Stage::ALL.into_iter().take_while(same);
        first.filter(|stage| stage.is_in(&self.config)).collect()
    }
}

/// Whether a file is a training configuration.
fn is_training(document: &Document<'_>) -> bool {
    document.has("tasks") && !document.has("arms") && !document.has("base")
}

/// The shared stages: the first ones of the base.
fn shared(names: &[String], base: &Config) -> Result<Vec<Stage>, String> {
    let all: Vec<Stage> = Stage::ALL.into_iter().filter(|stage| stage.is_in(base)).collect();
    let first: Vec<String> = all.iter().take(names.len()).map(|stage| stage.table()).collect();
    if first != names {
        return Err(format!("shared must be the first stages of the base: {}", first.join(", ")));
    }
    Ok(all[..names.len()].to_vec())
}

/// Merges one table over another, recursively.
fn lay_over(table: &mut Table, over: &Table) {
    for (key, value) in over {
        match (table.get_mut(key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => lay_over(below, above),
            _ => {
                table.insert(key.clone(), value.clone());
            }
        }
    }
}

/// A key that differs although the shared stages depend on it.
fn differs(base: &Table, arm: &Table, shared: &[Stage]) -> Option<String> {
    let stages = shared.iter().map(|stage| stage.table());
    let always =
        ["tasks", "profile", "model", "pretrained", "verdict_cache_samples"].map(str::to_owned);
    let mut keys = stages.chain(always);
    keys.find(|key| base.get(key) != arm.get(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "\
        [tasks]\ntrain = [\"a.py\"]\n\
        [model]\nvocab_size = 300\nhidden_size = 8\nintermediate_size = 8\nnum_hidden_layers = 1\nnum_attention_heads = 2\nnum_key_value_heads = 1\nmax_position_embeddings = 64\n\
        [demos]\nepisodes_per_task = 1\n[sft]\nlr = 1e-3\ntotal_epochs = 1\n[collect]\nepisodes_per_task = 1\n\
        [value]\nfit = { lr = 1e-3, total_epochs = 1 }\n\
        [ppo]\ntotal_training_steps = 2\ntrain_batch_size = 1\nrollout_n = 2\nlr = 1e-3\n";

    fn read(rest: &str) -> Result<Experiment, String> {
        let written: Written = Document::parse(rest, Source::File)?.read()?;
        Experiment::of(&written, toml::from_str(BASE).unwrap(), PathBuf::new())
    }

    const HEAD: &str = "base = \"a\"\nseeds = [1, 2]\nshared = [\"demos\", \"sft\", \"collect\"]\n";

    /// Those that come with the program are read: a key that was renamed is renamed in them too.
    #[test]
    fn shipped_experiments_are_read() {
        let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs");
        let of = |folder: &Path| {
            let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
            files.filter(|path| path.extension().is_some_and(|e| e == "toml")).collect::<Vec<_>>()
        };
        let (trainings, experiments) = (of(&configs), of(&configs.join("experiments")));
        assert!(trainings.len() >= 5 && experiments.len() >= 6);
        for path in trainings {
            Config::read(&path, &[]).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        }
        for path in experiments {
            Experiment::parse(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        }
    }

    #[test]
    fn arm_overrides_only_its_keys() {
        let arms = "\
            [[arms]]\nname = \"all\"\n\
            [[arms]]\nname = \"none\"\nwithout = [\"value\"]\nwith.ppo.actor_lambda = 0.95\nwith.ppo.algorithm = \"rloo\"\n";
        let experiment = read(&format!("{HEAD}with.ppo.total_training_steps = 7\n{arms}")).unwrap();
        assert_eq!(experiment.shared, [Stage::Demos, Stage::Sft, Stage::Collect]);
        let [all, none] = &experiment.arms[..] else { panic!("two arms") };
        assert_eq!(all.variant.config, experiment.base.config);
        let ppo = none.variant.config.ppo.as_ref().unwrap();
        assert_eq!((ppo.total_training_steps, ppo.rollout_n, ppo.actor_lambda), (7, 2, Some(0.95)));
        assert!(none.variant.config.value.is_none());
        assert_eq!(all.variant.own(&experiment.shared), [Stage::Value, Stage::Ppo]);
        assert_eq!(none.variant.own(&experiment.shared), [Stage::Ppo]);
    }

    #[test]
    fn arms_share_stages_before_their_first_difference() {
        let arms = "\
            [[arms]]\nname = \"all\"\n\
            [[arms]]\nname = \"rule\"\nwith.ppo.algorithm = \"rloo\"\n\
            [[arms]]\nname = \"none\"\nwithout = [\"value\"]\n\
            [[arms]]\nname = \"more\"\nwith.sft.total_epochs = 2\n\
            [[arms]]\nname = \"long\"\nwith.max_turns = 3\n";
        let head = HEAD.replace(", \"sft\", \"collect\"", "");
        let experiment = read(&format!("{head}{arms}")).unwrap();
        let all = &experiment.arms[0].variant;
        let common: Vec<_> =
            experiment.arms.iter().map(|arm| arm.variant.common_stages(all)).collect();
        let stages = [Stage::Demos, Stage::Sft, Stage::Collect, Stage::Value, Stage::Ppo];
        for (common, count) in common.iter().zip([5, 4, 3, 1, 0]) {
            assert_eq!(*common, stages[..count]);
        }
    }

    #[test]
    fn shipped_experiments_are_valid() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/experiments");
        let mut count = 0;
        for entry in fs::read_dir(folder).unwrap() {
            let experiment = Experiment::parse(&entry.unwrap().path()).unwrap();
            assert_eq!(experiment.seeds.len(), 5);
            count += 1;
        }
        assert!(count >= 3, "{count}");
    }

    #[test]
    fn invalid_experiments_are_refused_by_name() {
        let two = "[[arms]]\nname = \"a\"\n[[arms]]\nname = \"b\"\n";
        let cases = [
            (format!("{HEAD}[[arms]]\nname = \"a\"\n"), "at least two arms"),
            (format!("{HEAD}{two}with.sft.total_epochs = 2\n"), "arm `b` changes `sft`"),
            (format!("{HEAD}{two}with.tasks.max_train_tasks = 2\n"), "arm `b` changes `tasks`"),
            (format!("{HEAD}{two}without = [\"rft\"]\n"), "which the base does not have"),
            (format!("{HEAD}{two}without = [\"ppo\"]\n"), "needs [ppo] or [single_turn]"),
            (format!("{HEAD}{two}with.ppo.total_training_step = 3\n"), "arm `b`: "),
            (format!("{HEAD}{two}with.ppo.actor_lambda = 1.5\n"), "must lie between 0 and 1"),
            (format!("{HEAD}{}", two.replace("\"b\"", "\"a\"")), "two arms have the name `a`"),
            (format!("{HEAD}{}", two.replace("\"b\"", "\"../b\"")), "a name may have"),
            (format!("{HEAD}{two}").replace("[1, 2]", "[1, 1]"), "must be distinct"),
            (format!("{HEAD}{two}").replace("\"sft\", ", ""), "the first stages of the base"),
        ];
        for (text, told) in cases {
            let error = read(&text).unwrap_err();
            assert!(error.contains(told), "{told}: {error}");
        }
    }

    #[test]
    fn malformed_experiments_name_the_key() {
        let two = "[[arms]]\nname = \"a\"\n[[arms]]\nname = \"b\"\n";
        let cases = [
            (format!("{HEAD}seed = 1\n{two}"), "there is no key `seed`; the keys are `base`"),
            (format!("{HEAD}{two}").replace("[1, 2]", "[1, -2]"), "entry 2 of `seeds` is -2"),
            (
                format!("{HEAD}{two}").replace("[1, 2]", "7"),
                "line 2: `seeds` is 7; it must be a list of whole numbers",
            ),
            (format!("{HEAD}[[arms]]\nwith.max_turns = 1\n"), "`arms[1].name` is missing"),
            (
                format!("{HEAD}{two}[collapse]\nalarms = 0.5\n"),
                "`collapse.alarms` is 0.5; it must be a whole number of at least 0",
            ),
        ];
        for (text, told) in cases {
            let error = read(&text).unwrap_err();
            assert!(error.contains(told), "{told}: {error}");
        }
    }

    #[test]
    fn training_configuration_names_its_command() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.toml");
        fs::write(&path, BASE).unwrap();
        let failure = Experiment::read(&path).unwrap_err();
        assert!(failure.to_string().contains("it is a training configuration"), "{failure}");
        assert!(failure.hint().unwrap().contains("warpwright train run"));
    }
}
