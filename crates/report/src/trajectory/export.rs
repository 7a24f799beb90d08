//! Trajectories as JSONL for training: one line for each part of a conversation, or each sequence of
//! tokens. `docs/reference/trajectories.md` has the forms.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use thiserror::Error;
use warpwright_record::error::ReadError;
use warpwright_record::event::EpisodeId;
use warpwright_record::fingerprint::Fingerprint;
use warpwright_record::fit::Fit;
use warpwright_record::history::{Episode, History};
use warpwright_record::message::ToolCall;
use warpwright_record::reader::RunReader;
use warpwright_record::verdict::{Dtype, Profile, Reward};

use super::conversation::{Conversation, Entry, is_judged};
use warpwright_record::tokens::{NoTokens, Sequence, sequences};

/// Version of the lines.
pub const VERSION: u32 = 2;

/// What a line looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// OpenAI's chat form: arguments as text, `weight` on messages of the policy.
    OpenAi,
    /// The `messages` form of Hugging Face's data sets and chat templates: arguments as objects.
    Messages,
    /// Token ids, loss mask and log-probabilities.
    Tokens,
}

/// What is said of the trajectory on each of its lines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Metadata {
    /// [`VERSION`] of the writer.
    pub version: u32,
    /// The run folder's name.
    pub run: String,
    /// The episode in it.
    pub episode: u32,
    /// The part of the episode, from 0.
    pub part: u32,
    /// Parts of the episode. The outcome's reward belongs to the last one.
    pub parts: u32,
    /// The task.
    pub task: String,
    /// The part of the suite the task belongs to.
    pub level: Option<String>,
    /// The policy.
    pub policy: String,
    /// The model, as its server names it.
    pub model: Option<String>,
    /// Number among the policy's attempts at the task.
    pub attempt: u32,
    /// Rules of precision and comparison.
    pub profile: Profile,
    /// The dtype that the task was cast to; absent: it kept its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<Dtype>,
    /// How `--fit` scaled the task down; absent: it has its own size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fit: Option<Fit>,
    /// Whether a call computed gradients too: forward, then backward.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub backward: bool,
    /// `cuda:N` or `cpu`.
    pub device: String,
    /// Seed of the episode.
    pub seed: u64,
    /// Why the episode ended.
    pub outcome: Option<String>,
    /// Whether the final candidate, judged afresh, is right.
    pub verified: bool,
    /// Rewards by scheme; `null` where the episode has none, by our own failure or because it did not
    /// come to its end.
    pub reward: Option<Reward>,
    /// Turns taken.
    pub turns: u32,
    /// What the final verdict was measured under.
    pub fingerprint: Option<Fingerprint>,
}

/// What was exported and what was not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Exported {
    /// Episodes with at least one line.
    pub episodes: u32,
    /// Lines.
    pub lines: u32,
    /// Episodes left out: lost to our own failure.
    pub infrastructure: u32,
    /// Left out: interrupted, killed or going on.
    pub unfinished: u32,
    /// Left out: nothing was said.
    pub empty: u32,
    /// Left out of the form `tokens`: no message has tokens.
    pub without_tokens: u32,
    /// Left out of the form `tokens`: some messages have none.
    pub with_some_tokens: u32,
    /// Left out of the form `tokens`: the counts of their tokens contradict each other.
    pub inconsistent_tokens: u32,
}

