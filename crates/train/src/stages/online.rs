//! Reinforcement learning on the policy's own rollouts: the stages `single-turn` and `ppo`.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use warpwright_learn::engine::Engine as _;
use warpwright_learn::online::{Back, Ended, Online, OnlineError, State};
use warpwright_rollout::rollout_workers::RolloutWorkers;

use crate::config::Rl;
use crate::error::TrainError;
use crate::figures;
use crate::folder::StageFolder;
use crate::observer::TrainEvent;
use crate::run::{Run, not_updated};
use crate::stage::Stage;
use crate::stages::StageWork;
use crate::stages::fit::begin_critic;

pub(super) struct SingleTurnStage;

impl StageWork for SingleTurnStage {
    fn run(&self, run: &Run<'_, '_>, folder: &StageFolder) -> Result<(), TrainError> {
        let config = run.config.single_turn.as_ref();
        config.map_or(Ok(()), |config| online(run, Stage::SingleTurn, folder, (config, 1)))
    }
}

pub(super) struct PpoStage;

impl StageWork for PpoStage {
    fn run(&self, run: &Run<'_, '_>, folder: &StageFolder) -> Result<(), TrainError> {
        let turns = run.config.max_turns;
        let config = run.config.ppo.as_ref();
        config.map_or(Ok(()), |config| online(run, Stage::Ppo, folder, (config, turns)))
    }
}

fn online(
    run: &Run<'_, '_>,
    stage: Stage,
    folder: &StageFolder,
    (config, turns): (&Rl, u32),
) -> Result<(), TrainError> {
    let online = config.online(run.config.reward, run.seed(100 + stage.salt()));
    let mut state: State = folder.state()?;
    folder.settle(state.updates.len() as u32, &mut state.rollback_checkpoints)?;
    while let Some(back) = train_from(run, (stage, folder), config, (&online, turns), &mut state)? {
        run.observe(&TrainEvent::RolledBack(stage, back));
        match back.to {
            None => folder.keep_state(&state)?,
            Some(to) => folder.go_back(to, &state)?,
        }
    }
    if let Some(alarm) = online.alarm(&state) {
        let (made, of) = (state.updates.len(), online.total_training_steps);
        run.observe(&TrainEvent::Halted { stage, made, of, alarm });
    }
    folder.finish(&state)?;
    folder.keep_for_rollback(0, &[])
}

/// Trains from the last checkpoint until the stage is done, or until a rollback.
fn train_from(
    run: &Run<'_, '_>,
    (stage, folder): (Stage, &StageFolder),
    config: &Rl,
    (online, turns): (&Online, u32),
    state: &mut State,
) -> Result<Option<Back>, TrainError> {
    if !state.updates.is_empty() && !folder.has_moments() {
        run.observe(&TrainEvent::NoOptimizerState(&folder.checkpoint()));
    }
    let engine = run.engine(&run.weights(stage)?)?;
    let mut shared = engine.shared.clone();
    let attempt = format!("train in stage {}", stage.name());
    if config.needs_critic() {
        begin_critic(&engine, &mut shared, &attempt)?;
    } else if config.is_ppo() {
        let loaded = shared.describe().map_err(|error| engine.failure("load a model", &error))?;
        if !loaded.has_values {
            return Err(no_critic(stage));
        }
    }
    let rollouts = run.rollouts.with_turns(turns);
    let make = run.natives(&engine, stage.name())?;
    let workers = RolloutWorkers::open(&rollouts, run.train, "native", make, &folder.path)?;
    let known: Vec<_> = state.updates.iter().map(figures::of_update).collect();
    let mut board = run.board(stage, &known)?;
    let mut unsaved = None;
    let made = online.run(&mut shared, &workers, state, |shared, state| {
        if let Some(update) = state.updates.last() {
            run.observe(&TrainEvent::Update { stage, update, of: online.total_training_steps });
            run.note(&mut board, &figures::of_update(update));
        }
        let saved = run.save(folder, &engine, shared, state);
        let number = state.updates.len() as u32;
        unsaved = saved
            .and_then(|()| folder.keep_for_rollback(number, &state.rollback_checkpoints))
            .err();
        let stops = unsaved.is_some() || run.stop.load(Ordering::SeqCst);
        if stops { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    if let Some(failure) = unsaved {
        return Err(failure);
    }
    let ended = made.map_err(|error| match error {
        OnlineError::Update(error) => not_updated(error, &engine, &attempt),
        OnlineError::Rollouts(error) => error.into(),
        error @ OnlineError::NoEpisodes { .. } => {
            let hint = "run the same command again: it resumes from the last checkpoint";
            TrainError::infrastructure(error.to_string(), hint.to_owned())
        }
    })?;
    match ended {
        Ended::Back(back) => Ok(Some(back)),
        Ended::Here if online.is_over(state) => Ok(workers.close().map(|()| None)?),
        Ended::Here => Err(TrainError::interrupted()),
    }
}

/// PPO without a value head and without a critic, found before any rollout.
fn no_critic(stage: Stage) -> TrainError {
    let table = stage.table();
    let hint = format!(
        "set {table}.separate_critic = true, add the stage [value], or set {table}.algorithm = \"grpo\""
    );
    let message = format!("failed to train in stage {}: the model has no value head", stage.name());
    TrainError::usage(message, hint)
}
