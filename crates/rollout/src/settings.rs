//! All settings of a run of `optimize` or `eval`, stored in `run.json` so that `--resume` needs
//! only the folder. Paths of this machine (interpreter, cache) are not stored.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use warpwright_agent::skill::{self, SkillError};
use warpwright_record::libraries::{Library, LibrarySet};
use warpwright_record::verdict::{Profile, Tier};
use warpwright_task::{Dtype, Mode, Task};

use crate::device_choice::DeviceChoice;
use crate::error::{RolloutError, chain};
use crate::policies::PolicyName;
use crate::remote::{BaseUrls, RemoteOptions};

/// Version of this part of `run.json`.
pub const VERSION: u32 = 2;

/// The command that started the run; it also decides how the results are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// `optimize`: kernels for the user.
    Optimize,
    /// `eval`: evaluation metrics of a suite.
    Eval,
}

/// Settings of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Version of this part of `run.json`.
    pub version: u32,
    /// The command that started the run.
    pub purpose: Purpose,
    /// The paths that the suite was read from, for display.
    pub suite: Vec<String>,
    /// The tasks, in order.
    pub tasks: Vec<StoredTask>,
    /// Names of the policies, in order.
    pub policies: Vec<String>,
    /// Episodes per policy and task.
    pub attempts: u32,
    /// Number of concurrent episodes, if the user set it.
    pub jobs: Option<u32>,
    /// `cpu` or `cuda:N`; `auto` is already resolved.
    pub devices: Vec<String>,
    /// Rules of precision and comparison.
    pub profile: Profile,
    /// The dtype that the tasks are cast to; their sources are cast already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<Dtype>,
    /// Whether tasks that are too large for the device are scaled down.
    #[serde(default)]
    pub fit: bool,
    /// Seed of the policies and of the references' weights.
    pub seed: u64,
    /// Whether all baselines are timed.
    pub all_baselines: bool,
    /// Whether less than full isolation is refused.
    pub require_full_isolation: bool,
    /// The tier in which candidates are judged, if one is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require_tier: Option<Tier>,
    /// Most memory of each device that its judge may use, in bytes, if the user set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<u64>,
    /// Header libraries that candidates for a GPU may use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub libraries: Vec<Library>,
    /// Whether candidates may use none, also where a task allows some.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forbid_libraries: bool,
    /// Whether degenerate tasks are judged too.
    #[serde(default)]
    pub include_degenerate: bool,
    /// The template of the skill, if it is not the built-in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skill: Option<String>,
    /// Limit on the messages of an episode.
    pub max_turns: u32,
    /// Limit on the duration of an episode in seconds.
    pub max_seconds: Option<f64>,
    /// Limit on the tokens of an episode.
    pub max_tokens: Option<u64>,
    /// Limit on the device time of an episode in seconds.
    pub max_device_seconds: Option<f64>,
    /// Options of models behind an endpoint. They contain no key.
    #[serde(default)]
    pub remote: RemoteOptions,
    /// Base URLs of the endpoints, by wire format.
    #[serde(default)]
    pub base_urls: BaseUrls,
}

/// A task with its source: the file may have changed when the run is resumed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredTask {
    name: String,
    source: String,
    origin: Option<String>,
    mode: Mode,
    level: Option<u8>,
    ops: Option<Vec<String>>,
    data_source: Option<String>,
    /// Whether its source computes gradients too, for readers of the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    backward: bool,
}

impl Settings {
    /// Header libraries that candidates may use, besides those that their task allows unless all are forbidden.
    pub fn library_set(&self) -> LibrarySet {
        if self.forbid_libraries {
            return LibrarySet::forbidden();
        }
        self.libraries.iter().collect()
    }

    /// Settings from `run.json`.
    pub fn from_config(config: &serde_json::Value) -> Result<Self, RolloutError> {
        let failed = |reason: String| {
            let hint = "only runs of `warpwright optimize` and `warpwright eval` can be resumed"
                .to_owned();
            RolloutError::usage(format!("failed to resume the run: {reason}"), hint)
        };
        // Before the fields: those of another version are others.
        let found = config.get("version").and_then(serde_json::Value::as_u64);
        if let Some(found) = found.filter(|found| *found != u64::from(VERSION)) {
            return Err(failed(format!(
                "its settings have version {found}, this program reads version {VERSION}"
            )));
        }
        Self::deserialize(config).map_err(|e| failed(format!("its settings cannot be read: {e}")))
    }

