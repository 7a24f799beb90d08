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
use warpwright_record::verdict::{IntegrityFinding, Profile};

use crate::sample;

#[test]
fn the_schema_files_are_those_of_the_types() {
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
fn run_json() {
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
fn event_line() {
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
fn events_of_the_run() {
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
fn events_of_an_episode() {
    let episode = EpisodeId(3);
    let blob = BlobHash::of(b"");
    let files = || vec![StoredFile { path: "model_new.py".into(), blob }];
    let setup = EpisodeSetup {
        task: "rmsnorm".into(),
        source: blob,
        skill: None,
        policy: "teacher".into(),
        device: "cpu".into(),
        profile: Profile::AsRun,
        seed: u64::MAX,
        budget: Budget { turns: Some(8), seconds: None },
    };
    let call = ToolCall { id: "call_1".into(), name: "Bash".into(), arguments: json!({"a": 1}) };
    let message = Message { text: "Try.".into(), calls: vec![call] };
    let result = ToolResult {
        call: "call_1".into(),
        status: ToolStatus::TimedOut,
        text: "killed".into(),
        verdicts: Vec::new(),
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
          "budget": {
            "turns": 8,
            "seconds": null
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

#[test]
fn a_verdict_that_is_good() {
    let candidate = sample::candidate("");
    let mut verdict = sample::measured("bias_gelu", "cuda:0", &candidate, 2.0);
    verdict.checks.truncate(1);
    let event = Event::VerdictGiven {
        episode: EpisodeId(0),
        turn: None,
        verdict: Box::new(verdict),
        files: Vec::new(),
    };
    assert_json_snapshot!(event, @r#"
    {
      "type": "verdict_given",
      "episode": 0,
      "turn": null,
      "verdict": {
        "version": 1,
        "task": "bias_gelu",
        "candidate": "9ae6051ba0eeb20dd185bde435c719753b7115ffb89bf2c55781ff349978ef9f",
        "device": "cuda:0",
        "profile": "strict",
        "stage": "measured",
        "verified": true,
        "failure": null,
        "integrity": [],
        "checks": [
          {
            "name": "fresh inputs 1",
            "passed": true,
            "max_abs_error": 0.00000024,
            "reference_max_abs_error": 0.00000021,
            "atol": 0.0000019,
            "rtol": 0.0000013,
            "truth": "float64"
          }
        ],
        "times_ms": {
          "candidate": {
            "value": 0.1155,
            "low": 0.114345,
            "high": 0.11665500000000001
          },
          "eager": {
            "value": 0.231,
            "low": 0.22915200000000002,
            "high": 0.232848
          },
          "compile": {
            "value": 0.1642,
            "low": 0.1627222,
            "high": 0.1656778
          },
          "reduce_overhead": {
            "value": 0.1625,
            "low": 0.16055,
            "high": 0.16445
          },
          "max_autotune": null,
          "prepare": 0.4
        },
        "speedup": {
          "eager": {
            "value": 2.0,
            "low": 1.976,
            "high": 2.024
          },
          "compile": {
            "value": 1.4216450216450216,
            "low": 1.4003203463203462,
            "high": 1.4429696969696968
          },
          "reduce_overhead": {
            "value": 1.406926406926407,
            "low": 1.3787878787878787,
            "high": 1.4350649350649352
          },
          "max_autotune": null,
          "best": {
            "value": 1.406926406926407,
            "low": 1.3787878787878787,
            "high": 1.4350649350649352
          },
          "best_baseline": "reduce_overhead"
        },
        "reward": {
          "paper": 3.0,
          "speedup": 1.3787878787878787,
          "bounded": 1.4634005208402427
        },
        "floor_ms": 0.0489,
        "unavoidable_bytes": 201343000,
        "kernels": [
          {
            "name": "bias_gelu_kernel(float4 const*, float const*, float4 const*, float4*)",
            "arch": "sm_90",
            "registers": 32,
            "spill_store_bytes": 0,
            "spill_load_bytes": 0,
            "shared_bytes": 0,
            "stack_bytes": 0
          }
        ],
        "diagnostics": [],
        "isolation": {
          "level": "full",
          "enforced": [
            "mount namespace",
            "network namespace",
            "seccomp"
          ],
          "missing": []
        },
        "caveats": [],
        "seconds": {
          "build": 0.92,
          "load": 1.4,
          "verify": 2.2,
          "measure": 6.1
        },
        "fingerprint": {
          "device": "cuda:0",
          "hardware": "NVIDIA H200",
          "cores": 16,
          "driver": "580.82.07",
          "compiler": "nvcc 13.0.88",
          "torch": "2.11.0+cu130",
          "python": "3.12.3",
          "clocks": "SM 1980 MHz, memory 3201 MHz",
          "warpwright": "0.1.0",
          "bandwidth_bytes_per_second": 4120000000000
        }
      },
      "files": []
    }
    "#);
}

#[test]
fn a_verdict_that_is_bad() {
    let candidate = sample::candidate("");
    let mut failure = sample::mismatch();
    failure.diagnostics = sample::build_failure().diagnostics;
    let mut verdict = sample::failed("bias_gelu", &candidate, failure);
    let message = "the output changed after it was returned".to_owned();
    verdict.integrity.push(IntegrityFinding { class: "late_write".into(), message });
    assert_json_snapshot!(verdict, {
        ".fingerprint" => "[as above]",
        ".isolation" => "[as above]",
        ".seconds" => "[as above]",
        ".times_ms" => "[as above]",
        ".speedup" => "[as above]",
    }, @r#"
    {
      "version": 1,
      "task": "bias_gelu",
      "candidate": "9ae6051ba0eeb20dd185bde435c719753b7115ffb89bf2c55781ff349978ef9f",
      "device": "cuda:0",
      "profile": "strict",
      "stage": "verified",
      "verified": false,
      "failure": {
        "class": "mismatch",
        "message": "output 0 differs from the oracle on `fresh inputs 2`",
        "diagnostics": [
          {
            "file": "kernels/bias_gelu.cu",
            "line": 13,
            "column": 16,
            "severity": "error",
            "message": "identifier \"residuall\" is undefined",
            "excerpt": "  12 |     if (i >= n4) return;\n  13 |     float4 v = x[i], r = residuall[i];\n     |                          ^"
          }
        ],
        "mismatch": {
          "output": 0,
          "check": "fresh inputs 2",
          "elements": 4096,
          "of": 16777216,
          "max_abs_error": null,
          "atol": 0.0000019,
          "rtol": 0.0000013,
          "examples": [
            {
              "index": [
                0,
                4095
              ],
              "expected": 1.5,
              "got": null,
              "text": "expected 1.5, got nan"
            }
          ]
        },
        "cuda_error": null,
        "output_tail": "<script>alert('from the candidate')</script>\n\u001b[31mred\u001b[0m"
      },
      "integrity": [
        {
          "class": "late_write",
          "message": "the output changed after it was returned"
        }
      ],
      "checks": [],
      "times_ms": "[as above]",
      "speedup": "[as above]",
      "reward": {
        "paper": -1.0,
        "speedup": -1.0,
        "bounded": -1.0
      },
      "floor_ms": 0.0489,
      "unavoidable_bytes": 201343000,
      "kernels": [],
      "diagnostics": [],
      "isolation": "[as above]",
      "caveats": [],
      "seconds": "[as above]",
      "fingerprint": "[as above]"
    }
    "#);
}
