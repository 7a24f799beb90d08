//! Sessions, with a host that echoes its input. Real episodes are in the tests of the program.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use serde_json::{Value, json};
use tower::ServiceExt;
use warpwright_agent::episode::Ended;
use warpwright_agent::judge::DeviceFacts;
use warpwright_agent::policy::{Briefing, Policy};
use warpwright_fleet::Limits;
use warpwright_record::event::Outcome;
use warpwright_record::message::{ToolResult, ToolStatus};
use warpwright_record::verdict::Profile;
use warpwright_serve::{Opening, SessionLimits, Settings, Tokens};
use warpwright_task::Task;

use crate::hiding;
use crate::server::{PATIENCE, Server, TOKEN, kind_of, post, settings, verdict};

/// Turns of an episode here.
pub(crate) const TURNS: u32 = 4;

/// Observations of a test's host.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) hosted: AtomicUsize,
    pub(crate) stopped: AtomicUsize,
    /// First messages of episodes.
    pub(crate) begun: AtomicUsize,
}

pub(crate) struct Hosted {
    pub(crate) server: Server,
    pub(crate) seen: Arc<Seen>,
}

impl Hosted {
    pub(crate) fn new(settings: Settings) -> Self {
        let server = Server::new(1, settings, Limits { waiting: 9, per_client: 9 });
        let seen = Arc::new(Seen::default());
        let (app, saw) = (Arc::clone(&server.app), Arc::clone(&seen));
        // It ends with the sessions, at the latest with the test.
        std::thread::spawn(move || {
            while let Some(opening) = app.sessions.next() {
                let (app, saw) = (Arc::clone(&app), Arc::clone(&saw));
                std::thread::spawn(move || {
                    host(opening, &saw);
                    app.sessions.hosted();
                });
            }
        });
        Self { server, seen }
    }

    pub(crate) fn usual() -> Self {
        Self::new(settings())
    }

