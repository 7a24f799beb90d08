//! The parts of a device that an episode needs: a judge, a shell, facts and a skill.

use std::path::Path;

use warpwright_agent::episode::EpisodeError;
use warpwright_agent::judge::DeviceFacts;
use warpwright_agent::skill;
use warpwright_agent::tools::shell::{Provision, Shell};
use warpwright_agent::workspace::{Contents, Workspace};
use warpwright_jail::Jail;
use warpwright_judge::{SessionPool, allowed_by};
use warpwright_record::libraries::LibrarySet;
use warpwright_record::verdict::Profile;
use warpwright_task::Task;

use crate::error::RolloutError;
use crate::judge_host::JudgeHost;
use crate::pool_judge::{DeviceJudge, PooledDevice};
use crate::settings::bad_skill;

/// The name of the cpu device, which has no header libraries.
const CPU: &str = "cpu";

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
    /// What else a task needs that allows further header libraries.
    pub by_libraries: Vec<WithLibraries>,
}

/// What an agent gets where these header libraries are allowed.
pub struct WithLibraries {
    /// The libraries.
    pub libraries: LibrarySet,
    /// The shell, in which their headers can be read.
    pub shell: Shell,
    /// The skill, which names them.
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
        let of = |libraries: LibrarySet| -> Result<WithLibraries, RolloutError> {
            let facts = DeviceFacts { libraries, ..facts.clone() };
            let (folders, path) = host.compilers(libraries);
            let python = Some(host.python.clone());
            let provision = Provision { python, folders, path, memory_bytes: None };
            let shell = Shell::new(Jail::clone(&host.jail), provision);
            let skill = skill::render(skill.unwrap_or(skill::TEMPLATE), &facts, profile)
                .map_err(|error| bad_skill(&error))?;
            Ok(WithLibraries { libraries, shell, skill })
        };
        let WithLibraries { shell, skill, .. } = of(facts.libraries)?;
        // A task adds nothing where all are forbidden.
        let others = LibrarySet::all()
            .into_iter()
            .filter(|set| *set != facts.libraries && !facts.libraries.forbids());
        let by_libraries = others.map(of).collect::<Result<_, _>>()?;
        let judge = Box::new(PooledDevice::new(pool, facts.clone()));
        Ok(Self { judge, shell, facts, skill, by_libraries })
    }

    /// What it has for the header libraries that a task allows besides those of the run.
    fn with_libraries_of(&self, task: &Task) -> Option<&WithLibraries> {
        if self.by_libraries.is_empty() || self.facts.device == CPU {
            return None;
        }
        let libraries = self.facts.libraries.and(allowed_by(task));
        self.by_libraries.iter().find(|with| with.libraries == libraries)
    }

    /// Facts about the device, for a policy that works on this task.
    pub fn facts_for(&self, task: &Task) -> DeviceFacts {
        let with = self.with_libraries_of(task);
        let libraries = with.map_or(self.facts.libraries, |with| with.libraries);
        DeviceFacts { libraries, ..self.facts.clone() }
    }

    /// The shell for a task.
    pub fn shell_for(&self, task: &Task) -> &Shell {
        self.with_libraries_of(task).map_or(&self.shell, |with| &with.shell)
    }

    /// The skill for a task.
    pub fn skill_for(&self, task: &Task) -> String {
        let skill = self.with_libraries_of(task).map_or(&self.skill, |with| &with.skill);
        if task.backward() { skill::with_backward(skill) } else { skill.clone() }
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
