//! What is said over HTTP, with a judge that says what the test wants: the real one is asked in the tests of
//! the program.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside #[test]")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::{Request, StatusCode};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tower::ServiceExt;
use warpwright_fleet::{Answer, Done, Failed, Job, Limits, Queue, work};
use warpwright_record::verdict::{Profile, Verdict};
use warpwright_serve::{App, Served, Settings, Tokens, document, router};
use warpwright_task::Task;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

fn verdict() -> Box<Verdict> {
    serde_json::from_str(include_str!("verdict.json")).unwrap()
}

fn settings() -> Settings {
    Settings {
        tokens: Tokens::none(),
        tasks: BTreeMap::from([("known".to_owned(), Task::from_source("known", "x = 1"))]),
        served: vec![Served { device: "cpu".to_owned(), hardware: "a host".to_owned() }],
        profile: Profile::Strict,
        body_bytes: 1 << 20,
        body_time: Duration::from_millis(300),
        deadline: Duration::from_secs(20),
        batch: 8,
        replay_time: Duration::from_mins(1),
        replay_bytes: 1 << 20,
    }
}

/// A server with so many workers, who give an answer by the task's name.
struct Server {
    queue: Arc<Queue>,
    app: Arc<App>,
    router: Router,
    judged: Arc<AtomicU32>,
}

impl Server {
    fn new(workers: usize, settings: Settings, limits: Limits) -> Self {
        let queue = Arc::new(Queue::new(limits));
        let judged = Arc::new(AtomicU32::new(0));
        for _ in 0..workers {
            let (queue, judged) = (Arc::clone(&queue), Arc::clone(&judged));
            // They end with the queue, at the latest with the test.
            std::thread::spawn(move || {
                work(&queue, |job| {
                    judged.fetch_add(1, Ordering::SeqCst);
                    Done::Answered(answer(job))
                });
            });
        }
        while queue.load().workers < workers {
            std::thread::yield_now();
        }
        let app = App::new(settings, Arc::clone(&queue));
        Self { queue, router: router(Arc::clone(&app)), app, judged }
    }

    fn usual() -> Self {
        Self::new(2, settings(), Limits { waiting: 1000, per_client: 1000 })
    }

    fn judged(&self) -> u32 {
        self.judged.load(Ordering::SeqCst)
    }

    async fn send(&self, request: Request<Body>) -> (StatusCode, Value, axum::http::HeaderMap) {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let body = to_bytes(response.into_body(), 64 << 20).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null), headers)
    }

    async fn judge(&self, question: &Value) -> (StatusCode, Value) {
        let (status, body, _) = self.send(post("/judge", question.to_string())).await;
        (status, body)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.queue.abandon();
    }
}

fn answer(job: &Job) -> Answer {
    match job.task.name.as_str() {
        "ours" => {
            let hint = Some("look at it".to_owned());
            Err(Failed::Infrastructure { message: "the GPU is too hot".to_owned(), hint })
        }
        "refused" => Err(Failed::Task { message: "it has no Model".to_owned(), hint: None }),
        "slow" => {
            std::thread::sleep(Duration::from_millis(400));
            Ok(verdict())
        }
        name => {
            let mut verdict = verdict();
            name.clone_into(&mut verdict.task);
            Ok(verdict)
        }
    }
}

fn post(path: &str, body: impl Into<Body>) -> Request<Body> {
    let request = Request::post(path).header("host", "127.0.0.1:1");
    request.header("content-type", "application/json").body(body.into()).unwrap()
}

fn question(task: &str) -> Value {
    json!({ "task": task, "reference": "x = 1", "files": { "model_new.py": "y = 1" } })
}

fn with_key(question: &Value, key: &str) -> Request<Body> {
    let mut request = post("/judge", question.to_string());
    request.headers_mut().insert("idempotency-key", key.parse().unwrap());
    request
}

fn kind_of(body: &Value) -> &str {
    body["type"].as_str().unwrap_or_default().trim_start_matches("urn:warpwright:problem:")
}

