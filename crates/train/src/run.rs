//! A run's stages in order. Each resumes where it was interrupted.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use serde::Serialize;
use warpwright_judge::Used;
use warpwright_learn::model_config::ModelConfig;
use warpwright_learn::online::{Play, Rollouts, State};
use warpwright_learn::remote::RemoteError;
use warpwright_learn::run_monitor::first_and_last;
use warpwright_learn::update::UpdateError;
use warpwright_native::{Dialogue, Native, Pretokenizer, SamplingConfig};
use warpwright_record::event::Outcome;
use warpwright_record::history::Episode;
use warpwright_rollout::engine::{Engine, Shared, StartEngine, Weights};
use warpwright_rollout::error::chain;
use warpwright_rollout::judge_host::JudgeHost;
use warpwright_rollout::rollout_workers::{Make, RolloutConfig, RolloutWorkers};
use warpwright_task::Task;

use crate::board::Board;
use crate::config::{Config, InitialModel, Pretrained};
use crate::corpus::Described;
use crate::error::TrainError;
use crate::figures::Figure;
use crate::folder::StageFolder;
use crate::observer::{Observer, TrainEvent};
use crate::report;
use crate::sources::Sources;
use crate::stage::Stage;
use crate::stages::work;

/// Inputs that the stages share.
pub(crate) struct Run<'a, 'f> {
    pub(crate) config: &'a Config,
    pub(crate) seed: u64,
    pub(crate) out: &'a Path,
    pub(crate) model: &'a InitialModel,
    /// Starts the engine of a stage.
    pub(crate) engines: &'a dyn StartEngine,
    /// Settings of rollouts with the verdict cache.
    pub(crate) rollouts: &'a RolloutConfig<'f>,
    /// The same without verdicts from the cache: for evaluation.
    pub(crate) afresh: &'a RolloutConfig<'f>,
    pub(crate) train: &'a [Task],
    pub(crate) held_out: &'a [Task],
    /// Tasks for which stage pretrain writes kernels.
    pub(crate) written: &'a [Task],
    /// Source code of stage pretrain; `None` if it has none, or if the stage is done.
    pub(crate) sources: Option<&'a Sources>,
    /// The devices of the judge and the engine.
    pub(crate) hosts: &'a [JudgeHost],
    pub(crate) stop: &'a AtomicBool,
    pub(crate) observer: &'a dyn Observer,
}

impl Run<'_, '_> {
    pub(crate) fn observe(&self, event: &TrainEvent<'_>) {
        self.observer.observe(event);
    }

    /// Runs a stage, unless it is done.
    pub(crate) fn stage(&self, stage: Stage) -> Result<(), TrainError> {
        let folder = self.stage_folder(stage)?;
        if folder.is_done() {
            self.observe(&TrainEvent::AlreadyDone(stage));
            return Ok(());
        }
        self.check_order(stage)?;
        let began = Instant::now();
        let before: Vec<Used> = self.hosts.iter().map(|host| host.judge.device_use()).collect();
        let done = work(stage).run(self, &folder);
        let (took, is_done) = (began.elapsed(), done.is_ok());
        self.observe(&TrainEvent::Ended { stage, took, is_done });
        for (host, before) in self.hosts.iter().zip(before) {
            let used = host.judge.device_use() - before;
            self.observe(&TrainEvent::DeviceUse { device: host.device(), used: &used, of: took });
        }
        done?;
        if let Err(failure) = report::present(self.out, &self.out.join("report.html")) {
            self.observe(&TrainEvent::ReportNotWritten(&failure));
        }
        Ok(())
    }

    pub(crate) fn stage_folder(&self, stage: Stage) -> Result<StageFolder, TrainError> {
        StageFolder::open(self.out.join(stage.name()))
    }

    fn check_order(&self, stage: Stage) -> Result<(), TrainError> {
        for before in Stage::ALL.into_iter().take_while(|before| *before != stage) {
            if before.is_in(self.config) && !self.stage_folder(before)?.is_done() {
                let hint = format!("run it first: `warpwright train {} ...`", before.name());
                let message = format!(
                    "failed to begin stage {}: stage {} is not done",
                    stage.name(),
                    before.name()
                );
                return Err(TrainError::usage(message, hint));
            }
        }
        Ok(())
    }

    /// A distinct seed per use.
    pub(crate) fn seed(&self, of: u64) -> u64 {
        derived_seed(self.seed, of)
    }

    pub(crate) fn tokenizer(&self) -> PathBuf {
        self.out.join("model/tokenizer.json")
    }

    /// The sizes of a model from scratch that has no tokenizer yet.
    pub(crate) fn untokenized(&self) -> Option<(ModelConfig, Pretokenizer)> {
        match self.model {
            InitialModel::Scratch { shape, pretokenizer } if !self.tokenizer().exists() => {
                Some((shape.clone(), *pretokenizer))
            }
            _ => None,
        }
    }

    pub(crate) fn dialogue(&self) -> Result<Arc<dyn Dialogue>, TrainError> {
        warpwright_native::load(&self.tokenizer(), self.config.sampling.max_tool_result_tokens)
            .map_err(|error| TrainError::infrastructure(chain(&error), None))
    }

    /// The weights that a stage starts from: its own checkpoint, else that of the last trained
    /// stage before it.
    pub(crate) fn weights(&self, stage: Stage) -> Result<Weights, TrainError> {
        let own = self.stage_folder(stage)?.checkpoint();
        if stage.trains() && own.exists() {
            return Ok(Weights::Checkpoint(own));
        }
        for before in Stage::ALL.into_iter().rev().filter(|before| *before < stage) {
            let checkpoint = self.stage_folder(before)?.checkpoint();
            if before.trains() && checkpoint.exists() {
                return Ok(Weights::Checkpoint(checkpoint));
            }
        }
        if let InitialModel::Pretrained { path } = self.model {
            return Ok(Weights::Checkpoint(path.clone()));
        }
        Ok(Weights::Initial(self.out.join("model/config.json"), self.seed(1)))
    }

