//! Trains on stored episodes: the common part of the stages `pretrain`, `sft`, `rft` and `value`.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};
use warpwright_learn::batch;
use warpwright_learn::engine::Engine as _;
use warpwright_learn::fit::{Aim, Epoch};
use warpwright_learn::remote::RemoteError;
use warpwright_rollout::engine::{Engine, Shared};

use crate::config::Fitting;
use crate::error::TrainError;
use crate::figures;
use crate::folder::StageFolder;
use crate::observer::TrainEvent;
use crate::run::{Run, not_updated};
use crate::stage::Stage;

/// Content of a stage's `done.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Fitted {
    epochs: Vec<Epoch>,
}

pub(super) fn fit(
    run: &Run<'_, '_>,
    stage: Stage,
    folder: &StageFolder,
    fitting: &Fitting,
    aim: Aim,
    episodes: &[batch::Episode],
    with_critic: bool,
) -> Result<(), TrainError> {
    let engine = run.engine(&run.weights(stage)?)?;
    let mut shared = engine.shared.clone();
    let attempt = format!("train in stage {}", stage.name());
    if with_critic {
        begin_critic(&engine, &mut shared, &attempt)?;
    }
    let fit = fitting.fit(aim, run.seed(stage.salt()));
    let mut done: Vec<Epoch> = folder.state()?;
    let known: Vec<_> = done.iter().map(figures::of_epoch).collect();
    let mut board = run.board(stage, &known)?;
    let mut unsaved = None;
    let before = done.clone();
    let each = |shared: &mut Shared, epoch: &Epoch| {
        done.push(*epoch);
        run.observe(&TrainEvent::Epoch(stage, epoch));
        run.note(&mut board, &figures::of_epoch(epoch));
        unsaved = run.save(folder, &engine, shared, &done).err();
        let stops = unsaved.is_some() || run.stop.load(Ordering::SeqCst);
        if stops { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let made = fit.run_watched(&mut shared, episodes, before, each, &mut |epoch, made, of| {
        run.observe(&TrainEvent::Steps { stage, epoch, made, of });
    });
    if let Some(failure) = unsaved {
        return Err(failure);
    }
    let epochs = made.map_err(|error| not_updated(error, &engine, &attempt))?;
    if let Some(lost) = epochs.last().filter(|epoch| !epoch.validation_loss.is_finite()) {
        let hint = "lower `lr` and start again with another --out".to_owned();
        let message = format!("failed to {attempt}: the loss is {} ", lost.validation_loss);
        return Err(folder.fail(TrainError::infrastructure(message.trim_end(), hint)));
    }
    if !fit.is_over(&epochs) && run.stop.load(Ordering::SeqCst) {
        return Err(TrainError::interrupted());
    }
    if epochs.is_empty() {
        run.save(folder, &engine, &mut shared, &epochs)?;
    }
    folder.finish(&Fitted { epochs })
}

/// Creates a critic with weights of its own, unless the engine has one.
pub(super) fn begin_critic(
    engine: &Engine,
    shared: &mut Shared,
    attempt: &str,
) -> Result<(), TrainError> {
    let failed = |error: RemoteError| TrainError::from(engine.failure(attempt, &error));
    if shared.describe().map_err(failed)?.has_critic {
        return Ok(());
    }
    shared.begin_critic().map_err(failed)
}
