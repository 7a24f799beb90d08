//! `synth` with a model behind an endpoint as its composer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::program::{Program, Ran};
use crate::server::Server;

/// An answer with a task whose `forward` returns this expression of `x`, `y` and `self.scale`.
fn task(forward: &str) -> String {
    format!(
        "Here it is.\n\n```python\n\"\"\"Scaled gate of two signals.\"\"\"\n\n\
         import torch\n\
         from torch import nn\n\n\
         ROWS = 1024\n\
         FEATURES = 512\n\n\n\
         class Model(nn.Module):\n\
         \x20   def __init__(self, features: int) -> None:\n\
         \x20       super().__init__()\n\
         \x20       self.scale = nn.Parameter(torch.randn(features))\n\n\
         \x20   def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:\n\
         \x20       return {forward}\n\n\n\
         def get_inputs() -> list[torch.Tensor]:\n\
         \x20   return [torch.randn(ROWS, FEATURES), torch.randn(ROWS, FEATURES)]\n\n\n\
         def get_init_inputs() -> list[int]:\n\
         \x20   return [FEATURES]\n```\n"
    )
}

fn synth(program: &Program, server: &Server, more: &[&str]) -> Ran {
    let base = server.base();
    let arguments = [
        "synth",
        "--composer",
        "openai:x",
        "--base-url",
        &base,
        "--out",
        "made/tasks.parquet",
        "--device",
        "cpu",
        "--jobs",
        "1",
        "--json",
    ];
    program.run(&[&arguments, more].concat())
}

