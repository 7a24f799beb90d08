//! One episode for a terminal.

use std::fmt::Write;

use warpwright_record::dialogue;
use warpwright_record::error::ReadError;
use warpwright_record::event::EpisodeId;
use warpwright_record::history::{Episode, Turn};
use warpwright_record::message::{StopReason, ToolCall, ToolResult, ToolStatus};
use warpwright_record::reader::RunReader;

use crate::evaluation::rules;
use crate::figures;
use crate::live::verdict_words;
use crate::summary::Summary;
use crate::text::{clean, one_line};

/// Lines shown of the beginning and of the end of a text that is folded.
const FOLD: (usize, usize) = (10, 4);
/// Most characters of a line of a text that is folded.
const WIDTH: usize = 160;

/// How much is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// The middle of long texts is elided, with a note.
    Folded,
    /// Everything.
    Full,
}

/// Whether the text may contain colour escape sequences. Those of a record are always escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// Yes: the text goes to a terminal.
    Terminal,
    /// No.
    None,
}

/// An episode as text: the prompt, the turns with calls, results and verdicts, and the outcome.
pub fn show(
    reader: &RunReader,
    id: EpisodeId,
    episode: &Episode,
    length: Length,
    colour: Colour,
) -> Result<String, ReadError> {
    let mut page = Page { out: String::new(), length, colour };
    let setup = &episode.setup;
    page.line(
        "1",
        &format!(
            "episode {id}: {}, policy {} on {}, profile {}, seed {}",
            one_line(&setup.task, 80),
            one_line(&setup.policy, 60),
            one_line(&setup.device, 20),
            rules(setup.profile, setup.dtype, setup.fit.as_ref(), setup.backward),
            setup.seed
        ),
    );
    if let Some(skill) = setup.skill {
        page.part("system", "2", &String::from_utf8_lossy(&reader.blob(skill)?));
    }
    let reference = reader.blob(setup.reference())?;
    let first = dialogue::first_user_message(&setup.task, &String::from_utf8_lossy(&reference));
    page.part("user", "2", &first);
    for turn in &episode.turns {
        page.turn(turn);
    }
    page.end(episode);
    Ok(page.out)
}

struct Page {
    out: String,
    length: Length,
    colour: Colour,
}

impl Page {
    /// A line in the style `code` of ECMA-48, where that is wanted. `text` must be clean.
    fn line(&mut self, code: &str, text: &str) {
        let text = text.trim_end();
        let _ = match self.colour {
            Colour::Terminal if !code.is_empty() && !text.is_empty() => {
                writeln!(self.out, "\x1b[{code}m{text}\x1b[0m")
            }
            _ => writeln!(self.out, "{text}"),
        };
    }

    /// A text with a heading, indented.
    fn part(&mut self, heading: &str, code: &str, text: &str) {
        self.line("1", heading);
        self.body(code, text);
    }

    fn body(&mut self, code: &str, text: &str) {
        let text = clean(text);
        let lines: Vec<&str> = text.trim_end().lines().collect();
        let (head, tail) = FOLD;
        let folded = self.length == Length::Folded && lines.len() > head + tail + 1;
        for (i, line) in lines.iter().enumerate() {
            if folded && i == head {
                let left_out = lines.len() - head - tail;
                self.line("2", &format!("    ... {left_out} lines left out ..."));
            }
            if folded && i >= head && i < lines.len() - tail {
                continue;
            }
            let line = match self.length {
                Length::Folded if line.chars().count() > WIDTH => {
                    format!("{}…", line.chars().take(WIDTH).collect::<String>())
                }
                _ => (*line).to_owned(),
            };
            self.line(code, &format!("    {line}"));
        }
    }

