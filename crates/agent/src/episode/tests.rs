//! Dialogues between a scripted policy and the loop, in the real jail, with a scripted judge.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use warpwright_record::event::{Budget, RunOutcome};
use warpwright_record::history::{Episode as Recorded, History};
use warpwright_record::message::{StopReason, ToolCall, ToolStatus};
use warpwright_record::reader::RunReader;
use warpwright_record::run::RunInfo;
use warpwright_record::verdict::Profile;
use warpwright_record::writer::ResumePolicy;

use super::limits::MOST_REPEATS;
use super::*;
use crate::replay::Replay;
use crate::scripted::{self, ScriptedJudge, ScriptedPolicy};
use crate::tools::arguments::{Bash, Edit, Read, Write};
use crate::workspace;

const PROFILE_IT: &str = "python3 -m utils.profiling";

/// Three turns of work and a last word.
fn script() -> Vec<Vec<ToolCall>> {
    vec![
        vec![Read::call("1", "model.py"), Write::call("2", "model_new.py", "one\n")],
        vec![Bash::call("3", PROFILE_IT), Write::call("4", "kernels/a.cu", "__global__\n")],
        vec![Edit::call("5", "model_new.py", "one", "two"), Bash::call("6", PROFILE_IT)],
    ]
}

struct Scene {
    folder: tempfile::TempDir,
    shell: Shell,
    judge: ScriptedJudge,
    stop: AtomicBool,
    budget: Budget,
    events: RefCell<Vec<Event>>,
}

impl Scene {
    fn new(judge: ScriptedJudge) -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            shell: scripted::shell(),
            judge,
            stop: AtomicBool::new(false),
            budget: Budget::default(),
            events: RefCell::default(),
        }
    }

    fn run_dir(&self) -> std::path::PathBuf {
        self.folder.path().join("run")
    }

    fn begin(&self) -> RunWriter {
        RunWriter::create(&self.run_dir(), RunInfo::default()).unwrap()
    }

    fn run(
        &self,
        record: &RunWriter,
        policy: &mut dyn Policy,
        start: Start,
        observer: &dyn Fn(&Event),
    ) -> Result<Ended, EpisodeError> {
        let path = self.folder.path().join("w");
        let workspace = if path.exists() {
            Workspace::open(&path).unwrap()
        } else {
            workspace::for_tests(&path)
        };
        let reference = record.put_blob(b"class Model: ...").unwrap();
        let parts = Parts {
            id: EpisodeId(0),
            setup: EpisodeSetup {
                task: "scripted".to_owned(),
                source: reference,
                shown: None,
                skill: None,
                policy: policy.name(),
                device: "cpu".to_owned(),
                profile: Profile::Strict,
                dtype: None,
                fit: None,
                backward: false,
                seed: 0,
                attempt: 0,
                level: None,
                budget: self.budget,
            },
            briefing: Briefing {
                task: "scripted".to_owned(),
                reference: "class Model: ...".to_owned(),
                skill: "skill".to_owned(),
                device: scripted::device(),
                profile: Profile::Strict,
                seed: 0,
                turns: self.budget.turns,
            },
            workspace: &workspace,
            shell: &self.shell,
            judge: &self.judge,
            record,
            observer: &|event| {
                self.events.borrow_mut().push(event.clone());
                observer(event);
            },
            stop: &self.stop,
        };
        super::run(&parts, policy, start)
    }

    fn recorded(&self) -> Recorded {
        let history = History::read(&RunReader::open(&self.run_dir()).unwrap()).unwrap();
        history.episodes.into_values().next().unwrap()
    }

    fn workspace_files(&self) -> BTreeMap<String, Vec<u8>> {
        Workspace::open(&self.folder.path().join("w")).unwrap().snapshot().unwrap().files
    }
}

/// From the record, as `--resume` does it.
fn resumption(dir: &Path) -> Start {
    let reader = RunReader::open(dir).unwrap();
    let history = History::read(&reader).unwrap();
    super::resume_from(&reader, &history.episodes[&EpisodeId(0)]).unwrap().unwrap()
}

