//! The first training texts of a policy from scratch: demonstrations as conversations, and the
//! tokenizer trained on them.

use std::path::Path;

use fs_err as fs;
use serde::Deserialize;
use warpwright_agent::judge::DeviceFacts;
use warpwright_agent::policy::Briefing;
use warpwright_learn::batch;
use warpwright_learn::model_config::ModelConfig;
use warpwright_native::{Dialogue, Marks, Pretokenizer, SamplingConfig, Tokenizer};
use warpwright_record::history::History;
use warpwright_record::message::{Message, ToolResult};
use warpwright_record::reader::RunReader;
use warpwright_rollout::error::chain;

use crate::config::Pretrained;
use crate::error::TrainError;
use crate::folder::{read_json, write_json};

/// One demonstration.
pub(crate) struct Shown {
    briefing: Briefing,
    turns: Vec<(Message, Vec<ToolResult>)>,
    reward: f64,
}

impl Shown {
    /// The first message of an episode that was not played.
    pub(crate) fn first(briefing: Briefing, message: Message) -> Self {
        Self { briefing, turns: vec![(message, Vec::new())], reward: 0.0 }
    }

    /// The texts that a tokenizer is trained on.
    pub(crate) fn texts(&self) -> Vec<String> {
        Marks::texts(&self.briefing, &self.turns)
    }

    pub(crate) fn episode(&self, dialogue: &dyn Dialogue) -> batch::Episode {
        let sequences = vec![dialogue.sequence(&self.briefing, &self.turns)];
        batch::Episode { task: self.briefing.task.clone(), sequences, reward: self.reward }
    }
}

/// The demonstrations of a record. Turns before the first file is written are omitted: they inspect
/// the task, which a model has in its prompt.
pub(crate) fn shown(
    reader: &RunReader,
    device: &DeviceFacts,
    skill: &str,
) -> Result<Vec<Shown>, TrainError> {
    let mut all = Vec::new();
    for episode in History::read(reader)?.episodes.into_values() {
        let Some(end) = episode.end.filter(|end| !end.outcome.is_resumable()) else { continue };
        let writes = |message: &Message| message.calls.iter().any(|call| call.name == "Write");
        let turns: Vec<_> = episode
            .turns
            .into_iter()
            .skip_while(|turn| !writes(&turn.message))
            .map(|turn| (turn.message, turn.results.into_iter().map(|(r, _)| r).collect()))
            .collect();
        // The built-in policy has no rules for the task.
        if turns.is_empty() {
            continue;
        }
        let reference = reader.blob(episode.setup.reference())?;
        all.push(Shown {
            briefing: Briefing {
                task: episode.setup.task,
                reference: String::from_utf8_lossy(&reference).into_owned(),
                skill: skill.to_owned(),
                device: device.clone(),
                profile: episode.setup.profile,
                seed: episode.setup.seed,
                turns: episode.setup.budget.turns,
            },
            turns,
            reward: end.final_verdict.map_or(-1.0, |verdict| verdict.reward.bounded),
        });
    }
    if all.is_empty() {
        let hint = "choose tasks with operators that the built-in policy supports".to_owned();
        return Err(TrainError::usage("failed to find a demonstration: none has a kernel", hint));
    }
    Ok(all)
}

/// The values of a model's `config.json` that are needed here.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Described {
    pub(crate) vocab_size: usize,
    max_position_embeddings: usize,
}

impl Described {
    /// Reads the run's model.
    pub(crate) fn read(folder: &Path) -> Result<Self, TrainError> {
        read_json(&folder.join("config.json"))
    }

    /// Maximum length of an episode in tokens.
    pub(crate) fn positions(self, pretrained: Option<&Pretrained>) -> usize {
        let wanted = pretrained.and_then(|pretrained| pretrained.max_model_len);
        self.max_position_embeddings.min(wanted.unwrap_or(usize::MAX))
    }
}

/// Uses an existing model: copies its tokenizer and its config.
pub(crate) fn take_model(
    from: &Path,
    sampling: &SamplingConfig,
    folder: &Path,
) -> Result<(), TrainError> {
    let failed = |e: std::io::Error| {
        let hint = "pretrained.path must be a Hugging Face model folder or a checkpoint".to_owned();
        TrainError::usage(format!("failed to load the model in {}: {e}", from.display()), hint)
    };
    let tokenizer = folder.join("tokenizer.json");
    if tokenizer.exists() {
        return Ok(());
    }
    // Of an older format: its tokenizer's marks may differ too.
    SamplingConfig::load(from).map_err(|e| {
        TrainError::usage(chain(&e), "change the checkpoint as the error says".to_owned())
    })?;
    warpwright_native::load(&from.join("tokenizer.json"), sampling.max_tool_result_tokens)
        .map_err(|e| {
            let message = format!("failed to load the model in {}: {}", from.display(), chain(&e));
            TrainError::usage(
                message,
                "its tokenizer must be a Qwen chat model's, or one that `warpwright train` wrote"
                    .to_owned(),
            )
        })?;
    fs::create_dir_all(folder).map_err(failed)?;
    fs::copy(from.join("config.json"), folder.join("config.json")).map_err(failed)?;
    sampling.save(folder).map_err(|error| TrainError::infrastructure(chain(&error), None))?;
    // Last: if it exists, the config does too.
    let beside = folder.join("tokenizer.json.tmp");
    fs::copy(from.join("tokenizer.json"), &beside).map_err(failed)?;
    fs::rename(&beside, &tokenizer).map_err(failed)
}

/// Trains the tokenizer and writes it with `sampling.json` and the model's `config.json`, which
/// gets the tokenizer's vocabulary size.
pub(crate) fn begin_model(
    texts: &[String],
    (shape, pretokenizer): (ModelConfig, Pretokenizer),
    sampling: &SamplingConfig,
    folder: &Path,
) -> Result<(), TrainError> {
    let failed = |e: std::io::Error| TrainError::io("write the model's config", e);
    fs::create_dir_all(folder).map_err(failed)?;
    let texts = texts.iter().map(String::as_str);
    let tokenizer = Tokenizer::train(texts, shape.vocab_size as usize, pretokenizer)
        .map_err(|error| TrainError::infrastructure(chain(&error), None))?;
    let config = ModelConfig { vocab_size: tokenizer.len() as i64, ..shape };
    write_json(&folder.join("config.json"), &config.to_json())?;
    sampling.save(folder).map_err(|error| TrainError::infrastructure(chain(&error), None))?;
    // Last: if it exists, the config does too.
    tokenizer
        .save(&folder.join("tokenizer.json"))
        .map_err(|error| TrainError::infrastructure(chain(&error), None))
}

/// Refuses to resume a run whose model has other sizes: `model.config` names a file, which may have changed.
pub(crate) fn check_same_shape(shape: &ModelConfig, folder: &Path) -> Result<(), TrainError> {
    let path = folder.join("config.json");
    if !path.exists() {
        return Ok(());
    }
    let began =
        ModelConfig::read(&path).map_err(|e| TrainError::infrastructure(chain(&e), None))?;
    // The tokenizer decides the size of the vocabulary.
    if (ModelConfig { vocab_size: shape.vocab_size, ..began }) == *shape {
        return Ok(());
    }
    let message = format!("failed to resume the run: the sizes in {} differ", path.display());
    Err(TrainError::usage(message, "start a new run with another --out".to_owned()))
}
