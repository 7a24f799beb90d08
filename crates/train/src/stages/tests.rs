//! A stage of reinforcement learning in this process: a judge and an engine that answer at once, and
//! everything between them as in training.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use fs_err as fs;
use thiserror::Error;
use warpwright_agent::judge::{DeviceFacts, Judge, JudgeUnavailable};
use warpwright_agent::tools::arguments::Write;
use warpwright_agent::tools::shell::{Provision, Shell};
use warpwright_jail::{Jail, Requirement};
use warpwright_judge::{JudgeError, Objection};
use warpwright_learn::engine::{
    Completion, Description, Loss, Passed, Refusal, Row, SampleRequest, Sampled, Sampler, Scores,
    Step, Which,
};
use warpwright_learn::model_config::ModelConfig;
use warpwright_learn::online::State;
use warpwright_learn::remote;
use warpwright_native::{Dialogue, Marks, Pretokenizer, Tokenizer};
use warpwright_record::candidate::Candidate;
use warpwright_record::findings::{Findings, Inspection};
use warpwright_record::history::{Episode, History};
use warpwright_record::message::Message;
use warpwright_record::reader::RunReader;
use warpwright_record::verdict::{ReplayerTurn, Stage as Judging, Verdict};
use warpwright_record::void::VoidTurns;
use warpwright_rollout::device_context::DeviceContext;
use warpwright_rollout::engine::{Adapters, Engine, EngineConfig, StartEngine, Weights};
use warpwright_rollout::error::RolloutError;
use warpwright_rollout::pool_judge::{DeviceJudge, Refusal as TaskRefusal, TaskJudge};
use warpwright_rollout::rollout_workers::RolloutConfig;
use warpwright_rollout::verdict_cache::Verdicts;
use warpwright_task::Task;

use crate::config::{Config, InitialModel};
use crate::corpus;
use crate::observer::{Observer, TrainEvent};
use crate::run::Run;
use crate::stage::Stage;

/// The candidates that the engine samples, by the parity of a prompt's stream.
const CANDIDATES: [&str; 2] = ["slow = 1\n", "fast = 1\n"];
const LOG_PROB: f32 = -0.5;

/// Verifies every candidate. One that contains `fast` is faster than the baselines.
#[derive(Clone, Default)]
struct FakeJudge {
    /// Verdicts that say the opposite, and become void once all are given.
    false_ones: u32,
    given: Arc<AtomicU32>,
}

impl FakeJudge {
    fn verdict(&self, candidate: &Candidate) -> Verdict {
        let turn = 1 + self.given.fetch_add(1, Ordering::SeqCst);
        let text = include_str!("../../../serve/tests/verdict.json");
        let mut verdict: Verdict = serde_json::from_str(text).unwrap();
        let is_fast = candidate.files().values().any(|bytes| bytes.starts_with(b"fast"));
        verdict.candidate = candidate.hash().to_owned();
        let is_false = turn <= self.false_ones;
        verdict.reward.bounded = if is_fast == is_false { 0.5 } else { 2.0 };
        verdict.replayer = Some(ReplayerTurn { id: "ab".to_owned(), turn });
        verdict
    }
}

impl DeviceJudge for FakeJudge {
    fn task<'t>(&'t self, _: &'t Task, _: &'t AtomicBool) -> Box<dyn TaskJudge + 't> {
        Box::new(self.clone())
    }

    fn voids(&self) -> Result<Vec<VoidTurns>, JudgeError> {
        let told = self.false_ones > 0 && self.given.load(Ordering::SeqCst) >= self.false_ones;
        let voided = VoidTurns {
            replayer: "ab".to_owned(),
            after: 0,
            through: self.false_ones,
            time: jiff::Timestamp::UNIX_EPOCH,
            task: "a".to_owned(),
            candidate: String::new(),
            reason: "verified, then mismatch".to_owned(),
        };
        Ok(told.then_some(voided).into_iter().collect())
    }

    fn finished(&self, _: &Task) {}

    fn at_once(&self) -> usize {
        1
    }

    fn degenerate(&self, _: &Task) -> Vec<Objection> {
        Vec::new()
    }
}