    /// The devices that the run was started on.
    pub fn devices(&self) -> Result<Vec<DeviceChoice>, RolloutError> {
        let parsed = self.devices.iter().map(|name| name.parse::<DeviceChoice>());
        parsed.collect::<Result<_, _>>().map_err(|reason| {
            RolloutError::usage(
                format!("failed to resume the run: its device is unknown: {reason}"),
                None,
            )
        })
    }

    /// The workspace folder of an episode of the run in `run`.
    pub fn workspace(&self, run: &Path, task: &str, policy: &str, attempt: u32) -> PathBuf {
        if self.tasks.len() * self.policies.len() * self.attempts as usize == 1 {
            return run.join("workspace");
        }
        let mut folder = run.join("workspaces").join(file_name(task));
        if self.policies.len() > 1 {
            folder.push(file_name(policy));
        }
        if self.attempts > 1 {
            folder.push(format!("attempt-{}", attempt + 1));
        }
        folder
    }

    /// The policies, in order.
    pub fn policies(&self) -> Result<Vec<PolicyName>, RolloutError> {
        self.policies.iter().map(|name| PolicyName::parse(name)).collect()
    }

    /// The tasks, in order.
    pub fn tasks(&self) -> Vec<Task> {
        self.tasks.iter().map(StoredTask::task).collect()
    }
}

/// Replaces the characters that a file name cannot contain: names of policies may contain paths.
fn file_name(text: &str) -> String {
    let plain = |c: char| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    text.chars().map(plain).collect::<String>().trim_start_matches('.').to_owned()
}

/// Reads a skill template. Its text is stored, since the file may have changed when the run is
/// resumed. A template that cannot be rendered is refused before anything starts.
pub fn read_skill(path: &Path, profile: Profile) -> Result<String, RolloutError> {
    let template = fs_err::read_to_string(path).map_err(|error| {
        let hint = "name a text file; `skills/cuda/SKILL.md` is the built-in template".to_owned();
        RolloutError::usage(format!("failed to read the skill template: {error}"), hint)
    })?;
    skill::check(&template, profile).map_err(|error| bad_skill(&error))?;
    Ok(template)
}

/// The failure for a skill that cannot be rendered.
pub fn bad_skill(error: &SkillError) -> RolloutError {
    let hint = "`docs/concepts/agent.md` lists the placeholders of a skill template".to_owned();
    RolloutError::usage(chain(error), hint)
}

impl StoredTask {
    /// A task with its source.
    pub fn new(task: &Task) -> Self {
        Self {
            name: task.name.clone(),
            source: task.source.clone(),
            origin: task.origin.as_ref().map(|path| path.to_string_lossy().into_owned()),
            mode: task.mode,
            level: task.level,
            ops: task.ops.clone(),
            data_source: task.data_source.clone(),
            backward: task.backward(),
        }
    }

    fn task(&self) -> Task {
        let mut task = Task::from_source(&self.name, self.source.clone());
        task.origin = self.origin.as_ref().map(Into::into);
        task.mode = self.mode;
        task.level = self.level;
        task.ops.clone_from(&self.ops);
        task.data_source.clone_from(&self.data_source);
        task
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_another_version_are_refused() {
        let old = serde_json::json!({ "version": 1, "tasks": [], "policy": "teacher" });
        let failure = Settings::from_config(&old).unwrap_err().to_string();
        assert!(failure.contains("have version 1, this program reads version 2"), "{failure}");
        let none = Settings::from_config(&serde_json::json!({})).unwrap_err().to_string();
        assert!(none.contains("cannot be read: missing field"), "{none}");
    }

    #[test]
    fn a_task_survives_the_record() {
        let mut task = Task::from_source("relu", "class Model: ...");
        task.origin = Some("suite/relu.py".into());
        task.mode = Mode::Train;
        task.level = Some(2);
        task.ops = Some(vec!["torch.relu".to_owned()]);
        let json = serde_json::to_string(&StoredTask::new(&task)).unwrap();
        let stored: StoredTask = serde_json::from_str(&json).unwrap();
        assert_eq!(stored.task(), task);
    }
}
