//! The folder of a training run: its files, and how they are replaced so that an interrupted run
//! can resume.
//!
//! ```text
//! OUT/train.json  config.toml  verdicts.jsonl  model/config.json  model/tokenizer.json
//! OUT/<stage>/record/       episodes, a run folder like any other
//! OUT/<stage>/checkpoint/   weights, and state.json: the progress of the stage
//! OUT/<stage>/checkpoint.N/ the checkpoint after N training steps, kept for a rollback
//! OUT/<stage>/done.json     the stage is done
//! OUT/<stage>/failed.json   the stage has nothing to train on, or its loss is not finite; repeating it would
//!                           fail in the same way
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use fs_err as fs;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use toml::{Table, Value};
use warpwright_learn::engine::Engine;
use warpwright_learn::quoted::shortened;
use warpwright_rollout::error::chain;

use crate::contents::Contents;
use crate::error::TrainError;

const STATE: &str = "state.json";
/// Limit on the keys or files that an error lists.
const MAX_LISTED: usize = 10;

/// The inputs that a run was started with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// Version of `train.json`.
    pub version: u32,
    /// The configuration's text.
    pub config: String,
    /// The folder that its paths are relative to.
    pub folder: PathBuf,
    /// Hashes of the training tasks and of the held-out tasks.
    pub tasks: [Vec<String>; 2],
    /// The run's seed.
    pub seed: u64,
    /// `cpu` or `cuda:N`.
    pub devices: Vec<String>,
    /// Hashes of the files that the configuration names by their folders.
    pub(crate) contents: Contents,
}

impl Begun {
    /// Version of `train.json`.
    pub const VERSION: u32 = 4;
    /// The oldest version that is read. It has no `contents`.
    const OLDEST: u32 = 3;

    /// Reads the `train.json` of a run. One of an unsupported version is refused.
    pub fn read(out: &Path) -> Result<Self, TrainError> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let path = out.join("train.json");
        let Versioned { version } = read_json(&path)?;
        match version {
            Self::VERSION => return read_json(&path),
            Self::OLDEST => return Self::migrate(&path),
            _ => {}
        }
        let message = format!(
            "failed to read the training run in {}: its format has version {version}, this program reads versions \
             {} to {}",
            out.display(),
            Self::OLDEST,
            Self::VERSION
        );
        let hint = match version {
            0..Self::VERSION => {
                "read it with the program that wrote it, or start a new run with another --out"
            }
            _ => "read it with a newer warpwright",
        };
        Err(TrainError::RunVersion { message, hint: hint.to_owned() })
    }

    /// Reads a `train.json` of version 3. Its run recorded no contents, so none are compared.
    fn migrate(path: &Path) -> Result<Self, TrainError> {
        let mut fields: serde_json::Map<String, Json> = read_json(path)?;
        fields.insert("contents".to_owned(), serde_json::json!({}));
        let migrated = serde_json::from_value(Json::Object(fields));
        migrated.map_err(|error| unreadable(path, &error.to_string()))
    }

    /// Starts a run in `out`, or checks that the run there was started with the same inputs.
    pub fn enter(&self, out: &Path) -> Result<(), TrainError> {
        let path = out.join("train.json");
        if !path.exists() {
            fs::create_dir_all(out).map_err(|e| TrainError::io("create the run's folder", e))?;
            return write_json(&path, self);
        }
        let found = Self::read(out)?;
        let differences = found.differences(self);
        if differences.is_empty() {
            return Ok(());
        }
        let (out, differences) = (out.display(), differences.join("; "));
        let message = format!("failed to resume the run in {out}: {differences}");
        let hint = "restore what differs, or start another run with a new --out".to_owned();
        Err(TrainError::usage(message, hint))
    }

    /// How the inputs in `new` differ from these.
    fn differences(&self, new: &Self) -> Vec<String> {
        let mut told = Vec::new();
        match changes(&self.config, &new.config) {
            Some(changes) => told.push(format!("the configuration differs{changes}")),
            // Another configuration or seed selects other files.
            None if self.seed != new.seed => {}
            None => told.extend(self.replaced(new)),
        }
        if self.tasks != new.tasks {
            told.push("its tasks differ".to_owned());
        }
        if self.seed != new.seed {
            told.push(format!("--seed differs: {} -> {}", self.seed, new.seed));
        }
        if self.devices != new.devices {
            let (old, new) = (self.devices.join(","), new.devices.join(","));
            told.push(format!("--device differs: {old} -> {new}"));
        }
        told
    }

    /// The keys that name files whose content differs, each with its value and with these files.
    fn replaced(&self, new: &Self) -> Vec<String> {
        let values = values(&new.config).unwrap_or_default();
        let one = |(key, files): (&str, Vec<String>)| {
            let value = values.get(key).map_or("", String::as_str);
            let files = match files[..] {
                [] => String::new(),
                _ => format!(": {}", listed(&files, "file")),
            };
            format!("the content of `{key}` {value} differs{files}")
        };
        self.contents.differences(&new.contents).into_iter().map(one).collect()
    }
}

