//! What a policy from scratch learns first: demonstrations as conversations, and the tokenizer of their words.

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

use crate::failure::{Failure, chain};
use crate::train::config::Pretrained;
use crate::train::folder::{read_json, write_json};

/// One demonstration.
pub(crate) struct Shown {
    briefing: Briefing,
    turns: Vec<(Message, Vec<ToolResult>)>,
    reward: f64,
}

impl Shown {
    /// The first message of an episode that was never played.
    pub(crate) fn first(briefing: Briefing, message: Message) -> Self {
        Self { briefing, turns: vec![(message, Vec::new())], reward: 0.0 }
    }

    /// What a tokenizer is to be trained on.
    pub(crate) fn texts(&self) -> Vec<String> {
        Marks::texts(&self.briefing, &self.turns)
    }

    pub(crate) fn episode(&self, dialogue: &dyn Dialogue) -> batch::Episode {
        let sequences = vec![dialogue.sequence(&self.briefing, &self.turns)];
        batch::Episode { task: self.briefing.task.clone(), sequences, reward: self.reward }
    }
}

/// The demonstrations of a record. Turns before the first file is written only look at the task in a way
/// that a model does not: they are left out.
pub(crate) fn shown(
    reader: &RunReader,
    device: &DeviceFacts,
    skill: &str,
) -> Result<Vec<Shown>, Failure> {
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
        // A task without rules: there is nothing to show.
        if turns.is_empty() {
            continue;
        }
        let reference = reader.blob(episode.setup.source)?;
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
        let hint = "choose tasks that the teacher has rules for".to_owned();
        return Err(Failure::usage("failed to find a demonstration: none shows a kernel", hint));
    }
    Ok(all)
}

/// What of a model's `config.json` is wanted here.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Described {
    pub(crate) vocab_size: usize,
    max_position_embeddings: usize,
}

impl Described {
    /// Of the run's model.
    pub(crate) fn read(folder: &Path) -> Result<Self, Failure> {
        read_json(&folder.join("config.json"))
    }

    /// Tokens of the longest episode.
    pub(crate) fn positions(self, pretrained: Option<&Pretrained>) -> usize {
        let wanted = pretrained.and_then(|pretrained| pretrained.max_model_len);
        self.max_position_embeddings.min(wanted.unwrap_or(usize::MAX))
    }
}

/// Takes a model that is there for the run's: its words, and its description.
pub(crate) fn take_model(
    from: &Path,
    sampling: &SamplingConfig,
    folder: &Path,
) -> Result<(), Failure> {
    let failed = |e: std::io::Error| {
        let hint = "pretrained.path is a model as Hugging Face has it, or a checkpoint".to_owned();
        Failure::usage(format!("failed to take the model in {}: {e}", from.display()), hint)
    };
    let tokenizer = folder.join("tokenizer.json");
    if tokenizer.exists() {
        return Ok(());
    }
    warpwright_native::load(&from.join("tokenizer.json"), sampling.max_tool_result_tokens)
        .map_err(|e| {
            let message = format!("failed to take the model in {}: {}", from.display(), chain(&e));
            Failure::usage(message, "its words must be a chat model's, or ours".to_owned())
        })?;
    fs::create_dir_all(folder).map_err(failed)?;
    fs::copy(from.join("config.json"), folder.join("config.json")).map_err(failed)?;
    sampling.save(folder).map_err(|error| Failure::infrastructure(chain(&error), None))?;
    // Last: where it is there, the description is too.
    let beside = folder.join("tokenizer.json.tmp");
    fs::copy(from.join("tokenizer.json"), &beside).map_err(failed)?;
    fs::rename(&beside, &tokenizer).map_err(failed)
}

/// Trains the tokenizer, and writes it with `sampling.json` and the model's `config.json`, whose vocabulary is the
/// tokenizer's.
pub(crate) fn begin_model(
    texts: &[String],
    (shape, pretokenizer): (ModelConfig, Pretokenizer),
    sampling: &SamplingConfig,
    folder: &Path,
) -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::io("write the model's config", &e);
    fs::create_dir_all(folder).map_err(failed)?;
    let texts = texts.iter().map(String::as_str);
    let tokenizer = Tokenizer::train(texts, shape.vocab_size as usize, pretokenizer)
        .map_err(|error| Failure::infrastructure(chain(&error), None))?;
    let config = ModelConfig { vocab_size: tokenizer.len() as i64, ..shape };
    write_json(&folder.join("config.json"), &config.to_json())?;
    sampling.save(folder).map_err(|error| Failure::infrastructure(chain(&error), None))?;
    // Last: where it exists, the config does too.
    tokenizer
        .save(&folder.join("tokenizer.json"))
        .map_err(|error| Failure::infrastructure(chain(&error), None))
}
