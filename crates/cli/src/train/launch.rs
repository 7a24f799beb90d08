//! A training run from its configuration to its end, on open devices.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use warpwright_judge::SessionPool;
use warpwright_task::Task;

use crate::device_context::DeviceContext;
use crate::engine::Host;
use crate::failure::Failure;
use crate::judging::JudgeHost;
use crate::printer::Printer;
use crate::train::config::{Config, InitialModel, Pretraining};
use crate::train::contents::{Contents, reads_sources};
use crate::train::corpus;
use crate::train::folder::Begun;
use crate::train::rollout_workers::RolloutConfig;
use crate::train::sources::{Places, Sources};
use crate::train::stage::Stage;
use crate::train::stages::{Run, derived_seed};
use crate::train::verdicts::Verdicts;

/// The inputs of a run.
pub(crate) struct Plan {
    pub(crate) config: Config,
    /// The configuration's text.
    pub(crate) text: String,
    /// The folder that its paths are relative to.
    pub(crate) folder: PathBuf,
    /// The run's folder, absolute.
    pub(crate) out: PathBuf,
    pub(crate) seed: u64,
    /// Seed of the selection of tasks.
    pub(crate) task_seed: u64,
    pub(crate) stages: Vec<Stage>,
    /// The file of cached verdicts.
    pub(crate) verdicts: PathBuf,
}

/// A run whose tasks have been read.
pub(crate) struct Launch {
    pub(crate) plan: Plan,
    train: Vec<Task>,
    held_out: Vec<Task>,
    /// Tasks for which stage pretrain writes kernels.
    written: Vec<Task>,
    model: InitialModel,
}

/// The result of a run.
pub(crate) struct TrainOutcome {
    /// Stages that are done.
    pub(crate) done: Vec<Stage>,
    /// Mean rewards of the first and the last fifth of the training steps of the last stage of
    /// reinforcement learning.
    pub(crate) rewards: Option<(f64, f64)>,
    /// Candidates that were measured, and verdicts that came from the cache.
    pub(crate) judged: u64,
    pub(crate) repeated: u64,
}

impl Launch {
    /// Finds the model and reads the tasks. Unusable inputs are refused before anything starts.
    pub(crate) fn prepare(plan: Plan, printer: Printer) -> Result<Self, Failure> {
        let Plan { config, folder, task_seed, .. } = &plan;
        let model = config.find_model(folder)?;
        if let InitialModel::Scratch { shape, .. } = &model {
            corpus::check_same_shape(shape, &plan.out.join("model"))?;
        }
        let (train, held_out) = config.tasks.read(folder, *task_seed, printer)?;
        let read = |pretrain: &Pretraining| pretrain.read(folder, *task_seed, &held_out, printer);
        let written = config.pretrain.as_ref().map(read).transpose()?.unwrap_or_default();
        Ok(Self { plan, train, held_out, written, model })
    }

    /// Runs the stages that are not done yet.
    pub(crate) fn go(
        &self,
        benches: &[JudgeHost],
        stop: &AtomicBool,
        printer: Printer,
    ) -> Result<TrainOutcome, Failure> {
        let Plan { config, text, folder, out, seed, stages, verdicts, .. } = &self.plan;
        let computing = config.engine.num_gpus.unwrap_or(benches.len());
        if computing == 0 || computing > benches.len() {
            return Err(too_many(computing, benches.len()));
        }
        let devices: Vec<String> = benches.iter().map(JudgeHost::device).collect();
        let hashes =
            |tasks: &[Task]| tasks.iter().map(|task| task.hash.clone()).collect::<Vec<_>>();
        let tasks = [[hashes(&self.train), hashes(&self.written)].concat(), hashes(&self.held_out)];
        let sources = match &config.pretrain {
            Some(pretrain) if reads_sources(out) => {
                let seed = derived_seed(*seed, Stage::Pretrain.salt());
                Sources::of(pretrain, &Places::of(&benches[0]), folder, seed)?
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
        printer.say(&format!("run: {}", out.display()));

        if let InitialModel::Pretrained { path } = &self.model {
            corpus::take_model(path, &config.sampling, &out.join("model"))?;
        }
        let pools: Vec<_> = benches.iter().map(|bench| SessionPool::new(&bench.judge)).collect();
        let places = || -> Result<Vec<DeviceContext<'_>>, Failure> {
            let each = benches.iter().zip(&pools);
            each.map(|(bench, pool)| DeviceContext::new(bench, pool, None, config.profile))
                .collect()
        };
        let kept = Verdicts::open(verdicts, config.verdict_cache_samples)?;
        let fresh = Verdicts::open(verdicts, 0)?;
        let field = |verdicts| -> Result<RolloutConfig<'_>, Failure> {
            let (profile, turns) = (config.profile, config.max_turns);
            Ok(RolloutConfig { places: places()?.into(), verdicts, profile, turns, stop })
        };
        let (field, afresh) = (field(&kept)?, field(&fresh)?);
        let host = Host::beside(&benches[..computing], Some(out));
        let run = Run {
            config,
            seed: *seed,
            out,
            model: &self.model,
            host,
            field: &field,
            afresh: &afresh,
            train: &self.train,
            written: &self.written,
            sources: sources.as_ref(),
            benches,
            held_out: &self.held_out,
            stop,
            printer,
        };
        let done = stages.iter().try_for_each(|stage| run.stage(*stage));
        let (kept, fresh) = (kept.count(), fresh.count());
        let judged = kept.judged + fresh.judged;
        printer
            .say(&format!("{judged} verdicts measured, {} from the verdict cache", kept.repeated));
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

fn too_many(wanted: usize, devices: usize) -> Failure {
    let message = format!("failed to train on {wanted} devices: the run has {devices}");
    let hint = "list that many devices, e.g. `--device cuda:0,cuda:1`, or lower `engine.num_gpus`"
        .to_owned();
    Failure::usage(message, hint)
}
