//! Stage `demos`: demonstrations by the built-in policy.

use warpwright_agent::policy::{Briefing, Policy};
use warpwright_learn::online::Play;
use warpwright_record::history::Episode;
use warpwright_rollout::rollout_workers::Make;
use warpwright_teacher::{Demonstrator, Drafts};

use crate::error::TrainError;
use crate::folder::StageFolder;
use crate::run::{Run, refuse_broken};
use crate::stages::StageWork;

pub(super) struct DemosStage;

impl StageWork for DemosStage {
    fn run(&self, run: &Run<'_, '_>, folder: &StageFolder) -> Result<(), TrainError> {
        let Some(demos) = &run.config.demos else { return Ok(()) };
        let drafts = Drafts::default();
        let make: Make<'_> = Box::new(|| {
            Box::new(Demonstrator::new(demos.flaws, drafts.clone())) as Box<dyn Policy>
        });
        // The other episodes of a task reuse the findings of its first.
        let is_first = |play: &Play| (play.number as usize) < run.train.len();
        let (first, others) =
            run.plays(run.train, demos.episodes_per_task).into_iter().partition(is_first);
        let phases = [first, others];
        let learn = |played: &[Episode]| {
            for episode in played {
                let briefing = briefing(run, episode);
                let answers = episode
                    .turns
                    .iter()
                    .map(|turn| turn.results.iter().map(|(result, _)| result.clone()).collect());
                drafts.learn(&briefing, answers);
            }
        };
        let played = run.play_all(
            folder,
            run.rollouts,
            (run.train, &phases),
            ("demonstrator", make),
            learn,
        )?;
        refuse_broken(&played)?;
        folder.finish(&serde_json::json!({ "episodes": played.len() }))
    }
}

/// The briefing of a demonstration.
fn briefing(run: &Run<'_, '_>, episode: &Episode) -> Briefing {
    let device = &run.rollouts.devices[0];
    Briefing {
        task: episode.setup.task.clone(),
        reference: String::new(),
        skill: device.skill.clone(),
        device: device.facts.clone(),
        profile: episode.setup.profile,
        seed: episode.setup.seed,
        turns: episode.setup.budget.turns,
    }
}