impl TaskJudge for FakeJudge {
    fn open(&self) -> Result<(), JudgeError> {
        Ok(())
    }

    fn refusal(&self) -> Option<&TaskRefusal> {
        None
    }
}

impl Judge for FakeJudge {
    fn judge(&self, candidate: &Candidate, _: Judging) -> Result<Verdict, JudgeUnavailable> {
        Ok(self.verdict(candidate))
    }

    fn measure_afresh(&self, candidate: &Candidate) -> Result<Verdict, JudgeUnavailable> {
        Ok(self.verdict(candidate))
    }

    fn is_void(&self, verdict: &Verdict) -> Result<bool, JudgeUnavailable> {
        Ok(self.voids().unwrap().iter().any(|voided| voided.covers(verdict)))
    }

    fn inspect(&self, _: &Candidate, _: &Inspection) -> Result<Findings, JudgeUnavailable> {
        Err(JudgeUnavailable { message: "it inspects nothing".to_owned() })
    }

    fn device(&self) -> DeviceFacts {
        DeviceFacts::assumed("cpu")
    }
}

/// What an engine was asked.
#[derive(Debug, Default)]
struct Asked {
    started: Vec<String>,
    /// Rows of policy losses, with the token ids of their actions.
    trained: Vec<Row>,
    steps: usize,
    saves: usize,
}

/// Samples one of two messages; its weights never change.
struct FakeEngine {
    asked: Arc<Mutex<Asked>>,
    messages: [Vec<u32>; 2],
}

#[derive(Debug, Error)]
#[error("the fake engine refused")]
struct Refused;

impl From<Refusal> for Refused {
    fn from(_: Refusal) -> Self {
        Self
    }
}

fn scores(row: &Row) -> Scores {
    let count = row.actions.len();
    Scores { logprobs: vec![LOG_PROB; count], entropies: vec![1.0; count], values: Vec::new() }
}

impl warpwright_learn::engine::Engine for FakeEngine {
    type Error = Refused;

    fn describe(&mut self) -> Result<Description, Refused> {
        Ok(Description {
            vocabulary: 512,
            positions: 512,
            parameters: 1,
            has_values: false,
            has_critic: false,
            device: "cpu".to_owned(),
        })
    }

    fn begin_critic(&mut self) -> Result<(), Refused> {
        Err(Refused)
    }

    fn score(&mut self, rows: &[Row]) -> Result<Vec<Scores>, Refused> {
        Ok(rows.iter().map(scores).collect())
    }

    fn backward(&mut self, rows: &[Row], loss: &Loss, _: f64) -> Result<Passed, Refused> {
        if matches!(loss, Loss::Policy(_)) {
            self.asked.lock().unwrap().trained.extend_from_slice(rows);
        }
        Ok(Passed { loss: 0.25, scores: rows.iter().map(scores).collect() })
    }

    fn step(&mut self, _: Which, _: &Step) -> Result<f64, Refused> {
        self.asked.lock().unwrap().steps += 1;
        Ok(1.0)
    }

    fn save(&mut self, folder: &Path) -> Result<(), Refused> {
        self.asked.lock().unwrap().saves += 1;
        fs::write(folder.join("model.safetensors"), "weights").map_err(|_| Refused)
    }
}

impl Sampler for FakeEngine {
    type Error = Refused;

    fn draw(&mut self, requests: Vec<SampleRequest>, _: u32) -> Result<Vec<Completion>, Refused> {
        let sampled = |request: SampleRequest| {
            let ids = self.messages[(request.prompt.stream % 2) as usize].clone();
            let logprobs = vec![LOG_PROB; ids.len()];
            let sampled = Sampled { ids, logprobs, is_complete: true };
            Completion { ticket: request.ticket, sampled: Ok(sampled) }
        };
        Ok(requests.into_iter().map(sampled).collect())
    }
}

/// Starts the engine in a thread, behind the line that a real engine has.
struct Threads {
    asked: Arc<Mutex<Asked>>,
    messages: [Vec<u32>; 2],
}

