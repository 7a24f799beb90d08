//! Hosts the sessions of `serve`: each is an episode on one of the devices, in its own folder.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};

use fs_err as fs;
use warpwright_agent::episode::{Ended, Start};
use warpwright_agent::policy::Policy;
use warpwright_record::event::{Budget, EpisodeId, Event, RunOutcome};
use warpwright_record::run::RunInfo;
use warpwright_record::verdict::Profile;
use warpwright_record::writer::RunWriter;
use warpwright_rollout::device_context::DeviceContext;
use warpwright_rollout::episode::EpisodeBuilder;
use warpwright_rollout::error::{RolloutError, chain};
use warpwright_rollout::{Notice, folders};
use warpwright_task::Task;

use crate::sessions::{Opening, Sessions};

/// The settings of hosted sessions.
pub struct Host<'a> {
    /// The devices that judge.
    pub devices: Vec<DeviceContext<'a>>,
    /// Rules of precision and comparison.
    pub profile: Profile,
    /// Maximum messages per episode.
    pub turns: u32,
    /// Folder of the running episodes.
    pub scratch: PathBuf,
    /// Folder for the records of ended episodes.
    pub kept: Option<Kept>,
    /// The command line, for the records.
    pub command: String,
    /// Receives warnings.
    pub notice: Notice,
}

/// A temporary folder of this process, removed when it ends. If the process is killed, the folder
/// stays until another process starts: a process holds the lock in its folder until it dies.
pub struct Scratch {
    folder: tempfile::TempDir,
    _lock: std::fs::File,
}

impl Scratch {
    const PREFIX: &str = "warpwright-serve-";
    const LOCK: &str = "lock";

    /// Creates a folder in `base`, and removes the folders of dead processes there.
    pub fn new(base: &Path) -> std::io::Result<Self> {
        let folder = tempfile::Builder::new().prefix(Self::PREFIX).tempdir_in(base)?;
        // Locked before it has its name: others take one that is not locked for a dead process's.
        let unnamed = folder.path().join("unnamed");
        let lock = std::fs::File::create(&unnamed)?;
        lock.lock()?;
        fs::rename(unnamed, folder.path().join(Self::LOCK))?;
        let own = fs::metadata(folder.path())?.uid();
        for entry in fs::read_dir(base)?.flatten() {
            // Others come and go meanwhile.
            let Ok(found) = entry.metadata() else { continue };
            let named = entry.file_name().to_string_lossy().starts_with(Self::PREFIX);
            // Here anybody may make folders of any name.
            if named && found.is_dir() && found.uid() == own {
                // What cannot be removed now is tried again by the next.
                let _ = Self::clear(&entry.path());
            }
        }
        Ok(Self { folder, _lock: lock })
    }

    /// Removes the folder of a dead process. A folder without a lock has just been created.
    fn clear(folder: &Path) -> std::io::Result<()> {
        let lock = std::fs::File::open(folder.join(Self::LOCK))?;
        if lock.try_lock().is_ok() { fs::remove_dir_all(folder) } else { Ok(()) }
    }

    /// Folder of the sessions.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("sessions")
    }
}

/// The newest records of sessions, at most `most`.
pub struct Kept {
    folder: PathBuf,
    most: usize,
    /// Oldest first.
    names: Mutex<VecDeque<PathBuf>>,
}

impl Kept {
    /// Opens a folder, which may contain records of earlier processes.
    pub fn new(folder: &Path, most: usize) -> Result<Self, RolloutError> {
        let failed =
            |error: std::io::Error| RolloutError::io("use the folder of `--keep-sessions`", error);
        fs::create_dir_all(folder).map_err(failed)?;
        let mut found = Vec::new();
        for entry in fs::read_dir(folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            // What is no run is not ours.
            if entry.path().join("run.json").exists() {
                let changed = entry.metadata().and_then(|data| data.modified()).map_err(failed)?;
                found.push((changed, entry.path()));
            }
        }
        found.sort();
        let names = Mutex::new(found.into_iter().map(|(_, path)| path).collect());
        let kept = Self { folder: folder.to_owned(), most, names };
        kept.trim().map_err(failed)?;
        Ok(kept)
    }

    fn add(&self, record: &Path, id: &str) -> std::io::Result<()> {
        let place = self.folder.join(id);
        // Beside the scratch folder it may lie on another disk.
        if fs::rename(record, &place).is_err() {
            folders::copy(record, &place)?;
        }
        self.names.lock().unwrap_or_else(PoisonError::into_inner).push_back(place);
        self.trim()
    }

    fn trim(&self) -> std::io::Result<()> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        while names.len() > self.most {
            if let Some(oldest) = names.pop_front() {
                fs::remove_dir_all(oldest)?;
            }
        }
        Ok(())
    }
}

