//! The stages that train on stored episodes: on demonstrations, and on collected episodes of the
//! policy.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};
use warpwright_learn::batch;
use warpwright_learn::engine::Engine as _;
use warpwright_learn::fit::{Aim, Epoch};
use warpwright_learn::outcome;
use warpwright_learn::remote::RemoteError;
use warpwright_record::history::{Episode, History};
use warpwright_record::reader::RunReader;

use crate::engine::{Engine, Shared};
use crate::failure::Failure;
use crate::train::config::{Config, Fitting};
use crate::train::corpus::{self, Described, Shown};
use crate::train::figures;
use crate::train::folder::StageFolder;
use crate::train::progress::{Steps, told_epoch};
use crate::train::stage::Stage;
use crate::train::stages::{Run, not_updated};

/// Content of a stage's `done.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Fitted {
    epochs: Vec<Epoch>,
}

impl Run<'_, '_> {
    pub(super) fn sft(&self, folder: &StageFolder) -> Result<(), Failure> {
        let reader = RunReader::open(&self.stage_folder(Stage::Demos)?.path.join("record"))?;
        let Config { sft: Some(fitting), sampling, .. } = self.config else { return Ok(()) };
        let place = &self.field.places[0];
        let shown = corpus::shown(&reader, &place.facts, &place.skill)?;
        if let Some(shape) = self.untokenized() {
            let texts: Vec<String> = shown.iter().flat_map(Shown::texts).collect();
            corpus::begin_model(&texts, shape, sampling, &self.out.join("model"))?;
        }
        let dialogue = self.dialogue()?;
        let described = Described::read(&self.out.join("model"))?;
        let positions = described.positions(self.config.pretrained.as_ref());
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
        let left_out = all - episodes.len();
        let tokens: usize = episodes.iter().map(|e| e.sequences[0].ids.len()).sum();
        self.printer.say(&format!(
            "sft: {} demonstrations, {tokens} tokens, the longest {longest}; vocabulary of {}",
            episodes.len(),
            described.vocab_size,
        ));
        if left_out > 0 {
            self.printer.say(&format!(
                "warning: {left_out} demonstrations are longer than the model's context of {positions} tokens and left out"
            ));
        }
        if episodes.is_empty() {
            let hint = "increase max_position_embeddings (pretrained: max_model_len), or use smaller tasks".to_owned();
            let message = format!(
                "failed to train on demonstrations: none is shorter than {positions} tokens"
            );
            return Err(Failure::usage(message, hint));
        }
        self.fit(Stage::Sft, folder, fitting, Aim::Likelihood, &episodes, false)
    }

    pub(super) fn fit(
        &self,
        stage: Stage,
        folder: &StageFolder,
        fitting: &Fitting,
        aim: Aim,
        episodes: &[batch::Episode],
        with_critic: bool,
    ) -> Result<(), Failure> {
        let engine = self.engine(&self.weights(stage)?)?;
        let mut shared = engine.shared.clone();
        let attempt = format!("train in stage {}", stage.name());
        if with_critic {
            Self::begin_critic(&engine, &mut shared, &attempt)?;
        }
        let fit = fitting.fit(aim, self.seed(stage.salt()));
        let mut done: Vec<Epoch> = folder.state()?;
        let known: Vec<_> = done.iter().map(figures::of_epoch).collect();
        let mut board = self.board(stage, &known)?;
        let mut unsaved = None;
        let mut progress = Steps::new(self.printer, stage);
        let before = done.clone();
        let each = |shared: &mut Shared, epoch: &Epoch| {
            done.push(*epoch);
            self.printer.say(&told_epoch(stage, epoch));
            self.note(&mut board, &figures::of_epoch(epoch));
            unsaved = self.save(folder, &engine, shared, &done).err();
            let stops = unsaved.is_some() || self.stop.load(Ordering::SeqCst);
            if stops { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let made = fit.run_watched(&mut shared, episodes, before, each, &mut |epoch, made, of| {
            progress.tell(epoch, made, of);
        });
        if let Some(failure) = unsaved {
            return Err(failure);
        }
        let epochs = made.map_err(|error| not_updated(error, &engine, &attempt))?;
        if let Some(lost) = epochs.last().filter(|epoch| !epoch.validation_loss.is_finite()) {
            let hint = "lower `lr` and start again with another --out".to_owned();
            let message = format!("failed to {attempt}: the loss is {} ", lost.validation_loss);
            return Err(folder.fail(Failure::infrastructure(message.trim_end(), hint)));
        }
        if !fit.is_over(&epochs) && self.stop.load(Ordering::SeqCst) {
            return Err(Failure::interrupted());
        }
        if epochs.is_empty() {
            self.save(folder, &engine, &mut shared, &epochs)?;
        }
        folder.finish(&Fitted { epochs })
    }

    /// Creates a critic with weights of its own, unless the engine has one.
    pub(super) fn begin_critic(
        engine: &Engine,
        shared: &mut Shared,
        attempt: &str,
    ) -> Result<(), Failure> {
        let failed = |error: RemoteError| engine.failure(attempt, &error);
        if shared.describe().map_err(failed)?.has_critic {
            return Ok(());
        }
        shared.begin_critic().map_err(failed)
    }

    /// The episodes of stage collect.
    fn collected(&self) -> Result<Vec<Episode>, Failure> {
        let reader = RunReader::open(&self.stage_folder(Stage::Collect)?.path.join("record"))?;
        Ok(History::read(&reader)?.episodes.into_values().collect())
    }

    pub(super) fn rft(&self, folder: &StageFolder) -> Result<(), Failure> {
        let Some(rejecting) = &self.config.rft else { return Ok(()) };
        let collected = self.collected()?;
        let (mut kept, mut faults) = (Vec::new(), BTreeMap::new());
        for episode in &collected {
            match outcome::fault(episode, self.config.reward, rejecting.reward_threshold) {
                Some(fault) => *faults.entry(fault.to_string()).or_insert(0) += 1,
                None => kept.extend(outcome::learned(episode, self.config.reward).ok()),
            }
        }
        let told: Vec<String> =
            faults.iter().map(|(fault, n)| format!("{n} for {fault}")).collect();
        self.printer.say(&format!(
            "rft: training on {} of {} episodes; left out: {}",
            kept.len(),
            collected.len(),
            if told.is_empty() { "none".to_owned() } else { told.join(", ") }
        ));
        if kept.is_empty() {
            let hint =
                "collect more episodes, lower rft.reward_threshold, or improve the demonstrations"
                    .to_owned();
            let message =
                "failed to run rejection fine-tuning: every collected episode was left out";
            return Err(folder.fail(Failure::infrastructure(message, hint)));
        }
        self.fit(Stage::Rft, folder, &rejecting.fit, Aim::Likelihood, &kept, false)
    }

    pub(super) fn value(&self, folder: &StageFolder) -> Result<(), Failure> {
        let Some(valuing) = &self.config.value else { return Ok(()) };
        let collected = self.collected()?;
        let all: Vec<_> = collected
            .iter()
            .filter_map(|episode| outcome::learned(episode, self.config.reward).ok())
            .collect();
        let aim = Aim::Values(valuing.recipe.recipe().pretraining);
        self.fit(Stage::Value, folder, &valuing.fit, aim, &all, true)
    }
}