/// The keys whose values differ, each with the old and the new value; `None` if no value differs.
fn changes(old: &str, new: &str) -> Option<String> {
    let (Some(old), Some(new)) = (values(old), values(new)) else {
        return (old != new).then(String::new);
    };
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let differing: Vec<&String> =
        keys.into_iter().filter(|key| old.get(*key) != new.get(*key)).collect();
    if differing.is_empty() {
        return None;
    }
    let shown = |value: Option<&String>| match value {
        None => "not set".to_owned(),
        Some(text) => {
            let (start, dots) = shortened(text);
            format!("{start}{dots}")
        }
    };
    let one = |key: &String| {
        let (old, new) = (shown(old.get(key)), shown(new.get(key)));
        format!("`{key}` {old} -> {new}")
    };
    let differing: Vec<String> = differing.into_iter().map(one).collect();
    Some(format!(": {}", listed(&differing, "key")))
}

/// The first items, and the number of the others.
fn listed(items: &[String], noun: &str) -> String {
    let shown = &items[..items.len().min(MAX_LISTED)];
    let rest = match items.len() - shown.len() {
        0 => String::new(),
        1 => format!(", and 1 more {noun}"),
        more => format!(", and {more} more {noun}s"),
    };
    format!("{}{rest}", shown.join(", "))
}

/// The values of a TOML text, as TOML, by their keys with all tables; `None` if it is not TOML. NaN
/// equals itself as text.
fn values(text: &str) -> Option<BTreeMap<String, String>> {
    fn add(table: Table, path: &str, values: &mut BTreeMap<String, String>) {
        for (name, value) in table {
            let path = if path.is_empty() { name } else { format!("{path}.{name}") };
            match value {
                Value::Table(inner) if !inner.is_empty() => add(inner, &path, values),
                value => {
                    values.insert(path, value.to_string());
                }
            }
        }
    }
    let mut values = BTreeMap::new();
    add(toml::from_str(text).ok()?, "", &mut values);
    Some(values)
}

/// Content of `failed.json`.
#[derive(Serialize)]
struct Failed {
    kind: &'static str,
    message: String,
    hint: Option<String>,
}

/// One stage's folder.
#[derive(Clone, Debug)]
pub struct StageFolder {
    /// Its path.
    pub path: PathBuf,
}

impl StageFolder {
    /// Opens the folder or creates it; completes or removes what an interrupted save left.
    pub fn open(path: PathBuf) -> Result<Self, TrainError> {
        let failed = |e: std::io::Error| TrainError::io("use the stage's folder", e);
        fs::create_dir_all(&path).map_err(failed)?;
        let folder = Self { path };
        if !folder.checkpoint().exists() && folder.other("old").exists() {
            fs::rename(folder.other("old"), folder.checkpoint()).map_err(failed)?;
        }
        Ok(folder)
    }

