//! Hashes of the files that a run's configuration names by their folders: the pretrained model, and
//! the source code of stage `pretrain`. `train.json` has them, and a run resumes only with the same
//! files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use fs_err as fs;
use serde::{Deserialize, Serialize};
use warpwright_record::blob::BlobHash;

use crate::config::{Config, InitialModel, Pretrained};
use crate::error::TrainError;
use crate::folder::StageFolder;
use crate::sources::Sources;
use crate::stage::Stage;

/// Files of a model that the engine reads, besides safetensors.
const CONFIGS: [&str; 3] = ["config.json", "model.safetensors.index.json", "adapter_config.json"];
/// Folders of a model that the engine reads files of: the policy's and the critic's.
const FOLDERS: [&str; 2] = ["", "critic"];

/// Hashes of the files that the run still reads. A hash that is `None` is not compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Contents {
    /// Files of `pretrained.path`, by their path in that folder.
    pub(crate) pretrained: Option<BTreeMap<String, BlobHash>>,
    /// All texts of `pretrain.sources`.
    pub(crate) sources: Option<BlobHash>,
}

impl Contents {
    /// Hashes the model that the run in `out` starts from, if the run still reads it. `sources` are
    /// the texts of stage pretrain.
    pub(crate) fn of(
        config: &Config,
        out: &Path,
        model: &InitialModel,
        sources: Option<&Sources>,
    ) -> Result<Self, TrainError> {
        let pretrained = match model {
            InitialModel::Pretrained { path } if reads_pretrained(config, out) => {
                Some(hashes(path)?)
            }
            _ => None,
        };
        Ok(Self { pretrained, sources: sources.map(|sources| sources.hash) })
    }

    /// The keys whose content is known here and in `new` and differs, each with the files that
    /// differ.
    pub(crate) fn differences(&self, new: &Self) -> Vec<(&'static str, Vec<String>)> {
        let mut keys = Vec::new();
        if let (Some(old), Some(new)) = (&self.pretrained, &new.pretrained) {
            let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            let differs = |name: &&String| old.get(*name) != new.get(*name);
            let files: Vec<String> = names.into_iter().filter(differs).cloned().collect();
            if !files.is_empty() {
                keys.push(("pretrained.path", files));
            }
        }
        if let (Some(old), Some(new)) = (&self.sources, &new.sources)
            && old != new
        {
            keys.push(("pretrain.sources", Vec::new()));
        }
        keys
    }
}

/// Whether the run in `out` still reads its source code. Once stage pretrain is done, the weights and
/// the tokenizer contain what was trained on. Such a run resumes also where a package was updated
/// since, or where the folders do not exist.
pub(crate) fn reads_sources(out: &Path) -> bool {
    !folder(out, Stage::Pretrain).is_done()
}

/// Whether a stage that is not done starts from the pretrained model. After the first stage that
/// trains, the run has weights of its own: the model may then be replaced, as a checkpoint of a run
/// that continues. `eval` plays the model itself, and adapters need it to the end.
fn reads_pretrained(config: &Config, out: &Path) -> bool {
    let has_adapters = config.pretrained.as_ref().and_then(Pretrained::adapters).is_some();
    let stages: Vec<Stage> = Stage::ALL.into_iter().filter(|stage| stage.is_in(config)).collect();
    let is_done = |stage: Stage| folder(out, stage).is_done();
    let has_checkpoint = |stage: Stage| folder(out, stage).checkpoint().exists();
    let has_weights = stages.iter().any(|s| s.trains() && is_done(*s) && has_checkpoint(*s));
    stages.iter().any(|s| !is_done(*s) && (!has_weights || has_adapters || *s == Stage::Eval))
}

/// A stage's folder, which may not exist.
fn folder(out: &Path, stage: Stage) -> StageFolder {
    StageFolder { path: out.join(stage.name()) }
}

