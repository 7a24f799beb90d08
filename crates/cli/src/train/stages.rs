//! Runs the stages. Each resumes where it was interrupted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use serde::Serialize;
use warpwright_agent::policy::{Briefing, Policy};
use warpwright_judge::Used;
use warpwright_learn::model_config::ModelConfig;
use warpwright_learn::online::{Play, Rollouts, State};
use warpwright_learn::outcome;
use warpwright_learn::remote::RemoteError;
use warpwright_learn::run_monitor::first_and_last;
use warpwright_learn::update::UpdateError;
use warpwright_native::{Dialogue, Native, Pretokenizer, SamplingConfig};
use warpwright_record::event::Outcome;
use warpwright_record::history::Episode;
use warpwright_report::evaluation::gap::Gap;
use warpwright_report::evaluation::scores::Scores;
use warpwright_report::evaluation::{Evaluation, table};
use warpwright_task::Task;
use warpwright_teacher::{Demonstrator, Drafts, Teacher};

use crate::commands::report::width;
use crate::device_use;
use crate::engine::{Engine, Host, Shared, Weights};
use crate::failure::{Failure, chain};
use crate::judging::JudgeHost;
use crate::printer::Printer;
use crate::train::board::Board;
use crate::train::config::{BaselinePolicy, Config, InitialModel, Pretrained};
use crate::train::corpus::Described;
use crate::train::figures::Figure;
use crate::train::folder::StageFolder;
use crate::train::progress::Progress;
use crate::train::report;
use crate::train::rollout_workers::{Make, RolloutConfig, RolloutWorkers};
use crate::train::sources::Sources;
use crate::train::stage::Stage;

/// Limit on the messages of a policy without weights: more than the versions that it can write.
const BASELINE_TURNS: u32 = 4000;

/// Inputs that the stages share.
pub(crate) struct Run<'a, 'f> {
    pub(crate) config: &'a Config,
    pub(crate) seed: u64,
    pub(crate) out: &'a Path,
    pub(crate) model: &'a InitialModel,
    pub(crate) host: Host<'a>,
    /// Rollout settings with the verdict cache.
    pub(crate) field: &'a RolloutConfig<'f>,
    /// The same without verdicts from the cache: for evaluation.
    pub(crate) afresh: &'a RolloutConfig<'f>,
    pub(crate) train: &'a [Task],
    pub(crate) held_out: &'a [Task],
    /// Tasks for which stage pretrain writes kernels.
    pub(crate) written: &'a [Task],
    /// Source code of stage pretrain; `None` if it has none, or if the stage is done.
    pub(crate) sources: Option<&'a Sources>,
    /// The devices of the judge and the engine.
    pub(crate) benches: &'a [JudgeHost],
    pub(crate) stop: &'a AtomicBool,
    pub(crate) printer: Printer,
}

impl Run<'_, '_> {
    /// Runs a stage, unless it is done.
    pub(crate) fn stage(&self, stage: Stage) -> Result<(), Failure> {
        let folder = self.stage_folder(stage)?;
        if folder.is_done() {
            self.printer.say(&format!("{}: already done", stage.name()));
            return Ok(());
        }
        self.check_order(stage)?;
        let began = Instant::now();
        let before: Vec<Used> = self.benches.iter().map(|bench| bench.judge.device_use()).collect();
        let done = match stage {
            Stage::Demos => self.demos(&folder),
            Stage::Pretrain => self.pretrain(&folder),
            Stage::Sft => self.sft(&folder),
            Stage::SingleTurn => self.online(stage, &folder, self.config.single_turn.as_ref(), 1),
            Stage::Collect => self.collect(&folder),
            Stage::Rft => self.rft(&folder),
            Stage::Value => self.value(&folder),
            Stage::Ppo => {
                self.online(stage, &folder, self.config.ppo.as_ref(), self.config.max_turns)
            }
            Stage::Eval => self.eval(&folder),
        };
        let what = if done.is_ok() { "" } else { ", not finished" };
        self.printer.say(&format!(
            "{}: {:.0} s{what}",
            stage.name(),
            began.elapsed().as_secs_f64()
        ));
        for (bench, before) in self.benches.iter().zip(before) {
            let used = bench.judge.device_use() - before;
            self.printer.say(&device_use::describe(&bench.device(), &used, began.elapsed()));
        }
        done?;
        if let Err(failure) = report::present(self.out, &self.out.join("report.html")) {
            self.printer.say(&format!("warning: {}", failure.message));
        }
        Ok(())
    }

