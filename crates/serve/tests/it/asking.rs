//! Judge requests and their answers.

use axum::body::to_bytes;
use axum::http::StatusCode;
use futures_util::StreamExt;
use futures_util::future::join_all;
use serde_json::Value;
use serde_json::json;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::task::Context;
use std::task::Wake;
use std::task::Waker;
use std::time::Duration;
use std::time::Instant;
use tower::ServiceExt;
use warpwright_fleet::Limits;

use crate::server::{PATIENCE, Server, kind_of, post, question, settings, verdict, with_key};

#[tokio::test]
async fn verdict_response_has_the_chosen_reward() {
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
async fn infra_error_has_no_reward_and_refused_task_is_a_client_error() {
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
async fn idempotency_key_replays_unless_infrastructure_failed() {
    let server = Server::usual();
    let ask = || server.send(with_key(&question("slow"), "k"));
    // The first request is judged while the others wait for its answer.
    let release = async {
        server.until_load(1, 0).await;
        server.release();
    };
    let (answers, ()) = tokio::join!(join_all((0..10).map(|_| ask())), release);
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
    }
    // What the task does wrong it does again.
    for _ in 0..2 {
        let (status, body, _) = server.send(with_key(&question("refused"), "r")).await;
        assert_eq!((status.as_u16(), kind_of(&body)), (422, "task-refused"));
    }
    assert_eq!(server.judged(), 4);
}

#[tokio::test]
async fn batch_items_are_answered_individually() {
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

/// Trainers of these formats require a number in every answer.
#[tokio::test]
async fn trainer_rewards_are_numbers_unless_infrastructure_failed() {
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

/// A prompt that contains code is not the answer.
#[tokio::test]
async fn only_the_text_after_the_prompt_is_judged() {
    let server = Server::usual();
    let prompt = format!("Some words before it.\n{ANSWER}");
    // Whole, and cut from the front, as OpenRLHF does with one that is too long.
    for left in [&*prompt, &prompt[9..]] {
        let query = format!("{left}I have nothing to add.");
        let body = json!({ "query": [query], "prompts": [prompt], "labels": ["known"] });
        let (_, body, _) = server.send(post("/reward/openrlhf", body.to_string())).await;
        assert_eq!((&body["rewards"], server.judged()), (&json!([-1.0]), 0));
    }
}

#[tokio::test]
async fn event_stream_ends_with_the_answer() {
    let server = Server::new(1, settings(), Limits { waiting: 100, per_client: 100 });
    let busy =
        tokio::spawn(server.router.clone().oneshot(post("/judge", question("slow").to_string())));
    server.until_load(1, 0).await;
    let ask = |task: &str| {
        let mut request = post("/judge", question(task).to_string());
        request.headers_mut().insert("accept", "text/event-stream".parse().unwrap());
        server.router.clone().oneshot(request)
    };
    let response = ask("any").await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut pieces = response.into_body().into_data_stream();
    let mut text: Vec<u8> = Vec::new();
    // The job waits until its client knows that.
    while !String::from_utf8_lossy(&text).contains(r#"{"event":"waiting","ahead":0,"#) {
        text.extend_from_slice(&pieces.next().await.unwrap().unwrap());
    }
    server.release();
    while let Some(piece) = pieces.next().await {
        text.extend_from_slice(&piece.unwrap());
    }
    let text = String::from_utf8(text).unwrap();
    let events: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    // A slow machine may repeat that it waits.
    assert!(matches!(&events[..], ["progress", .., "progress", "result"]), "{text}");
    assert_eq!(text.matches(r#"{"event":"started"}"#).count(), 1, "{text}");
    assert!(busy.await.is_ok());
    let text = to_bytes(ask("refused").await.unwrap().into_body(), 1 << 20).await.unwrap();
    assert!(String::from_utf8_lossy(&text).contains("event: problem"));
    // Who stops reading gives it up.
    let busy =
        tokio::spawn(server.router.clone().oneshot(post("/judge", question("slow").to_string())));
    server.until_load(1, 0).await;
    let mut body = ask("gone").await.unwrap().into_body().into_data_stream();
    assert!(body.next().await.is_some());
    assert_eq!(server.queue.load().waiting, 1);
    drop(body);
    assert_eq!(server.queue.load().waiting, 0);
    server.release();
    assert!(busy.await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_concurrent_requests_are_each_judged_once() {
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

/// Counts the wakes of a future.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Between the judge and the client no timer adds to the time of a request.
#[tokio::test]
async fn answer_wakes_its_request_without_a_timer() {
    let server = Server::usual();
    let question = question("slow");
    let mut asked = pin!(server.judge(&question));
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(Arc::clone(&wakes));
    let mut context = Context::from_waker(&waker);
    while server.judged() == 0 {
        assert!(asked.as_mut().poll(&mut context).is_pending());
        tokio::task::yield_now().await;
    }
    // Now the request knows that its job was begun.
    assert!(asked.as_mut().poll(&mut context).is_pending());
    wakes.0.store(0, Ordering::SeqCst);
    server.release();
    // This thread drives the runtime's timers, and it is kept here.
    let until = Instant::now() + PATIENCE;
    while wakes.0.load(Ordering::SeqCst) == 0 {
        assert!(Instant::now() < until, "the answer wakes no request");
        std::thread::sleep(Duration::from_millis(1));
    }
    let (status, body) = asked.await;
    assert_eq!((status, &body["infra_error"]), (StatusCode::OK, &Value::Null));
}