    /// Folder of the checkpoint, which may not exist.
    pub fn checkpoint(&self) -> PathBuf {
        self.path.join("checkpoint")
    }

    /// Whether the checkpoint has the optimizer's state, as `warpwright-engine` writes it.
    pub fn has_moments(&self) -> bool {
        self.checkpoint().join("optimizer.safetensors").exists()
    }

    fn other(&self, which: &str) -> PathBuf {
        self.path.join(format!("checkpoint.{which}"))
    }

    fn done(&self) -> PathBuf {
        self.path.join("done.json")
    }

    fn failed(&self) -> PathBuf {
        self.path.join("failed.json")
    }

    /// Whether the stage is done.
    pub fn is_done(&self) -> bool {
        self.done().exists()
    }

    /// Reads the result of the stage.
    pub fn result<T: DeserializeOwned>(&self) -> Result<T, TrainError> {
        read_json(&self.done())
    }

    /// Marks the stage as done, with its result.
    pub fn finish<T: Serialize>(&self, result: &T) -> Result<(), TrainError> {
        if self.has_failed() {
            // The stage's inputs were replaced since it failed.
            fs::remove_file(self.failed()).map_err(|e| TrainError::io("finish the stage", e))?;
        }
        write_json(&self.done(), result)
    }

    /// Marks the stage as failed for good: its inputs are fixed by the run, so repeating it would
    /// fail again.
    pub fn fail(&self, error: TrainError) -> TrainError {
        let failed =
            Failed { kind: error.kind().name(), message: chain(&error), hint: error.hint() };
        match write_json(&self.failed(), &failed) {
            Ok(()) => error,
            Err(unwritten) => unwritten,
        }
    }

    /// Whether the stage failed for good.
    pub fn has_failed(&self) -> bool {
        self.failed().exists()
    }

    /// The saved progress; the default if nothing was saved.
    pub fn state<T: DeserializeOwned + Default>(&self) -> Result<T, TrainError> {
        let path = self.checkpoint().join(STATE);
        if path.exists() { read_json(&path) } else { Ok(T::default()) }
    }

    /// Replaces the state and keeps the weights. Without a checkpoint the state is not kept.
    pub fn keep_state<T: Serialize>(&self, state: &T) -> Result<(), TrainError> {
        if self.checkpoint().exists() {
            write_json(&self.checkpoint().join(STATE), state)?;
        }
        Ok(())
    }

    /// Replaces the checkpoint atomically by new weights and their state. `more` are further files
    /// to include.
    pub fn save<E: Engine, T: Serialize>(
        &self,
        engine: &mut E,
        state: &T,
        more: &[&Path],
        unsaved: impl Fn(&E::Error) -> TrainError,
    ) -> Result<(), TrainError> {
        let failed = |e: std::io::Error| TrainError::io("save a checkpoint", e);
        let (new, old) = (self.other("new"), self.other("old"));
        for stale in [&new, &old] {
            if stale.exists() {
                fs::remove_dir_all(stale).map_err(failed)?;
            }
        }
        fs::create_dir_all(&new).map_err(failed)?;
        engine.save(&new).map_err(|error| unsaved(&error))?;
        for file in more {
            if let Some(name) = file.file_name() {
                fs::copy(file, new.join(name)).map_err(failed)?;
            }
        }
        write_json(&new.join(STATE), state)?;
        self.replace().map_err(failed)
    }

    /// Renames `checkpoint.new` to the checkpoint's name.
    fn replace(&self) -> std::io::Result<()> {
        let (new, old, now) = (self.other("new"), self.other("old"), self.checkpoint());
        if now.exists() {
            fs::rename(&now, &old)?;
        }
        fs::rename(&new, &now)?;
        if old.exists() {
            fs::remove_dir_all(&old)?;
        }
        Ok(())
    }

