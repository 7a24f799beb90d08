//! One episode as a page that reads like a conversation.

use std::path::Path;

use minijinja::{Value, context, value::Serde};
use serde::Serialize;
use warpwright_record::event::EpisodeId;
use warpwright_record::history::Episode;
use warpwright_record::reader::RunReader;

use super::model::{Chip, standing_chip};
use super::{ReportError, environment, steps, write_page};
use crate::evaluation::rules;
use crate::figures;
use crate::live::verdict_words;
use crate::summary::{Standing, Summary};
use crate::text::cut;
use crate::trajectory::conversation::{Conversation, Entry};

/// Most bytes shown of one text of the opening.
const ROOM: usize = 256 << 10;

#[derive(Serialize)]
struct TurnView {
    reasoning: String,
    usage: Option<String>,
    elided: usize,
    stop: Option<&'static str>,
    step: steps::StepView,
}

/// Writes one episode of a run as a page: what the policy was told, then every turn in full.
pub fn write_trajectory(
    reader: &RunReader,
    id: EpisodeId,
    episode: &Episode,
    out: &Path,
) -> Result<(), ReportError> {
    let conversation = Conversation::of(reader, episode)?;
    let opening: Vec<(&str, String)> = conversation
        .last()
        .iter()
        .filter_map(|entry| match entry {
            Entry::System(text) => Some(("system", text)),
            Entry::User(text) => Some(("user", text)),
            _ => None,
        })
        .take(2)
        .map(|(who, text)| (who, cut(text, ROOM).0.to_owned()))
        .collect();
    let summary = Summary::of(episode);
    let end = episode.end.as_ref();
    let last = end.and_then(|end| end.final_verdict.as_ref());
    let chip = |verdict| Chip {
        label: verdict_words(verdict),
        class: standing_chip(Standing::of(verdict)).class,
    };
    let turns: Vec<TurnView> = episode.turns.iter().map(turn_view).collect();
    let mut environment = environment()?;
    let template = include_str!("../../templates/trajectory.html");
    environment.add_template("trajectory.html", template)?;
    let setup = &episode.setup;
    let html = environment.get_template("trajectory.html")?.render(context! {
        id => id.0,
        task => setup.task.clone(),
        policy => setup.policy.clone(),
        device => setup.device.clone(),
        cpu => setup.device == "cpu",
        profile => rules(setup.profile, setup.dtype, setup.fit.as_ref(), setup.backward),
        seed => setup.seed.to_string(),
        opening,
        turns => Value::from(Serde(&turns)),
        result => Value::from(Serde(standing_chip(summary.standing))),
        outcome => end.map_or("unfinished", |end| end.outcome.words()),
        took => end.map(|end| figures::seconds(end.seconds)),
        last => last.map(|verdict| Value::from(Serde(chip(verdict)))),
        reward => last.map(|v| {
            [v.reward.paper, v.reward.speedup, v.reward.bounded].map(figures::reward).to_vec()
        }),
    })?;
    write_page(&html, out)
}

fn turn_view(turn: &warpwright_record::history::Turn) -> TurnView {
    use warpwright_record::message::StopReason;
    let generation = turn.message.generation.as_ref();
    let usage = |g: &warpwright_record::message::Generation| {
        let (read, cached) = (g.usage.input_tokens, g.usage.cached_tokens);
        let written = figures::count(g.usage.output_tokens);
        let (read, cached) = (figures::count(read), figures::count(cached));
        format!("{}: {read} prompt tokens ({cached} cached), {written} completion tokens", g.model)
    };
    TurnView {
        reasoning: cut(&turn.message.reasoning, ROOM).0.to_owned(),
        usage: generation.map(|g| usage(g.as_ref())),
        elided: generation.map_or(0, |g| g.elided.len()),
        stop: match turn.message.stop {
            StopReason::Done => None,
            StopReason::Length => Some("truncated: token limit reached"),
            StopReason::Refused => Some("the model declined to answer"),
        },
        step: steps::view(turn),
    }
}