    async fn text(&self, request: Request<Body>) -> (StatusCode, String, Option<String>) {
        let response = self.server.router.clone().oneshot(request).await.unwrap();
        let cookie = response.headers().get("set-cookie").map(|c| c.to_str().unwrap().to_owned());
        let status = response.status();
        let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap(), cookie)
    }

    /// Begins a session; returns its cookie.
    pub(crate) async fn seed(&self, body: &Value) -> String {
        let (status, text, cookie) = self.text(post("/seed_session", body.to_string())).await;
        assert_eq!(status, StatusCode::OK, "{text}");
        let cookie = cookie.unwrap();
        assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"), "{cookie}");
        cookie.split(';').next().unwrap().to_owned()
    }

    pub(crate) async fn with(
        &self,
        cookie: &str,
        path: &str,
        body: &Value,
    ) -> (StatusCode, String) {
        let (status, text, _) = self.text(with(cookie, path, body)).await;
        (status, text)
    }

    pub(crate) async fn none_is_played(&self) {
        self.until("no episode is left", || self.server.app.sessions.played() == 0).await;
    }

    /// Waits until a condition holds.
    async fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let until = Instant::now() + PATIENCE;
        while !is_so() {
            let played = self.server.app.sessions.played();
            assert!(Instant::now() < until, "{what}: {played} episodes run");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Hosted {
    fn drop(&mut self) {
        self.server.app.sessions.abandon();
    }
}

fn with(cookie: &str, path: &str, body: &Value) -> Request<Body> {
    let mut request = post(path, body.to_string());
    request.headers_mut().insert("cookie", cookie.parse().unwrap());
    request
}

/// Echoes arguments. For the task `ours` the judge fails at the end; `slow` runs until it is
/// stopped; `late` does not start before it is stopped; `panics` panics; `nothing` has no candidate.
fn host(opening: Opening, seen: &Seen) {
    seen.hosted.fetch_add(1, Ordering::SeqCst);
    opening.play(|task, seed, policy, stop| {
        let ended = episode(task, seed, policy, stop, seen);
        seen.stopped.fetch_add(usize::from(stop.load(Ordering::SeqCst)), Ordering::SeqCst);
        Ok(ended)
    });
}

fn episode(
    task: &Task,
    seed: u64,
    policy: &mut dyn Policy,
    stop: &AtomicBool,
    seen: &Seen,
) -> Ended {
    let briefing = Briefing {
        task: task.name.clone(),
        reference: task.source.clone(),
        skill: String::new(),
        device: DeviceFacts::assumed("cpu"),
        profile: Profile::Strict,
        seed,
        turns: Some(TURNS),
    };
    while task.name == "late" && !stop.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut message = policy.begin(&briefing);
    seen.begun.fetch_add(usize::from(message.is_ok()), Ordering::SeqCst);
    for turn in 0.. {
        let Ok(said) = &message else { break };
        assert_ne!(task.name, "panics");
        while task.name == "slow" && !stop.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        if said.calls.is_empty() || turn == TURNS {
            break;
        }
        let result = |call: &warpwright_record::message::ToolCall| ToolResult {
            call: call.id.clone(),
            status: ToolStatus::Ok,
            text: format!("{} {} {seed} {}", task.name, call.name, call.arguments),
            verdicts: vec![],
            findings: vec![],
        };
        let results: Vec<ToolResult> = said.calls.iter().map(result).collect();
        message = policy.next(&results);
    }
    let outcome = match (task.name.as_str(), &message) {
        (_, Err(error)) => Outcome::Infrastructure { message: error.to_string() },
        ("ours", _) => Outcome::Infrastructure { message: "the GPU is too hot".to_owned() },
        (hiding::FAILS, _) => Outcome::Infrastructure { message: hiding::TOLD.to_owned() },
        _ => Outcome::Stopped,
    };
    let mut final_verdict = (task.name != "nothing").then(|| *verdict());
    if let Some(verdict) = &mut final_verdict {
        hiding::change(&task.name, verdict);
    }
    let (best_verdict, candidate) = (None, None);
    Ended { outcome, final_verdict, best_verdict, candidate, turns: 3, seconds: 0.0 }
}

fn task(name: &str) -> Value {
    json!({ "task": name, "reference": "x = 1", "seed": 7, "responses_create_params": { "input": [] } })
}

#[tokio::test]
async fn session_runs_tools_and_verify_returns_the_verdicts_reward() {
    let hosted = Hosted::usual();
    let cookie = hosted.seed(&task("any")).await;
    for number in 0..2 {
        let arguments = json!({ "command": number });
        let (status, text) = hosted.with(&cookie, "/Bash", &arguments).await;
        assert_eq!((status, text), (StatusCode::OK, format!("any Bash 7 {arguments}")));
    }
    // Some agents know no cookie but the last answer's.
    let (_, _, again) = hosted.text(with(&cookie, "/Bash", &json!({}))).await;
    assert!(again.unwrap().starts_with(&cookie));
    let row = json!({ "mine": 1, "responses_create_params": {}, "response": { "output": [] } });
    let (status, text) = hosted.with(&cookie, "/verify?reward=paper", &row).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    let verified: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(verified["reward"], json!(verdict().reward.paper));
    assert_eq!((&verified["mine"], &verified["response"]), (&row["mine"], &row["response"]));
    // Asked again it says the same; a tool says that it is over.
    let (_, again) = hosted.with(&cookie, "/verify?reward=paper", &row).await;
    assert_eq!(again, text);
    let (status, over) = hosted.with(&cookie, "/Bash", &json!({})).await;
    assert_eq!(status, StatusCode::OK);
    assert!(over.contains("is over"), "{over}");
    hosted.none_is_played().await;
}

#[tokio::test]
async fn episode_at_its_turn_limit_still_gets_a_reward() {
    let hosted = Hosted::usual();
    let cookie = hosted.seed(&task("any")).await;
    let mut texts = Vec::new();
    for _ in 0..TURNS + 2 {
        texts.push(hosted.with(&cookie, "/Glob", &json!({})).await.1);
    }
    let over = texts.iter().filter(|text| text.contains("is over")).count();
    assert_eq!(over, 2, "{texts:?}");
    assert_eq!(hosted.with(&cookie, "/verify", &json!({})).await.0, StatusCode::OK);
    // One that left nothing is as one that is wrong.
    let cookie = hosted.seed(&task("nothing")).await;
    let (_, text) = hosted.with(&cookie, "/verify", &json!({})).await;
    let verified: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&verified["reward"], &verified["verified"]), (&json!(-1.0), &json!(false)));
}

