//! The parts of a device that an episode needs: a pool of sessions, a shell, facts and a skill.

use std::path::Path;

use warpwright_agent::episode::EpisodeError;
use warpwright_agent::judge::DeviceFacts;
use warpwright_agent::skill;
use warpwright_agent::tools::shell::{Provision, Shell};
use warpwright_agent::workspace::{Contents, Workspace};
use warpwright_judge::SessionPool;
use warpwright_record::verdict::Profile;
use warpwright_task::Task;

use crate::failure::Failure;
use crate::judging::JudgeHost;
use crate::settings::bad_skill;

/// A device's parts for one worker.
pub(crate) struct DeviceContext<'a> {
    pub(crate) pool: &'a SessionPool<'a>,
    pub(crate) shell: Shell,
    pub(crate) facts: DeviceFacts,
    pub(crate) skill: String,
}

impl<'a> DeviceContext<'a> {
    /// The parts of an open device. `skill` is a template; `None` uses the built-in one.
    pub(crate) fn new(
        bench: &'a JudgeHost,
        pool: &'a SessionPool<'a>,
        skill: Option<&str>,
        profile: Profile,
    ) -> Result<Self, Failure> {
        let facts = bench.facts()?;
        let (folders, path) = bench.compilers();
        let python = Some(bench.python.clone());
        let provision = Provision { python, folders, path, memory_bytes: None };
        let shell = Shell::new(bench.jail.clone(), provision);
        let skill = skill::render(skill.unwrap_or(skill::TEMPLATE), &facts, profile)
            .map_err(|error| bad_skill(&error))?;
        Ok(Self { pool, shell, facts, skill })
    }

    /// A workspace folder for a task.
    pub(crate) fn workspace(&self, path: &Path, task: &Task) -> Result<Workspace, Failure> {
        let contents = Contents {
            skill: self.skill.clone(),
            reference: task.source.clone(),
            binding: warpwright_build::template::BINDING_CPP.to_owned(),
            binding_registry: warpwright_build::template::BINDING_REGISTRY_H.to_owned(),
        };
        Workspace::create(path, &contents).map_err(|error| Failure::from(EpisodeError::from(error)))
    }
}
