//! `warpwright trajectory show` and `trajectory export`: episodes as conversations, from records
//! alone.

use std::fmt::Write;
use std::path::Path;

use serde::Serialize;
use serde_json::Value;
use warpwright_record::event::EpisodeId;
use warpwright_record::history::{Episode, History};
use warpwright_record::reader::RunReader;
use warpwright_report::html::write_trajectory;
use warpwright_report::summary::Summary;
use warpwright_report::table::safe_line;
use warpwright_report::trajectory::conversation::Conversation;
use warpwright_report::trajectory::export::{
    ExportError, Exported, Form, chat_line, export, metadata,
};
use warpwright_report::trajectory::show::{Colour, Length, show};

use crate::args::trajectory::{Trajectory, TrajectoryAction, TrajectoryExport, TrajectoryShow};
use crate::contract::VERSION;
use crate::exit;
use crate::failure::{Failure, chain};
use crate::printer::Printer;

/// Output of `trajectory show --json`.
#[derive(Serialize)]
struct Shown {
    version: u32,
    run: String,
    episodes: Vec<Listed>,
    /// The episode in the form `messages`, as it was shown last; `null` for a list.
    trajectory: Option<Value>,
    /// The page, if one was written.
    page: Option<String>,
}

#[derive(Serialize)]
struct Listed {
    episode: u32,
    task: String,
    policy: String,
    attempt: u32,
    outcome: Option<&'static str>,
    result: String,
    turns: u32,
}

/// Output of `trajectory export --json`.
#[derive(Serialize)]
struct Written {
    version: u32,
    out: String,
    format: &'static str,
    counts: Exported,
}

pub(crate) fn run(args: &Trajectory, printer: Printer) -> Result<u8, Failure> {
    match &args.action {
        TrajectoryAction::Show(args) => run_show(args, printer),
        TrajectoryAction::Export(args) => run_export(args, printer),
    }
}

fn run_show(args: &TrajectoryShow, printer: Printer) -> Result<u8, Failure> {
    let reader = RunReader::open(&args.run)?;
    let history = History::read(&reader)?;
    let chosen = choose(&history, args)?;
    let mut object = Shown {
        version: VERSION,
        run: args.run.display().to_string(),
        episodes: history.episodes.iter().map(|(id, episode)| listed(*id, episode)).collect(),
        trajectory: None,
        page: None,
    };
    let Some((id, episode)) = chosen else {
        printer.data(&list(&object.episodes));
        printer.object(&object);
        return Ok(exit::OK);
    };
    let conversation = Conversation::of(&reader, episode)?;
    let parts = conversation.parts.len() as u32;
    let name = args.run.file_name().unwrap_or_default().to_string_lossy();
    let metadata = metadata(&name, id, episode, parts.saturating_sub(1), parts);
    object.trajectory = Some(chat_line(conversation.last(), &metadata, Form::Messages));
    if let Some(page) = &args.html {
        write_trajectory(&reader, id, episode, page)?;
        printer.say(&format!("page: {}", page.display()));
        object.page = Some(page.display().to_string());
    } else {
        let length = if args.full { Length::Full } else { Length::Folded };
        let colour = if printer.is_coloured_stdout() { Colour::Terminal } else { Colour::None };
        printer.drawn(&show(&reader, id, episode, length, colour)?);
    }
    printer.object(&object);
    Ok(exit::OK)
}

/// The requested episode; `None` if none was requested and the run has several episodes or none.
fn choose<'a>(
    history: &'a History,
    args: &TrajectoryShow,
) -> Result<Option<(EpisodeId, &'a Episode)>, Failure> {
    let count = history.episodes.len();
    if let Some(number) = args.episode {
        let id = EpisodeId(number);
        let Some(episode) = history.episodes.get(&id) else {
            let run = args.run.display();
            let message = format!("failed to show episode {number}: {run} has {count} episodes");
            let hint = format!("`warpwright trajectory show {run}` lists them");
            return Err(Failure::usage(message, hint));
        };
        return Ok(Some((id, episode)));
    }
    match history.episodes.iter().next() {
        Some((id, episode)) if count == 1 => Ok(Some((*id, episode))),
        _ if args.html.is_some() => {
            let message = format!("failed to write a page: the run has {count} episodes");
            Err(Failure::usage(message, "name one with `--episode N`".to_owned()))
        }
        _ => Ok(None),
    }
}

fn listed(id: EpisodeId, episode: &Episode) -> Listed {
    let summary = Summary::of(episode);
    Listed {
        episode: id.0,
        task: summary.task.clone(),
        policy: summary.policy.clone(),
        attempt: episode.setup.attempt,
        outcome: episode.end.as_ref().map(|end| end.outcome.name()),
        result: summary.result(),
        turns: summary.turns,
    }
}

fn list(episodes: &[Listed]) -> String {
    let mut text = String::new();
    for e in episodes {
        let (task, policy) = (safe_line(&e.task, 60), safe_line(&e.policy, 40));
        let _ = writeln!(
            text,
            "{:>5}  {task}, policy {policy}, attempt {}: {}, {} turns",
            e.episode, e.attempt, e.result, e.turns
        );
    }
    if text.is_empty() {
        text.push_str("The run has no episodes.\n");
    } else {
        text.push_str("Show one with `--episode N`.\n");
    }
    text
}

fn run_export(args: &TrajectoryExport, printer: Printer) -> Result<u8, Failure> {
    let dirs: Vec<&Path> = args.runs.iter().map(AsRef::as_ref).collect();
    let form = Form::from(args.format);
    let counts = export(&dirs, form, &args.out)?;
    printer.say(&format!(
        "wrote {} lines of {} episodes to {}",
        counts.lines,
        counts.episodes,
        args.out.display()
    ));
    for (count, why) in [
        (counts.infrastructure, "without a reward: an infrastructure failure ended them"),
        (counts.unfinished, "without a reward: they did not finish"),
        (counts.empty, "without a message"),
        (counts.without_tokens, "without tokens: the policy or its server returns none"),
        (counts.with_some_tokens, "with messages without tokens"),
        (counts.inconsistent_tokens, "with inconsistent token counts"),
    ] {
        if count > 0 {
            printer.label("skipped", "33", &format!("{count} episodes {why}"));
        }
    }
    printer.object(&Written {
        version: VERSION,
        out: args.out.display().to_string(),
        format: match form {
            Form::OpenAi => "openai",
            Form::Messages => "messages",
            Form::Tokens => "tokens",
        },
        counts,
    });
    Ok(exit::OK)
}

impl From<ExportError> for Failure {
    fn from(error: ExportError) -> Self {
        let message = chain(&error);
        match error {
            ExportError::Read(error) => error.into(),
            ExportError::Write { source, .. } => {
                let failure = Self::io("write the trajectories", &source);
                let hint = failure.hint.clone();
                let hint = hint.or_else(|| Some("name another file with `--out`".to_owned()));
                Self { message, hint, ..failure }
            }
        }
    }
}