#[test]
fn final_candidate_is_measured_again_at_the_end() {
    // Verdicts in order: first profiling, second profiling, final measurement.
    let scene = Scene::new(ScriptedJudge::new(&[1.5, 2.0, 1.8]));
    let record = scene.begin();
    let mut policy = ScriptedPolicy::new(script());
    let seen = policy.seen.clone();
    let ended = scene.run(&record, &mut policy, Start::Fresh, &|_| {}).unwrap();
    assert_eq!(ended.outcome, Outcome::Stopped);
    assert_eq!(ended.turns, 4, "three turns of work and the last word");
    let value = |v: &Option<Verdict>| v.as_ref().unwrap().speedup.best.unwrap().value;
    assert_eq!(value(&ended.final_verdict).to_string(), "1.8");
    assert_eq!(value(&ended.best_verdict).to_string(), "2");
    let seen = seen.lock().unwrap();
    let told: Vec<_> = seen.iter().map(|r| (r.call.as_str(), r.status, r.verdicts.len())).collect();
    let ok = ToolStatus::Ok;
    assert_eq!(
        told,
        [("1", ok, 0), ("2", ok, 0), ("3", ok, 1), ("4", ok, 0), ("5", ok, 0), ("6", ok, 1)]
    );
    let kinds: Vec<_> =
        scene.events.borrow().iter().map(Event::kind).filter(|k| *k != "progress").collect();
    let expected = "episode_started \
        message_said tool_finished tool_finished turn_finished \
        message_said verdict_given tool_finished tool_finished turn_finished \
        message_said tool_finished verdict_given tool_finished turn_finished \
        message_said turn_finished verdict_given episode_finished";
    assert_eq!(kinds.join(" "), expected.split_whitespace().collect::<Vec<_>>().join(" "));
    let recorded = scene.recorded();
    assert_eq!(recorded.end.unwrap().final_verdict, ended.final_verdict);
    assert_eq!(recorded.turns.len(), 4);
}

#[test]
fn episode_cut_at_key_events_resumes_to_the_same_result() {
    cut_and_resume(|kind| matches!(kind, "turn_finished" | "verdict_given" | "episode_started"));
}

#[test]
fn long_episode_cut_at_any_event_resumes_to_the_same_result() {
    cut_and_resume(|_| true);
}

/// Every event is a place where a process can die; `after` chooses by the kind of the last event
/// that was recorded.
fn cut_and_resume(after: impl Fn(&str) -> bool) {
    let whole = Scene::new(ScriptedJudge::new(&[1.5, 2.0, 1.8]));
    let record = whole.begin();
    let ended =
        whole.run(&record, &mut ScriptedPolicy::new(script()), Start::Fresh, &|_| {}).unwrap();
    let files = whole.workspace_files();
    let messages: Vec<_> = whole.recorded().turns.into_iter().map(|t| t.message).collect();
    let kinds: Vec<_> = whole.events.borrow().iter().map(Event::kind).collect();
    let cuts = (1..kinds.len()).filter(|i| after(kinds[i - 1]));
    for cut in cuts {
        let scene = Scene::new(ScriptedJudge::new(&[1.5, 2.0, 1.8, 1.8, 1.8, 1.8]));
        let record = scene.begin();
        let count = std::cell::Cell::new(0);
        // A panic in the observer is as abrupt an end as this process can survive.
        let died = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            scene.run(&record, &mut ScriptedPolicy::new(script()), Start::Fresh, &|_| {
                count.set(count.get() + 1);
                assert!(count.get() < cut, "cut");
            })
        }));
        assert!(died.is_err(), "the cut at event {cut} did not happen");
        drop(record);
        // What an unfinished turn left in the workspace must not stay.
        fs_err::write(scene.folder.path().join("w/model_new.py"), "half done").unwrap();
        fs_err::write(scene.folder.path().join("w/kernels/stray.cu"), "stray").unwrap();
        let start = resumption(&scene.run_dir());
        let record = RunWriter::resume(&scene.run_dir(), ResumePolicy::SameProgram).unwrap();
        let again = scene.run(&record, &mut ScriptedPolicy::new(script()), start, &|_| {}).unwrap();
        assert_eq!(again.outcome, Outcome::Stopped, "cut at event {cut}");
        assert_eq!(again.turns, ended.turns, "cut at event {cut}");
        assert_eq!(scene.workspace_files(), files, "cut at event {cut}");
        let said: Vec<_> = scene.recorded().turns.into_iter().map(|t| t.message).collect();
        assert_eq!(said, messages, "cut at event {cut}");
        assert!(again.final_verdict.is_some() && again.best_verdict.is_some());
    }
}

#[test]
fn policy_that_answers_differently_is_not_resumed() {
    let scene = Scene::new(ScriptedJudge::new(&[1.5]));
    let record = scene.begin();
    scene.stop.store(false, Ordering::SeqCst);
    let stop_after_first = |event: &Event| {
        if matches!(event, Event::TurnFinished { .. }) {
            scene.stop.store(true, Ordering::SeqCst);
        }
    };
    let policy = &mut ScriptedPolicy::new(script());
    let ended = scene.run(&record, policy, Start::Fresh, &stop_after_first).unwrap();
    assert_eq!(ended.outcome, Outcome::Interrupted);
    assert!(ended.final_verdict.is_none());
    drop(record);
    scene.stop.store(false, Ordering::SeqCst);
    let record = RunWriter::resume(&scene.run_dir(), ResumePolicy::SameProgram).unwrap();
    let mut other = script();
    other[0].pop();
    let start = resumption(&scene.run_dir());
    let error = scene.run(&record, &mut ScriptedPolicy::new(other), start, &|_| {}).unwrap_err();
    insta::assert_snapshot!(error, @"failed to resume the episode: the answer of policy scripted at turn 1 differs from the record");
}