    fn turn(&mut self, turn: &Turn) {
        let message = &turn.message;
        self.out.push('\n');
        self.line("1;36", &format!("turn {}, {}", turn.number, figures::seconds(turn.seconds)));
        if let Some(generation) = &message.generation
            && !generation.elided.is_empty()
        {
            let count = generation.elided.len();
            self.line(
                "33",
                &format!("  {count} older results elided from the context from this turn on"),
            );
        }
        if !message.reasoning.trim().is_empty() {
            self.line("2", "  reasoning");
            self.body("2;3", &message.reasoning);
        }
        if !message.text.trim().is_empty() {
            self.body("", &message.text);
        }
        match message.stop {
            StopReason::Done => {}
            StopReason::Length => self.line("33", "  truncated: token limit reached"),
            StopReason::Refused => self.line("33", "  the model declined to answer"),
        }
        for call in &message.calls {
            self.call(call);
            match turn.results.iter().find(|(result, _)| result.call == call.id) {
                Some((result, seconds)) => self.result(result, *seconds),
                None => self.line("33", "  <- no result"),
            }
        }
        for given in &turn.verdicts {
            let code = if given.verdict.verified { "32" } else { "31" };
            self.line(code, &format!("  verdict: {}", verdict_words(&given.verdict)));
            for finding in &given.verdict.integrity {
                let words = one_line(&finding.message, WIDTH);
                self.line("31", &format!("  integrity, {}: {words}", one_line(&finding.class, 40)));
            }
        }
        if let Some(generation) = &message.generation {
            let usage = &generation.usage;
            let mut words = format!(
                "  {}: {} prompt tokens ({} cached), {} completion tokens",
                one_line(&generation.model, 60),
                figures::count(usage.input_tokens),
                figures::count(usage.cached_tokens),
                figures::count(usage.output_tokens),
            );
            if let Some(dollars) = usage.dollars {
                let _ = write!(words, ", {dollars:.4} US dollars");
            }
            if generation.attempts > 1 {
                let _ = write!(words, ", {} requests", generation.attempts);
            }
            self.line("2", &words);
        }
    }

    fn call(&mut self, call: &ToolCall) {
        let name = one_line(&call.name, 40);
        let Some(arguments) = call.arguments.as_object() else {
            self.line("35", &format!("  -> {name}, arguments are not a JSON object:"));
            let text =
                call.arguments.as_str().map_or_else(|| call.arguments.to_string(), str::to_owned);
            self.body("", &text);
            return;
        };
        let mut short = String::new();
        let mut long = Vec::new();
        for (key, value) in arguments {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            if text.contains('\n') || text.chars().count() > 100 {
                long.push((key, text));
            } else {
                let _ = write!(short, " {}={}", one_line(key, 40), one_line(&text, 100));
            }
        }
        self.line("35", &format!("  -> {name}{short}"));
        for (key, text) in long {
            self.line("2", &format!("    {}:", one_line(key, 40)));
            self.body("", &text);
        }
    }

    fn result(&mut self, result: &ToolResult, seconds: f64) {
        let (code, words) = match result.status {
            ToolStatus::Ok => ("32", "ok"),
            ToolStatus::Error => ("31", "error"),
            ToolStatus::TimedOut => ("31", "timed out"),
        };
        self.line(code, &format!("  <- {words}, {}", figures::seconds(seconds)));
        self.body("", &result.text);
    }

    fn end(&mut self, episode: &Episode) {
        self.out.push('\n');
        let summary = Summary::of(episode);
        let Some(end) = &episode.end else {
            self.line("33", &format!("unfinished: {}", summary.result()));
            return;
        };
        let took = figures::seconds(end.seconds);
        let words = format!("ended: {}, {} turns, {took}", end.outcome.words(), end.turns);
        self.line("1", &words);
        if let warpwright_record::event::Outcome::Infrastructure { message } = &end.outcome {
            self.body("33", message);
        }
        match &end.final_verdict {
            Some(verdict) => {
                let code = if verdict.verified { "32" } else { "31" };
                self.line(code, &format!("  final verdict: {}", verdict_words(verdict)));
                self.line(
                    "2",
                    &format!(
                        "  reward: paper {}, speedup {}, bounded {}",
                        figures::reward(verdict.reward.paper),
                        figures::reward(verdict.reward.speedup),
                        figures::reward(verdict.reward.bounded),
                    ),
                );
            }
            None => self.line("33", "  no final verdict"),
        }
        if let Some(best) = &end.best_verdict {
            self.line("2", &format!("  best verdict: {}", verdict_words(best)));
        }
    }
}
