//! The parts of a device that an episode needs: a judge, a shell, facts and a skill.

use std::path::Path;

use warpwright_agent::episode::EpisodeError;
use warpwright_agent::judge::DeviceFacts;
use warpwright_agent::skill;
use warpwright_agent::tools::shell::{Provision, Shell};
use warpwright_agent::workspace::{Contents, Workspace};
use warpwright_jail::Jail;
use warpwright_judge::SessionPool;
use warpwright_record::verdict::Profile;
use warpwright_task::Task;

use crate::error::RolloutError;
use crate::judge_host::JudgeHost;
use crate::pool_judge::{DeviceJudge, PooledDevice};
use crate::settings::bad_skill;

/// A device's parts for one worker.
pub struct DeviceContext<'a> {
    /// Judges the candidates.
    pub judge: Box<dyn DeviceJudge + 'a>,
    /// Runs the agent's commands.
    pub shell: Shell,
    /// Facts about the device, for policies.
    pub facts: DeviceFacts,
    /// The skill for this device.
    pub skill: String,
}

impl<'a> DeviceContext<'a> {
    /// The parts of an open device. `skill` is a template; `None` uses the built-in one.
    pub fn new(
        host: &'a JudgeHost,
        pool: &'a SessionPool<'a>,
        skill: Option<&str>,
        profile: Profile,
    ) -> Result<Self, RolloutError> {
        let facts = host.facts()?;
        let (folders, path) = host.compilers();
        let python = Some(host.python.clone());
        let provision = Provision { python, folders, path, memory_bytes: None };
        let shell = Shell::new(Jail::clone(&host.jail), provision);
        let skill = skill::render(skill.unwrap_or(skill::TEMPLATE), &facts, profile)
            .map_err(|error| bad_skill(&error))?;
        let judge = Box::new(PooledDevice::new(pool, facts.clone()));
        Ok(Self { judge, shell, facts, skill })
    }

    /// The skill for a task.
    pub fn skill_for(&self, task: &Task) -> String {
        if task.backward() { skill::with_backward(&self.skill) } else { self.skill.clone() }
    }

    /// A workspace folder for a task.
    pub fn workspace(&self, path: &Path, task: &Task) -> Result<Workspace, RolloutError> {
        let contents = Contents {
            skill: self.skill_for(task),
            reference: task.shown_source(),
            binding: warpwright_build::template::BINDING_CPP.to_owned(),
            binding_registry: warpwright_build::template::BINDING_REGISTRY_H.to_owned(),
        };
        Workspace::create(path, &contents).map_err(|error| EpisodeError::from(error).into())
    }
}
