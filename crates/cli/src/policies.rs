//! Makes the policy that `--policy` names.

use std::path::{Path, PathBuf};

use warpwright_agent::policy::Policy;
use warpwright_agent::replay::{Replay, ReplayError};
use warpwright_task::Task;

use crate::failure::{Failure, chain};

/// What writes the kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PolicyName {
    /// The built-in one.
    Teacher,
    /// A recorded run.
    Replay(PathBuf),
}

impl PolicyName {
    /// From the command line or a record.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        match text.split_once(':') {
            None if text == "teacher" => Ok(Self::Teacher),
            Some(("replay", path)) if !path.is_empty() => Ok(Self::Replay(PathBuf::from(path))),
            _ => {
                let hint = "policies are `teacher` and `replay:RUN_DIR`".to_owned();
                Err(Failure::usage(format!("failed to find the policy {text}"), hint))
            }
        }
    }

    /// As [`PolicyName::parse`] takes it, from any folder.
    pub(crate) fn absolute(&self) -> String {
        match self {
            Self::Teacher => "teacher".to_owned(),
            Self::Replay(path) => {
                let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
                format!("replay:{}", path.display())
            }
        }
    }

    /// The policy for one task.
    pub(crate) fn make(&self, task: &str) -> Result<Box<dyn Policy>, Failure> {
        match self {
            Self::Teacher => Ok(Box::new(warpwright_teacher::Teacher::new())),
            Self::Replay(path) => replay(path, task),
        }
    }
}

/// The names of policies, from any folder. A trajectory that is not there is found before anything
/// is opened.
pub(crate) fn check(names: &[String], tasks: &[Task]) -> Result<Vec<String>, Failure> {
    let mut checked = Vec::new();
    for name in names {
        let policy = PolicyName::parse(name)?;
        for task in tasks {
            policy.make(&task.name)?;
        }
        let name = policy.absolute();
        if checked.contains(&name) {
            let hint = "name it once; `--attempts K` gives it several episodes".to_owned();
            return Err(Failure::usage(format!("failed to use the policy {name} twice"), hint));
        }
        checked.push(name);
    }
    Ok(checked)
}

fn replay(path: &Path, task: &str) -> Result<Box<dyn Policy>, Failure> {
    match Replay::from_run(path, task) {
        Ok(replay) => Ok(Box::new(replay)),
        Err(ReplayError::Read(error)) => Err(error.into()),
        Err(error @ ReplayError::NoEpisode { .. }) => {
            let hint = "name a run of `warpwright optimize` that worked on this task".to_owned();
            Err(Failure::usage(chain(&error), hint))
        }
    }
}
