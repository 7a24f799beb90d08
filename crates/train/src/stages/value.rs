//! Stage `value`: value pretraining on the collected episodes.

use warpwright_learn::fit::Aim;
use warpwright_learn::outcome;

use crate::error::TrainError;
use crate::folder::StageFolder;
use crate::run::Run;
use crate::stage::Stage;
use crate::stages::StageWork;
use crate::stages::collect::collected;
use crate::stages::fit::fit;

pub(super) struct ValueStage;

impl StageWork for ValueStage {
    fn run(&self, run: &Run<'_, '_>, folder: &StageFolder) -> Result<(), TrainError> {
        let Some(valuing) = &run.config.value else { return Ok(()) };
        let collected = collected(run)?;
        let all: Vec<_> = collected
            .iter()
            .filter_map(|episode| outcome::learned(episode, run.config.reward).ok())
            .collect();
        let aim = Aim::Values(valuing.recipe.recipe().pretraining);
        fit(run, Stage::Value, folder, &valuing.fit, aim, &all, true)
    }
}
