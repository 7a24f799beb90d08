//! Shows the results of a run of `optimize`: the page, the table, the JSON object, the exit code.
//! All are computed from the record alone, so that a resumed run shows the same as an uninterrupted
//! one.

use std::path::Path;

use serde_json::{Value, json};
use warpwright_record::event::{EpisodeSetup, Outcome};
use warpwright_record::history::{Episode, History};
use warpwright_record::reader::RunReader;
use warpwright_record::verdict::{Reward, Verdict};
use warpwright_report::html::write_html;
use warpwright_report::summary::Summary;
use warpwright_report::table::table;
use warpwright_rollout::settings::Settings;

use crate::commands::report::width;
use crate::contract::{self, BestSeen, Optimized, OptimizedMany, Tried, VERSION};
use crate::exit;
use crate::failure::{Failure, chain};
use crate::printer::Printer;

/// Shows the run in `dir`.
pub(crate) fn present(dir: &Path, settings: &Settings, printer: Printer) -> Result<u8, Failure> {
    let history = History::read(&RunReader::open(dir)?)?;
    let report = page(dir, printer);
    let run = dir.display().to_string();
    let mut code = exit::OK;
    let mut objects: Vec<Value> = Vec::new();
    let mut verified = true;
    for task in settings.tasks() {
        let mut episodes: Vec<&Episode> =
            history.episodes.values().filter(|e| e.setup.task == task.name).collect();
        // The best by its fresh measurement first.
        episodes.sort_by(|a, b| worth(b).total_cmp(&worth(a)));
        let (object, this) = match (episodes.first(), history.refused.get(&task.name)) {
            (_, Some(refusal)) => {
                let failure = Failure::usage(refusal.message.clone(), refusal.hint.clone());
                if settings.tasks.len() == 1 {
                    return Err(failure);
                }
                printer.say(&format!("error: {}: {}", task.name, failure.message));
                let object = json!({ "version": VERSION, "task": task.name, "error": failure });
                (object, failure.code)
            }
            (Some(best), None) => {
                let object = optimized(best, &episodes, dir, settings, report.clone());
                verified &= object.verified;
                let codes = object.attempts.iter().map(|a| code_of(&a.outcome, object.verified));
                let code = codes.fold(code_of(&object.outcome, object.verified), worse);
                (json!(object), code)
            }
            (None, None) => {
                let object =
                    json!({ "version": VERSION, "task": task.name, "outcome": "interrupted" });
                (object, exit::INTERRUPTED)
            }
        };
        verified &= this == exit::OK;
        code = worse(code, this);
        objects.push(object);
    }
    printer.data(&format!("{}\n", table(&Summary::all(&history), width())));
    if let Some(report) = &report {
        printer.say(&format!("report: {report}"));
    }
    if matches!(code, exit::INTERRUPTED | exit::INFRASTRUCTURE) {
        printer.say(&format!("hint: resume it with `warpwright optimize --resume {run}`"));
    }
    if settings.tasks.len() == 1 {
        printer.object(&objects.pop());
    } else {
        printer.object(&OptimizedMany { version: VERSION, verified, tasks: objects, run, report });
    }
    Ok(code)
}

/// Writes the page of a run and returns its path.
pub(crate) fn page(dir: &Path, printer: Printer) -> Option<String> {
    let page = dir.join("report.html");
    match write_html(&[dir], &[], &page) {
        Ok(()) => Some(page.display().to_string()),
        Err(error) => {
            // The verdicts are safe in the record; the page can be made again.
            printer.say(&format!("warning: {}", chain(&error)));
            None
        }
    }
}

/// Ranks attempts by the reward of the fresh verdict. An unfinished episode ranks below a failed
/// one.
fn worth(episode: &Episode) -> f64 {
    let end = episode.end.as_ref().and_then(|end| end.final_verdict.as_ref());
    end.map_or(-2.0, |verdict| verdict.reward.speedup)
}

fn optimized(
    episode: &Episode,
    all: &[&Episode],
    dir: &Path,
    settings: &Settings,
    report: Option<String>,
) -> Optimized {
    let setup = &episode.setup;
    let end = episode.end.as_ref();
    let verdict = end.and_then(|end| end.final_verdict.as_ref());
    let best = end.and_then(|end| end.best_verdict.as_ref());
    let outcome = outcome_of(episode);
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
        dtype: setup.dtype,
        fit: setup.fit.clone(),
        backward: setup.backward,
        outcome: outcome.name().to_owned(),
        outcome_message,
        verified: verdict.is_some_and(|v| v.verified),
        reason: Summary::of(episode).reason,
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
        workspace: place(episode, dir, settings),
        attempts: all
            .iter()
            .map(|episode| Tried {
                policy: episode.setup.policy.clone(),
                attempt: episode.setup.attempt,
                outcome: outcome_of(episode).name().to_owned(),
                reward: final_verdict(episode).map_or_else(Reward::unverified, |v| v.reward),
                workspace: place(episode, dir, settings),
            })
            .collect(),
        run: dir.display().to_string(),
        report,
    }
}

fn outcome_of(episode: &Episode) -> &Outcome {
    episode.end.as_ref().map_or(&Outcome::Interrupted, |end| &end.outcome)
}

fn final_verdict(episode: &Episode) -> Option<&Verdict> {
    episode.end.as_ref()?.final_verdict.as_ref()
}

fn place(episode: &Episode, dir: &Path, settings: &Settings) -> String {
    let EpisodeSetup { task, policy, attempt, .. } = &episode.setup;
    settings.workspace(dir, task, policy, *attempt).display().to_string()
}

fn code_of(outcome: &str, verified: bool) -> u8 {
    match outcome {
        "interrupted" => exit::INTERRUPTED,
        "infrastructure" => exit::INFRASTRUCTURE,
        _ if verified => exit::OK,
        _ => exit::NOT_VERIFIED,
    }
}

/// The more severe exit code, in the order interrupted, infrastructure, usage, not verified,
/// success.
fn worse(a: u8, b: u8) -> u8 {
    let order = [exit::INTERRUPTED, exit::INFRASTRUCTURE, exit::USAGE, exit::NOT_VERIFIED];
    order.into_iter().find(|code| *code == a || *code == b).unwrap_or(exit::OK)
}