#[tokio::test]
async fn a_verdict_has_its_reward() {
    let server = Server::usual();
    let (status, body) = server.judge(&question("any")).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!((&body["infra_error"], &body["verdict"]["task"]), (&Value::Null, &json!("any")));
    assert_eq!(body["reward"], body["verdict"]["reward"]["bounded"]);
    let mut paper = question("any");
    paper["reward"] = json!("paper");
    let (_, body) = server.judge(&paper).await;
    assert_eq!(body["reward"], body["verdict"]["reward"]["paper"]);
    // One that is served by name needs no source.
    let (_, body) =
        server.judge(&json!({ "task": "known", "files": { "model_new.py": "" } })).await;
    assert_eq!(body["verdict"]["task"], "known");
}

#[tokio::test]
async fn our_failures_are_no_rewards_and_the_task_s_are_the_caller_s() {
    let server = Server::usual();
    let (status, body) = server.judge(&question("ours")).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!((&body["reward"], &body["verdict"]), (&Value::Null, &Value::Null));
    assert_eq!(
        body["infra_error"],
        json!({ "message": "the GPU is too hot", "hint": "look at it" })
    );
    let (status, body) = server.judge(&question("refused")).await;
    assert_eq!((status.as_u16(), kind_of(&body)), (422, "task-refused"));
    assert_eq!(body["detail"], "it has no Model");
}

#[tokio::test]
async fn every_wrong_request_has_its_problem() {
    let server = Server::usual();
    let files = |name: &str| json!({ "task": "t", "reference": "", "files": { "model_new.py": "", name: "" } });
    let mut late = question("t");
    late["deadline_seconds"] = json!(-1.0);
    let mut unknown = question("t");
    unknown["fils"] = json!({});
    let long = json!({ "task": "t", "reference": "x".repeat(1_000_000), "files": {} }).to_string();
    let cases = [
        ("/judge", "{".to_owned(), 400, "malformed-json"),
        ("/judge", String::new(), 400, "malformed-json"),
        ("/judge", format!("{} x", question("t")), 400, "malformed-json"),
        ("/judge", json!([1]).to_string(), 422, "invalid-request"),
        ("/judge", unknown.to_string(), 422, "invalid-request"),
        ("/judge", late.to_string(), 422, "invalid-request"),
        (
            "/judge",
            json!({ "task": "t", "reference": "", "files": {} }).to_string(),
            422,
            "invalid-request",
        ),
        ("/judge", files("../model.py").to_string(), 422, "invalid-request"),
        ("/judge", files("kernels/../../x").to_string(), 422, "invalid-request"),
        ("/judge", files("/etc/passwd").to_string(), 422, "invalid-request"),
        ("/judge", files("kernels/.hidden").to_string(), 422, "invalid-request"),
        (
            "/judge",
            json!({ "task": "no", "files": { "model_new.py": "" } }).to_string(),
            404,
            "unknown-task",
        ),
        ("/judge", format!("{long}{long}"), 413, "body-too-large"),
        ("/nowhere", "{}".to_owned(), 404, "not-found"),
        ("/health", "{}".to_owned(), 404, "not-found"),
        (
            "/judge/batch",
            json!({ "items": vec![question("t"); 9] }).to_string(),
            422,
            "invalid-request",
        ),
    ];
    for (path, body, status, name) in cases {
        let shown = body.chars().take(80).collect::<String>();
        let (found, body, headers) = server.send(post(path, body)).await;
        assert_eq!((found.as_u16(), kind_of(&body)), (status, name), "{path} {shown}");
        assert_eq!(headers["content-type"], "application/problem+json");
        assert_eq!(body["status"], status);
    }
    assert_eq!(server.judged(), 0);
    // What comes in pieces is bounded as well, and what does not come at all is not waited for.
    let pieces = futures_util::stream::iter(
        (0..40).map(|_| Ok::<_, std::io::Error>(Bytes::from(vec![b' '; 1 << 16]))),
    );
    let (status, body, _) = server.send(post("/judge", Body::from_stream(pieces))).await;
    assert_eq!((status.as_u16(), kind_of(&body)), (413, "body-too-large"));
    let never = futures_util::stream::pending::<Result<Bytes, std::io::Error>>();
    let (status, body, _) = server.send(post("/judge", Body::from_stream(never))).await;
    assert_eq!((status.as_u16(), kind_of(&body)), (422, "invalid-request"));
}