impl StartEngine for Threads {
    fn start(
        &self,
        _: &EngineConfig,
        weights: &Weights,
        _: Option<Adapters>,
    ) -> Result<Engine, RolloutError> {
        let Weights::Checkpoint(folder) = weights else { panic!("no checkpoint: {weights:?}") };
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        self.asked.lock().unwrap().started.push(name);
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut engine =
            FakeEngine { asked: Arc::clone(&self.asked), messages: self.messages.clone() };
        std::thread::spawn(move || {
            let refuse = |error: &Refused| Refusal { is_memory: false, message: error.to_string() };
            remote::serve(&mut theirs, &mut engine, refuse)
        });
        Engine::greet(ours, Vec::new(), Box::new(|| None))
    }
}

/// Keeps the events as text.
#[derive(Default)]
struct Events(Mutex<Vec<String>>);

impl Observer for Events {
    fn observe(&self, event: &TrainEvent<'_>) {
        self.0.lock().unwrap().push(format!("{event:?}"));
    }
}

/// A model's folder, with a tokenizer of these texts.
fn model(folder: &Path) -> Tokenizer {
    let tokenizer = Tokenizer::train(CANDIDATES, 300, Pretokenizer::Words).unwrap();
    let shape = ModelConfig {
        vocab_size: tokenizer.len() as i64,
        hidden_size: 32,
        intermediate_size: 48,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 8,
        rope_theta: 10_000.0,
        rms_norm_eps: 1e-6,
        tie_word_embeddings: false,
        max_position_embeddings: 512,
    };
    fs::create_dir_all(folder).unwrap();
    shape.write(&folder.join("config.json")).unwrap();
    tokenizer.save(&folder.join("tokenizer.json")).unwrap();
    tokenizer
}

/// The tokens of a message that writes this candidate.
fn message(dialogue: &Marks, source: &str) -> Vec<u32> {
    let call = Write::call("1", "model_new.py", source);
    dialogue.said(&Message { calls: vec![call], ..Message::default() })
}

/// A run of one stage, and what is seen of it.
struct Seen<'a, 'f> {
    run: &'a Run<'a, 'f>,
    verdicts: &'a Verdicts,
    asked: &'a Mutex<Asked>,
    events: &'a Events,
    /// The messages that the engine samples.
    messages: &'a [Vec<u32>; 2],
}

impl Seen<'_, '_> {
    /// Advantages of the slower and of the faster candidate.
    fn advantages(&self) -> [Vec<f32>; 2] {
        let asked = self.asked.lock().unwrap();
        [0, 1].map(|which| {
            let rows = asked.trained.iter();
            let rows = rows.filter(|row| row.ids.ends_with(&self.messages[which]));
            rows.map(|row| row.advantages[0]).collect()
        })
    }
}

/// Sets up a run of two steps on one task with this judge.
fn with_run(judge: FakeJudge, work: impl FnOnce(&Seen<'_, '_>)) {
    let folder = tempfile::tempdir().unwrap();
    let (out, path) = (folder.path().join("out"), folder.path().join("model"));
    let dialogue = Marks::new(model(&path), 256);
    let text = "[tasks]\ntrain = [\"a.py\"]\n[pretrained]\npath = \"model\"\n[single_turn]\n\
                algorithm = \"grpo\"\ntotal_training_steps = 2\ntrain_batch_size = 1\nrollout_n = 8\nlr = 1e-3\n";
    let (config, _) = Config::of_table(&toml::from_str(text).unwrap()).unwrap();
    corpus::take_model(&path, &config.sampling, &out.join("model")).unwrap();

    let provision =
        Provision { python: None, folders: Vec::new(), path: Vec::new(), memory_bytes: None };
    let device = DeviceContext {
        judge: Box::new(judge),
        shell: Shell::new(Jail::detect(Requirement::Any).unwrap(), provision),
        facts: DeviceFacts::assumed("cpu"),
        skill: String::new(),
        by_libraries: Vec::new(),
    };
    let (stop, observed) = (AtomicBool::new(false), Events::default());
    let verdicts = Verdicts::open(&out.join("verdicts.jsonl"), 1).unwrap();
    let rollouts = RolloutConfig {
        devices: Arc::new([device]),
        verdicts: &verdicts,
        profile: config.profile,
        turns: 1,
        stop: &stop,
        command: "test".to_owned(),
    };
    let asked = Arc::new(Mutex::new(Asked::default()));
    let messages = CANDIDATES.map(|source| message(&dialogue, source));
    let engines = Threads { asked: Arc::clone(&asked), messages: messages.clone() };
    let run = Run {
        config: &config,
        seed: 1,
        out: &out,
        model: &InitialModel::Pretrained { path },
        engines: &engines,
        rollouts: &rollouts,
        afresh: &rollouts,
        train: &[Task::from_source("a", "import torch\n")],
        held_out: &[],
        written: &[],
        sources: None,
        hosts: &[],
        stop: &stop,
        observer: &observed,
    };
    let events = &observed;
    work(&Seen { run: &run, verdicts: &verdicts, asked: &asked, events, messages: &messages });
}

