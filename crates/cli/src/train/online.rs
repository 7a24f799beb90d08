//! Reinforcement learning on the policy's own rollouts: the stages `single-turn` and `ppo`.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use warpwright_learn::engine::Engine as _;
use warpwright_learn::online::{Back, Ended, Online, OnlineError, State};

use crate::failure::Failure;
use crate::train::config::Rl;
use crate::train::figures;
use crate::train::folder::StageFolder;
use crate::train::progress::{told_back, told_end, told_update};
use crate::train::rollout_workers::RolloutWorkers;
use crate::train::stage::Stage;
use crate::train::stages::{Run, not_updated};

impl Run<'_, '_> {
    pub(super) fn online(
        &self,
        stage: Stage,
        folder: &StageFolder,
        playing: Option<&Rl>,
        turns: u32,
    ) -> Result<(), Failure> {
        let Some(playing) = playing else { return Ok(()) };
        let online = playing.online(self.config.reward, self.seed(100 + stage.salt()));
        let mut state: State = folder.state()?;
        folder.settle(state.updates.len() as u32, &mut state.rollback_checkpoints)?;
        while let Some(back) =
            self.online_from(stage, folder, playing, (&online, turns), &mut state)?
        {
            self.printer.say(&told_back(stage, back));
            match back.to {
                None => folder.keep_state(&state)?,
                Some(to) => folder.go_back(to, &state)?,
            }
        }
        if let Some(alarm) = online.alarm(&state) {
            let made = (state.updates.len(), online.total_training_steps);
            self.printer.say(&told_end(stage, made, alarm));
        }
        folder.finish(&state)?;
        folder.keep_for_rollback(0, &[])
    }

    /// Trains from the last checkpoint until the stage is done, or until a rollback.
    fn online_from(
        &self,
        stage: Stage,
        folder: &StageFolder,
        playing: &Rl,
        (online, turns): (&Online, u32),
        state: &mut State,
    ) -> Result<Option<Back>, Failure> {
        if !state.updates.is_empty() && !folder.has_moments() {
            self.printer.say(&format!(
                "warning: {} has no optimizer.safetensors: the optimizer state starts at zero, so the first steps \
                 change the policy more than earlier ones",
                folder.checkpoint().display()
            ));
        }
        let engine = self.engine(&self.weights(stage)?)?;
        let mut shared = engine.shared.clone();
        let attempt = format!("train in stage {}", stage.name());
        if playing.needs_critic() {
            Self::begin_critic(&engine, &mut shared, &attempt)?;
        } else if playing.is_ppo() {
            let loaded =
                shared.describe().map_err(|error| engine.failure("load a model", &error))?;
            if !loaded.has_values {
                return Err(no_critic(stage));
            }
        }
        let field = self.field.with_turns(turns);
        let make = self.natives(&engine, stage.name())?;
        let players = RolloutWorkers::open(&field, self.train, "native", make, &folder.path)?;
        let known: Vec<_> = state.updates.iter().map(figures::of_update).collect();
        let mut board = self.board(stage, &known)?;
        let mut unsaved = None;
        let made = online.run(&mut shared, &players, state, |shared, state| {
            if let Some(update) = state.updates.last() {
                self.printer.say(&told_update(stage, update, online.total_training_steps));
                self.note(&mut board, &figures::of_update(update));
            }
            let saved = self.save(folder, &engine, shared, state);
            let number = state.updates.len() as u32;
            unsaved = saved
                .and_then(|()| folder.keep_for_rollback(number, &state.rollback_checkpoints))
                .err();
            let stops = unsaved.is_some() || self.stop.load(Ordering::SeqCst);
            if stops { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if let Some(failure) = unsaved {
            return Err(failure);
        }
        let ended = made.map_err(|error| match error {
            OnlineError::Update(error) => not_updated(error, &engine, &attempt),
            OnlineError::Rollouts(error) => error.0,
            error @ OnlineError::NoEpisodes { .. } => {
                let hint = "run the same command again: it resumes from the last checkpoint";
                Failure::infrastructure(error.to_string(), hint.to_owned())
            }
        })?;
        match ended {
            Ended::Back(back) => Ok(Some(back)),
            Ended::Here if online.is_over(state) => players.close().map(|()| None),
            Ended::Here => Err(Failure::interrupted()),
        }
    }
}

/// PPO without a value head and without a critic, found before any rollout.
fn no_critic(stage: Stage) -> Failure {
    let table = stage.table();
    let hint = format!(
        "set {table}.separate_critic = true, add the stage [value], or set {table}.algorithm = \"grpo\""
    );
    let message = format!("failed to train in stage {}: the model has no value head", stage.name());
    Failure::usage(message, hint)
}
