//! The steps of an episode: what the policy said, its calls and what they came to.

use minijinja::Value;
use serde::Serialize;
use warpwright_record::history::Turn;
use warpwright_record::message::{ToolCall, ToolResult, ToolStatus};

use super::model::{Chip, chip};
use super::verdict;
use crate::figures;
use crate::highlight::{Language, highlight};
use crate::live::call_words;
use crate::text::cut;

/// Most bytes shown of one argument of a call, or of one result.
const PART_ROOM: usize = 64 << 10;

#[derive(Serialize)]
pub(super) struct StepView {
    number: u32,
    text: String,
    took: String,
    finished: bool,
    headline: String,
    calls: Vec<CallView>,
    verdicts: Vec<Chip>,
}

#[derive(Serialize)]
struct CallView {
    tool: String,
    words: String,
    parts: Vec<PartView>,
    result: Option<String>,
    state: Chip,
    took: Option<String>,
}

/// One argument of a call.
#[derive(Serialize)]
struct PartView {
    name: String,
    /// One line that needs no colours: shown beside its name.
    short: Option<String>,
    class: &'static str,
    html: Value,
}

pub(super) fn view(turn: &Turn) -> StepView {
    let calls: Vec<CallView> = turn
        .message
        .calls
        .iter()
        .map(|call| call_view(call, turn.results.iter().find(|(r, _)| r.call == call.id)))
        .collect();
    let words: Vec<&str> = calls.iter().map(|call| call.words.as_str()).collect();
    let headline = if words.is_empty() { "no tool call".to_owned() } else { words.join("; ") };
    let seconds: f64 = turn.seconds + turn.results.iter().map(|(_, s)| s).sum::<f64>();
    StepView {
        number: turn.number,
        text: turn.message.text.clone(),
        took: figures::seconds(seconds),
        finished: turn.snapshot.is_some() || turn.message.calls.is_empty(),
        headline,
        calls,
        verdicts: turn.verdicts.iter().map(|given| verdict::short(&given.verdict)).collect(),
    }
}

fn call_view(call: &ToolCall, result: Option<&(ToolResult, f64)>) -> CallView {
    let state = match result.map(|(result, _)| result.status) {
        Some(ToolStatus::Ok) => chip("ok", "good"),
        Some(ToolStatus::Error) => chip("error", "bad"),
        Some(ToolStatus::TimedOut) => chip("timed out", "bad"),
        None => chip("no result: the run stopped here", "warn"),
    };
    CallView {
        tool: call.name.clone(),
        words: call_words(call, 90),
        parts: call_parts(call),
        result: result.map(|(result, _)| cut(&result.text, PART_ROOM).0.to_owned()),
        state,
        took: result.map(|(_, seconds)| figures::seconds(*seconds)),
    }
}

/// The arguments: code is highlighted by the file it goes into, everything else is shown as it is.
fn call_parts(call: &ToolCall) -> Vec<PartView> {
    let Some(arguments) = call.arguments.as_object() else {
        let html = Value::from(call.arguments.to_string());
        return vec![PartView { name: "arguments".to_owned(), short: None, class: "", html }];
    };
    let path = arguments.get("file_path").and_then(|path| path.as_str()).unwrap_or_default();
    let part = |(name, value): (&String, &serde_json::Value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let (class, language) = match name.as_str() {
            "old_string" => ("old", Language::of(path)),
            "new_string" => ("new", Language::of(path)),
            "content" => ("", Language::of(path)),
            _ => ("", Language::Plain),
        };
        let code = !class.is_empty() || name == "content";
        let short = (!code && !text.contains('\n') && text.len() < 120).then(|| text.clone());
        let (shown, left_out) = cut(&text, PART_ROOM);
        let shown = if left_out { format!("{shown}\n…") } else { shown.to_owned() };
        let html = Value::from_safe_string(highlight(&shown, language));
        PartView { name: name.clone(), short, class, html }
    };
    arguments.iter().map(part).collect()
}
