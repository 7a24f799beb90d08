//! Plays one episode on a device: the common part of campaigns, training and serving.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use warpwright_agent::episode::{self, Ended, Parts, Start};
use warpwright_agent::judge::Judge;
use warpwright_agent::policy::{Briefing, Policy};
use warpwright_judge::fit_of;
use warpwright_record::event::{Budget, EpisodeId, EpisodeSetup, Event};
use warpwright_record::verdict::{Dtype, Profile};
use warpwright_record::writer::RunWriter;
use warpwright_task::Task;

use crate::device_context::DeviceContext;
use crate::error::RolloutError;

/// What is known of an episode before it is played.
pub struct EpisodeBuilder<'a> {
    /// Its number within the record.
    pub id: EpisodeId,
    /// The device that it is played on.
    pub device: &'a DeviceContext<'a>,
    /// The task.
    pub task: &'a Task,
    /// Rules of precision and comparison.
    pub profile: Profile,
    /// Seed of the policy.
    pub seed: u64,
    /// Number of this attempt at the task, from 0.
    pub attempt: u32,
    /// Limits on the episode.
    pub budget: Budget,
    /// Name of the policy in the record.
    pub policy: String,
    /// Whether the record keeps the skill. It is the same for all episodes of a device, and long.
    pub keeps_skill: bool,
    /// The record.
    pub record: &'a RunWriter,
    /// Ends the episode when it is set.
    pub stop: &'a AtomicBool,
}

impl EpisodeBuilder<'_> {
    /// Plays the episode in a workspace in `folder`. `observer` sees each event after it was
    /// recorded.
    pub fn play(
        self,
        folder: &Path,
        judge: &dyn Judge,
        policy: &mut dyn Policy,
        start: Start,
        observer: &dyn Fn(&Event),
    ) -> Result<Ended, RolloutError> {
        let Self { device, task, record, .. } = self;
        let workspace = device.workspace(folder, task)?;
        let text = device.skill_for(task);
        let skill = self.keeps_skill.then(|| record.put_blob(text.as_bytes()));
        let briefing = Briefing {
            task: task.name.clone(),
            reference: task.shown_source(),
            skill: text,
            device: device.facts_for(task),
            profile: self.profile,
            seed: self.seed,
            turns: self.budget.turns,
        };
        let shown = task.holds_out().then(|| record.put_blob(briefing.reference.as_bytes()));
        let setup = EpisodeSetup {
            task: task.name.clone(),
            source: record.put_blob(task.source.as_bytes())?,
            shown: shown.transpose()?,
            skill: skill.transpose()?,
            policy: self.policy,
            device: device.facts.device.clone(),
            profile: self.profile,
            dtype: task.dtype().and_then(|dtype| Dtype::from_name(dtype.name())),
            fit: fit_of(task),
            backward: task.backward(),
            seed: self.seed,
            attempt: self.attempt,
            level: task.level.map(|level| format!("level{level}")),
            budget: self.budget,
        };
        let parts = Parts {
            id: self.id,
            setup,
            briefing,
            workspace: &workspace,
            shell: device.shell_for(task),
            judge,
            record,
            observer,
            stop: self.stop,
        };
        Ok(episode::run(&parts, policy, start)?)
    }
}
