//! Wire forms: schemas without drift, and a snapshot of every type that is written.

use std::path::Path;

use insta::assert_json_snapshot;
use serde_json::json;
use warpwright_record::blob::BlobHash;
use warpwright_record::event::{
    Budget, EpisodeId, EpisodeSetup, Event, EventLine, NoteLevel, Outcome, RunOutcome,
    StoredCandidate, StoredFile,
};
use warpwright_record::message::{Message, ToolCall, ToolResult, ToolStatus};
use warpwright_record::run::{Machine, RunHeader};
use warpwright_record::schema::schemas;
use warpwright_record::verdict::Profile;

#[test]
fn schema_files_match_the_types() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas");
    for (name, schema) in schemas() {
        let path = folder.join(format!("{name}.schema.json"));
        let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        if std::env::var_os("UPDATE_SCHEMAS").is_some() {
            fs_err::create_dir_all(&folder).unwrap();
            fs_err::write(&path, &text).unwrap();
        }
        let stored = fs_err::read_to_string(&path).unwrap();
        assert!(stored == text, "schemas/{name}.schema.json is stale: set UPDATE_SCHEMAS=1 once");
    }
}

#[test]
fn run_header_as_json() {
    let header = RunHeader {
        format: 1,
        program: "0.1.0".into(),
        created: "2026-11-20T09:00:00Z".parse().unwrap(),
        command: "warpwright optimize model.py".into(),
        config: json!({"device": "cpu"}),
        machine: Machine {
            system: "Debian GNU/Linux 12 (bookworm)".into(),
            kernel: "6.1.0".into(),
            arch: "x86_64".into(),
            cpu: "Xeon".into(),
            cores: 2,
            memory_bytes: 8 << 30,
        },
    };
    assert_json_snapshot!(header, @r#"
    {
      "format": 1,
      "program": "0.1.0",
      "created": "2026-11-20T09:00:00Z",
      "command": "warpwright optimize model.py",
      "config": {
        "device": "cpu"
      },
      "machine": {
        "system": "Debian GNU/Linux 12 (bookworm)",
        "kernel": "6.1.0",
        "arch": "x86_64",
        "cpu": "Xeon",
        "cores": 2,
        "memory_bytes": 8589934592
      }
    }
    "#);
}

#[test]
fn event_line_as_json() {
    let line = EventLine {
        version: 1,
        seq: 0,
        time: "2026-11-20T09:00:00.123456789Z".parse().unwrap(),
        event: Event::RunStarted { program: "0.1.0".into(), command: "warpwright".into() },
    };
    assert_json_snapshot!(line, @r#"
    {
      "version": 1,
      "seq": 0,
      "time": "2026-11-20T09:00:00.123456789Z",
      "event": {
        "type": "run_started",
        "program": "0.1.0",
        "command": "warpwright"
      }
    }
    "#);
}

#[test]
fn run_events_as_json() {
    let program = || "0.1.0".to_owned();
    let message = || "no space left".to_owned();
    let events = [
        Event::RunResumed { program: program(), forced: true, torn_bytes: 12 },
        Event::Progress { episode: None, text: "compiling the baselines".into() },
        Event::Note {
            episode: Some(EpisodeId(3)),
            level: NoteLevel::Warning,
            text: "clocks were not locked".into(),
        },
        Event::Note { episode: None, level: NoteLevel::Info, text: "warm".into() },
        Event::RunFinished { outcome: RunOutcome::Completed },
        Event::RunFinished { outcome: RunOutcome::Interrupted },
        Event::RunFinished { outcome: RunOutcome::Failed { message: message() } },
    ];
    assert_json_snapshot!(events, @r#"
    [
      {
        "type": "run_resumed",
        "program": "0.1.0",
        "forced": true,
        "torn_bytes": 12
      },
      {
        "type": "progress",
        "episode": null,
        "text": "compiling the baselines"
      },
      {
        "type": "note",
        "episode": 3,
        "level": "warning",
        "text": "clocks were not locked"
      },
      {
        "type": "note",
        "episode": null,
        "level": "info",
        "text": "warm"
      },
      {
        "type": "run_finished",
        "outcome": {
          "kind": "completed"
        }
      },
      {
        "type": "run_finished",
        "outcome": {
          "kind": "interrupted"
        }
      },
      {
        "type": "run_finished",
        "outcome": {
          "kind": "failed",
          "message": "no space left"
        }
      }
    ]
    "#);
}

#[test]
fn episode_events_as_json() {
    let episode = EpisodeId(3);
    let blob = BlobHash::of(b"");
    let files = || vec![StoredFile { path: "model_new.py".into(), blob }];
    let setup = EpisodeSetup {
        task: "rmsnorm".into(),
        source: blob,
        shown: None,
        skill: None,
        policy: "teacher".into(),
        device: "cpu".into(),
        profile: Profile::AsRun,
        dtype: None,
        fit: None,
        backward: false,
        seed: u64::MAX,
        attempt: 0,
        level: None,
        budget: Budget { turns: Some(8), ..Budget::default() },
    };
    let call = ToolCall { id: "call_1".into(), name: "Bash".into(), arguments: json!({"a": 1}) };
    let message = Message { text: "Try.".into(), calls: vec![call], ..Message::default() };
    let result = ToolResult {
        call: "call_1".into(),
        status: ToolStatus::TimedOut,
        text: "killed".into(),
        verdicts: Vec::new(),
        findings: Vec::new(),
    };
    let finished = |outcome, candidate| Event::EpisodeFinished {
        episode,
        outcome,
        final_verdict: None,
        best_verdict: None,
        candidate,
        turns: 1,
        seconds: 2.5,
    };
    let candidate = StoredCandidate { hash: "c0ffee".into(), files: files() };
    let events = [
        Event::EpisodeStarted { episode, setup },
        Event::EpisodeResumed { episode, turn: 2 },
        Event::MessageSaid { episode, turn: 1, message, seconds: 0.5 },
        Event::ToolFinished { episode, turn: 1, result, seconds: 1.5 },
        Event::TurnFinished { episode, turn: 1, files: files(), elapsed_seconds: 2.25 },
        finished(Outcome::Stopped, Some(candidate)),
        finished(Outcome::Infrastructure { message: "the judge died".into() }, None),
    ];
    assert_json_snapshot!(events, @r#"
    [
      {
        "type": "episode_started",
        "episode": 3,
        "setup": {
          "task": "rmsnorm",
          "source": "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262",
          "skill": null,
          "policy": "teacher",
          "device": "cpu",
          "profile": "as-run",
          "seed": 18446744073709551615,
          "attempt": 0,
          "budget": {
            "turns": 8,
            "seconds": null,
            "tokens": null,
            "device_seconds": null
          }
        }
      },
      {
        "type": "episode_resumed",
        "episode": 3,
        "turn": 2
      },
      {
        "type": "message_said",
        "episode": 3,
        "turn": 1,
        "message": {
          "text": "Try.",
          "calls": [
            {
              "id": "call_1",
              "name": "Bash",
              "arguments": {
                "a": 1
              }
            }
          ]
        },
        "seconds": 0.5
      },
      {
        "type": "tool_finished",
        "episode": 3,
        "turn": 1,
        "result": {
          "call": "call_1",
          "status": "timed_out",
          "text": "killed",
          "verdicts": []
        },
        "seconds": 1.5
      },
      {
        "type": "turn_finished",
        "episode": 3,
        "turn": 1,
        "files": [
          {
            "path": "model_new.py",
            "blob": "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
          }
        ],
        "elapsed_seconds": 2.25
      },
      {
        "type": "episode_finished",
        "episode": 3,
        "outcome": {
          "kind": "stopped"
        },
        "final_verdict": null,
        "best_verdict": null,
        "candidate": {
          "hash": "c0ffee",
          "files": [
            {
              "path": "model_new.py",
              "blob": "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
            }
          ]
        },
        "turns": 1,
        "seconds": 2.5
      },
      {
        "type": "episode_finished",
        "episode": 3,
        "outcome": {
          "kind": "infrastructure",
          "message": "the judge died"
        },
        "final_verdict": null,
        "best_verdict": null,
        "candidate": null,
        "turns": 1,
        "seconds": 2.5
      }
    ]
    "#);
    let outcomes = [Outcome::BudgetTurns, Outcome::BudgetTime, Outcome::Interrupted];
    assert_json_snapshot!(outcomes, @r#"
    [
      {
        "kind": "budget_turns"
      },
      {
        "kind": "budget_time"
      },
      {
        "kind": "interrupted"
      }
    ]
    "#);
}