    pub(crate) fn engine(&self, weights: &Weights) -> Result<Engine, TrainError> {
        let adapters = self.config.pretrained.as_ref().and_then(Pretrained::adapters);
        Ok(self.engines.start(&self.config.engine, weights, adapters)?)
    }

    pub(crate) fn save<T: Serialize>(
        &self,
        folder: &StageFolder,
        engine: &Engine,
        shared: &mut Shared,
        state: &T,
    ) -> Result<(), TrainError> {
        let unsaved =
            |error: &RemoteError| TrainError::from(engine.failure("save a checkpoint", error));
        let beside = [self.tokenizer(), self.out.join("model").join(SamplingConfig::FILE)];
        folder.save(shared, state, &[&beside[0], &beside[1]], unsaved)
    }

    /// Starts the TensorBoard events of a stage with the known steps.
    pub(crate) fn board(&self, stage: Stage, known: &[Vec<Figure>]) -> Result<Board, TrainError> {
        Board::begin(&self.out.join("tensorboard").join(stage.name()), known)
            .map_err(|error| TrainError::io("write events for TensorBoard", error))
    }

    /// Writes the metrics of a step. A failure is a warning: training continues.
    pub(crate) fn note(&self, board: &mut Board, figures: &[Figure]) {
        if let Err(error) = board.add(figures) {
            self.observe(&TrainEvent::MetricsNotWritten(&error));
        }
    }

    /// `each` episodes per task. Episodes of a task are adjacent, since the judge keeps few tasks
    /// open at once.
    pub(crate) fn plays(&self, tasks: &[Task], each: usize) -> Vec<Play> {
        let count = tasks.len();
        let all = (0..count).flat_map(|task| (0..each).map(move |episode| (task, episode)));
        all.map(|(task, episode)| {
            let number = (episode * count + task) as u32;
            Play { number, task, seed: self.seed(2 + u64::from(number)) }
        })
        .collect()
    }

    /// Plays episodes in phases and closes their record. `between` is called with the episodes of
    /// each phase.
    pub(crate) fn play_all(
        &self,
        folder: &StageFolder,
        rollouts: &RolloutConfig<'_>,
        (tasks, phases): (&[Task], &[Vec<Play>]),
        (policy, make): (&'static str, Make<'_>),
        between: impl Fn(&[Episode]),
    ) -> Result<Vec<Episode>, TrainError> {
        let name = folder.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (done, of) = (AtomicUsize::new(0), phases.iter().map(Vec::len).sum());
        let workers =
            RolloutWorkers::open(rollouts, tasks, policy, make, &folder.path)?.watched(|| {
                let done = done.fetch_add(1, Ordering::SeqCst) + 1;
                self.observe(&TrainEvent::Episodes { name: &name, done, of });
            });
        let mut played = Vec::new();
        for plays in phases.iter().filter(|plays| !plays.is_empty()) {
            let phase = workers.play(plays, &|| {})?;
            between(&phase);
            played.extend(phase);
        }
        workers.close()?;
        Ok(played)
    }

    /// Policies that sample from an engine.
    pub(crate) fn natives(&self, engine: &Engine, name: &str) -> Result<Make<'static>, TrainError> {
        let settings = warpwright_native::Settings {
            model: name.to_owned(),
            sampling: self.config.sampling.sampling(),
            positions: Described::read(&self.out.join("model"))?
                .positions(self.config.pretrained.as_ref()),
        };
        let (shared, dialogue) = (Arc::new(engine.shared.clone()), self.dialogue()?);
        Ok(Box::new(move || {
            Box::new(Native::new(shared.clone(), dialogue.clone(), settings.clone()))
        }))
    }

    /// Mean rewards of the first and the last fifth of the training steps, of the last stage of
    /// reinforcement learning.
    pub(crate) fn first_and_last(&self) -> Result<Option<(f64, f64)>, TrainError> {
        for stage in [Stage::Ppo, Stage::SingleTurn] {
            let folder = self.stage_folder(stage)?;
            if folder.is_done() {
                let state: State = folder.result()?;
                return Ok(first_and_last(&state.updates));
            }
        }
        Ok(None)
    }
}

/// Refuses episodes that ended with an infrastructure failure: the task or the machine is at
/// fault.
pub(crate) fn refuse_broken(played: &[Episode]) -> Result<(), TrainError> {
    let broken = played.iter().find_map(|episode| match &episode.end.as_ref()?.outcome {
        Outcome::Infrastructure { message } => Some((&episode.setup.task, message)),
        _ => None,
    });
    let Some((task, message)) = broken else { return Ok(()) };
    let hint = "fix or remove the task, and run the same command again".to_owned();
    Err(TrainError::infrastructure(format!("failed to play {task}: {message}"), hint))
}

/// A distinct seed per use `of` a run's seed.
pub(crate) fn derived_seed(run: u64, of: u64) -> u64 {
    run.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ of.wrapping_mul(0xD134_2543_DE82_EF95)
}

pub(crate) fn not_updated(
    error: UpdateError<RemoteError>,
    engine: &Engine,
    attempt: &str,
) -> TrainError {
    match error {
        UpdateError::Engine(error) => engine.failure(attempt, &error).into(),
        other => {
            TrainError::infrastructure(format!("failed to {attempt}: {}", chain(&other)), None)
        }
    }
}