    /// Keeps a copy of the checkpoint, which is that after `number` training steps, if it is in
    /// `wanted`. Deletes kept checkpoints that are not in `wanted`. Files are hard links, not
    /// copies.
    pub fn keep_for_rollback(&self, number: u32, wanted: &[u32]) -> Result<(), TrainError> {
        let failed = |e: std::io::Error| TrainError::io("keep a checkpoint", e);
        for kept in self.rollback_checkpoints().map_err(failed)? {
            if !wanted.contains(&kept) {
                fs::remove_dir_all(self.other(&kept.to_string())).map_err(failed)?;
            }
        }
        let place = self.other(&number.to_string());
        if wanted.contains(&number) && !place.exists() {
            let half = self.other("half");
            link(&self.checkpoint(), &half)
                .and_then(|()| fs::rename(&half, &place))
                .map_err(failed)?;
        }
        Ok(())
    }

    /// Removes from the list the kept checkpoints that do not exist, as after a run was copied
    /// elsewhere without them. If none remains, keeps the current checkpoint, that after `made`
    /// training steps.
    pub fn settle(&self, made: u32, kept_steps: &mut Vec<u32>) -> Result<(), TrainError> {
        let had = !kept_steps.is_empty();
        kept_steps.retain(|kept| self.keeps(*kept));
        if had && kept_steps.is_empty() {
            kept_steps.push(made);
            self.keep_for_rollback(made, kept_steps)?;
        }
        Ok(())
    }

    /// Rolls back to the checkpoint kept after `to` training steps, with this state; with 0 to the
    /// beginning of the stage.
    pub fn go_back<T: Serialize>(&self, to: u32, state: &T) -> Result<(), TrainError> {
        let failed = |e: std::io::Error| TrainError::io("roll back to a checkpoint", e);
        if to == 0 {
            return fs::remove_dir_all(self.checkpoint()).map_err(failed);
        }
        let new = self.other("new");
        link(&self.other(&to.to_string()), &new).map_err(failed)?;
        write_json(&new.join(STATE), state)?;
        self.replace().map_err(failed)
    }

    /// Whether the checkpoint after `number` training steps is kept.
    fn keeps(&self, number: u32) -> bool {
        self.other(&number.to_string()).exists()
    }

    /// The training steps of the kept checkpoints.
    fn rollback_checkpoints(&self) -> std::io::Result<Vec<u32>> {
        let mut kept = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("checkpoint."));
            kept.extend(number.and_then(|number| number.parse::<u32>().ok()));
        }
        Ok(kept)
    }
}

/// Hard-links the files of a folder into another one, which is emptied first.
fn link(from: &Path, to: &Path) -> std::io::Result<()> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, place) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            link(&path, &place)?;
        } else if fs::hard_link(&path, &place).is_err() {
            // The file system has no hard links.
            fs::copy(&path, &place)?;
        }
    }
    Ok(())
}

/// Writes a file atomically.
pub fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<(), TrainError> {
    let failed = |e: std::io::Error| TrainError::io(format!("write {}", path.display()), e);
    let text = serde_json::to_vec_pretty(value).map_err(|e| failed(e.into()))?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut partial = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    std::io::Write::write_all(&mut partial, &text).map_err(failed)?;
    partial.persist(path).map_err(|e| failed(e.error))?;
    Ok(())
}

/// Reads a JSON file of a run.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, TrainError> {
    let text = fs::read(path).map_err(|error| unreadable(path, &error.to_string()))?;
    serde_json::from_slice(&text).map_err(|error| unreadable(path, &error.to_string()))
}

fn unreadable(path: &Path, reason: &str) -> TrainError {
    let hint =
        "remove the stage's folder to repeat the stage, or start a new run with another --out";
    let message = format!("failed to read {}: {reason}", path.display());
    TrainError::infrastructure(message, hint.to_owned())
}

#[cfg(test)]
mod tests;