/// Hashes of the files that the engine reads of a model's folder. It may hold the files of a
/// checkpoint, whose optimizer state the training continues.
fn hashes(model: &Path) -> Result<BTreeMap<String, BlobHash>, TrainError> {
    let failed = |error: std::io::Error| {
        TrainError::io(format!("hash the model in {}", model.display()), error)
    };
    let mut hashes = BTreeMap::new();
    for name in FOLDERS {
        let folder = model.join(name);
        if !folder.is_dir() {
            continue;
        }
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let is_read = path.extension().is_some_and(|extension| extension == "safetensors")
                || CONFIGS.contains(&name);
            // Links are followed: models of a download cache consist of them.
            if is_read && path.is_file() {
                let within = path.strip_prefix(model).unwrap_or(&path).display().to_string();
                hashes.insert(within, BlobHash::of_file(&path).map_err(failed)?);
            }
        }
    }
    Ok(hashes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_files_of_a_model_are_named() {
        let model = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(model.path().join(name), text).unwrap();
        let contents =
            || Contents { pretrained: Some(hashes(model.path()).unwrap()), sources: None };
        fs::create_dir(model.path().join("critic")).unwrap();
        write("config.json", "{}");
        write("model.safetensors", "1");
        write("critic/model.safetensors", "2");
        write("README.md", "3");
        let began = contents();
        let hash = began.pretrained.as_ref().unwrap()["critic/model.safetensors"];
        assert_eq!(hash, BlobHash::of(b"2"));
        // The engine does not read it.
        write("README.md", "4");
        assert!(began.differences(&contents()).is_empty());

        write("config.json", "[]");
        write("critic/model.safetensors", "1");
        write("optimizer.safetensors", "5");
        fs::remove_file(model.path().join("model.safetensors")).unwrap();
        let names = [
            "config.json",
            "critic/model.safetensors",
            "model.safetensors",
            "optimizer.safetensors",
        ];
        let differences = began.differences(&contents());
        assert_eq!(differences, [("pretrained.path", names.map(str::to_owned).to_vec())]);
    }

    #[test]
    fn contents_that_are_not_recorded_do_not_differ() {
        let of = |text: &[u8]| Contents { pretrained: None, sources: Some(BlobHash::of(text)) };
        assert!(of(b"1").differences(&of(b"1")).is_empty());
        let differences = of(b"1").differences(&of(b"2"));
        assert_eq!(differences, [("pretrain.sources", Vec::<String>::new())]);
        assert!(of(b"1").differences(&Contents::default()).is_empty());
        assert!(Contents::default().differences(&of(b"2")).is_empty());
    }

    /// A configuration with a pretrained model, `lora` in its table, and further tables.
    fn config(lora: &str, more: &str) -> Config {
        let text = format!(
            "[tasks]\ntrain = [\"a.py\"]\nheld_out = [\"b.py\"]\n\
             [pretrained]\npath = \"model\"\n{lora}\n\
             [demos]\nepisodes_per_task = 1\n\
             [sft]\nlr = 1e-3\ntotal_epochs = 1\n\
             [ppo]\ntotal_training_steps = 2\ntrain_batch_size = 1\nrollout_n = 2\nlr = 1e-3\n{more}"
        );
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        Config::read(file.path(), &[]).unwrap().0
    }

    #[test]
    fn pretrained_model_is_read_until_a_stage_has_trained() {
        let out = tempfile::tempdir().unwrap();
        let plain = config("", "");
        let adapted = config("lora_rank = 4", "");
        let evaluated = config("", "[eval]\nepisodes_per_task = 1\n");
        let all =
            || [&plain, &adapted, &evaluated].map(|config| reads_pretrained(config, out.path()));
        let make = |name: &str| fs::create_dir_all(out.path().join(name)).unwrap();
        let finish = |stage: &str| {
            make(stage);
            fs::write(out.path().join(stage).join("done.json"), "{}").unwrap();
        };
        assert_eq!(all(), [true; 3]);
        finish("demos");
        make("sft/checkpoint");
        assert_eq!(all(), [true; 3], "stage sft may be repeated");
        finish("sft");
        assert_eq!(all(), [false, true, true]);
        finish("ppo");
        assert_eq!(all(), [false, false, true]);
        finish("eval");
        assert_eq!(all(), [false; 3]);
    }

    #[test]
    fn sources_are_read_until_pretraining_is_done() {
        let out = tempfile::tempdir().unwrap();
        fs::create_dir_all(out.path().join("pretrain/checkpoint")).unwrap();
        assert!(reads_sources(out.path()));
        fs::write(out.path().join("pretrain/done.json"), "{}").unwrap();
        assert!(!reads_sources(out.path()));
    }
}