    pub(crate) fn stage_folder(&self, stage: Stage) -> Result<StageFolder, Failure> {
        StageFolder::open(self.out.join(stage.name()))
    }

    fn check_order(&self, stage: Stage) -> Result<(), Failure> {
        for before in Stage::ALL.into_iter().take_while(|before| *before != stage) {
            if before.is_in(self.config) && !self.stage_folder(before)?.is_done() {
                let hint = format!("run it first: `warpwright train {} ...`", before.name());
                let message = format!(
                    "failed to begin stage {}: stage {} is not done",
                    stage.name(),
                    before.name()
                );
                return Err(Failure::usage(message, hint));
            }
        }
        Ok(())
    }

    /// A distinct seed per use.
    pub(super) fn seed(&self, of: u64) -> u64 {
        derived_seed(self.seed, of)
    }

    pub(super) fn tokenizer(&self) -> PathBuf {
        self.out.join("model/tokenizer.json")
    }

    /// The sizes of a model from scratch that has no tokenizer yet.
    pub(super) fn untokenized(&self) -> Option<(ModelConfig, Pretokenizer)> {
        match self.model {
            InitialModel::Scratch { shape, pretokenizer } if !self.tokenizer().exists() => {
                Some((shape.clone(), *pretokenizer))
            }
            _ => None,
        }
    }

    pub(super) fn dialogue(&self) -> Result<Arc<dyn Dialogue>, Failure> {
        warpwright_native::load(&self.tokenizer(), self.config.sampling.max_tool_result_tokens)
            .map_err(|error| Failure::infrastructure(chain(&error), None))
    }