#[test]
fn a_training_step_rewards_the_faster_candidate() {
    with_run(FakeJudge::default(), |seen| {
        let Seen { run, .. } = seen;
        run.stage(Stage::SingleTurn).unwrap();
        let state: State = run.stage_folder(Stage::SingleTurn).unwrap().result().unwrap();
        assert_eq!(state.updates.len(), 2);
        // Both candidates were sampled, and the faster one has the higher advantage.
        let [slow, fast] = seen.advantages();
        assert!(!slow.is_empty() && slow.iter().all(|advantage| *advantage < 0.0), "{slow:?}");
        assert!(!fast.is_empty() && fast.iter().all(|advantage| *advantage > 0.0), "{fast:?}");
        let asked = seen.asked.lock().unwrap();
        assert_eq!(asked.started, ["model"], "the pretrained model");
        assert!(asked.steps >= 2 && asked.saves == 2, "{} {}", asked.steps, asked.saves);
        drop(asked);
        // Each candidate was measured once.
        assert_eq!(seen.verdicts.count().judged, 2);
        let out = run.out;
        assert!(out.join("single-turn/checkpoint/model.safetensors").is_file());
        assert!(out.join("tensorboard/single-turn").is_dir());
        let events = seen.events.0.lock().unwrap();
        let count = |name: &str| events.iter().filter(|event| event.starts_with(name)).count();
        assert_eq!((count("Update"), count("Ended")), (2, 1), "{events:?}");
        // A second process has nothing left to do.
        let known = events.len();
        drop(events);
        run.stage(Stage::SingleTurn).unwrap();
        let events = seen.events.0.lock().unwrap();
        assert_eq!(events.last().unwrap(), "AlreadyDone(SingleTurn)");
        assert_eq!(events.len(), known + 1);
    });
}

/// The first verdicts say the opposite of what is true, and become void before the batch is trained on.
#[test]
fn void_verdicts_are_measured_again_before_training() {
    let judge = FakeJudge { false_ones: 2, ..FakeJudge::default() };
    with_run(judge, |seen| {
        seen.run.stage(Stage::SingleTurn).unwrap();
        let [slow, fast] = seen.advantages();
        assert!(!slow.is_empty() && slow.iter().all(|advantage| *advantage < 0.0), "{slow:?}");
        assert!(!fast.is_empty() && fast.iter().all(|advantage| *advantage > 0.0), "{fast:?}");
        assert_eq!(seen.verdicts.count().judged, 4, "both candidates twice");
        let record = seen.run.out.join("single-turn/record");
        let history = History::read(&RunReader::open(&record).unwrap()).unwrap();
        assert_eq!(history.voided.len(), 1);
        let given = history.episodes.values().flat_map(Episode::verdicts);
        let turns: Vec<u32> =
            given.map(|(_, given)| given.verdict.replayer.as_ref().unwrap().turn).collect();
        assert!(!turns.is_empty() && turns.iter().all(|turn| *turn > 2), "{turns:?}");
    });
}
