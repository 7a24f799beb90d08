//! Nothing that an agent is sent tells the name or a size of a held-out workload, however its episode ends.

use serde_json::{Value, json};
use warpwright_record::inputs::InputFamily;
use warpwright_record::verdict::{
    Check, Failure, FailureClass, IntegrityFinding, Mismatch, Verdict, WorkloadVerdict,
};

use crate::server::{settings, verdict};
use crate::sessions::Hosted;
use crate::sockets::{Listening, ask, step};

/// A task whose judge fails at the end.
pub(crate) const FAILS: &str = "hides-fails";
/// Why, as the judge says it.
pub(crate) const TOLD: &str =
    "failed to judge workload secret: failed to allocate 4 x 7919 floats for task hides:secret";

/// A task with a workload that the agent does not see.
const REFERENCE: &str = r#"
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x

def get_inputs(n=8):
    return [torch.rand(4, n)]

def get_workloads():
    return [
        {"name": "seen", "arguments": {"n": 8}},
        {"name": "secret", "arguments": {"n": 7919}, "held_out": True},
    ]
"#;

/// How episodes end, by the name of their task.
const ENDS: [&str; 7] = [
    "hides-right",
    "hides-wrong",
    "hides-crash",
    "hides-hang",
    "hides-refused",
    "hides-finding",
    FAILS,
];

/// What the judge says of the final candidate of such a task.
pub(crate) fn change(task: &str, verdict: &mut Verdict) {
    let class = match task {
        "hides-right" | "hides-refused" | "hides-finding" | FAILS => None,
        "hides-wrong" => Some(FailureClass::Mismatch),
        "hides-crash" => Some(FailureClass::IllegalAddress),
        "hides-hang" => Some(FailureClass::Hang),
        _ => return,
    };
    let refused = task == "hides-refused";
    let entry = |name: &str, verified: bool, refused: Option<&str>| WorkloadVerdict {
        verified,
        refused: refused.map(str::to_owned),
        ..WorkloadVerdict::refused(name.to_owned(), name != "seen", String::new())
    };
    let why = refused.then_some("its input has 4 x 7919 elements");
    verdict.workloads =
        vec![entry("seen", true, None), entry("secret", class.is_none() && !refused, why)];
    verdict.caveats = vec![
        "workload seen: odd".to_owned(),
        "workload secret: refused, and not judged: its input has 4 x 7919 elements".to_owned(),
    ];
    let first = verdict.checks[0].clone();
    let check = |name: &str| Check { name: name.to_owned(), ..first.clone() };
    verdict.checks = vec![check("workload seen: fresh inputs"), check("workload secret: own 7919")];
    verdict.unavoidable_bytes = 7919;
    verdict.floor_ms = Some(0.7919);
    if task == "hides-finding" {
        verdict.workloads[1].verified = false;
        verdict.verified = false;
        verdict.integrity = vec![IntegrityFinding {
            class: "late_write".to_owned(),
            message: "workload secret: 7919 late".to_owned(),
        }];
    }
    if let Some(class) = class {
        verdict.verified = false;
        verdict.failure = Some(Failure {
            class,
            message: "workload secret: output [4, 7919] is far off".to_owned(),
            diagnostics: vec![],
            mismatch: Some(Mismatch {
                output: 0,
                check: "workload secret: own inputs".to_owned(),
                family: InputFamily::Own,
                elements: 3,
                of: 4 * 7919,
                max_abs_error: 1.0,
                atol: 0.0,
                rtol: 0.0,
                examples: vec![],
            }),
            cuda_error: None,
            output_tail: "n = 7919".to_owned(),
        });
    }
}

fn tells(text: &str) -> bool {
    ["secret", "7919", "31676"].iter().any(|hidden| text.contains(hidden))
}

#[test]
fn scenes_do_tell_of_the_held_out_workload() {
    assert!(tells(REFERENCE) && tells(TOLD));
    for name in ENDS {
        let mut told = *verdict();
        change(name, &mut told);
        assert!(tells(&serde_json::to_string(&told).unwrap()), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn websocket_never_tells_of_a_held_out_workload() {
    let listening = Listening::new(settings());
    for name in ENDS {
        let said = listening.speak(move |mut socket| {
            let data = json!({ "task": name, "reference": REFERENCE, "seed": 7 });
            let reset = json!({ "type": "reset", "data": data });
            let mut said = vec![ask(&mut socket, &reset), ask(&mut socket, &step("Bash"))];
            said.push(ask(&mut socket, &json!({ "type": "state" })));
            // Twice: asked again it says the same.
            said.push(ask(&mut socket, &step("submit")));
            said.push(ask(&mut socket, &step("submit")));
            said.push(ask(&mut socket, &step("Bash")));
            said
        });
        let said = said.await;
        for answer in &said {
            assert!(!tells(&answer.to_string()), "{name}: {answer}");
        }
        let last = &said[3];
        if name == FAILS {
            assert_eq!(last["data"]["code"], "INFRA_ERROR", "{last}");
            assert!(last.to_string().contains("held-out"), "{last}");
            continue;
        }
        let mut judged = *verdict();
        change(name, &mut judged);
        assert_eq!(last["data"]["reward"], json!(judged.reward.bounded), "{last}");
        assert!(last.to_string().contains("workload seen: odd"), "positive control: {last}");
        let shown = &last["data"]["observation"]["verdict"]["workloads"];
        assert_eq!(shown.as_array().map(Vec::len), Some(1), "{last}");
    }
}

#[tokio::test]
async fn gym_never_tells_of_a_held_out_workload() {
    let hosted = Hosted::usual();
    for name in ENDS {
        let body: Value = json!({
            "task": name, "reference": REFERENCE, "seed": 7,
            "responses_create_params": { "input": [] },
        });
        let cookie = hosted.seed(&body).await;
        let mut said = vec![hosted.with(&cookie, "/Bash", &json!({})).await];
        for _ in 0..2 {
            said.push(hosted.with(&cookie, "/verify", &json!({})).await);
        }
        said.push(hosted.with(&cookie, "/Bash", &json!({})).await);
        for (status, text) in &said {
            assert!(!tells(text), "{name}: {status}: {text}");
        }
        let ours = said[1].0.is_server_error();
        assert_eq!(ours, name == FAILS, "{name}: {}", said[1].1);
    }
}
