//! All settings of a run of `optimize` or `eval`, stored in `run.json` so that `--resume` needs
//! only the folder. Paths of this machine (interpreter, cache) are not stored.

use std::path::Path;

use serde::{Deserialize, Serialize};
use warpwright_agent::skill::{self, SkillError};
use warpwright_record::verdict::Profile;
use warpwright_task::{Mode, Task};

use crate::args::{BaselinesArg, DeviceArg, IsolationArg};
use crate::failure::{Failure, chain};
use crate::policies::PolicyName;
use crate::remote::{BaseUrls, PolicyArgs};

/// Version of this part of `run.json`.
const VERSION: u32 = 2;

/// The command that started the run; it also decides how the results are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Purpose {
    /// `optimize`: kernels for the user.
    Optimize,
    /// `eval`: evaluation metrics of a suite.
    Eval,
}

/// Settings of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) version: u32,
    pub(crate) purpose: Purpose,
    /// The paths that the suite was read from, for display.
    pub(crate) suite: Vec<String>,
    pub(crate) tasks: Vec<StoredTask>,
    pub(crate) policies: Vec<String>,
    /// Episodes per policy and task.
    pub(crate) attempts: u32,
    /// Number of concurrent episodes, if the user set it.
    pub(crate) jobs: Option<u32>,
    /// `cpu` or `cuda:N`; `auto` is already resolved.
    pub(crate) devices: Vec<String>,
    pub(crate) profile: Profile,
    pub(crate) seed: u64,
    pub(crate) all_baselines: bool,
    pub(crate) require_full_isolation: bool,
    /// Whether degenerate tasks are judged too.
    #[serde(default)]
    pub(crate) include_degenerate: bool,
    /// The template of the skill, if it is not the built-in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) skill: Option<String>,
    pub(crate) max_turns: u32,
    pub(crate) max_seconds: Option<f64>,
    pub(crate) max_tokens: Option<u64>,
    pub(crate) max_device_seconds: Option<f64>,
    /// Options of models behind an endpoint. They contain no key.
    #[serde(default)]
    pub(crate) remote: PolicyArgs,
    /// Base URLs of the endpoints, by wire format.
    #[serde(default)]
    pub(crate) base_urls: BaseUrls,
}

/// A task with its source: the file may have changed when the run is resumed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredTask {
    name: String,
    source: String,
    origin: Option<String>,
    mode: Mode,
    level: Option<u8>,
    ops: Option<Vec<String>>,
    data_source: Option<String>,
}

impl Settings {
    /// Settings from the command line.
    pub(crate) fn new(
        purpose: Purpose,
        args: &crate::args::Episodes,
        common: &crate::args::Common,
        tasks: &[Task],
        policies: Vec<String>,
        profile: Profile,
        max_turns: u32,
    ) -> Result<Self, Failure> {
        let skill = args.skill.as_deref().map(|path| read_skill(path, profile)).transpose()?;
        Ok(Self {
            version: VERSION,
            purpose,
            suite: args.tasks.iter().map(|path| path.to_string_lossy().into_owned()).collect(),
            tasks: tasks.iter().map(StoredTask::new).collect(),
            policies,
            attempts: args.attempts,
            jobs: args.jobs,
            devices: Vec::new(),
            profile,
            seed: common.seed,
            all_baselines: common.baselines == BaselinesArg::All,
            require_full_isolation: common.require_isolation == IsolationArg::Full,
            include_degenerate: false,
            skill,
            max_turns: args.max_turns.unwrap_or(max_turns),
            max_seconds: args.max_minutes.map(|minutes| minutes * 60.0),
            max_tokens: args.max_tokens,
            max_device_seconds: args.max_device_minutes.map(|minutes| minutes * 60.0),
            remote: args.remote.clone(),
            base_urls: BaseUrls::new(),
        })
    }

    /// Settings from `run.json`.
    pub(crate) fn from_config(config: &serde_json::Value) -> Result<Self, Failure> {
        let failed = |reason: String| {
            let hint = "only runs of `warpwright optimize` and `warpwright eval` can be resumed"
                .to_owned();
            Failure::usage(format!("failed to resume the run: {reason}"), hint)
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
    pub(crate) fn devices(&self) -> Result<Vec<DeviceArg>, Failure> {
        let parsed = self.devices.iter().map(|name| crate::args::device(name));
        parsed.collect::<Result<_, _>>().map_err(|reason| {
            Failure::usage(
                format!("failed to resume the run: its device is unknown: {reason}"),
                None,
            )
        })
    }

    /// The policies, in order.
    pub(crate) fn policies(&self) -> Result<Vec<PolicyName>, Failure> {
        self.policies.iter().map(|name| PolicyName::parse(name)).collect()
    }

    /// The tasks, in order.
    pub(crate) fn tasks(&self) -> Vec<Task> {
        self.tasks.iter().map(StoredTask::task).collect()
    }
}

/// Reads a skill template. Its text is stored, since the file may have changed when the run is
/// resumed. A template that cannot be rendered is refused before anything starts.
fn read_skill(path: &Path, profile: Profile) -> Result<String, Failure> {
    let template = fs_err::read_to_string(path).map_err(|error| {
        let hint = "name a text file; `skills/cuda/SKILL.md` is the built-in template".to_owned();
        Failure::usage(format!("failed to read the skill template: {error}"), hint)
    })?;
    skill::check(&template, profile).map_err(|error| bad_skill(&error))?;
    Ok(template)
}

/// The failure for a skill that cannot be rendered.
pub(crate) fn bad_skill(error: &SkillError) -> Failure {
    let hint = "`docs/concepts/agent.md` lists the placeholders of a skill template".to_owned();
    Failure::usage(chain(error), hint)
}

impl StoredTask {
    fn new(task: &Task) -> Self {
        Self {
            name: task.name.clone(),
            source: task.source.clone(),
            origin: task.origin.as_ref().map(|path| path.to_string_lossy().into_owned()),
            mode: task.mode,
            level: task.level,
            ops: task.ops.clone(),
            data_source: task.data_source.clone(),
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
        let failure = Settings::from_config(&old).unwrap_err();
        assert!(
            failure.message.contains("have version 1, this program reads version 2"),
            "{}",
            failure.message
        );
        let none = Settings::from_config(&serde_json::json!({})).unwrap_err();
        assert!(none.message.contains("cannot be read: missing field"), "{}", none.message);
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
