//! One episode at a task as it is, and what follows if the task is refused: with `--fit` a smaller one.

use warpwright_agent::episode::Start;
use warpwright_judge::JudgeError;
use warpwright_record::event::{Budget, Event, NoteLevel};
use warpwright_task::Task;

use super::{Campaign, Shared, lock};
use crate::device_context::DeviceContext;
use crate::episode::EpisodeBuilder;
use crate::error::RolloutError;
use crate::fit;
use crate::plan::Planned;
use crate::pool_judge::Refusal;

/// How an episode at a task came out.
pub(super) enum Attempt {
    /// It ended.
    Over,
    /// It has to start on another device.
    Elsewhere(RolloutError),
    /// The task cannot be judged as it is.
    Refused(Refusal),
    /// Some of its workloads were scaled down: there is another task to play at.
    Scaled,
}

impl Campaign<'_> {
    /// Plays an episode at a task as it is.
    pub(super) fn attempt(
        &self,
        shared: &Shared,
        device: &DeviceContext<'_>,
        (planned, task): (Planned, &Task),
        start: Start,
    ) -> Result<Attempt, RolloutError> {
        if let Err(error) = task.facts() {
            let (message, hint) = (error.to_string(), Some(error.hint().to_owned()));
            let refusal = Refusal { message, hint, degenerate: Vec::new(), too_large: None };
            return Ok(Attempt::Refused(refusal));
        }
        if let Some(told) = self.fit_workloads(shared, device, (planned.task, task))? {
            return Ok(told);
        }
        let judge = device.judge.task(task, &self.caller.stop);
        match if self.settings.fit { judge.open_whole() } else { judge.open() } {
            Ok(()) => {}
            Err(error @ JudgeError::DeviceLost { .. }) => {
                return Ok(Attempt::Elsewhere(error.into()));
            }
            Err(error) => {
                let Some(refusal) = Refusal::of(&error) else { return Err(error.into()) };
                return Ok(Attempt::Refused(refusal));
            }
        }
        self.warn(shared, planned.task, &device.judge.degenerate(task))?;
        let start = fit::start(lock(&shared.history).episodes.get(&planned.id), task, start);
        let policy = &self.settings.policies[planned.policy];
        let attempt = planned.attempt;
        let folder = self.settings.workspace(&self.dir, &task.name, policy, attempt);
        if matches!(start, Start::Fresh) && !task.fits().is_empty() && folder.exists() {
            fs_err::remove_dir_all(&folder).map_err(|error| {
                RolloutError::infrastructure(format!("failed to clear a workspace: {error}"), None)
            })?;
        }
        let builder = EpisodeBuilder {
            id: planned.id,
            device,
            task,
            profile: self.settings.profile,
            // Attempts differ; everything else about them is the same.
            seed: self.settings.seed.wrapping_add(u64::from(attempt)),
            attempt,
            budget: Budget {
                turns: Some(self.settings.max_turns),
                seconds: self.settings.max_seconds,
                tokens: self.settings.max_tokens,
                device_seconds: self.settings.max_device_seconds,
            },
            policy: policy.clone(),
            keeps_skill: true,
            record: &self.record,
            stop: &self.caller.stop,
        };
        let mut policy = shared.policies.make(planned.policy, &task.name)?;
        let observer = |event: &Event| self.caller.observer.observe(event);
        let played = builder.play(&folder, &*judge, policy.as_mut(), start, &observer);
        device.judge.finished(task);
        played?;
        Ok(judge.refusal().map_or(Attempt::Over, |refusal| Attempt::Refused(refusal.clone())))
    }

    /// With `--fit`, has all that follows work on smaller versions of those workloads that the device has no memory
    /// for. `None` if the task is as it should be.
    fn fit_workloads(
        &self,
        shared: &Shared,
        device: &DeviceContext<'_>,
        (index, task): (usize, &Task),
    ) -> Result<Option<Attempt>, RolloutError> {
        if !self.settings.fit || lock(&shared.fitted).contains(&task.hash) {
            return Ok(None);
        }
        let open = |bound: &Task| device.judge.task(bound, &self.caller.stop).open_whole();
        let (smaller, told) = match fit::workloads(task, open) {
            Ok(scaled) => scaled,
            Err(error @ JudgeError::DeviceLost { .. }) => {
                return Ok(Some(Attempt::Elsewhere(error.into())));
            }
            Err(error) => return Err(error.into()),
        };
        lock(&shared.fitted).insert(smaller.hash.clone());
        if told.is_empty() {
            return Ok(None);
        }
        if shared.task(index).hash == task.hash {
            for text in told {
                self.append(&Event::Note { episode: None, level: NoteLevel::Warning, text })?;
            }
            lock(&shared.scaled).insert(index, smaller);
        }
        Ok(Some(Attempt::Scaled))
    }

    /// Has all that follows work on a smaller version of a task that the device has no memory for. What it is refused
    /// for if there is none, or `--fit` is not set.
    pub(super) fn scale_down(
        &self,
        shared: &Shared,
        index: usize,
        task: &Task,
        refusal: Refusal,
    ) -> Result<Option<Refusal>, RolloutError> {
        if !self.settings.fit {
            return Ok(Some(refusal));
        }
        if shared.task(index).hash != task.hash {
            // Another worker has found out before.
            return Ok(None);
        }
        let why = refusal.message.clone();
        let smaller = match fit::or_refused(task, refusal) {
            Ok(smaller) => smaller,
            Err(refusal) => return Ok(Some(refusal)),
        };
        let text = fit::scaled(&why, &smaller);
        lock(&shared.scaled).insert(index, smaller);
        self.append(&Event::Note { episode: None, level: NoteLevel::Warning, text })?;
        Ok(None)
    }
}