#[test]
fn exhausted_budget_still_measures_the_candidate() {
    let mut scene = Scene::new(ScriptedJudge::new(&[1.5, 1.5]));
    scene.budget = Budget { turns: Some(2), ..Budget::default() };
    let record = scene.begin();
    let ended =
        scene.run(&record, &mut ScriptedPolicy::new(script()), Start::Fresh, &|_| {}).unwrap();
    assert_eq!((ended.outcome, ended.turns), (Outcome::BudgetTurns, 2));
    assert!(ended.final_verdict.unwrap().verified);

    let mut scene = Scene::new(ScriptedJudge::new(&[1.5]));
    scene.budget = Budget { seconds: Some(5.0), ..Budget::default() };
    let record = scene.begin();
    let slow = vec![
        vec![Write::call("1", "model_new.py", "new"), Bash::call("2", "sleep 600")],
        vec![Bash::call("3", "echo never")],
    ];
    let ended = scene.run(&record, &mut ScriptedPolicy::new(slow), Start::Fresh, &|_| {}).unwrap();
    assert_eq!((ended.outcome, ended.turns), (Outcome::BudgetTime, 1));
    // The budget stopped the command, not the command's own timeout of five minutes.
    let recorded = scene.recorded();
    let (stopped, _) = &recorded.turns[0].results[1];
    let (_, limit) = stopped.text.split_once("[stopped after ").unwrap();
    let (limit, _) = limit.split_once(" s;").unwrap();
    assert!(limit.parse::<f64>().unwrap() <= 5.0, "{}", stopped.text);
    assert!(ended.final_verdict.is_some());
}