/// Why trajectories could not be exported.
#[derive(Debug, Error)]
pub enum ExportError {
    /// A record cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The file system refused.
    #[error("failed to write {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Writes the trajectories of the runs in `dirs` to `out`. Episodes without a reward are left out
/// and counted.
pub fn export(dirs: &[&Path], form: Form, out: &Path) -> Result<Exported, ExportError> {
    let failed = |source| ExportError::Write { path: out.to_owned(), source };
    let mut counts = Exported::default();
    // Only errors of writing go through the file's closure; those of reading are kept apart.
    let mut unread = None;
    let done = crate::files::replace(out, |file| {
        for dir in dirs {
            match write_run(dir, form, file, &mut counts) {
                Err(LineError::Read(error)) => {
                    unread = Some(error);
                    return Err(io::Error::other("a record cannot be read"));
                }
                Err(LineError::Write(error)) => return Err(error),
                Ok(()) => {}
            }
        }
        Ok(())
    });
    match (unread, done) {
        (Some(error), _) => Err(error.into()),
        (None, done) => done.map(|()| counts).map_err(failed),
    }
}

/// What can go wrong with one line.
enum LineError {
    Read(ReadError),
    Write(io::Error),
}

impl From<ReadError> for LineError {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

fn write_run(
    dir: &Path,
    form: Form,
    writer: &mut dyn Write,
    counts: &mut Exported,
) -> Result<(), LineError> {
    let reader = RunReader::open(dir)?;
    let history = History::read(&reader)?;
    let run = dir.file_name().unwrap_or(dir.as_os_str()).to_string_lossy().into_owned();
    for (id, episode) in &history.episodes {
        let Some(end) = &episode.end else {
            counts.unfinished += 1;
            continue;
        };
        if !is_judged(episode) {
            let ours = end.outcome.name() == "infrastructure";
            *(if ours { &mut counts.infrastructure } else { &mut counts.unfinished }) += 1;
            continue;
        }
        let lines = lines(&reader, &run, *id, episode, form, counts)?;
        counts.episodes += u32::from(!lines.is_empty());
        for line in lines {
            counts.lines += 1;
            let done = serde_json::to_writer(&mut *writer, &line)
                .map_err(io::Error::from)
                .and_then(|()| writer.write_all(b"\n"));
            done.map_err(LineError::Write)?;
        }
    }
    Ok(())
}

fn lines(
    reader: &RunReader,
    run: &str,
    id: EpisodeId,
    episode: &Episode,
    form: Form,
    counts: &mut Exported,
) -> Result<Vec<Value>, ReadError> {
    if episode.turns.is_empty() {
        counts.empty += 1;
        return Ok(Vec::new());
    }
    if form == Form::Tokens {
        let sequences = match sequences(episode) {
            Ok(sequences) => sequences,
            Err(reason) => {
                *match reason {
                    NoTokens::None => &mut counts.without_tokens,
                    NoTokens::Some => &mut counts.with_some_tokens,
                    NoTokens::Inconsistent => &mut counts.inconsistent_tokens,
                } += 1;
                return Ok(Vec::new());
            }
        };
        let parts = sequences.len() as u32;
        let line = |(part, sequence): (u32, &Sequence)| {
            token_line(sequence, &metadata(run, id, episode, part, parts))
        };
        return Ok((0..).zip(&sequences).map(line).collect());
    }
    let conversation = Conversation::of(reader, episode)?;
    let parts = conversation.parts.len() as u32;
    let line = |(part, entries): (u32, &Vec<Entry<'_>>)| {
        chat_line(entries, &metadata(run, id, episode, part, parts), form)
    };
    Ok((0..).zip(&conversation.parts).map(line).collect())
}

/// What is said of one part of an episode.
pub fn metadata(run: &str, id: EpisodeId, episode: &Episode, part: u32, parts: u32) -> Metadata {
    let setup = &episode.setup;
    let end = episode.end.as_ref();
    let verdict = end.and_then(|end| end.final_verdict.as_ref());
    let reward = verdict.map_or_else(Reward::unverified, |verdict| verdict.reward);
    let model = episode.turns.iter().find_map(|turn| turn.message.generation.as_ref());
    Metadata {
        version: VERSION,
        run: run.to_owned(),
        episode: id.0,
        part,
        parts,
        task: setup.task.clone(),
        level: setup.level.clone(),
        policy: setup.policy.clone(),
        model: model.map(|generation| generation.model.clone()),
        attempt: setup.attempt,
        profile: setup.profile,
        dtype: setup.dtype,
        fit: setup.fit.clone(),
        backward: setup.backward,
        device: setup.device.clone(),
        seed: setup.seed,
        outcome: end.map(|end| end.outcome.name().to_owned()),
        verified: verdict.is_some_and(|verdict| verdict.verified),
        reward: is_judged(episode).then_some(reward),
        turns: end.map_or(episode.turns.len() as u32, |end| end.turns),
        fingerprint: verdict.map(|verdict| verdict.fingerprint.clone()),
    }
}

fn token_line(sequence: &Sequence, metadata: &Metadata) -> Value {
    json!({
        "ids": sequence.ids,
        "response_mask": sequence.response_mask,
        "rollout_log_probs": sequence.rollout_log_probs,
        "turns": sequence.turns,
        "metadata": metadata,
    })
}

/// One part of a conversation as a line of the form `openai` or `messages`.
pub fn chat_line(entries: &[Entry<'_>], metadata: &Metadata, form: Form) -> Value {
    let messages: Vec<Value> = entries.iter().map(|entry| chat_message(entry, form)).collect();
    json!({ "messages": messages, "metadata": metadata })
}

fn chat_message(entry: &Entry<'_>, form: Form) -> Value {
    match entry {
        Entry::System(text) => json!({ "role": "system", "content": text }),
        Entry::User(text) => json!({ "role": "user", "content": text }),
        Entry::Said { message, is_new, .. } => {
            let mut said = Map::new();
            said.insert("role".into(), json!("assistant"));
            said.insert("content".into(), json!(message.text));
            if !message.reasoning.is_empty() {
                said.insert("reasoning_content".into(), json!(message.reasoning));
            }
            if !message.calls.is_empty() {
                let calls: Vec<Value> = message.calls.iter().map(|c| chat_call(c, form)).collect();
                said.insert("tool_calls".into(), json!(calls));
            }
            // Both forms say what was said in another context, and is not to be trained on here.
            said.insert("weight".into(), json!(u8::from(*is_new)));
            Value::Object(said)
        }
        Entry::Result { call, tool, text, .. } => match form {
            Form::OpenAi => json!({ "role": "tool", "tool_call_id": call, "content": text }),
            _ => json!({ "role": "tool", "tool_call_id": call, "name": tool, "content": text }),
        },
    }
}

fn chat_call(call: &ToolCall, form: Form) -> Value {
    let arguments = match (form, &call.arguments) {
        // What the policy gave for arguments was no JSON: as it stood.
        (_, Value::String(text)) => json!(text),
        (Form::OpenAi, arguments) => json!(arguments.to_string()),
        (_, arguments) => arguments.clone(),
    };
    json!({
        "id": call.id,
        "type": "function",
        "function": { "name": call.name, "arguments": arguments },
    })
}
