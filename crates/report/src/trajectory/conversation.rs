//! An episode as the conversation that its policy saw.
//!
//! What a model is shown changes when old tool results are left out to make room: from that message
//! on the context is another one. A conversation therefore comes in parts, one for each context, and
//! each message of the policy belongs to exactly one of them: trained on in the part in which it was
//! said, context in later ones.

use std::collections::BTreeSet;

use warpwright_record::dialogue;
use warpwright_record::error::ReadError;
use warpwright_record::event::Outcome;
use warpwright_record::history::Episode;
use warpwright_record::message::{Message, StopReason, ToolStatus};
use warpwright_record::reader::RunReader;

/// One entry of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry<'a> {
    /// The system prompt: the skill text.
    System(String),
    /// A user message: first the task, later messages of the agent loop.
    User(String),
    /// A message of the policy.
    Said {
        /// The turn, from 1.
        turn: u32,
        /// The message.
        message: &'a Message,
        /// Whether it was said in this part's context. In an earlier one otherwise, and trained on
        /// there.
        is_new: bool,
    },
    /// The result of a tool call.
    Result {
        /// The turn, from 1.
        turn: u32,
        /// The call's id.
        call: &'a str,
        /// The tool's name.
        tool: &'a str,
        /// What it came to; `None` for a call that was not run.
        status: Option<ToolStatus>,
        /// What the policy is shown of it in this part.
        text: String,
    },
}

/// The conversation of an episode, in parts.
#[derive(Clone, Debug, PartialEq)]
pub struct Conversation<'a> {
    /// The parts, in order; the last one ends with the episode. Empty when nothing was said.
    pub parts: Vec<Vec<Entry<'a>>>,
}

impl<'a> Conversation<'a> {
    /// The conversation of a recorded episode.
    pub fn of(reader: &RunReader, episode: &'a Episode) -> Result<Self, ReadError> {
        let text =
            |blob| Ok::<_, ReadError>(String::from_utf8_lossy(&reader.blob(blob)?).into_owned());
        let system = episode.setup.skill.map(text).transpose()?;
        let reference = text(episode.setup.reference())?;
        let first = dialogue::first_user_message(&episode.setup.task, &reference);
        let opening: Vec<Entry<'a>> =
            system.map(Entry::System).into_iter().chain([Entry::User(first)]).collect();

        // The turns at whose messages the context changes, and the first.
        let begins: Vec<usize> = episode
            .turns
            .iter()
            .enumerate()
            .filter(|(i, turn)| {
                let elided = turn.message.generation.as_ref().map(|g| !g.elided.is_empty());
                *i == 0 || elided.unwrap_or(false)
            })
            .map(|(i, _)| i)
            .collect();
        let mut elided: BTreeSet<&str> = BTreeSet::new();
        let mut parts = Vec::new();
        for (number, &begin) in begins.iter().enumerate() {
            let end = begins.get(number + 1).copied().unwrap_or(episode.turns.len());
            if let Some(generation) = &episode.turns[begin].message.generation {
                elided.extend(generation.elided.iter().map(String::as_str));
            }
            let mut part = opening.clone();
            for index in 0..end {
                // Nothing follows the last message of a part that the part was trained on; what
                // follows the last of the episode nobody answered, but a reader wants to see it.
                let is_last = index + 1 == end && end < episode.turns.len();
                push_turn(&mut part, episode, index, index >= begin, !is_last, &elided);
            }
            parts.push(part);
        }
        Ok(Self { parts })
    }

    /// The last part: the context at the end of the episode.
    pub fn last(&self) -> &[Entry<'a>] {
        self.parts.last().map(Vec::as_slice).unwrap_or_default()
    }
}

fn push_turn<'a>(
    part: &mut Vec<Entry<'a>>,
    episode: &'a Episode,
    index: usize,
    is_new: bool,
    with_results: bool,
    elided: &BTreeSet<&str>,
) {
    let turn = &episode.turns[index];
    let message = &turn.message;
    part.push(Entry::Said { turn: turn.number, message, is_new });
    if !with_results {
        return;
    }
    let goes_on = index + 1 < episode.turns.len();
    if message.calls.is_empty() && goes_on {
        let cut = message.stop == StopReason::Length;
        part.push(Entry::User(if cut { dialogue::CUT } else { dialogue::GO_ON }.to_owned()));
    }
    for call in &message.calls {
        let result = turn.results.iter().map(|(result, _)| result).find(|r| r.call == call.id);
        // A call without a result in the last turn: the episode ended first.
        if result.is_none() && !goes_on {
            continue;
        }
        let text = match result {
            Some(result) if elided.contains(call.id.as_str()) => dialogue::left_out(&result.text),
            Some(result) => result.text.clone(),
            None => dialogue::NOT_RUN.to_owned(),
        };
        let status = result.map(|result| result.status);
        part.push(Entry::Result {
            turn: turn.number,
            call: &call.id,
            tool: &call.name,
            status,
            text,
        });
    }
}

/// Whether an episode came to an end of its own, and so has a reward.
pub(super) fn is_judged(episode: &Episode) -> bool {
    episode.end.as_ref().is_some_and(|end| {
        !matches!(end.outcome, Outcome::Interrupted | Outcome::Infrastructure { .. })
    })
}