/// The log of all proposals.
fn tried(program: &Program) -> Vec<Value> {
    let text = fs_err::read_to_string(program.path("made/tasks.tried.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn reasons(tried: &[Value]) -> Vec<&str> {
    tried.iter().map(|t| t["outcome"]["reason"].as_str().unwrap_or("admitted")).collect()
}

#[test]
fn composer_model_gets_the_reason_of_each_refusal() {
    let server = Server::saying(vec![
        "I would rather talk about the weather.".to_owned(),
        task("torch.tanh(x @ y) * self.scale"),
        task("torch.tanh(x) * self.scale + 0 * y"),
        task("(torch.tanh(x + y) * self.scale).double()"),
        task("torch.tanh(x + y) * self.scale"),
    ]);
    let program = Program::new();
    let ran = synth(
        &program,
        &server,
        &["--count", "1", "--repairs", "4", "--price-in", "1", "--price-out", "10"],
    );
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    let made = ran.object();
    assert_eq!(
        (&made["admitted"], &made["tried"], &made["added"]),
        (&json!(1), &json!(1), &json!(1)),
        "{:#?}",
        tried(&program)
    );
    assert_eq!(made["composer"], "openai:x");
    let refused = json!({ "no_code": 1, "does_not_run": 1, "input_ignored": 1, "other_type": 1 });
    assert_eq!(made["refused"], refused);
    let model = &made["model"];
    assert_eq!(
        (&model["answers"], &model["input_tokens"], &model["output_tokens"]),
        (&json!(5), &json!(5000), &json!(50))
    );
    assert!((model["dollars"].as_f64().unwrap() - 0.0055).abs() < 1e-9, "{model}");
    assert!(ran.stderr.contains("openai:x: 5 answers, 5000 input tokens"), "{}", ran.stderr);

    let asked = server.asked();
    assert_eq!(asked.len(), 5);
    let texts = |request: usize| -> Vec<&str> {
        let messages = asked[request]["messages"].as_array().unwrap();
        messages.iter().map(|message| message["content"].as_str().unwrap()).collect()
    };
    let said = texts(4);
    assert!(said[0].contains("between 0.1 and 50 milliseconds"), "{}", said[0]);
    assert!(said[1].contains("Write a task from "), "{}", said[1]);
    for request in 0..4 {
        assert_eq!(texts(request), said[..2 + 2 * request], "one conversation");
    }
    let told = |number: usize, words: &[&str]| {
        let text = said[1 + 2 * number];
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        assert!(!text.contains("site-packages"), "{text}");
    };
    told(1, &["no code block"]);
    told(2, &["does not run", "1024x512", "return torch.tanh(x @ y) * self.scale"]);
    told(3, &["input ignored: input 1 is ignored: changing it changes only 0.0 %"]);
    told(4, &["other type: an output is float64, not float32"]);
    assert!(said[6].contains("0 * y"), "its own answer: {}", said[6]);

    let log = tried(&program);
    assert_eq!(
        reasons(&log),
        ["no_code", "does_not_run", "input_ignored", "other_type", "admitted"]
    );
    assert_eq!(log[4]["name"], "scaled_gate_of_two_signals");
    assert_eq!(log[4]["operators"], json!(["torch.add", "torch.nn.functional.tanh", "torch.mul"]));
    let card = fs_err::read_to_string(program.path("made/tasks.md")).unwrap();
    assert!(card.contains("tanh"), "{card}");
    // The set is full: nothing is asked.
    let again = synth(&program, &server, &["--count", "1"]);
    assert_eq!(
        (again.code, again.object()["added"].as_u64()),
        (Some(0), Some(0)),
        "{}",
        again.show()
    );
    assert_eq!(server.asked().len(), 5);
}

#[test]
fn twenty_answers_without_a_task_end_the_run() {
    let server = Server::saying(vec!["I would rather talk about the weather.".to_owned()]);
    let program = Program::new();
    let ran = synth(&program, &server, &["--count", "5"]);
    assert_eq!(ran.code, Some(4), "{}", ran.show());
    let error = &ran.object()["error"];
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("openai:x: 20 answers in a row contained no valid task"), "{message}");
    assert!(error["hint"].as_str().unwrap().contains("--composer grammar"), "{error}");
    assert_eq!(server.asked().len(), 20);
    let log = tried(&program);
    assert_eq!(reasons(&log), ["no_code"; 20]);
    // Three answers of each of six seeds, two of the seventh.
    assert_eq!(
        (&log[2]["seed"], &log[3]["seed"], &log[19]["seed"]),
        (&json!(0), &json!(1), &json!(6))
    );
    assert!(!program.path("made/tasks.parquet").exists());
    assert!(ran.stderr.contains("20 answers, 20000 input tokens"), "{}", ran.stderr);
}

#[test]
fn endpoint_error_ends_the_run_with_a_hint() {
    let server = Server::answering(|_| (404, json!({ "error": { "message": "no model x" } })));
    let program = Program::new();
    let ran = synth(&program, &server, &["--count", "5"]);
    assert_eq!(ran.code, Some(4), "{}", ran.show());
    let error = &ran.object()["error"];
    assert!(error["message"].as_str().unwrap().contains("no model x"), "{error}");
    assert!(
        error["hint"].as_str().unwrap().contains("name a model that this server has"),
        "{error}"
    );
    assert_eq!((server.asked().len(), tried(&program).len()), (1, 0));
}

#[test]
fn interrupt_cancels_pending_model_requests() {
    let (over, waiting) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (end, told) = (Arc::clone(&over), Arc::clone(&waiting));
    let server = Server::answering(move |_| {
        told.fetch_add(1, Ordering::SeqCst);
        while !end.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(10));
        }
        (200, json!({}))
    });
    let program = Program::new();
    let base = server.base();
    let arguments = ["synth", "--composer", "openai:x", "--base-url", &base, "--count", "1"];
    let more = ["--out", "made/tasks.parquet", "--device", "cpu", "--jobs", "2"];
    let mut child = program.command(&[&arguments[..], &more].concat()).spawn().unwrap();
    // Both ask at once.
    while waiting.load(Ordering::SeqCst) < 2 {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it asked");
        std::thread::sleep(Duration::from_millis(20));
    }
    let process = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
    // The server answers neither request before the program has ended.
    let ended = child.wait().unwrap();
    over.store(true, Ordering::SeqCst);
    assert_eq!(ended.code(), Some(130));
    assert_eq!(waiting.load(Ordering::SeqCst), 2, "no request was sent again");
    assert!(tried(&program).is_empty());
}

#[test]
fn unavailable_composer_is_a_usage_error() {
    let program = Program::bare();
    for (composer, more, words) in [
        ("teacher", vec![], "composers are `grammar`"),
        ("openai:", vec![], "composers are `grammar`"),
        ("openai:x", vec![], "OPENAI_API_KEY"),
        ("openai:x", vec!["--base-url", "nowhere"], "--base-url http"),
    ] {
        let arguments = ["synth", "--count", "1", "--out", "tasks.parquet", "--device", "cpu"];
        let ran = program.run(&[&arguments, &["--composer", composer][..], &more].concat());
        assert_eq!(ran.code, Some(2), "{}", ran.show());
        assert!(ran.stderr.contains(words), "{}", ran.show());
    }
}
