//! A training run from its configuration to its end, on open devices.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use warpwright_judge::SessionPool;
use warpwright_rollout::device_context::DeviceContext;
use warpwright_rollout::engine::EngineHost;
use warpwright_rollout::judge_host::JudgeHost;
use warpwright_rollout::rollout_workers::RolloutConfig;
use warpwright_rollout::verdict_cache::Verdicts;
use warpwright_task::Task;

use crate::config::{Config, InitialModel, Pretraining};
use crate::contents::{Contents, reads_sources};
use crate::corpus;
use crate::error::TrainError;
use crate::folder::Begun;
use crate::observer::{Observer, TrainEvent};
use crate::run::{Run, derived_seed};
use crate::sources::{Places, Sources};
use crate::stage::Stage;

/// The inputs of a run.
pub struct Plan {
    /// The configuration.
    pub config: Config,
    /// The configuration's text.
    pub text: String,
    /// The folder that its paths are relative to.
    pub folder: PathBuf,
    /// The run's folder, absolute.
    pub out: PathBuf,
    /// Seed of everything random but the selection of tasks.
    pub seed: u64,
    /// Seed of the selection of tasks.
    pub task_seed: u64,
    /// The stages to run, in order.
    pub stages: Vec<Stage>,
    /// The file of cached verdicts.
    pub verdicts: PathBuf,
    /// The command line, for the records.
    pub command: String,
}

/// A run whose tasks have been read.
pub struct Launch {
    /// The inputs.
    pub plan: Plan,
    train: Vec<Task>,
    held_out: Vec<Task>,
    /// Tasks for which stage pretrain writes kernels.
    written: Vec<Task>,
    model: InitialModel,
}

/// The result of a run.
pub struct TrainOutcome {
    /// Stages that are done.
    pub done: Vec<Stage>,
    /// Mean rewards of the first and the last fifth of the training steps of the last stage of
    /// reinforcement learning.
    pub rewards: Option<(f64, f64)>,
    /// Candidates that were measured.
    pub judged: u64,
    /// Verdicts that came from the cache.
    pub repeated: u64,
}

impl Launch {
    /// Finds the model and reads the tasks. Unusable inputs are refused before anything starts.
    pub fn prepare(plan: Plan, observer: &dyn Observer) -> Result<Self, TrainError> {
        let Plan { config, folder, task_seed, .. } = &plan;
        let notice = &|text: &str| observer.observe(&TrainEvent::Notice(text));
        let model = config.find_model(folder)?;
        if let InitialModel::Scratch { shape, .. } = &model {
            corpus::check_same_shape(shape, &plan.out.join("model"))?;
        }
        let (train, held_out) = config.tasks.read(folder, *task_seed, notice)?;
        let read = |pretrain: &Pretraining| pretrain.read(folder, *task_seed, &held_out, notice);
        let written = config.pretrain.as_ref().map(read).transpose()?.unwrap_or_default();
        Ok(Self { plan, train, held_out, written, model })
    }

    /// Runs the stages that are not done yet.
    pub fn go(
        &self,
        hosts: &[JudgeHost],
        stop: &AtomicBool,
        observer: &dyn Observer,
    ) -> Result<TrainOutcome, TrainError> {
        let Plan { config, text, folder, out, seed, stages, verdicts, command, .. } = &self.plan;
        let computing = config.engine.num_gpus.unwrap_or(hosts.len());
        if computing == 0 || computing > hosts.len() {
            return Err(too_many(computing, hosts.len()));
        }
        let devices: Vec<String> = hosts.iter().map(JudgeHost::device).collect();
        let hashes =
            |tasks: &[Task]| tasks.iter().map(|task| task.hash.clone()).collect::<Vec<_>>();
        let tasks = [[hashes(&self.train), hashes(&self.written)].concat(), hashes(&self.held_out)];
        let sources = match &config.pretrain {
            Some(pretrain) if reads_sources(out) => {
                let seed = derived_seed(*seed, Stage::Pretrain.salt());
                Sources::of(pretrain, &Places::of(&hosts[0]), folder, seed)?
            }
            _ => None,
        };
        let begun = Begun {
            version: Begun::VERSION,
            config: text.clone(),
            folder: folder.clone(),
            tasks,
            seed: *seed,
            devices,
            contents: Contents::of(config, out, &self.model, sources.as_ref())?,
        };
        begun.enter(out)?;
        observer.observe(&TrainEvent::Begun(out));

        if let InitialModel::Pretrained { path } = &self.model {
            corpus::take_model(path, &config.sampling, &out.join("model"))?;
        }
        let pools: Vec<_> = hosts.iter().map(|host| SessionPool::new(&host.judge)).collect();
        let devices = || -> Result<Vec<DeviceContext<'_>>, TrainError> {
            let each = hosts.iter().zip(&pools);
            each.map(|(host, pool)| Ok(DeviceContext::new(host, pool, None, config.profile)?))
                .collect()
        };
        let kept = Verdicts::open(verdicts, config.verdict_cache_samples)?;
        let fresh = Verdicts::open(verdicts, 0)?;
        let rollouts = |verdicts| -> Result<RolloutConfig<'_>, TrainError> {
            let (profile, turns) = (config.profile, config.max_turns);
            Ok(RolloutConfig {
                devices: devices()?.into(),
                verdicts,
                profile,
                turns,
                stop,
                command: command.clone(),
            })
        };
        let (rollouts, afresh) = (rollouts(&kept)?, rollouts(&fresh)?);
        let engines = EngineHost::beside(&hosts[..computing], Some(out));
        let run = Run {
            config,
            seed: *seed,
            out,
            model: &self.model,
            engines: &engines,
            rollouts: &rollouts,
            afresh: &afresh,
            train: &self.train,
            written: &self.written,
            sources: sources.as_ref(),
            hosts,
            held_out: &self.held_out,
            stop,
            observer,
        };
        let done = stages.iter().try_for_each(|stage| run.stage(*stage));
        let (kept, fresh) = (kept.count(), fresh.count());
        let judged = kept.judged + fresh.judged;
        observer.observe(&TrainEvent::Verdicts { measured: judged, cached: kept.repeated });
        done?;
        let mut done = Vec::new();
        for stage in Stage::ALL {
            if stage.is_in(config) && run.stage_folder(stage)?.is_done() {
                done.push(stage);
            }
        }
        let rewards = run.first_and_last()?;
        Ok(TrainOutcome { done, rewards, judged, repeated: kept.repeated })
    }
}

fn too_many(wanted: usize, devices: usize) -> TrainError {
    let message = format!("failed to train on {wanted} devices: the run has {devices}");
    let hint = "list that many devices, e.g. `--device cuda:0,cuda:1`, or lower `engine.num_gpus`"
        .to_owned();
    TrainError::usage(message, hint)
}
