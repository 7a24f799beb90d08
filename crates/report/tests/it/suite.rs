//! A run over a small suite, as the other parts write it: two policies, two attempts, three levels,
//! and everything that can go wrong with a task.

use std::path::Path;

use serde_json::json;
use warpwright_record::event::{EpisodeId, EpisodeSetup, Event, Outcome};
use warpwright_record::history::best;
use warpwright_record::message::{Generation, Message, Usage};
use warpwright_record::run::RunInfo;
use warpwright_record::verdict::Verdict;
use warpwright_record::writer::RunWriter;

use crate::sample;

/// One attempt: its task, level, and outcome.
pub(crate) struct Attempt {
    pub(crate) policy: &'static str,
    pub(crate) task: String,
    pub(crate) level: Option<String>,
    pub(crate) number: u32,
    pub(crate) comes_to: ComesTo,
}

/// Outcome of an attempt.
#[derive(Clone, Copy)]
pub(crate) enum ComesTo {
    /// Correct: speed-up over eager during the episode, and of the final candidate measured again.
    Right { seen: f64, last: f64 },
    /// Correct during the episode at this speed-up, wrong at the end.
    Lost { seen: f64 },
    /// Wrong throughout.
    Wrong,
    /// The policy made no candidate.
    Nothing,
    /// An infrastructure failure.
    Broken,
    /// Killed after its first turn.
    Killed,
}

pub(crate) fn right(last: f64) -> ComesTo {
    ComesTo::Right { seen: last, last }
}

pub(crate) fn attempt(policy: &'static str, task: &str, comes_to: ComesTo) -> Attempt {
    let level = task.split_once('-').map(|(level, _)| level.to_owned());
    Attempt { policy, task: task.to_owned(), level, number: 0, comes_to }
}

/// The names of the sample's tasks, with the outcomes of `alpha` and `beta`.
fn attempts() -> Vec<Attempt> {
    let mut all = vec![
        attempt("alpha", "level1-1_relu", ComesTo::Right { seen: 3.6, last: 3.4 }),
        attempt("alpha", "level1-2_softmax", right(1.9)),
        attempt("alpha", "level2-1_conv_bias", ComesTo::Lost { seen: 1.6 }),
        attempt("alpha", "level2-2_gemm_scale", right(0.8)),
        attempt("alpha", "level3-1_mlp", ComesTo::Broken),
        attempt("beta", "level1-1_relu", right(3.3)),
        attempt("beta", "level1-2_softmax", ComesTo::Nothing),
        attempt("beta", "level2-1_conv_bias", ComesTo::Wrong),
        attempt("beta", "level2-2_gemm_scale", right(1.2)),
        attempt("beta", "level3-1_mlp", ComesTo::Killed),
    ];
    let mut second = attempt("alpha", "level1-2_softmax", ComesTo::Wrong);
    second.number = 1;
    all.insert(2, second);
    all
}

/// Writes the sample run. `level3-2_broken` is refused; `level3-3_later` never started.
pub(crate) fn write(dir: &Path) -> RunWriter {
    let names = [
        "level1-1_relu",
        "level1-2_softmax",
        "level2-1_conv_bias",
        "level2-2_gemm_scale",
        "level3-1_mlp",
        "level3-2_broken",
        "level3-3_later",
    ];
    let run = write_attempts(dir, &names, &attempts(), "cuda:0");
    let message = "it raised <script>alert(1)</script>".to_owned();
    let task = "level3-2_broken".to_owned();
    run.append(&Event::TaskRefused {
        task,
        message,
        hint: None,
        degenerate: Vec::new(),
        too_large: None,
    })
    .unwrap();
    run
}

/// A run with these planned tasks and attempts.
pub(crate) fn write_attempts(
    dir: &Path,
    names: &[&str],
    attempts: &[Attempt],
    device: &str,
) -> RunWriter {
    let level = |name: &str| name.as_bytes()[5].checked_sub(b'0');
    let tasks: Vec<_> =
        names.iter().map(|name| json!({"name": name, "level": level(name)})).collect();
    let config = json!({
        "tasks": tasks, "policies": [], "attempts": 1, "profile": "strict", "devices": [device],
    });
    let command = "warpwright eval --suite suite/ --policy alpha".to_owned();
    let run = RunWriter::create(dir, RunInfo { command, config }).unwrap();
    for (number, attempt) in (0..).zip(attempts) {
        for event in events(&run, EpisodeId(number), attempt, device) {
            run.append(&event).unwrap();
        }
    }
    run
}

fn events(run: &RunWriter, episode: EpisodeId, attempt: &Attempt, device: &str) -> Vec<Event> {
    let task = attempt.task.as_str();
    let candidate = sample::candidate("");
    let setup = EpisodeSetup {
        policy: attempt.policy.to_owned(),
        attempt: attempt.number,
        level: attempt.level.clone(),
        ..sample::setup(run, task, device)
    };
    let mut events = vec![Event::EpisodeStarted { episode, setup }];
    let measured = |speedup| sample::measured(task, device, &candidate, speedup);
    let wrong = || sample::failed(task, &candidate, sample::mismatch());
    let (on_the_way, last): (Option<Verdict>, Option<Verdict>) = match attempt.comes_to {
        ComesTo::Right { seen, last } => (Some(measured(seen)), Some(measured(last))),
        ComesTo::Lost { seen } => (Some(measured(seen)), Some(wrong())),
        ComesTo::Wrong => (Some(wrong()), Some(wrong())),
        ComesTo::Nothing | ComesTo::Broken | ComesTo::Killed => (None, None),
    };
    let call = ("Measure.", "Bash", json!({"command": "python3 -m utils.profiling"}));
    let mut turn = sample::turn(run, episode, 1, call, "done", on_the_way.clone(), &candidate);
    if let Some(Event::MessageSaid { message, .. }) = turn.first_mut() {
        let usage = Usage {
            input_tokens: 1000,
            cached_tokens: 400,
            output_tokens: 50,
            dollars: Some(0.25),
        };
        let model = "model-a".to_owned();
        message.generation =
            Some(Box::new(Generation { model, usage, attempts: 1, ..Generation::default() }));
    }
    events.extend(turn);
    if matches!(attempt.comes_to, ComesTo::Killed) {
        return events;
    }
    let broken = matches!(attempt.comes_to, ComesTo::Broken);
    if !broken {
        let message = Message { text: "Done.".into(), ..Message::default() };
        events.push(Event::MessageSaid { episode, turn: 2, message, seconds: 0.01 });
    }
    if let Some(verdict) = last.clone().map(Box::new) {
        let files = run.put_candidate(&candidate).unwrap().files;
        events.push(Event::VerdictGiven { episode, turn: None, verdict, files });
    }
    let message = "the oracle died".to_owned();
    events.push(Event::EpisodeFinished {
        episode,
        outcome: if broken { Outcome::Infrastructure { message } } else { Outcome::Stopped },
        best_verdict: best(on_the_way.iter()).cloned().map(Box::new),
        candidate: last.as_ref().map(|_| run.put_candidate(&candidate).unwrap()),
        final_verdict: last.map(Box::new),
        turns: if broken { 1 } else { 2 },
        seconds: 20.0,
    });
    events
}
