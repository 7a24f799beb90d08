//! `serve`, and who asks it, with the real judge on the cpu device.

use std::io::{BufRead, BufReader};
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::program::{KERNEL, MODEL_NEW, Program, TASK};

/// A server that ends with the test, at the latest.
struct Served {
    child: std::process::Child,
    url: String,
}

impl Served {
    fn start(program: &Program, more: &[&str]) -> Self {
        let arguments = ["serve", "--device", "cpu", "--listen", "127.0.0.1:0", "--json"];
        let mut command = program.command(&[&arguments, more].concat());
        let child = command
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn();
        let mut child = child.unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let told: Value = serde_json::from_str(&line).unwrap();
        let url = told["url"].as_str().unwrap().to_owned();
        Self { child, url }
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn candidate(program: &Program, folder: &str, kernel: &str) {
    program.write(&format!("{folder}/model_new.py"), MODEL_NEW);
    program.write(&format!("{folder}/kernels/scaled_relu.cu"), kernel);
}

/// What a verdict says, without what is another each time.
fn essence(judged: &Value) -> Value {
    json!({
        "task": judged["task"],
        "verified": judged["verified"],
        "class": judged["failure"]["class"],
        "candidate": judged["verdict"]["candidate"],
        "stage": judged["verdict"]["stage"],
        "profile": judged["profile"],
        "isolation": judged["isolation"]["level"],
        "checks": judged["verdict"]["checks"].as_array().map(Vec::len),
    })
}

#[test]
fn a_served_verdict_is_the_local_one() {
    let program = Program::new();
    program.write("model.py", TASK);
    candidate(&program, "good", KERNEL);
    candidate(&program, "wrong", &KERNEL.replace("0.5f", "0.25f"));
    candidate(&program, "broken", &KERNEL.replace("0.5f", "half"));
    let mut served = Served::start(&program, &["--suite", "model.py"]);
    let url = served.url.clone();
    for (folder, code) in [("good", 0), ("wrong", 3), ("broken", 3)] {
        let common = ["judge", "model.py", "--candidate", folder, "--stage", "verified", "--json"];
        let here = program.run(&[&common[..], &["--device", "cpu"]].concat());
        let there = program.run(&[&common[..], &["--server", &url]].concat());
        assert_eq!((here.code, there.code), (Some(code), Some(code)), "{}", there.show());
        assert_eq!(essence(&here.object()), essence(&there.object()), "{folder}");
        // The same files have the same verdict, and it says so.
        let again = program.run(&[&common[..], &["--server", &url]].concat()).object();
        assert_eq!(essence(&there.object()), essence(&again));
        if folder != "broken" {
            let caveats = again["caveats"].to_string();
            assert!(caveats.contains("nothing was run again"), "{caveats}");
        }
    }
    // What is no task is the caller's mistake, wherever it is found.
    program.write("none.py", "x = 1\n");
    let refused = program.run(&["judge", "none.py", "--candidate", "good", "--server", &url]);
    assert_eq!(refused.code, Some(2), "{}", refused.show());
    // It can be recorded, as what is judged here.
    let recorded = program.run(&[
        "judge",
        "model.py",
        "--candidate",
        "good",
        "--stage",
        "verified",
        "--server",
        &url,
        "--out",
        "run",
    ]);
    assert_eq!(recorded.code, Some(0), "{}", recorded.show());
    assert_eq!(program.run(&["report", "run"]).code, Some(0));
    served.signal(Signal::SIGTERM);
    assert_eq!(served.child.wait().unwrap().code(), Some(0));
}

#[test]
fn tokens_are_needed_where_there_are_some() {
    let program = Program::new();
    program.write("model.py", TASK);
    candidate(&program, "good", KERNEL);
    let token = "0123456789abcdef0123456789abcdef";
    program.write("tokens", &format!("trainer {token}\n"));
    let served = Served::start(&program, &["--tokens", "tokens"]);
    let ask =
        ["judge", "model.py", "--candidate", "good", "--stage", "built", "--server", &served.url];
    let refused = program.run(&ask);
    assert_eq!(refused.code, Some(2), "{}", refused.show());
    assert!(refused.stderr.contains("A token is needed"), "{}", refused.stderr);
    let good = program.run(&[&ask[..], &["--token", token]].concat());
    assert_eq!(good.code, Some(0), "{}", good.show());
}

/// `clients/python`, with its own tests against a server here.
#[test]
fn the_python_client_has_the_verdicts() {
    let program = Program::new();
    program.write("model.py", TASK);
    candidate(&program, "good", KERNEL);
    let served = Served::start(&program, &["--suite", "model.py"]);
    let client = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/python");
    let ran = program.python_tests(&client, &[("WARPWRIGHT_SERVER_URL", &served.url)]);
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    assert!(
        ran.stderr.contains("Ran 9 tests") && !ran.stderr.contains("skipped"),
        "{}",
        ran.show()
    );
}

#[test]
fn what_cannot_be_served_or_asked_is_said_at_once() {
    let program = Program::new();
    program.write("model.py", TASK);
    candidate(&program, "good", KERNEL);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    program.write("short", "trainer abc\n");
    let ask = |more: &[&str]| {
        program.run(&[&["judge", "model.py", "--candidate", "good"], more].concat())
    };
    let cases = [
        (
            program.run(&["serve", "--listen", "0.0.0.0:0"]),
            "failed to listen on 0.0.0.0:0 without tokens",
        ),
        (program.run(&["serve", "--listen", &address]), "failed to listen on"),
        (program.run(&["serve", "--tokens", "short"]), "line 1: the token is shorter"),
        (program.run(&["serve", "--suite", "nowhere"]), "nowhere"),
        (ask(&["--server", "ftp://x"]), "neither http:// nor https://"),
        (ask(&["--server", "http://example.com", "--token", "t"]), "unencrypted"),
        (ask(&["--server", "http://x", "--device", "cpu"]), "cannot be used with"),
    ];
    for (ran, why) in cases {
        assert_eq!(ran.code, Some(2), "{}", ran.show());
        assert!(ran.stderr.contains(why), "{why}: {}", ran.stderr);
    }
    drop(taken);
    let nobody = ask(&["--server", &format!("http://{address}"), "--deadline", "1"]);
    assert_eq!(nobody.code, Some(4), "{}", nobody.show());
    assert!(nobody.stderr.contains("`warpwright serve` runs such a server"), "{}", nobody.stderr);
    assert!(!Path::new("run").exists());
}
