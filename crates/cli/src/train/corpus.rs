//! What a policy from scratch learns first: demonstrations as conversations, and the tokenizer of their words.

use std::path::Path;

use fs_err as fs;
use warpwright_agent::judge::DeviceFacts;
use warpwright_learn::batch;
use warpwright_native::{Dialogue, Speech, Tokenizer, target};
use warpwright_record::history::History;
use warpwright_record::message::{Message, ToolResult};
use warpwright_record::reader::RunReader;

use crate::failure::{Failure, chain};
use crate::train::config::Model;
use crate::train::folder::write_json;

/// One demonstration.
pub(crate) struct Shown {
    task: String,
    target: String,
    reference: String,
    turns: Vec<(Message, Vec<ToolResult>)>,
    reward: f64,
}

impl Shown {
    pub(crate) fn episode(&self, dialogue: &Dialogue) -> batch::Episode {
        let sequences = vec![dialogue.sequence(&self.target, &self.reference, &self.turns)];
        batch::Episode { task: self.task.clone(), sequences, reward: self.reward }
    }
}

/// The demonstrations of a record. Turns before the first file is written only look at the task in a way
/// that a model does not: they are left out.
pub(crate) fn shown(reader: &RunReader, device: &DeviceFacts) -> Result<Vec<Shown>, Failure> {
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
            task: episode.setup.task,
            target: target(device).to_owned(),
            reference: String::from_utf8_lossy(&reference).into_owned(),
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

/// Trains the tokenizer, and writes it with how the model speaks and its description: what Hugging Face
/// calls `config.json`, of a Qwen3.
pub(crate) fn begin_model(
    shown: &[Shown],
    model: &Model,
    speech: &Speech,
    folder: &Path,
) -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::io("write the model's description", &e);
    fs::create_dir_all(folder).map_err(failed)?;
    let texts: Vec<String> = shown
        .iter()
        .flat_map(|shown| Dialogue::texts(&shown.target, &shown.reference, &shown.turns))
        .collect();
    let tokenizer =
        Tokenizer::train(texts.iter().map(String::as_str), model.vocabulary, model.split)
            .map_err(|error| Failure::infrastructure(chain(&error), None))?;
    let config = serde_json::json!({
        "model_type": "qwen3",
        "architectures": ["Qwen3ForCausalLM"],
        "vocab_size": tokenizer.len(),
        "hidden_size": model.hidden,
        "intermediate_size": model.feed_forward,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.groups,
        "head_dim": model.hidden / model.heads,
        "rope_theta": 10_000.0,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": true,
        "max_position_embeddings": model.positions,
        "hidden_act": "silu",
        "attention_bias": false,
    });
    write_json(&folder.join("config.json"), &config)?;
    speech.save(folder).map_err(|error| Failure::infrastructure(chain(&error), None))?;
    // Last: where it is there, the description is too.
    tokenizer
        .save(&folder.join("tokenizer.json"))
        .map_err(|error| Failure::infrastructure(chain(&error), None))
}
