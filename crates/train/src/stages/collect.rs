//! Stage `collect`: stores episodes of the policy.

use warpwright_learn::outcome;
use warpwright_record::history::{Episode, History};
use warpwright_record::reader::RunReader;

use crate::error::TrainError;
use crate::folder::StageFolder;
use crate::run::{Run, refuse_broken};
use crate::stage::Stage;
use crate::stages::StageWork;

pub(super) struct CollectStage;

impl StageWork for CollectStage {
    fn run(&self, run: &Run<'_, '_>, folder: &StageFolder) -> Result<(), TrainError> {
        let each = run.config.collect.as_ref().map_or(0, |collect| collect.episodes_per_task);
        let most = run.config.collect.as_ref().and_then(|collect| collect.max_tasks);
        let tasks = &run.train[..most.map_or(run.train.len(), |most| most.min(run.train.len()))];
        let engine = run.engine(&run.weights(Stage::Collect)?)?;
        let make = run.natives(&engine, "collect")?;
        let plays = run.plays(tasks, each);
        let played =
            run.play_all(folder, run.rollouts, (tasks, &[plays]), ("native", make), |_| ())?;
        let usable = played.iter().filter(|e| outcome::reward(e, run.config.reward).is_some());
        let usable = usable.count();
        if usable == 0 {
            refuse_broken(&played)?;
        }
        folder.finish(&serde_json::json!({ "episodes": played.len(), "usable": usable }))
    }
}

/// The episodes of stage collect.
pub(super) fn collected(run: &Run<'_, '_>) -> Result<Vec<Episode>, TrainError> {
    let reader = RunReader::open(&run.stage_folder(Stage::Collect)?.path.join("record"))?;
    Ok(History::read(&reader)?.episodes.into_values().collect())
}
