//! Shows what a run of `optimize` came to: the page, the table, the object, the exit code. Made from
//! the record alone, so that a run and its resumption end alike.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use warpwright_record::event::Outcome;
use warpwright_record::history::{Episode, History};
use warpwright_record::reader::RunReader;
use warpwright_record::verdict::Reward;
use warpwright_report::html::write_html;
use warpwright_report::summary::Summary;
use warpwright_report::table::table;

use crate::commands::report::width;
use crate::contract::{self, BestSeen, Optimized, OptimizedMany, VERSION};
use crate::exit;
use crate::failure::{Failure, chain};
use crate::printer::Printer;
use crate::settings::Settings;

/// Where a task's workspace lies.
pub(crate) fn workspace(run: &Path, settings: &Settings, task: &str) -> PathBuf {
    match settings.tasks.len() {
        1 => run.join("workspace"),
        _ => run.join("workspaces").join(task),
    }
}

/// Shows the run in `dir`. `refused` are tasks that could not be judged against, and why.
pub(crate) fn present(
    dir: &Path,
    settings: &Settings,
    refused: &[(String, Failure)],
    printer: Printer,
) -> Result<u8, Failure> {
    let history = History::read(&RunReader::open(dir)?)?;
    let page = dir.join("report.html");
    let report = match write_html(&[dir], &page) {
        Ok(()) => Some(page.display().to_string()),
        Err(error) => {
            // The verdicts are safe in the record; the page can be made again.
            printer.say(&format!("warning: {}", chain(&error)));
            None
        }
    };
    let run = dir.display().to_string();
    let mut code = exit::OK;
    let mut objects: Vec<Value> = Vec::new();
    let mut verified = true;
    for task in settings.tasks() {
        let episode = history.episodes.values().find(|e| e.setup.task == task.name);
        let failure = refused.iter().find(|(name, _)| *name == task.name).map(|(_, f)| f);
        let (object, this) = match (episode, failure) {
            (_, Some(failure)) => {
                verified = false;
                (json!({ "version": VERSION, "task": task.name, "error": failure }), failure.code)
            }
            (Some(episode), None) => {
                let object = optimized(episode, dir, settings, &run, report.clone());
                verified &= object.verified;
                let code = code_of(&object);
                (json!(object), code)
            }
            (None, None) => {
                verified = false;
                let object =
                    json!({ "version": VERSION, "task": task.name, "outcome": "interrupted" });
                (object, exit::INTERRUPTED)
            }
        };
        code = worse(code, this);
        objects.push(object);
    }
    printer.data(&format!("{}\n", table(&Summary::all(&history), width())));
    for (task, failure) in refused {
        printer.say(&format!("error: {task}: {}", failure.message));
    }
    if let Some(report) = &report {
        printer.say(&format!("report: {report}"));
    }
    if matches!(code, exit::INTERRUPTED | exit::INFRASTRUCTURE) {
        printer.say(&format!("hint: go on with `warpwright optimize --resume {run}`"));
    }
    if settings.tasks.len() == 1 {
        printer.object(&objects.pop());
    } else {
        printer.object(&OptimizedMany { version: VERSION, verified, tasks: objects, run, report });
    }
    Ok(code)
}

fn optimized(
    episode: &Episode,
    dir: &Path,
    settings: &Settings,
    run: &str,
    report: Option<String>,
) -> Optimized {
    let setup = &episode.setup;
    let end = episode.end.as_ref();
    let verdict = end.and_then(|end| end.final_verdict.as_ref());
    let best = end.and_then(|end| end.best_verdict.as_ref());
    let outcome = end.map_or(&Outcome::Interrupted, |end| &end.outcome);
    let outcome_message = match outcome {
        Outcome::Infrastructure { message } => Some(message.clone()),
        _ => None,
    };
    let (speedup, times) =
        verdict.map(|v| (v.speedup.clone(), v.times_ms.clone())).unwrap_or_default();
    Optimized {
        version: VERSION,
        task: setup.task.clone(),
        device: setup.device.clone(),
        policy: setup.policy.clone(),
        profile: setup.profile,
        outcome: outcome.name().to_owned(),
        outcome_message,
        verified: verdict.is_some_and(|v| v.verified),
        failure: verdict.and_then(|v| v.failure.clone()),
        integrity: verdict.map(|v| v.integrity.clone()).unwrap_or_default(),
        reward: verdict.map_or_else(Reward::unverified, |v| v.reward),
        speedup: contract::speedup(&speedup, &setup.device),
        times_ms: contract::times(&times, &setup.device),
        floor_ms: verdict.and_then(|v| v.floor_ms),
        best_seen: best.map(|v| BestSeen {
            candidate: v.candidate.clone(),
            speedup: contract::speedup(&v.speedup, &v.device),
        }),
        turns: end.map_or(episode.turns.len() as u32, |end| end.turns),
        seconds: end.map_or(0.0, |end| end.seconds),
        workspace: workspace(dir, settings, &setup.task).display().to_string(),
        run: run.to_owned(),
        report,
    }
}

fn code_of(object: &Optimized) -> u8 {
    match object.outcome.as_str() {
        "interrupted" => exit::INTERRUPTED,
        "infrastructure" => exit::INFRASTRUCTURE,
        _ if object.verified => exit::OK,
        _ => exit::NOT_VERIFIED,
    }
}

/// The exit code that says more: interrupted, infrastructure, usage, not verified, good.
fn worse(a: u8, b: u8) -> u8 {
    let order = [exit::INTERRUPTED, exit::INFRASTRUCTURE, exit::USAGE, exit::NOT_VERIFIED];
    order.into_iter().find(|code| *code == a || *code == b).unwrap_or(exit::OK)
}
