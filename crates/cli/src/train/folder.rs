//! The folder of a training run: what is where, and how it is replaced so that it can be gone on with.
//!
//! ```text
//! OUT/train.json  config.toml  verdicts.jsonl  model/config.json  model/tokenizer.json
//! OUT/<stage>/record/       episodes, a run folder like any other
//! OUT/<stage>/checkpoint/   weights, and state.json: how far the stage has come
//! OUT/<stage>/checkpoint.N/ the same after N updates, where the stage may have to go back to that
//! OUT/<stage>/done.json     the stage is over
//! OUT/<stage>/failed.json   it has nothing to learn from, or learns no more: done again it would end alike
//! ```

use std::path::{Path, PathBuf};

use fs_err as fs;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use warpwright_learn::engine::Engine;

use crate::failure::Failure;

const STATE: &str = "state.json";

/// What a run was begun with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Begun {
    pub(crate) version: u32,
    /// The configuration as it was written.
    pub(crate) config: String,
    /// The folder that its paths begin at.
    pub(crate) folder: PathBuf,
    /// Hashes of the tasks trained on, and of those held out.
    pub(crate) tasks: [Vec<String>; 2],
    pub(crate) seed: u64,
    /// `cpu` or `cuda:N`.
    pub(crate) devices: Vec<String>,
}

impl Begun {
    /// Version of `train.json`.
    pub(crate) const VERSION: u32 = 2;

    /// Begins a run in `out`, or finds that this is the one which was begun there.
    pub(crate) fn enter(&self, out: &Path) -> Result<(), Failure> {
        let path = out.join("train.json");
        if !path.exists() {
            fs::create_dir_all(out).map_err(|e| Failure::io("make the run's folder", &e))?;
            return write_json(&path, self);
        }
        let found: Self = read_json(&path)?;
        let differs = [
            (found.version != self.version, "the version of its format"),
            (found.config != self.config, "the configuration"),
            (found.tasks != self.tasks, "what its tasks are read from"),
            (found.seed != self.seed, "--seed"),
            (found.devices != self.devices, "--device"),
        ];
        match differs.into_iter().find(|(differs, _)| *differs) {
            None => Ok(()),
            Some((_, what)) => {
                let message = format!(
                    "failed to go on with the run in {}: {what} is not what it was begun with",
                    out.display()
                );
                let hint = "name another folder with --out".to_owned();
                Err(Failure::usage(message, hint))
            }
        }
    }
}

/// One stage's folder.
#[derive(Clone, Debug)]
pub(crate) struct StageFolder {
    pub(crate) path: PathBuf,
}

impl StageFolder {
    /// Makes it if need be; what an interruption left half done is put right.
    pub(crate) fn open(path: PathBuf) -> Result<Self, Failure> {
        let failed = |e: std::io::Error| Failure::io("use the stage's folder", &e);
        fs::create_dir_all(&path).map_err(failed)?;
        let folder = Self { path };
        if !folder.checkpoint().exists() && folder.other("old").exists() {
            fs::rename(folder.other("old"), folder.checkpoint()).map_err(failed)?;
        }
        Ok(folder)
    }

    pub(crate) fn checkpoint(&self) -> PathBuf {
        self.path.join("checkpoint")
    }

    /// Whether the checkpoint has the optimizer's state, as `warpwright-engine` writes it.
    pub(crate) fn has_moments(&self) -> bool {
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

    /// Whether the stage is over.
    pub(crate) fn is_done(&self) -> bool {
        self.done().exists()
    }

    /// What it came to.
    pub(crate) fn result<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        read_json(&self.done())
    }

    /// It is over, and came to this.
    pub(crate) fn finish<T: Serialize>(&self, result: &T) -> Result<(), Failure> {
        if self.has_failed() {
            // What it goes by was made anew since.
            fs::remove_file(self.failed()).map_err(|e| Failure::io("finish the stage", &e))?;
        }
        write_json(&self.done(), result)
    }

    /// It ends by this however often it is done: what it goes by is in the run already.
    pub(crate) fn fail(&self, failure: Failure) -> Failure {
        match write_json(&self.failed(), &failure) {
            Ok(()) => failure,
            Err(unwritten) => unwritten,
        }
    }