#[tokio::test]
async fn infrastructure_failure_answers_503_without_a_reward() {
    let hosted = Hosted::usual();
    for name in ["ours", "panics"] {
        let cookie = hosted.seed(&task(name)).await;
        for _ in 0..2 {
            let (status, text) = hosted.with(&cookie, "/verify", &json!({})).await;
            assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{name}: {text}");
            let problem: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(kind_of(&problem), "infra-error");
            assert!(problem.get("reward").is_none());
        }
    }
    hosted.none_is_played().await;
}

#[tokio::test]
async fn invalid_session_request_has_its_problem_type() {
    let hosted = Hosted::usual();
    let cookie = hosted.seed(&task("any")).await;
    let none = "warpwright_session=00000000000000000000000000000000";
    let cases = [
        (with("", "/Bash", &json!({})), "unknown-session"),
        (with(none, "/Bash", &json!({})), "unknown-session"),
        (with(none, "/verify", &json!({})), "unknown-session"),
        (with("other=1", "/verify", &json!({})), "unknown-session"),
        (with(&cookie, "/Format", &json!({})), "not-found"),
        (post("/Bash", "{"), "unknown-session"),
        (post("/seed_session", "{"), "malformed-json"),
        (post("/seed_session", "{}"), "invalid-request"),
        (post("/seed_session", r#"{"task":"unheard of"}"#), "unknown-task"),
    ];
    for (request, kind) in cases {
        let path = request.uri().clone();
        let (_, text, _) = hosted.text(request).await;
        let problem: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(kind_of(&problem), kind, "{path}: {text}");
    }
    // It is none the worse for it.
    let (status, text) = hosted.with(&cookie, "/Bash", &json!({})).await;
    assert_eq!((status, text.as_str()), (StatusCode::OK, "any Bash 7 {}"));
}

#[tokio::test]
async fn session_is_accessible_only_to_its_client() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens");
    let other = TOKEN.replace('0', "9");
    fs_err::write(&path, format!("one {TOKEN}\ntwo {other}\n")).unwrap();
    let hosted = Hosted::new(Settings { tokens: Tokens::read(&path).unwrap(), ..settings() });
    let by = |mut request: Request<Body>, token: &str| {
        let value = format!("Bearer {token}").parse().unwrap();
        request.headers_mut().insert("authorization", value);
        request
    };
    let seed = by(post("/seed_session", task("any").to_string()), TOKEN);
    let (_, _, cookie) = hosted.text(seed).await;
    let cookie = cookie.unwrap().split(';').next().unwrap().to_owned();
    let ask = || with(&cookie, "/Bash", &json!({}));
    assert_eq!(hosted.text(by(ask(), TOKEN)).await.0, StatusCode::OK);
    assert_eq!(hosted.text(by(ask(), &other)).await.0, StatusCode::NOT_FOUND);
    assert_eq!(hosted.text(ask()).await.0, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn sessions_per_client_are_limited() {
    let hosted = Hosted::usual();
    let mut cookies = Vec::new();
    for _ in 0..5 {
        cookies.push(hosted.seed(&task("any")).await);
    }
    let (status, text, _) = hosted.text(post("/seed_session", task("any").to_string())).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{text}");
    assert!(text.contains("5 sessions of this client"), "{text}");
    // One that has ended makes room.
    assert_eq!(hosted.with(&cookies[0], "/verify", &json!({})).await.0, StatusCode::OK);
    cookies.push(hosted.seed(&task("any")).await);
    hosted.server.app.sessions.end();
    let (status, text, _) = hosted.text(post("/seed_session", task("any").to_string())).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{text}");
    // Those that are there go on.
    assert_eq!(hosted.with(&cookies[5], "/verify", &json!({})).await.0, StatusCode::OK);
}

/// At most as many ended sessions are kept as may run concurrently.
#[tokio::test]
async fn ended_sessions_kept_are_bounded() {
    let hosted = Hosted::usual();
    let mut cookies = Vec::new();
    for _ in 0..30 {
        let cookie = hosted.seed(&task("any")).await;
        assert_eq!(hosted.with(&cookie, "/verify", &json!({})).await.0, StatusCode::OK);
        cookies.push(cookie);
    }
    let mut found = 0;
    for cookie in &cookies {
        let (status, _) = hosted.with(cookie, "/verify", &json!({})).await;
        found += usize::from(status == StatusCode::OK);
    }
    assert!((8..=10).contains(&found), "{found}");
    assert_eq!(hosted.with(&cookies[29], "/verify", &json!({})).await.0, StatusCode::OK);
    hosted.none_is_played().await;
    assert_eq!(hosted.seen.hosted.load(Ordering::SeqCst), 30);
}

#[tokio::test]
async fn idle_session_is_ended() {
    let idle = Duration::from_secs(2);
    let limits = SessionLimits { idle, ..settings().sessions };
    let hosted = Hosted::new(Settings { sessions: limits, ..settings() });
    let busy = hosted.seed(&task("slow")).await;
    let request = with(&busy, "/Bash", &json!({}));
    let waits = tokio::spawn(hosted.server.router.clone().oneshot(request));
    hosted.until("the step runs", || hosted.seen.begun.load(Ordering::SeqCst) == 1).await;
    let left = hosted.seed(&task("any")).await;
    hosted.until("one is ended", || hosted.server.app.sessions.played() == 1).await;
    // The slow one has run for longer than that, but somebody waits for it.
    assert!(!waits.is_finished(), "the slow one was ended");
    assert_eq!(hosted.with(&left, "/Bash", &json!({})).await.0, StatusCode::NOT_FOUND);
    assert_eq!(hosted.server.app.sessions.played(), 1);
    hosted.server.app.sessions.abandon();
    hosted.none_is_played().await;
    assert_eq!(hosted.seen.stopped.load(Ordering::SeqCst), 2, "what ran was stopped");
}

/// A client that disconnects leaves no results for the next caller.
#[tokio::test]
async fn abandoned_result_is_not_given_to_the_next_call() {
    let hosted = Hosted::usual();
    let cookie = hosted.seed(&task("any")).await;
    for number in 0..2 {
        let arguments = json!({ "gone": number });
        let asked = hosted.with(&cookie, "/Bash", &arguments);
        // Once it has been polled it is under way.
        let _ = tokio::time::timeout(Duration::ZERO, asked).await;
    }
    let (_, text) = hosted.with(&cookie, "/Bash", &json!({ "mine": true })).await;
    assert_eq!(text, r#"any Bash 7 {"mine":true}"#);
}

/// A client that disconnects before it gets its session leaves none.
#[tokio::test]
async fn session_is_ended_if_its_client_disconnects_before_the_answer() {
    let hosted = Hosted::usual();
    let played = || hosted.server.app.sessions.played();
    let answered = tokio::select! {
        biased;
        _ = hosted.text(post("/seed_session", task("late").to_string())) => true,
        () = hosted.until("an episode runs", || played() == 1) => false,
    };
    assert!(!answered, "positive control: the client waits");
    // No idle timeout ends it: that is an hour.
    hosted.none_is_played().await;
}

#[tokio::test]
async fn gym_rows_have_prompt_tools_and_task() {
    let hosted = Hosted::usual();
    let request = Request::get("/gym/rows.jsonl").header("host", "localhost");
    let (status, text, _) = hosted.text(request.body(Body::empty()).unwrap()).await;
    assert_eq!(status, StatusCode::OK);
    let row: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    let params = &row["responses_create_params"];
    assert_eq!((&row["task"], text.lines().count()), (&json!("known"), 1));
    assert_eq!(params["input"][0], json!({ "role": "system", "content": "Make it fast." }));
    assert!(params["input"][1]["content"].as_str().unwrap().contains("x = 1"));
    let tool = &params["tools"][0];
    assert_eq!((&tool["type"], &tool["name"]), (&json!("function"), &json!("Bash")));
    assert_eq!(tool["parameters"]["type"], "object");
    // It begins a session as it stands.
    hosted.seed(&row).await;
}