    /// The weights that a stage starts from: its own checkpoint, else that of the last trained
    /// stage before it.
    pub(super) fn weights(&self, stage: Stage) -> Result<Weights, Failure> {
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

    pub(super) fn engine(&self, weights: &Weights) -> Result<Engine, Failure> {
        let adapters = self.config.pretrained.as_ref().and_then(Pretrained::adapters);
        Engine::start(&self.host, &self.config.engine, weights, adapters)
    }

    pub(super) fn save<T: Serialize>(
        &self,
        folder: &StageFolder,
        engine: &Engine,
        shared: &mut Shared,
        state: &T,
    ) -> Result<(), Failure> {
        let unsaved = |error: &RemoteError| engine.failure("save a checkpoint", error);
        let beside = [self.tokenizer(), self.out.join("model").join(SamplingConfig::FILE)];
        folder.save(shared, state, &[&beside[0], &beside[1]], unsaved)
    }

    /// Starts the TensorBoard events of a stage with the known steps.
    pub(super) fn board(&self, stage: Stage, known: &[Vec<Figure>]) -> Result<Board, Failure> {
        Board::begin(&self.out.join("tensorboard").join(stage.name()), known)
            .map_err(|error| Failure::io("write events for TensorBoard", &error))
    }

    /// Writes the metrics of a step. A failure is a warning: training continues.
    pub(super) fn note(&self, board: &mut Board, figures: &[Figure]) {
        if let Err(error) = board.add(figures) {
            self.printer.say(&format!(
                "warning: failed to write a step's metrics for TensorBoard: {error}"
            ));
        }
    }

    fn demos(&self, folder: &StageFolder) -> Result<(), Failure> {
        let Some(demos) = &self.config.demos else { return Ok(()) };
        let drafts = Drafts::default();
        let make: Make<'_> = Box::new(|| {
            Box::new(Demonstrator::new(demos.flaws, drafts.clone())) as Box<dyn Policy>
        });
        // The other episodes of a task reuse the findings of its first.
        let is_first = |play: &Play| (play.number as usize) < self.train.len();
        let (first, others) =
            self.plays(self.train, demos.episodes_per_task).into_iter().partition(is_first);
        let phases = [first, others];
        let learn = |played: &[Episode]| {
            for episode in played {
                let briefing = self.told_of(episode);
                let answers = episode
                    .turns
                    .iter()
                    .map(|turn| turn.results.iter().map(|(result, _)| result.clone()).collect());
                drafts.learn(&briefing, answers);
            }
        };
        let played = self.play_all(
            folder,
            self.field,
            (self.train, &phases),
            ("demonstrator", make),
            learn,
        )?;
        Self::refuse_broken(&played)?;
        folder.finish(&serde_json::json!({ "episodes": played.len() }))
    }

    /// `each` episodes per task. Episodes of a task are adjacent, since the judge keeps few tasks
    /// open at once.
    fn plays(&self, tasks: &[Task], each: usize) -> Vec<Play> {
        let count = tasks.len();
        let all = (0..count).flat_map(|task| (0..each).map(move |episode| (task, episode)));
        all.map(|(task, episode)| {
            let number = (episode * count + task) as u32;
            Play { number, task, seed: self.seed(2 + u64::from(number)) }
        })
        .collect()
    }

    /// The briefing of a demonstration.
    fn told_of(&self, episode: &Episode) -> Briefing {
        let place = &self.field.places[0];
        Briefing {
            task: episode.setup.task.clone(),
            reference: String::new(),
            skill: place.skill.clone(),
            device: place.facts.clone(),
            profile: episode.setup.profile,
            seed: episode.setup.seed,
            turns: episode.setup.budget.turns,
        }
    }

    /// Plays episodes in phases and closes their record. `between` is called with the episodes of
    /// each phase.
    fn play_all(
        &self,
        folder: &StageFolder,
        field: &RolloutConfig<'_>,
        (tasks, phases): (&[Task], &[Vec<Play>]),
        (policy, make): (&'static str, Make<'_>),
        between: impl Fn(&[Episode]),
    ) -> Result<Vec<Episode>, Failure> {
        let name = folder.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let progress = Progress::new(self.printer, &name, phases.iter().map(Vec::len).sum());
        let players = RolloutWorkers::open(field, tasks, policy, make, &folder.path)?
            .watched(|| progress.one_more());
        let mut played = Vec::new();
        for plays in phases.iter().filter(|plays| !plays.is_empty()) {
            let phase = players.play(plays, &|| {}).map_err(|error| error.0)?;
            between(&phase);
            played.extend(phase);
        }
        players.close()?;
        Ok(played)
    }

    /// Refuses episodes that ended with an infrastructure failure: the task or the machine is at
    /// fault.
    fn refuse_broken(played: &[Episode]) -> Result<(), Failure> {
        let broken = played.iter().find_map(|episode| match &episode.end.as_ref()?.outcome {
            Outcome::Infrastructure { message } => Some((&episode.setup.task, message)),
            _ => None,
        });
        let Some((task, message)) = broken else { return Ok(()) };
        let hint = "fix or remove the task, and run the same command again".to_owned();
        Err(Failure::infrastructure(format!("failed to play {task}: {message}"), hint))
    }

    /// Policies that sample from an engine.
    pub(super) fn natives(&self, engine: &Engine, name: &str) -> Result<Make<'static>, Failure> {
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

    fn collect(&self, folder: &StageFolder) -> Result<(), Failure> {
        let each = self.config.collect.as_ref().map_or(0, |collect| collect.episodes_per_task);
        let most = self.config.collect.as_ref().and_then(|collect| collect.max_tasks);
        let tasks = &self.train[..most.map_or(self.train.len(), |most| most.min(self.train.len()))];
        let engine = self.engine(&self.weights(Stage::Collect)?)?;
        let make = self.natives(&engine, "collect")?;
        let plays = self.plays(tasks, each);
        let played =
            self.play_all(folder, self.field, (tasks, &[plays]), ("native", make), |_| ())?;
        let usable = played.iter().filter(|e| outcome::reward(e, self.config.reward).is_some());
        let usable = usable.count();
        if usable == 0 {
            Self::refuse_broken(&played)?;
        }
        folder.finish(&serde_json::json!({ "episodes": played.len(), "usable": usable }))
    }

    /// Evaluates the policy of every stage and the baseline policies on the held-out tasks: whole
    /// episodes, and first messages alone.
    fn eval(&self, folder: &StageFolder) -> Result<(), Failure> {
        let Some(eval) = &self.config.eval else { return folder.finish(&()) };
        let lengths: &[(&str, u32)] = if eval.single_turn {
            &[("", self.config.max_turns), ("-first", 1)]
        } else {
            &[("", self.config.max_turns)]
        };
        let mut arms = BTreeMap::new();
        let trained = Stage::ALL.into_iter().filter(|s| s.trains() && *s != Stage::Value);
        let mut policies: Vec<(&str, PathBuf)> = Vec::new();
        if let InitialModel::Pretrained { path } = self.model {
            policies.push(("base", path.clone()));
        }
        for stage in trained {
            policies.push((stage.name(), self.stage_folder(stage)?.checkpoint()));
        }
        for (policy, checkpoint) in policies.into_iter().filter(|(_, folder)| folder.exists()) {
            let mut engine = None;
            for (suffix, turns) in lengths {
                let name = format!("{policy}{suffix}");
                let of = StageFolder::open(folder.path.join(&name))?;
                if !of.is_done() {
                    let weights = Weights::Checkpoint(checkpoint.clone());
                    let engine = match &mut engine {
                        Some(engine) => engine,
                        none => none.insert(self.engine(&weights)?),
                    };
                    let make = self.natives(engine, policy)?;
                    self.compete(&of, "native", make, *turns, eval.episodes_per_task)?;
                }
                arms.insert(name.clone(), self.table(&name, &of)?);
            }
        }
        for baseline in &eval.baseline_policies {
            let (name, make): (_, Make<'_>) = match baseline {
                BaselinePolicy::Teacher => ("teacher", Box::new(|| Box::new(Teacher::new()))),
                BaselinePolicy::Exhaustive => {
                    ("exhaustive", Box::new(|| Box::new(Teacher::exhaustive())))
                }
            };
            let of = StageFolder::open(folder.path.join(name))?;
            if !of.is_done() {
                self.compete(&of, "teacher", make, BASELINE_TURNS, 1)?;
            }
            arms.insert(name.to_owned(), self.table(name, &of)?);
        }
        let known: Vec<&Evaluation> = arms.values().collect();
        let gaps = lengths.iter().filter_map(|(suffix, _)| {
            let of = |name: &str| arms.get(&format!("{name}{suffix}"));
            // A run from a pretrained policy may have no stage rft.
            let before = ["rft", "base"].into_iter().find_map(|name| Some((name, of(name)?)));
            let ((name, from), to) = (before?, of("ppo")?);
            Some((format!("{name} to ppo{suffix}"), Gap::of(from, to, &known)))
        });
        let gaps: BTreeMap<String, Gap> = gaps.collect();
        for (name, Gap { closed, tasks, open }) in &gaps {
            let closed = closed.map_or("no task is open".to_owned(), |c| {
                let [value, low, high] = [c.value, c.low, c.high].map(|share| 100.0 * share);
                format!(
                    "{value:.0} % [{low:.0}, {high:.0}] of the gap to the best known result closed"
                )
            });
            self.printer.say(&format!("eval: {name}: {closed}, {open} of {tasks} tasks open"));
        }
        let scores: BTreeMap<&String, &Scores> =
            arms.iter().map(|(name, arm)| (name, &arm.overall)).collect();
        folder.finish(&serde_json::json!({ "policies": scores, "gaps": gaps }))
    }

    /// Plays `each` episodes per held-out task, measuring every candidate.
    fn compete(
        &self,
        of: &StageFolder,
        policy: &'static str,
        make: Make<'_>,
        turns: u32,
        each: usize,
    ) -> Result<(), Failure> {
        let field = self.afresh.with_turns(turns);
        let plays = self.plays(self.held_out, each);
        let played =
            self.play_all(of, &field, (self.held_out, &[plays]), (policy, make), |_| ())?;
        of.finish(&serde_json::json!({ "episodes": played.len() }))
    }

    /// Prints a policy's results and returns them.
    fn table(&self, name: &str, of: &StageFolder) -> Result<Evaluation, Failure> {
        let evaluation = Evaluation::read(&of.path.join("record"))?;
        self.printer.say(&format!("eval: {name}"));
        self.printer.data(&format!("{}\n", table::tables(&evaluation, width())));
        Ok(evaluation)
    }

    /// Mean rewards of the first and the last fifth of the training steps, of the last stage of
    /// reinforcement learning.
    pub(crate) fn first_and_last(&self) -> Result<Option<(f64, f64)>, Failure> {
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

/// A distinct seed per use `of` a run's seed.
pub(crate) fn derived_seed(run: u64, of: u64) -> u64 {
    run.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ of.wrapping_mul(0xD134_2543_DE82_EF95)
}

pub(super) fn not_updated(
    error: UpdateError<RemoteError>,
    engine: &Engine,
    attempt: &str,
) -> Failure {
    match error {
        UpdateError::Engine(error) => engine.failure(attempt, &error),
        other => Failure::infrastructure(format!("failed to {attempt}: {}", chain(&other)), None),
    }
}