/// What a page in a browser can send without being asked first, and what it can have a name lead to.
#[tokio::test]
async fn pages_in_a_browser_are_not_judged_for() {
    let server = Server::usual();
    for kind in [None, Some("text/plain"), Some("application/x-www-form-urlencoded")] {
        let mut request = post("/judge", question("t").to_string());
        request.headers_mut().remove("content-type");
        if let Some(kind) = kind {
            request.headers_mut().insert("content-type", kind.parse().unwrap());
        }
        let (status, body, _) = server.send(request).await;
        assert_eq!((status.as_u16(), kind_of(&body)), (415, "unsupported-media-type"));
    }
    for host in [
        "attacker.example",
        "127.0.0.1.attacker.example:8000",
        "localhost.attacker.example",
        "",
        "[::2]",
    ] {
        let mut request = post("/judge", question("t").to_string());
        request.headers_mut().insert("host", host.parse().unwrap());
        let (status, body, _) = server.send(request).await;
        assert_eq!((status.as_u16(), kind_of(&body)), (421, "misdirected-request"), "{host}");
    }
    assert_eq!(server.judged(), 0);
    // With a token it is whose it is, by whatever name.
    let tokens = Tokens::parse(&format!("trainer {TOKEN}")).unwrap();
    let server =
        Server::new(1, Settings { tokens, ..settings() }, Limits { waiting: 9, per_client: 9 });
    let mut request = post("/judge", question("t").to_string());
    request.headers_mut().insert("host", "judge.example".parse().unwrap());
    request.headers_mut().insert("authorization", format!("Bearer {TOKEN}").parse().unwrap());
    request
        .headers_mut()
        .insert("content-type", "application/json; charset=utf-8".parse().unwrap());
    assert_eq!(server.send(request).await.0, StatusCode::OK);
}

#[tokio::test]
async fn tokens_are_asked_for_and_never_told() {
    let text = format!(
        "trainer {TOKEN} 2100-01-01T00:00:00Z\nold {} 2020-01-01T00:00:00Z",
        TOKEN.replace('0', "x")
    );
    let tokens = Tokens::parse(&text).unwrap();
    let server =
        Server::new(1, Settings { tokens, ..settings() }, Limits { waiting: 9, per_client: 9 });
    let ask = |path: &'static str, token: Option<String>| {
        let mut request = Request::get(path).header("host", "localhost");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        server.send(request.body(Body::empty()).unwrap())
    };
    for path in ["/tasks", "/metrics"] {
        let (status, body, headers) = ask(path, None).await;
        assert_eq!((status.as_u16(), kind_of(&body)), (401, "unauthorized"));
        assert_eq!(headers["www-authenticate"], "Bearer");
        let (status, body, _) = ask(path, Some(TOKEN.replace('0', "x"))).await;
        assert_eq!((status.as_u16(), kind_of(&body)), (401, "token-expired"));
        let (status, body, _) =
            ask(path, Some("secret-that-is-not-known-here-at-all".to_owned())).await;
        assert_eq!(status.as_u16(), 401);
        assert!(!body.to_string().contains("secret"));
        assert_eq!(ask(path, Some(TOKEN.to_owned())).await.0, StatusCode::OK);
    }
    // For those who start and stop servers, and those who want to know what is served.
    for path in ["/health", "/openapi.json"] {
        assert_eq!(ask(path, None).await.0, StatusCode::OK, "{path}");
    }
    let (status, _, _) = server.send(post("/judge", question("t").to_string())).await;
    assert_eq!((status.as_u16(), server.judged()), (401, 0));
}