impl<'a> Host<'a> {
    /// Hosts sessions until the server stops accepting them. Each session has its own thread.
    pub fn host<'s>(&'s self, scope: &'s std::thread::Scope<'s, '_>, sessions: &'s Sessions) {
        while let Some(opening) = sessions.next() {
            let host = move || {
                let id = opening.id.clone();
                self.play(opening);
                let folder = self.scratch.join(&id);
                // What failed early has none.
                let cleared = if folder.exists() { fs::remove_dir_all(&folder) } else { Ok(()) };
                if let Err(error) = cleared {
                    (self.notice)(&format!(
                        "warning: failed to remove the folder of session {id}: {error}"
                    ));
                }
                sessions.hosted();
            };
            let spawned =
                std::thread::Builder::new().name("session".to_owned()).spawn_scoped(scope, host);
            if let Err(error) = spawned {
                // Its client is told when the opening is dropped.
                (self.notice)(&format!("warning: failed to start a session: {error}"));
                sessions.hosted();
            }
        }
    }

    fn play(&self, opening: Opening) {
        let id = opening.id.clone();
        opening.play(|task, seed, policy, stop| {
            let played = self.episode(&id, task, seed, policy, stop);
            played.map_err(|failure| {
                (self.notice)(&format!("warning: session {id} failed: {}", chain(&failure)));
                chain(&failure)
            })
        });
    }

    fn episode(
        &self,
        id: &str,
        task: &Task,
        seed: u64,
        policy: &mut dyn Policy,
        stop: &AtomicBool,
    ) -> Result<Ended, RolloutError> {
        let device = self.device_of(task);
        let folder = self.scratch.join(id);
        let config = serde_json::json!({ "version": 1, "purpose": "session" });
        let info = RunInfo { command: self.command.clone(), config };
        let record = RunWriter::create(&folder.join("record"), info)?;
        let judge = device.judge.task(task, stop);
        let builder = EpisodeBuilder {
            id: EpisodeId(0),
            device,
            task,
            profile: self.profile,
            seed,
            attempt: 0,
            budget: Budget { turns: Some(self.turns), ..Budget::default() },
            policy: policy.name(),
            keeps_skill: true,
            record: &record,
            stop,
        };
        let workspace = folder.join("workspace");
        let ended = builder.play(&workspace, &*judge, policy, Start::Fresh, &|_| {})?;
        if let Some(kept) = &self.kept {
            record.append(&Event::RunFinished { outcome: RunOutcome::Completed })?;
            let folder = record.dir().to_owned();
            record.close()?;
            kept.add(&folder, id).map_err(|error| RolloutError::io("record a session", error))?;
        }
        Ok(ended)
    }

    /// The device of a task. A task always runs on the same device, which has it prepared.
    fn device_of(&self, task: &Task) -> &DeviceContext<'a> {
        let mut hasher = DefaultHasher::new();
        task.source.hash(&mut hasher);
        &self.devices[(hasher.finish() % self.devices.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn startup_removes_only_folders_of_dead_servers() {
        let base = tempfile::tempdir().unwrap();
        let dead = base.path().join("warpwright-serve-dead");
        fs::create_dir_all(dead.join("sessions/1/workspace")).unwrap();
        fs::write(dead.join("lock"), "").unwrap();
        let (begun, other) =
            (base.path().join("warpwright-serve-begun"), base.path().join("other"));
        fs::create_dir_all(&begun).unwrap();
        fs::create_dir_all(&other).unwrap();
        let living = Scratch::new(base.path()).unwrap();
        fs::create_dir_all(living.path()).unwrap();
        let another = Scratch::new(base.path()).unwrap();
        assert!(!dead.exists() && begun.exists() && other.exists());
        assert!(living.path().exists());
        drop((living, another));
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 2);
    }

    #[test]
    fn session_limit_removes_only_the_oldest_records() {
        let base = tempfile::tempdir().unwrap();
        let record = |name: &str| {
            let path = base.path().join(name);
            fs::create_dir_all(path.join("blobs")).unwrap();
            fs::write(path.join("run.json"), name).unwrap();
            path
        };
        let folder = base.path().join("kept");
        fs::create_dir_all(folder.join("mine")).unwrap();
        let kept = Kept::new(&folder, 2).unwrap();
        for id in ["a", "b", "c"] {
            kept.add(&record("record"), id).unwrap();
        }
        let has = |id: &str| folder.join(id).join("run.json").exists();
        assert!(!has("a") && has("b") && has("c") && folder.join("mine").exists());
        // Taken up by another process, with room for less.
        let kept = Kept::new(&folder, 1).unwrap();
        assert_eq!(usize::from(has("b")) + usize::from(has("c")), 1);
        kept.add(&record("record"), "d").unwrap();
        assert!(has("d") && !has("b") && !has("c") && folder.join("mine").exists());
    }
}
