//! `serve` and its clients, with the real judge on the cpu device.

use std::io::{BufRead, BufReader};
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::program::{KERNEL, MODEL_NEW, Program, TASK};

/// A server process, which is killed at the end of the test at the latest.
pub(crate) struct Served {
    pub(crate) child: std::process::Child,
    pub(crate) url: String,
}

impl Served {
    pub(crate) fn start(program: &Program, more: &[&str]) -> Self {
        Self::on(program, &[&["--device", "cpu"], more].concat())
    }

    pub(crate) fn on(program: &Program, more: &[&str]) -> Self {
        let arguments = ["serve", "--listen", "127.0.0.1:0", "--json"];
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

    pub(crate) fn signal(&self, signal: Signal) {
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

pub(crate) fn candidate(program: &Program, folder: &str, kernel: &str) {
    program.write(&format!("{folder}/model_new.py"), MODEL_NEW);
    program.write(&format!("{folder}/kernels/scaled_relu.cu"), kernel);
}

/// The fields of a verdict that are equal for equal candidates.
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

/// Writes a correct candidate, a wrong one, and one that does not build.
pub(crate) fn candidates(program: &Program) {
    candidate(program, "good", KERNEL);
    candidate(program, "wrong", &KERNEL.replace("0.5f", "0.25f"));
    candidate(program, "broken", &KERNEL.replace("0.5f", "half"));
}

/// Checks that the server's verdicts on these candidates equal the local ones, and returns their essence.
pub(crate) fn local_verdicts(program: &Program, url: &str) -> [(&'static str, Value); 3] {
    [("good", 0), ("wrong", 3), ("broken", 3)].map(|(folder, code)| {
        let common = ["judge", "model.py", "--candidate", folder, "--stage", "verified", "--json"];
        let here = program.run(&[&common[..], &["--device", "cpu"]].concat());
        let there = program.run(&[&common[..], &["--server", url]].concat());
        assert_eq!((here.code, there.code), (Some(code), Some(code)), "{}", there.show());
        let told = essence(&there.object());
        assert_eq!(essence(&here.object()), told, "{folder}");
        (folder, told)
    })
}

#[test]
fn served_verdict_equals_the_local_verdict() {
    let program = Program::new();
    program.write("model.py", TASK);
    candidates(&program);
    let mut served = Served::start(&program, &["--suite", "model.py"]);
    let url = served.url.clone();
    for (folder, there) in local_verdicts(&program, &url) {
        let common = ["judge", "model.py", "--candidate", folder, "--stage", "verified", "--json"];
        // The same files have the same verdict, and it says so.
        let again = program.run(&[&common[..], &["--server", &url]].concat()).object();
        assert_eq!(there, essence(&again));
        if folder != "broken" {
            let caveats = again["caveats"].to_string();
            assert!(caveats.contains("this verdict is a copy"), "{caveats}");
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
fn server_with_tokens_refuses_requests_without_one() {
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
    assert!(refused.stderr.contains("A valid token is required"), "{}", refused.stderr);
    let good = program.run(&[&ask[..], &["--token", token]].concat());
    assert_eq!(good.code, Some(0), "{}", good.show());
}

/// An HTTP client that keeps cookies.
struct Hand {
    url: String,
    cookie: Option<String>,
}

impl Hand {
    fn post(&mut self, path: &str, body: &Value) -> (u16, String) {
        use std::io::{Read, Write};
        let host = self.url.trim_start_matches("http://");
        let mut stream = std::net::TcpStream::connect(host).unwrap();
        let (body, cookie) = (body.to_string(), self.cookie.clone().unwrap_or_default());
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncookie: {cookie}\r\n\
             connection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let set = head.lines().find_map(|line| line.strip_prefix("set-cookie: "));
        if let Some(cookie) = set.and_then(|line| line.split(';').next()) {
            self.cookie = Some(cookie.to_owned());
        }
        (head[9..12].parse().unwrap(), body.to_owned())
    }
}

/// Three sessions: a correct candidate, a wrong one, and none. Each has its own workspace and the judge's reward.
#[test]
fn nemo_gym_sessions_get_the_rewards_of_the_judge() {
    let program = Program::new();
    program.write("model.py", TASK);
    let keep = ["--suite", "model.py", "--keep-sessions", "kept", "--max-kept-sessions", "2"];
    let mut served = Served::start(&program, &keep);
    let play = |kernel: Option<&str>| {
        let mut hand = Hand { url: served.url.clone(), cookie: None };
        assert_eq!(hand.post("/seed_session", &json!({ "task": "model" })).0, 200);
        let mut tool = |name: &str, arguments: Value| {
            let (status, text) = hand.post(&format!("/{name}"), &arguments);
            assert_eq!(status, 200, "{text}");
            text
        };
        let files = tool("Bash", json!({ "command": "ls; ls kernels" }));
        assert!(files.contains("model.py") && !files.contains("scaled"), "{files}");
        if let Some(kernel) = kernel {
            let write =
                |path: &str, content: &str| json!({ "file_path": path, "content": content });
            tool("Write", write("kernels/scaled_relu.cu", kernel));
            tool("Write", write("model_new.py", MODEL_NEW));
            let said = tool("Bash", json!({ "command": "python3 -m utils.verification" }));
            assert_eq!(said.contains("VERIFICATION OK"), kernel == KERNEL, "{said}");
        }
        let (status, text) = hand.post("/verify?reward=paper", &json!({ "response": {} }));
        assert_eq!(status, 200, "{text}");
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let wrong = KERNEL.replace("0.5f", "0.25f");
    let (good, bad, none) = std::thread::scope(|scope| {
        let each =
            [Some(KERNEL), Some(&wrong), None].map(|kernel| scope.spawn(move || play(kernel)));
        each.map(|played| played.join().unwrap()).into()
    });
    assert_eq!((&good["verified"], &bad["verified"]), (&json!(true), &json!(false)));
    assert!(
        good["reward"].as_f64().unwrap() >= 1.0 && good["speedup_eager"].as_f64().unwrap() > 0.0
    );
    assert_eq!((&bad["reward"], &none["reward"]), (&json!(-1.0), &json!(-1.0)));
    served.signal(Signal::SIGTERM);
    assert_eq!(served.child.wait().unwrap().code(), Some(0));
    // The last two are there to be looked at.
    let kept: Vec<_> = fs_err::read_dir(program.path("kept")).unwrap().collect();
    assert_eq!(kept.len(), 2);
    for run in kept {
        let run = run.unwrap().path();
        assert_eq!(program.run(&["report", run.to_str().unwrap()]).code, Some(0));
    }
}

#[test]
fn openenv_episode_is_judged_and_a_disconnect_ends_its_command() {
    let program = Program::new();
    program.write("model.py", TASK);
    let served = Served::start(&program, &["--suite", "model.py"]);
    let host = served.url.trim_start_matches("http://").to_owned();
    let open = || {
        let stream = std::net::TcpStream::connect(&host).unwrap();
        tungstenite::client(format!("ws://{host}/ws"), stream).unwrap().0
    };
    let ask = |socket: &mut tungstenite::WebSocket<_>, said: Value| -> Value {
        socket.send(tungstenite::Message::text(said.to_string())).unwrap();
        serde_json::from_str(socket.read().unwrap().to_text().unwrap()).unwrap()
    };
    let step = |tool: &str, arguments: Value| json!({ "type": "step", "data": { "tool": tool, "arguments": arguments } });
    let mut socket = open();
    let first = ask(&mut socket, json!({ "type": "reset", "data": {} }));
    assert!(first["data"]["observation"]["prompt"].as_str().unwrap().contains("torch.relu"));
    for (path, content) in [("kernels/scaled_relu.cu", KERNEL), ("model_new.py", MODEL_NEW)] {
        let write = json!({ "file_path": path, "content": content });
        let said = ask(&mut socket, step("Write", write));
        assert_eq!(said["data"]["done"], false, "{said}");
    }
    let last = ask(&mut socket, step("submit", json!({})))["data"].clone();
    let verdict = &last["observation"]["verdict"];
    assert_eq!((&last["done"], &verdict["verified"]), (&json!(true), &json!(true)), "{last}");
    assert_eq!(last["reward"], verdict["reward"]["bounded"]);

    // Who goes in the middle of a command leaves nothing of it.
    let mut left = open();
    let _ = ask(&mut left, json!({ "type": "reset" }));
    let sleeps = step("Bash", json!({ "command": "sleep 1234.5" }));
    left.send(tungstenite::Message::text(sleeps.to_string())).unwrap();
    let sleepers = || {
        let all = fs_err::read_dir("/proc").unwrap().flatten();
        let lines = all.filter_map(|process| fs_err::read(process.path().join("cmdline")).ok());
        lines.filter(|line| line.starts_with(b"sleep\x001234.5")).count()
    };
    let until = |what: &str, is_so: &dyn Fn() -> bool| {
        let began = std::time::Instant::now();
        while !is_so() {
            assert!(began.elapsed() < std::time::Duration::from_mins(2), "{what}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    };
    until("it never slept", &|| sleepers() == 1);
    drop(left);
    until("it sleeps still", &|| sleepers() == 0);
}

#[test]
fn dashboard_shows_verdicts_and_escapes_candidate_text() {
    let program = Program::new();
    program.write("model.py", TASK);
    candidate(&program, "good", KERNEL);
    let hostile = "</pre><img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>";
    candidate(&program, "hostile", &KERNEL.replace("0.5f", hostile));
    let served = Served::start(&program, &["--suite", "model.py"]);
    let url = &served.url;
    let Some(empty) = program.browsed(url) else { return };
    assert!(empty.contains("None yet") && empty.contains(">cpu<"), "{empty}");
    for (folder, code) in [("good", 0), ("hostile", 3)] {
        let judged = program.run(&["judge", "model.py", "--candidate", folder, "--server", url]);
        assert_eq!(judged.code, Some(code), "{}", judged.show());
    }
    let all = program.browsed(url).unwrap();
    for shown in [
        "href=\"#/verdict/1\"",
        "href=\"#/verdict/2\"",
        "href=\"#/task/model\"",
        ">verified<",
        ">build<",
        ">50 %<",
    ] {
        assert!(all.contains(shown), "{shown}: {all}");
    }
    let good = program.browsed(&format!("{url}/#/verdict/1")).unwrap();
    for shown in [
        "__global__ void",
        "class ModelNew",
        "class Model(nn.Module)",
        ">candidate<",
        ">eager<",
        ">passed<",
    ] {
        assert!(good.contains(shown), "{shown}: {good}");
    }
    let task = program.browsed(&format!("{url}/#/task/model")).unwrap();
    assert!(
        task.contains("<svg")
            && task.contains("class=\"point\"")
            && task.contains("class=\"failed\""),
        "{task}"
    );
    // What a candidate says is text.
    let bad = program.browsed(&format!("{url}/#/verdict/2")).unwrap();
    assert!(bad.contains("What went wrong") && bad.contains("&lt;/pre&gt;&lt;img src=x"), "{bad}");
    assert!(bad.contains("<title>Warpwright</title>") && !bad.contains("<img"), "{bad}");
}

/// Runs the tests of `clients/python` against a server.
#[test]
fn python_client_passes_its_tests_against_the_server() {
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
fn invalid_server_and_client_options_are_refused() {
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
        (
            program.run(&["serve", "--tokens", "short"]),
            "line 1 of the token file: the token is shorter",
        ),
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
    assert!(nobody.stderr.contains("`warpwright serve` starts a server"), "{}", nobody.stderr);
    assert!(!Path::new("run").exists());
}