#[tokio::test]
async fn a_key_is_asked_once_unless_the_failure_was_ours() {
    let server = Server::usual();
    let ask = || server.send(with_key(&question("slow"), "k"));
    let answers = join_all((0..10).map(|_| ask())).await;
    assert_eq!(server.judged(), 1);
    let replayed = answers.iter().filter(|(_, _, h)| h["idempotency-replayed"] == "true").count();
    assert_eq!(replayed, 9);
    assert!(
        answers.iter().all(|(status, body, _)| *status == StatusCode::OK && *body == answers[0].1)
    );
    let (status, body, _) = server.send(with_key(&question("other"), "k")).await;
    assert_eq!((status.as_u16(), kind_of(&body)), (422, "idempotency-key-reused"));
    for judged in [2, 3] {
        let (_, body, _) = server.send(with_key(&question("ours"), "o")).await;
        assert!(body["infra_error"].is_object());
        assert_eq!(server.judged(), judged, "asked again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // What the task does wrong it does again.
    for _ in 0..2 {
        let (status, body, _) = server.send(with_key(&question("refused"), "r")).await;
        assert_eq!((status.as_u16(), kind_of(&body)), (422, "task-refused"));
    }
    assert_eq!(server.judged(), 4);
}

#[tokio::test]
async fn who_is_too_many_is_told_when_to_come_again() {
    let server = Server::new(1, settings(), Limits { waiting: 2, per_client: 100 });
    let many =
        join_all((0..12).map(|_| server.send(post("/judge", question("slow").to_string())))).await;
    let (served, refused): (Vec<_>, Vec<_>) =
        many.iter().partition(|(status, _, _)| *status == StatusCode::OK);
    assert!((2..=3).contains(&served.len()), "{}", served.len());
    for (status, body, headers) in refused {
        assert_eq!((status.as_u16(), kind_of(body)), (429, "busy"));
        let after: u64 = headers["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((1..=60).contains(&after) && body["retry_after"] == after);
    }
}

#[tokio::test]
async fn who_goes_away_or_is_late_is_not_judged_for() {
    let server = Server::new(1, settings(), Limits { waiting: 100, per_client: 100 });
    let busy =
        tokio::spawn(server.router.clone().oneshot(post("/judge", question("slow").to_string())));
    while server.queue.load().running == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let gone = question("gone");
    let gone = server.judge(&gone);
    assert!(tokio::time::timeout(Duration::from_millis(50), gone).await.is_err());
    assert_eq!(server.queue.load().waiting, 0, "given up");
    let mut late = question("late");
    late["deadline_seconds"] = json!(0.05);
    let (status, body) = server.judge(&late).await;
    assert_eq!((status.as_u16(), kind_of(&body)), (504, "deadline-exceeded"));
    assert_eq!(server.queue.load().waiting, 0, "given up");
    assert_eq!(busy.await.unwrap().unwrap().status(), StatusCode::OK);
    assert_eq!(server.judged(), 1);
}

#[tokio::test]
async fn a_batch_is_as_many_questions() {
    let server = Server::usual();
    let mut bad = question("bad");
    bad["files"] = json!({ "x": "" });
    let items = json!({ "items": [question("a"), bad, question("ours"), question("refused")] });
    let (status, body, _) = server.send(post("/judge/batch", items.to_string())).await;
    assert_eq!(status, StatusCode::OK);
    let items = body["items"].as_array().unwrap();
    assert_eq!(items[0]["verdict"]["task"], "a");
    assert_eq!(kind_of(&items[1]["problem"]), "invalid-request");
    assert!(items[2]["infra_error"].is_object() && items[2]["reward"].is_null());
    assert_eq!(kind_of(&items[3]["problem"]), "task-refused");
}

const ANSWER: &str = "Here:\n```python\nclass ModelNew: pass\n```\n";

/// In the forms of trainers that know no answer without a number.
#[tokio::test]
async fn remote_rewards_are_numbers_unless_we_fail() {
    let server = Server::usual();
    let slime = |label: Value, response: &str| {
        let body = json!({ "prompt": [{ "role": "user" }], "response": response, "label": label });
        server.send(post("/reward/slime?reward=paper", body.to_string()))
    };
    let paper = verdict().reward.paper;
    for label in [
        json!("known"),
        json!({ "task": "a", "reference": "x" }),
        json!("{\"task\": \"a\", \"reference\": \"x\"}"),
    ] {
        let (status, body, _) = slime(label.clone(), ANSWER).await;
        assert_eq!((status, body), (StatusCode::OK, json!(paper)), "{label}");
    }
    assert_eq!(server.judged(), 3);
    // An answer without code is the model's mistake, and costs no judging.
    assert_eq!(slime(json!("known"), "I would rather not.").await.1, json!(-1.0));
    assert_eq!(server.judged(), 3);
    // What is not the model's mistake has no number.
    for (label, status, name) in [("ours", 503, "infra-error"), ("refused", 422, "task-refused")] {
        let (found, body, _) = slime(json!({ "task": label, "reference": "" }), ANSWER).await;
        assert_eq!((found.as_u16(), kind_of(&body)), (status, name));
    }
    let (status, body, _) = slime(json!("unknown"), ANSWER).await;
    assert_eq!((status.as_u16(), kind_of(&body)), (404, "unknown-task"));

    let ask = |labels: Value| {
        let body = json!({
            "query": [format!("prompt {ANSWER}"), "prompt none", "other"],
            "prompts": ["prompt ", "prompt ", "not its beginning"],
            "labels": labels,
        });
        server.send(post("/reward/openrlhf", body.to_string()))
    };
    let (status, body, _) = ask(json!(["known", "known", "known"])).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(body["rewards"], json!([verdict().reward.bounded, -1.0, -1.0]));
    assert_eq!(
        (&body["scores"], &body["extra_logs"]["verified"]),
        (&body["rewards"], &json!([1.0, 0.0, 0.0]))
    );
    let (status, body, _) =
        ask(json!([{ "task": "ours", "reference": "" }, "known", "known"])).await;
    assert_eq!((status.as_u16(), kind_of(&body)), (503, "infra-error"));
    let (status, body, _) = ask(json!(["known"])).await;
    assert_eq!((status.as_u16(), kind_of(&body)), (422, "invalid-request"));
}

/// A prompt that shows code is not the answer.
#[tokio::test]
async fn of_a_query_only_what_follows_its_prompt_is_judged() {
    let server = Server::usual();
    let body = json!({
        "query": [format!("{ANSWER}I have nothing to add.")], "prompts": [ANSWER], "labels": ["known"],
    });
    let (_, body, _) = server.send(post("/reward/openrlhf", body.to_string())).await;
    assert_eq!((&body["rewards"], server.judged()), (&json!([-1.0]), 0));
}

#[tokio::test]
async fn events_end_with_the_answer() {
    let server = Server::new(1, settings(), Limits { waiting: 100, per_client: 100 });
    let busy =
        tokio::spawn(server.router.clone().oneshot(post("/judge", question("slow").to_string())));
    while server.queue.load().running == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let ask = |task: &str| {
        let mut request = post("/judge", question(task).to_string());
        request.headers_mut().insert("accept", "text/event-stream".parse().unwrap());
        server.router.clone().oneshot(request)
    };
    let response = ask("any").await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let text = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    let text = String::from_utf8(text.to_vec()).unwrap();
    let events: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    assert_eq!(events, ["progress", "progress", "result"], "{text}");
    assert!(
        text.contains(r#"{"event":"waiting","ahead":0,"#)
            && text.contains(r#"{"event":"started"}"#)
    );
    assert!(busy.await.is_ok());
    let text = to_bytes(ask("refused").await.unwrap().into_body(), 1 << 20).await.unwrap();
    assert!(String::from_utf8_lossy(&text).contains("event: problem"));
    // Who stops reading gives it up.
    let busy =
        tokio::spawn(server.router.clone().oneshot(post("/judge", question("slow").to_string())));
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mut body = ask("gone").await.unwrap().into_body().into_data_stream();
    assert!(futures_util::StreamExt::next(&mut body).await.is_some());
    assert_eq!(server.queue.load().waiting, 1);
    drop(body);
    assert_eq!(server.queue.load().waiting, 0);
    assert!(busy.await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_hundreds_at_once_none_is_lost_or_doubled() {
    let server = Server::new(4, settings(), Limits { waiting: 1000, per_client: 1000 });
    let names: Vec<String> = (0..256).map(|number| format!("task{number}")).collect();
    let questions: Vec<Value> = names.iter().map(|name| question(name)).collect();
    let answers = join_all(questions.iter().map(|question| server.judge(question))).await;
    for (name, (status, body)) in names.iter().zip(answers) {
        assert_eq!((status, &body["verdict"]["task"]), (StatusCode::OK, &json!(name)));
    }
    assert_eq!(server.judged(), 256);
    assert_eq!(server.queue.load().waiting + server.queue.load().running, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_lets_what_was_asked_be_judged() {
    for (drain, status) in [(Duration::from_secs(10), "200"), (Duration::ZERO, "503")] {
        let server = Server::new(1, settings(), Limits { waiting: 100, per_client: 100 });
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (app, router) = (Arc::clone(&server.app), server.router.clone());
        let served = tokio::spawn(warpwright_serve::serve(
            listener,
            app,
            router,
            async {
                let _ = stopped.await;
            },
            drain,
        ));
        // One is judged, one waits.
        let ask =
            || tokio::task::spawn_blocking(move || asked(address, &question("slow").to_string()));
        let (first, second) = (ask(), ask());
        while server.queue.load()
            != (warpwright_fleet::Load { running: 1, waiting: 1, ..server.queue.load() })
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        stop.send(()).unwrap();
        let mut statuses =
            [first.await.unwrap(), second.await.unwrap()].map(|text| text[9..12].to_owned());
        statuses.sort();
        assert_eq!(statuses, ["200", status]);
        served.await.unwrap().unwrap();
        assert!(std::net::TcpStream::connect(address).is_err(), "nobody listens");
    }
}

/// A request by hand, and all that is answered.
fn asked(address: std::net::SocketAddr, body: &str) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let head = format!(
        "POST /judge HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + body).as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[tokio::test]
async fn health_says_whether_somebody_judges() {
    let health = || Request::get("/health").body(Body::empty()).unwrap();
    let server = Server::new(0, settings(), Limits { waiting: 9, per_client: 9 });
    let (status, body, _) = server.send(health()).await;
    assert_eq!((status.as_u16(), &body["status"]), (503, &json!("nobody judges")));
    let server = Server::usual();
    let (status, body, _) = server.send(health()).await;
    assert_eq!((status.as_u16(), &body["status"]), (200, &json!("healthy")));
    server.queue.end();
    let (status, body, _) = server.send(health()).await;
    assert_eq!((status.as_u16(), &body["status"]), (503, &json!("ending")));
    let (status, body) = server.judge(&question("t")).await;
    assert_eq!((status.as_u16(), kind_of(&body)), (503, "ending"));
}

#[tokio::test]
async fn figures_count_what_was_done() {
    let server = Server::usual();
    server.judge(&question("a")).await;
    server.judge(&question("ours")).await;
    server.send(post("/nowhere/1", "")).await;
    let request =
        Request::get("/metrics").header("host", "[::1]:8000").body(Body::empty()).unwrap();
    let response = server.router.clone().oneshot(request).await.unwrap();
    let text = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    let text = String::from_utf8_lossy(&text);
    for line in [
        "warpwright_jobs_total{outcome=\"verified\"} 1",
        "warpwright_jobs_total{outcome=\"infra_error\"} 1",
        "warpwright_requests_total{path=\"/judge\",status=\"200\"} 2",
        "warpwright_requests_total{path=\"other\",status=\"404\"} 1",
        "warpwright_judge_seconds_count 2",
        "warpwright_workers 2",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
}

#[test]
fn the_document_has_every_path_and_every_schema_it_names() {
    let document = document();
    let paths: Vec<&String> = document["paths"].as_object().unwrap().keys().collect();
    let expected = [
        "/judge",
        "/judge/batch",
        "/reward/slime",
        "/reward/openrlhf",
        "/tasks",
        "/health",
        "/metrics",
        "/openapi.json",
    ];
    assert_eq!(paths, expected);
    let text = document.to_string();
    let named = text.split("\"$ref\":\"#").skip(1).map(|rest| rest.split('"').next().unwrap());
    let mut count = 0;
    for pointer in named {
        assert!(document.pointer(pointer).is_some(), "{pointer}");
        count += 1;
    }
    assert!(count > 20, "{count}");
}

#[tokio::test]
async fn a_step_costs_next_to_nothing_beside_the_judge() {
    let server = Server::usual();
    server.judge(&question("a")).await;
    let mut times = Vec::new();
    for _ in 0..200 {
        let begun = Instant::now();
        server.judge(&question("a")).await;
        times.push(begun.elapsed());
    }
    times.sort();
    assert!(times[100] < Duration::from_millis(2), "median {:?}", times[100]);
}
