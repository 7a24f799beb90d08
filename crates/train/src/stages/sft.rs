//! Stage `sft`: supervised training on the demonstrations.

use warpwright_learn::fit::Aim;
use warpwright_record::reader::RunReader;

use crate::config::Config;
use crate::corpus::{self, Described, Shown};
use crate::error::TrainError;
use crate::folder::StageFolder;
use crate::observer::TrainEvent;
use crate::run::Run;
use crate::stage::Stage;
use crate::stages::StageWork;
use crate::stages::fit::fit;

pub(super) struct SftStage;

impl StageWork for SftStage {
    fn run(&self, run: &Run<'_, '_>, folder: &StageFolder) -> Result<(), TrainError> {
        let reader = RunReader::open(&run.stage_folder(Stage::Demos)?.path.join("record"))?;
        let Config { sft: Some(fitting), sampling, .. } = run.config else { return Ok(()) };
        let device = &run.rollouts.devices[0];
        let shown = corpus::shown(&reader, &device.facts, &device.skill)?;
        if let Some(shape) = run.untokenized() {
            let texts: Vec<String> = shown.iter().flat_map(Shown::texts).collect();
            corpus::begin_model(&texts, shape, sampling, &run.out.join("model"))?;
        }
        let dialogue = run.dialogue()?;
        let described = Described::read(&run.out.join("model"))?;
        let positions = described.positions(run.config.pretrained.as_ref());
        let all = shown.len();
        let mut episodes = Vec::new();
        let mut longest = 0;
        for shown in shown {
            let episode = shown.episode(&*dialogue);
            let length = episode.sequences[0].ids.len();
            longest = longest.max(length);
            if length <= positions {
                episodes.push(episode);
            }
        }
        run.observe(&TrainEvent::Demonstrations {
            count: episodes.len(),
            tokens: episodes.iter().map(|e| e.sequences[0].ids.len()).sum(),
            longest,
            vocabulary: described.vocab_size,
            left_out: all - episodes.len(),
            positions,
        });
        if episodes.is_empty() {
            let hint = "increase max_position_embeddings (pretrained: max_model_len), or use smaller tasks".to_owned();
            let message = format!(
                "failed to train on demonstrations: none is shorter than {positions} tokens"
            );
            return Err(TrainError::usage(message, hint));
        }
        fit(run, Stage::Sft, folder, fitting, Aim::Likelihood, &episodes, false)
    }
}
