//! `serve --nats` and `worker` with a NATS server and the judge on the cpu device.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::nats::Nats;
use crate::program::{KERNEL, Program, TASK};
use crate::serving::{Served, candidate, candidates, local_verdicts};

const PATIENCE: Duration = Duration::from_mins(2);

/// A worker process, which is killed at the end of the test at the latest.
struct Worker {
    child: Child,
    name: String,
}

impl Worker {
    fn start(program: &Program, nats: &Nats) -> Self {
        let url = nats.url();
        let arguments = ["worker", "--connect", &url, "--lease", "2", "--device", "cpu", "--json"];
        let mut command = program.command(&arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let told: Value = serde_json::from_str(&line).unwrap();
        Self { child, name: told["worker"].as_str().unwrap().to_owned() }
    }

    fn end(mut self) -> Option<i32> {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a server without a device of its own.
fn serve(program: &Program, nats: &Nats) -> Served {
    let more = ["--nats", &nats.url(), "--no-device", "--lease", "2", "--suite", "model.py"];
    Served::on(program, &more)
}

fn health(served: &Served) -> Value {
    let host = served.url.trim_start_matches("http://");
    let mut stream = std::net::TcpStream::connect(host).unwrap();
    let head = format!("GET /health HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// Waits until the server's remote workers fulfil a condition.
fn wait_for(served: &Served, what: &str, is_so: impl Fn(&[Value]) -> bool) {
    let until = Instant::now() + PATIENCE;
    loop {
        let health = health(served);
        if health["remote_workers"].as_array().is_some_and(|workers| is_so(workers)) {
            return;
        }
        assert!(Instant::now() < until, "{what}: {health}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn remote_worker_returns_the_local_verdict() {
    let Some(nats) = Nats::start() else { return };
    let program = Program::new();
    program.write("model.py", TASK);
    candidates(&program);
    let mut served = serve(&program, &nats);
    let url = served.url.clone();
    // Nobody is there yet.
    let alone = program.run(&[
        "judge",
        "model.py",
        "--candidate",
        "good",
        "--server",
        &url,
        "--deadline",
        "2",
    ]);
    assert_eq!(alone.code, Some(4), "{}", alone.show());
    let worker = Worker::start(&program, &nats);
    wait_for(&served, "a worker", |workers| workers.len() == 1);
    local_verdicts(&program, &url);
    // Whoever judges by other rules is sent away.
    let connect = nats.url();
    let other = ["worker", "--connect", &connect, "--device", "cpu", "--profile", "paper"];
    let refused = program.run(&other);
    assert_eq!(refused.code, Some(2), "{}", refused.show());
    assert!(refused.stderr.contains("the worker's rules"), "{}", refused.stderr);
    if let Some(page) = program.browsed(&url) {
        assert!(page.contains(&worker.name), "{page}");
    }
    assert_eq!(worker.end(), Some(0));
    wait_for(&served, "nobody", <[Value]>::is_empty);
    served.signal(Signal::SIGTERM);
    assert_eq!(served.child.wait().unwrap().code(), Some(0));
}

#[test]
fn another_worker_judges_the_job_of_a_killed_worker() {
    let Some(nats) = Nats::start() else { return };
    let program = Program::new();
    program.write("model.py", TASK);
    candidate(&program, "good", KERNEL);
    let served = serve(&program, &nats);
    let mut first = Worker::start(&program, &nats);
    wait_for(&served, "a worker", |workers| workers.len() == 1);
    let ask = ["judge", "model.py", "--candidate", "good", "--server", &served.url];
    let judged = std::thread::scope(|scope| {
        let judged = scope.spawn(|| program.run(&ask));
        wait_for(&served, "a begin", |workers| workers.iter().any(|worker| worker["running"] == 1));
        let _second = Worker::start(&program, &nats);
        first.child.kill().unwrap();
        judged.join().unwrap()
    });
    assert_eq!(judged.code, Some(0), "{}", judged.show());
    let none = program.run(&["worker", "--connect", &nats.url(), "--dead-letters", "dead-letters"]);
    assert_eq!(none.code, Some(0), "{}", none.show());
    assert!(none.stderr.contains("0 jobs in the dead-letter queue"), "{}", none.show());
}

#[test]
fn bench_serve_measures_every_transport() {
    let Some(nats) = Nats::start() else { return };
    let program = Program::new();
    let measured = |seconds: u32| {
        let (seconds, url) = (seconds.to_string(), nats.url());
        let device = ["bench", "serve", "--device", "cpu", "--stage", "verified", "--json"];
        let more = ["--seconds", &seconds, "--rounds", "1", "--nats", &url];
        let ran = program.run(&[&device[..], &more].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.show());
        ran.object()["transports"].as_array().unwrap().clone()
    };
    let is_judged = |of: &Value| of["completed"][0].as_array().is_some_and(|all| !all.is_empty());
    // A slow machine needs longer for its first verdict.
    let mut tries = [5, 20].into_iter().map(|seconds| (f64::from(seconds), measured(seconds)));
    let found = tries.find(|(_, transports)| transports.iter().all(is_judged));
    let (seconds, transports) = found.expect("every transport brings verdicts");
    let names: Vec<_> =
        transports.iter().map(|of| of["transport"].as_str().unwrap().to_owned()).collect();
    assert_eq!(names, ["in_process", "http", "nats"]);
    for of in transports {
        let rates: Vec<f64> = serde_json::from_value(of["rates"].clone()).unwrap();
        let completed: Vec<Vec<f64>> = serde_json::from_value(of["completed"].clone()).unwrap();
        let judged = completed[0].len();
        assert_eq!((rates.len(), completed.len()), (1, 1), "{of}");
        assert!((rates[0] - judged as f64 / seconds).abs() < 1e-9, "{of}");
        let warm_up = seconds.min(10.0);
        let window = warm_up..warm_up + seconds;
        assert!(completed[0].iter().all(|at| window.contains(at)), "{of}");
    }
}

#[test]
fn an_unavailable_transport_is_refused() {
    let program = Program::new();
    for transport in ["nats", "http-one-device"] {
        let failed = program.run(&["bench", "serve", "--device", "cpu", "--transports", transport]);
        assert_eq!(failed.code, Some(2), "{}", failed.show());
        assert!(failed.stderr.contains("--nats"), "{}", failed.stderr);
    }
}

#[test]
fn worker_refuses_unreachable_and_non_nats_servers() {
    let program = Program::new();
    let nowhere = ["worker", "--connect", "nats://127.0.0.1:1", "--device", "cpu"];
    let failed = program.run(&nowhere);
    assert_eq!(failed.code, Some(4), "{}", failed.show());
    assert!(failed.stderr.contains("nats-server"), "{}", failed.stderr);
    let other = program.run(&["worker", "--connect", "http://127.0.0.1:1", "--device", "cpu"]);
    assert_eq!(other.code, Some(2), "{}", other.show());
}