#[test]
fn failing_judge_ends_the_episode_without_a_reward() {
    let scene = Scene::new(ScriptedJudge::failing());
    let record = scene.begin();
    let ended =
        scene.run(&record, &mut ScriptedPolicy::new(script()), Start::Fresh, &|_| {}).unwrap();
    insta::assert_debug_snapshot!(ended.outcome, @r#"
    Infrastructure {
        message: "failed to judge: the script says so",
    }
    "#);
    assert!(ended.final_verdict.is_none() && ended.best_verdict.is_none());
    assert!(scene.recorded().resume_point().is_some(), "it can be resumed when the judge is back");
}

#[test]
fn episode_without_a_candidate_gets_no_verdict() {
    let scene = Scene::new(ScriptedJudge::new(&[1.0]));
    let record = scene.begin();
    let script = vec![vec![Bash::call("1", "ln -s /etc/passwd model_new.py")]];
    let ended =
        scene.run(&record, &mut ScriptedPolicy::new(script), Start::Fresh, &|_| {}).unwrap();
    assert_eq!(ended.outcome, Outcome::Stopped);
    assert!(ended.candidate.is_none() && ended.final_verdict.is_none());
    let noted =
        scene.events.borrow().iter().any(
            |event| matches!(event, Event::Note { text, .. } if text.contains("model_new.py")),
        );
    assert!(noted, "the record says why");
}

#[test]
fn invalid_calls_are_answered_and_the_dialogue_continues() {
    let scene = Scene::new(ScriptedJudge::new(&[]));
    let record = scene.begin();
    let call = |name: &str, arguments| ToolCall { id: "x".into(), name: name.into(), arguments };
    let script = vec![vec![
        call("Browse", serde_json::json!({})),
        call("Bash", serde_json::json!({ "cmd": "ls" })),
        call("Read", serde_json::json!([1])),
        Bash::call("last", "echo fine"),
    ]];
    let mut policy = ScriptedPolicy::new(script);
    let seen = policy.seen.clone();
    scene.run(&record, &mut policy, Start::Fresh, &|_| {}).unwrap();
    let texts: Vec<_> = seen.lock().unwrap().iter().map(|r| r.text.clone()).collect();
    insta::assert_snapshot!(texts.join("\n"), @r"
    failed to run the tool Browse: no tool has this name; the tools are Bash, BashOutput, KillBash, Read, Write, Edit, MultiEdit, Glob, Grep, TodoWrite
    failed to read the arguments of Bash: cmd: unknown field `cmd`, expected one of `command`, `timeout`, `timeout_ms`, `description`, `run_in_background`, `restart`; Bash takes {command: string, timeout?: integer, description?: string, run_in_background?: boolean, restart?: boolean}
    failed to read the arguments of Read: they are not an object; Read takes {file_path: string, offset?: integer, limit?: integer}
    fine
    ");
}

#[test]
fn a_recorded_trajectory_replays_to_the_same_workspace() {
    let first = Scene::new(ScriptedJudge::new(&[1.5, 2.0, 1.8]));
    let record = first.begin();
    first.run(&record, &mut ScriptedPolicy::new(script()), Start::Fresh, &|_| {}).unwrap();
    record.append(&Event::RunFinished { outcome: RunOutcome::Completed }).unwrap();
    record.close().unwrap();
    let second = Scene::new(ScriptedJudge::new(&[1.5, 2.0, 1.8]));
    let mut replay = Replay::from_run(&first.run_dir(), "scripted").unwrap();
    let ended = second.run(&second.begin(), &mut replay, Start::Fresh, &|_| {}).unwrap();
    assert_eq!(ended.turns, 4);
    assert_eq!(second.workspace_files(), first.workspace_files());
}

/// A model that says the messages of a list, then its last one for ever.
struct Recited(Vec<Message>, usize);

impl Policy for Recited {
    fn name(&self) -> String {
        "recited".to_owned()
    }

    fn begin(&mut self, _: &Briefing) -> Result<Message, crate::policy::PolicyError> {
        self.next(&[])
    }

    fn next(&mut self, _: &[ToolResult]) -> Result<Message, crate::policy::PolicyError> {
        let said = self.0[self.1.min(self.0.len() - 1)].clone();
        self.1 += 1;
        Ok(said)
    }
}

fn outcome(budget: Budget, messages: Vec<Message>) -> (Outcome, u32) {
    let mut scene = Scene::new(ScriptedJudge::new(&[1.0; 100]));
    scene.budget = budget;
    let record = scene.begin();
    let ended = scene.run(&record, &mut Recited(messages, 0), Start::Fresh, &|_| {}).unwrap();
    let end = scene.recorded().end.unwrap();
    assert_eq!(end.outcome, ended.outcome);
    (ended.outcome, ended.turns)
}

fn reading(tokens: u64) -> Message {
    let usage = warpwright_record::message::Usage {
        input_tokens: tokens,
        ..warpwright_record::message::Usage::default()
    };
    let generation = warpwright_record::message::Generation { usage, ..Default::default() };
    Message {
        calls: vec![Read::call("r", "model.py")],
        generation: Some(Box::new(generation)),
        ..Message::default()
    }
}

#[test]
fn repeated_turns_end_the_episode() {
    let (same, turns) = outcome(Budget::default(), vec![reading(0)]);
    assert_eq!((same, turns), (Outcome::Looping, MOST_REPEATS as u32));
    // Two turns in alternation are a circle too; different ones in between are not.
    let other = Message { calls: vec![Read::call("s", "SKILL.md")], ..Message::default() };
    let mut alternating: Vec<_> = (0..30).flat_map(|_| [reading(0), other.clone()]).collect();
    let (round, turns) = outcome(Budget::default(), alternating.clone());
    assert_eq!((round, turns), (Outcome::Looping, 2 * MOST_REPEATS as u32));
    for i in (4..60).step_by(5) {
        alternating[i].calls = vec![Bash::call("b", format!("echo {}", "x".repeat(i)))];
    }
    alternating.push(Message::default());
    assert_eq!(outcome(Budget::default(), alternating).0, Outcome::Stopped);
}

#[test]
fn token_and_device_time_budgets_end_the_episode() {
    let tokens = Budget { tokens: Some(250), ..Budget::default() };
    assert_eq!(outcome(tokens, vec![reading(100)]), (Outcome::BudgetTokens, 3));
    let device = Budget { device_seconds: Some(0.0), ..Budget::default() };
    assert_eq!(outcome(device, vec![reading(1)]), (Outcome::BudgetDevice, 0));
    // Inspections count: two seconds each, says the script.
    let write = Write::call("w", "model_new.py", "new");
    let inspect = Bash::call("i", "python3 -m utils.profiling --kernels");
    let inspecting = Message { calls: vec![write, inspect], ..Message::default() };
    let device = Budget { device_seconds: Some(3.0), ..Budget::default() };
    assert_eq!(outcome(device, vec![inspecting]), (Outcome::BudgetDevice, 2));
}

#[test]
fn truncated_message_continues_and_refusal_ends() {
    let cut = Message { text: "I was".into(), stop: StopReason::Length, ..Message::default() };
    let done = Message { text: "done".into(), ..Message::default() };
    assert_eq!(outcome(Budget::default(), vec![cut, done]), (Outcome::Stopped, 2));
    let refused = Message { stop: StopReason::Refused, ..Message::default() };
    assert_eq!(outcome(Budget::default(), vec![refused]), (Outcome::Refused, 1));
}
