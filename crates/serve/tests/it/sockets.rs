//! Sessions over a WebSocket, in OpenEnv's format.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tungstenite::{Message as Frame, WebSocket};
use warpwright_serve::Settings;

use crate::server::{PATIENCE, settings, verdict};
use crate::sessions::{Hosted, TURNS};

/// A server on a socket, for connections that are not one request and response.
pub(crate) struct Listening {
    hosted: Hosted,
    address: SocketAddr,
}

impl Listening {
    pub(crate) fn new(settings: Settings) -> Self {
        let hosted = Hosted::new(settings);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (app, router) = (Arc::clone(&hosted.server.app), hosted.server.router.clone());
        let forever = std::future::pending();
        tokio::spawn(warpwright_serve::serve(listener, app, router, forever, Duration::ZERO));
        Self { hosted, address }
    }

    /// Runs a dialogue on a socket, on a separate thread.
    pub(crate) async fn speak<T: Send + 'static>(
        &self,
        with: impl FnOnce(WebSocket<TcpStream>) -> T + Send + 'static,
    ) -> T {
        let address = self.address;
        let spoken = tokio::task::spawn_blocking(move || {
            let stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let (socket, _) = tungstenite::client(format!("ws://{address}/ws"), stream).unwrap();
            with(socket)
        });
        spoken.await.unwrap()
    }
}

pub(crate) fn ask(socket: &mut WebSocket<TcpStream>, said: &Value) -> Value {
    socket.send(Frame::text(said.to_string())).unwrap();
    hear(socket)
}

fn hear(socket: &mut WebSocket<TcpStream>) -> Value {
    serde_json::from_str(socket.read().unwrap().to_text().unwrap()).unwrap()
}

fn reset(name: &str) -> Value {
    json!({ "type": "reset", "data": { "task": name, "reference": "x = 1", "seed": 7, "episode_id": "e" } })
}

pub(crate) fn step(tool: &str) -> Value {
    json!({ "type": "step", "data": { "tool": tool, "arguments": { "a": 1 } } })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn episode_runs_over_a_websocket() {
    let listening = Listening::new(settings());
    listening
        .speak(|mut socket| {
            let first = ask(&mut socket, &reset("any"));
            assert_eq!(
                (&first["type"], &first["data"]["done"]),
                (&json!("observation"), &json!(false))
            );
            assert_eq!(first["data"]["reward"], Value::Null);
            let prompt = first["data"]["observation"]["prompt"].as_str().unwrap();
            assert!(prompt.starts_with("Make it fast.") && prompt.contains("x = 1"), "{prompt}");
            let result = ask(&mut socket, &step("Bash"));
            assert_eq!(result["data"]["observation"]["text"], r#"any Bash 7 {"a":1}"#);
            let state = ask(&mut socket, &json!({ "type": "state" }))["data"].clone();
            assert_eq!((&state["step_count"], &state["task"]), (&json!(1), &json!("any")));
            let last = ask(&mut socket, &step("submit"))["data"].clone();
            assert_eq!(
                (&last["done"], &last["reward"]),
                (&json!(true), &json!(verdict().reward.bounded))
            );
            assert_eq!(last["observation"]["verdict"]["version"], json!(verdict().version));
            // After the end it stays the end.
            assert_eq!(ask(&mut socket, &step("Bash"))["data"]["reward"], last["reward"]);
            // Another one in its place, to its limits; without a name the first task that is served.
            let _ = ask(&mut socket, &json!({ "type": "reset" }));
            assert_eq!(ask(&mut socket, &json!({ "type": "state" }))["data"]["task"], "known");
            let done = |_| ask(&mut socket, &step("Glob"))["data"]["done"].as_bool().unwrap();
            let done: Vec<bool> = (0..=TURNS).map(done).collect();
            assert_eq!(done, [false, false, false, false, true]);
            let _ = ask(&mut socket, &reset("any"));
            socket.send(Frame::text(r#"{"type":"close"}"#)).unwrap();
        })
        .await;
    listening.hosted.none_is_played().await;
    assert_eq!(listening.hosted.seen.hosted.load(Ordering::SeqCst), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_websocket_message_is_answered_with_an_error() {
    let listening = Listening::new(settings());
    listening
        .speak(|mut socket| {
            let mut refused = |said: Frame| {
                socket.send(said).unwrap();
                let answer = hear(&mut socket);
                assert_eq!(answer["type"], "error", "{answer}");
                answer["data"]["code"].as_str().unwrap().to_owned()
            };
            let text = |said: &Value| Frame::text(said.to_string());
            assert_eq!(refused(text(&step("Bash"))), "UNKNOWN_SESSION");
            assert_eq!(refused(Frame::text("{")), "MALFORMED_JSON");
            assert_eq!(refused(Frame::binary(vec![1, 2])), "MALFORMED_JSON");
            assert_eq!(refused(text(&json!({ "type": "dance" }))), "INVALID_REQUEST");
            assert_eq!(
                refused(text(&json!({ "type": "reset", "data": { "task": "no" } }))),
                "UNKNOWN_TASK"
            );
            // Our own failure is no reward.
            let _ = ask(&mut socket, &reset("ours"));
            let answer = ask(&mut socket, &step("submit"));
            assert_eq!(
                (&answer["type"], &answer["data"]["code"]),
                (&json!("error"), &json!("INFRA_ERROR"))
            );
            // It is none the worse for all that.
            let _ = ask(&mut socket, &reset("any"));
            assert_eq!(ask(&mut socket, &step("submit"))["data"]["done"], true);
        })
        .await;
}

/// A disconnect stops the client's episode, even during a step.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disconnect_ends_the_clients_episode() {
    let listening = Listening::new(settings());
    for in_a_step in [false, true] {
        let seen = Arc::clone(&listening.hosted.seen);
        listening
            .speak(move |mut socket| {
                let _ = ask(&mut socket, &reset("slow"));
                if in_a_step {
                    socket.send(Frame::text(step("Bash").to_string())).unwrap();
                    let until = Instant::now() + PATIENCE;
                    while seen.begun.load(Ordering::SeqCst) == 0 {
                        assert!(Instant::now() < until, "the step does not run");
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
                // Without a word.
                socket.get_ref().shutdown(std::net::Shutdown::Both).unwrap();
            })
            .await;
        listening.hosted.none_is_played().await;
    }
    assert_eq!(listening.hosted.seen.stopped.load(Ordering::SeqCst), 2);
}

/// A page in a browser can open a WebSocket to any host, and the connection would be accepted like
/// any other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn websocket_from_another_origin_is_refused() {
    let listening = Listening::new(settings());
    let address = listening.address;
    let status = tokio::task::spawn_blocking(move || {
        use std::io::{Read, Write};
        let status = |more: &str| {
            let mut stream = TcpStream::connect(address).unwrap();
            let head = format!(
                "GET /ws HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                 sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
            );
            stream.write_all(head.as_bytes()).unwrap();
            let mut start = [0; 12];
            stream.read_exact(&mut start).unwrap();
            String::from_utf8_lossy(&start[9..]).into_owned()
        };
        [status(""), status("origin: http://localhost\r\n")]
    });
    // The first is the control.
    assert_eq!(status.await.unwrap(), ["101", "421"]);
}