    /// Whether it ended so.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed().exists()
    }

    /// How far it has come; where it was never saved, nowhere.
    pub(crate) fn state<T: DeserializeOwned + Default>(&self) -> Result<T, Failure> {
        let path = self.checkpoint().join(STATE);
        if path.exists() { read_json(&path) } else { Ok(T::default()) }
    }

    /// Replaces the state beside weights that stay; where there are none yet, it is not kept.
    pub(crate) fn keep_state<T: Serialize>(&self, state: &T) -> Result<(), Failure> {
        if self.checkpoint().exists() {
            write_json(&self.checkpoint().join(STATE), state)?;
        }
        Ok(())
    }

    /// Replaces the checkpoint by weights and state that belong together; at every moment there is one.
    /// `more` are files to put beside.
    pub(crate) fn save<E: Engine, T: Serialize>(
        &self,
        engine: &mut E,
        state: &T,
        more: &[&Path],
        unsaved: impl Fn(&E::Error) -> Failure,
    ) -> Result<(), Failure> {
        let failed = |e: std::io::Error| Failure::io("save a checkpoint", &e);
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

    /// Puts `checkpoint.new` in the checkpoint's place.
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

    /// Keeps the checkpoint, which is that after `number` updates, where it is one of those `wanted`; of those
    /// kept before, what is not wanted any more goes. Files are linked, not copied.
    pub(crate) fn shelve(&self, number: u32, wanted: &[u32]) -> Result<(), Failure> {
        let failed = |e: std::io::Error| Failure::io("keep a checkpoint", &e);
        for kept in self.shelf().map_err(failed)? {
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

    /// Of a run that was taken elsewhere what it may go back to can have stayed behind: what is not there goes from
    /// this list. If nothing is left, what came with it is kept, that after `made` updates.
    pub(crate) fn settle(&self, made: u32, shelf: &mut Vec<u32>) -> Result<(), Failure> {
        let had = !shelf.is_empty();
        shelf.retain(|kept| self.keeps(*kept));
        if had && shelf.is_empty() {
            shelf.push(made);
            self.shelve(made, shelf)?;
        }
        Ok(())
    }

    /// Goes back to the checkpoint that was kept after so many updates, with this state; after none to what
    /// the stage began with.
    pub(crate) fn go_back<T: Serialize>(&self, to: u32, state: &T) -> Result<(), Failure> {
        let failed = |e: std::io::Error| Failure::io("go back to a checkpoint", &e);
        if to == 0 {
            return fs::remove_dir_all(self.checkpoint()).map_err(failed);
        }
        let new = self.other("new");
        link(&self.other(&to.to_string()), &new).map_err(failed)?;
        write_json(&new.join(STATE), state)?;
        self.replace().map_err(failed)
    }

    /// Whether the checkpoint after so many updates is kept.
    fn keeps(&self, number: u32) -> bool {
        self.other(&number.to_string()).exists()
    }

    /// Numbers of the checkpoints that are kept.
    fn shelf(&self) -> std::io::Result<Vec<u32>> {
        let mut kept = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("checkpoint."));
            kept.extend(number.and_then(|number| number.parse::<u32>().ok()));
        }
        Ok(kept)
    }
}

/// Makes a folder of the same files in another place, which is emptied first.
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
            // Where there are no links.
            fs::copy(&path, &place)?;
        }
    }
    Ok(())
}

/// Writes a file whole or not at all.
pub(crate) fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::io(&format!("write {}", path.display()), &e);
    let text = serde_json::to_vec_pretty(value).map_err(|e| failed(e.into()))?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut partial = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    std::io::Write::write_all(&mut partial, &text).map_err(failed)?;
    partial.persist(path).map_err(|e| failed(e.error))?;
    Ok(())
}

pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, Failure> {
    let broken = |reason: String| {
        let hint = "remove the stage's folder to do it again, or begin anew with another --out";
        let message = format!("failed to read {}: {reason}", path.display());
        Failure::infrastructure(message, hint.to_owned())
    };
    let text = fs::read(path).map_err(|e| broken(e.to_string()))?;
    serde_json::from_slice(&text).map_err(|e| broken(e.to_string()))
}

#[cfg(test)]
mod tests;
