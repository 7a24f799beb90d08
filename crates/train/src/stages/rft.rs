//! Stage `rft`: rejection fine-tuning on the collected episodes.

use std::collections::BTreeMap;

use warpwright_learn::fit::Aim;
use warpwright_learn::outcome;

use crate::error::TrainError;
use crate::folder::StageFolder;
use crate::observer::TrainEvent;
use crate::run::Run;
use crate::stage::Stage;
use crate::stages::StageWork;
use crate::stages::collect::collected;
use crate::stages::fit::fit;

pub(super) struct RftStage;

impl StageWork for RftStage {
    fn run(&self, run: &Run<'_, '_>, folder: &StageFolder) -> Result<(), TrainError> {
        let Some(rejecting) = &run.config.rft else { return Ok(()) };
        let collected = collected(run)?;
        let (mut kept, mut faults) = (Vec::new(), BTreeMap::new());
        for episode in &collected {
            match outcome::fault(episode, run.config.reward, rejecting.reward_threshold) {
                Some(fault) => *faults.entry(fault.to_string()).or_insert(0) += 1,
                None => kept.extend(outcome::learned(episode, run.config.reward).ok()),
            }
        }
        run.observe(&TrainEvent::Selected {
            kept: kept.len(),
            of: collected.len(),
            left_out: &faults,
        });
        if kept.is_empty() {
            let hint =
                "collect more episodes, lower rft.reward_threshold, or improve the demonstrations"
                    .to_owned();
            let message =
                "failed to run rejection fine-tuning: every collected episode was left out";
            return Err(folder.fail(TrainError::infrastructure(message, hint)));
        }
        fit(run, Stage::Rft, folder, &rejecting.fit, Aim::Likelihood, &kept, false)
    }
}
