//! Sessions in OpenEnv's protocol: a WebSocket at `/ws` with `reset`, `step`, `state` and `close`. TRL, SkyRL,
//! Unsloth and verifiers use it. A connection has one session at a time, which ends with the connection.
//!
//! ```text
//! <- {"type":"reset","data":{"task":"NAME"}}
//! -> {"type":"observation","data":{"observation":{"prompt":...,"tools":[...]},"reward":null,"done":false}}
//! <- {"type":"step","data":{"tool":"Bash","arguments":{"command":"ls"}}}
//! -> {"type":"observation","data":{"observation":{"text":...},"reward":null,"done":false}}
//! <- {"type":"step","data":{"tool":"submit"}}
//! -> {"type":"observation","data":{"observation":{"text":...,"verdict":{...}},"reward":2.0,"done":true}}
//! ```
//!
//! An infrastructure error is an `error` message, never a reward.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::http::header::ORIGIN;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use warpwright_agent::episode::Ended;
use warpwright_agent::feedback;
use warpwright_agent::tools::specification::specifications;
use warpwright_record::dialogue::first_user_message;
use warpwright_record::verdict::Verdict;

use crate::app::App;
use crate::gym::{Options, call};
use crate::problem::{Kind, Problem};
use crate::protocol::TrainerProtocol;
use crate::request::{Client, named};
use crate::sessions::{Session, reward};

/// The action that ends an episode.
const SUBMIT: &str = "submit";
/// Idle timeout of a connection without a session.
const SILENCE: Duration = Duration::from_mins(5);

/// Messages that a client may send ahead of a response.
const EARLY: usize = 16;

/// A message of a client.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", content = "data", rename_all = "snake_case")]
enum ClientMessage {
    Reset(Option<Reset>),
    Step(Action),
    State,
    Close,
}

/// Options of a new episode. Other fields that clients send (`episode_id`) are ignored.
#[derive(Debug, Default, Deserialize)]
struct Reset {
    /// Name of the task; by default the first served one.
    #[serde(default, alias = "task_id")]
    task: Option<String>,
    #[serde(default)]
    reference: Option<String>,
    #[serde(default)]
    seed: Option<u64>,
}

/// An action of a policy.
#[derive(Debug, Deserialize)]
struct Action {
    tool: String,
    #[serde(default)]
    arguments: Map<String, Value>,
}

/// The environment server of OpenEnv.
pub(crate) struct OpenEnv;

impl TrainerProtocol for OpenEnv {
    fn routes(&self) -> Router<Arc<App>> {
        Router::new()
            .route("/ws", get(ws))
            .route("/schema", get(schema))
            .route("/metadata", get(metadata))
    }
}

/// `GET /schema`: JSON Schemas of actions, observations and state.
async fn schema(_client: Client) -> Json<Value> {
    let tools = specifications();
    let names: Vec<&str> = tools.iter().map(|tool| tool.name).chain([SUBMIT]).collect();
    let about: Vec<String> =
        tools.iter().map(|tool| format!("{}: {}", tool.name, tool.parameters)).collect();
    Json(json!({
        "action": {
            "title": "KernelAction",
            "type": "object",
            "properties": {
                "tool": {
                    "enum": names,
                    "description": "The tool to call. `submit` ends the episode; the judge then judges the candidate in the workspace.",
                },
                "arguments": {
                    "type": "object",
                    "description": format!("The tool's arguments. {}", about.join(" ")),
                },
            },
            "required": ["tool"],
            "additionalProperties": false,
        },
        "observation": {
            "title": "KernelObservation",
            "type": "object",
            "properties": {
                "prompt": { "type": "string", "description": "The task; in the first observation" },
                "tools": { "type": "array", "description": "The tools; in the first observation" },
                "text": { "type": "string", "description": "The tool's result; in the last observation the verdict as text" },
                "verdict": { "description": "The judge's verdict on the final candidate, without held-out workloads; in the last observation" },
            },
        },
        "state": {
            "title": "State",
            "type": "object",
            "properties": {
                "episode_id": { "type": ["string", "null"] },
                "step_count": { "type": "integer" },
                "task": { "type": ["string", "null"] },
                "done": { "type": "boolean" },
            },
        },
    }))
}

/// `GET /metadata`.
async fn metadata(_client: Client) -> Json<Value> {
    Json(json!({
        "name": "warpwright",
        "version": env!("CARGO_PKG_VERSION"),
        "description": "Write CUDA kernels that are correct and faster than torch.compile; a judge verifies and measures them",
    }))
}

/// `GET /ws`.
async fn ws(
    State(app): State<Arc<App>>,
    Client(client): Client,
    Query(options): Query<Options>,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Result<Response, Problem> {
    // A web page may open a WebSocket to any host; its browser sends `Origin`. Trainers send none.
    if headers.contains_key(ORIGIN) {
        let detail = "the server refuses WebSocket requests with an Origin header, which browsers send for web pages";
        return Err(Problem::new(Kind::MisdirectedRequest, detail));
    }
    let most = app.settings.body_bytes;
    let upgrade = upgrade.max_message_size(most).max_frame_size(most);
    Ok(upgrade
        .on_upgrade(async move |socket| {
            let mut connection = Connection { app, client, options, session: None };
            connection.speak(socket).await;
        })
        .into_response())
}

/// A connection.
struct Connection {
    app: Arc<App>,
    client: String,
    options: Options,
    session: Option<Arc<Session>>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Connection {
    /// Answers until the client closes, disconnects, or is idle for too long.
    async fn speak(&mut self, mut socket: WebSocket) {
        let mut early = VecDeque::new();
        loop {
            let silence =
                if self.session.is_some() { self.app.settings.sessions.idle } else { SILENCE };
            let text = match early.pop_front() {
                Some(text) => text,
                None => match tokio::time::timeout(silence, heard(&mut socket)).await {
                    Ok(Some(text)) => text,
                    _ => return,
                },
            };
            let answer = tokio::select! {
                answer = self.answer(&text) => answer,
                // A client that disconnects ends its running turn.
                () = gone(&mut socket, &mut early) => return,
            };
            let answer = match answer {
                Ok(Some(answer)) => Message::text(answer.to_string()),
                Ok(None) => return,
                Err(problem) => told_problem(&problem),
            };
            if socket.send(answer).await.is_err() {
                return;
            }
        }
    }

    /// The response; `None` to `close`.
    async fn answer(&mut self, text: &str) -> Result<Option<Value>, Problem> {
        let said = serde_json::from_str(text).map_err(|error| {
            let kind = if error.is_data() { Kind::InvalidRequest } else { Kind::MalformedJson };
            Problem::new(kind, error.to_string())
        })?;
        Ok(Some(match said {
            ClientMessage::Close => return Ok(None),
            ClientMessage::State => self.state(),
            ClientMessage::Reset(reset) => self.reset(reset.unwrap_or_default()).await?,
            ClientMessage::Step(action) => self.step(action).await?,
        }))
    }

    fn leave(&mut self) {
        if let Some(session) = self.session.take() {
            self.app.sessions.close(&session.id);
        }
    }

    async fn reset(&mut self, reset: Reset) -> Result<Value, Problem> {
        self.leave();
        let first = || self.app.settings.tasks.keys().next().cloned();
        let name = reset.task.or_else(first).ok_or_else(|| {
            Problem::new(
                Kind::InvalidRequest,
                "reset: the message names no task, and the server has no tasks",
            )
        })?;
        let task = named(&self.app, &name, reset.reference)?;
        let prompt = first_user_message(&task.name, &task.shown_source());
        let seed = reset.seed.unwrap_or_else(rand::random);
        self.session = Some(self.app.sessions.open(&self.client, task, seed).await?);
        let prompt = format!("{}\n\n{prompt}", self.app.settings.skill);
        Ok(observed(&json!({ "prompt": prompt, "tools": specifications() }), None, false))
    }

    async fn step(&mut self, Action { tool, arguments }: Action) -> Result<Value, Problem> {
        let session = self.session.as_ref().ok_or_else(|| {
            Problem::new(Kind::UnknownSession, "step: this connection has no episode")
                .hint(Some("send `reset` first"))
        })?;
        if tool != SUBMIT
            && let Some(text) = call(session, tool, Value::Object(arguments)).await?
        {
            return Ok(observed(&json!({ "text": text }), None, false));
        }
        let ended = session.finish(&self.app.seen).await?;
        Ok(self.last(ended))
    }

    fn last(&self, ended: &Ended) -> Value {
        // The agent reads it, and may play the task again.
        let shown = ended.final_verdict.as_ref().map(Verdict::shown);
        let text = match &shown {
            Some(verdict) => feedback::render(verdict),
            None => "there was no model_new.py to judge".to_owned(),
        };
        let observation = json!({ "text": text, "verdict": shown });
        observed(&observation, Some(reward(ended, self.options.reward)), true)
    }

    fn state(&self) -> Value {
        let session = self.session.as_ref();
        json!({ "type": "state", "data": {
            "episode_id": session.map(|session| &session.id),
            "step_count": session.map_or(0, |session| session.turns()),
            "task": session.map(|session| &session.task),
            "done": session.is_some_and(|session| session.ended().is_some()),
        } })
    }
}

/// The next message; `None` after the last. A binary message is read as empty text, which is not JSON.
async fn heard(socket: &mut WebSocket) -> Option<String> {
    loop {
        match socket.recv().await?.ok()? {
            Message::Text(text) => return Some(text.as_str().to_owned()),
            Message::Binary(_) => return Some(String::new()),
            Message::Close(_) => return None,
            Message::Ping(_) | Message::Pong(_) => {}
        }
    }
}

/// Waits until the client disconnects, or has sent more than [`EARLY`] messages ahead. They are kept in `early`.
async fn gone(socket: &mut WebSocket, early: &mut VecDeque<String>) {
    while let Some(text) = heard(socket).await {
        early.push_back(text);
        if early.len() > EARLY {
            return;
        }
    }
}

fn observed(observation: &Value, reward: Option<f64>, done: bool) -> Value {
    json!({ "type": "observation", "data": {
        "observation": observation, "reward": reward, "done": done,
    } })
}

/// A problem as OpenEnv's error message; its codes are upper-case names.
fn told_problem(problem: &Problem) -> Message {
    let code = problem.uri.rsplit(':').next().unwrap_or_default().replace('-', "_").to_uppercase();
    let data = json!({ "message": problem.detail, "code": code, "hint": problem.hint });
    Message::text(json!({ "type": "error", "data": data }).to_string())
}
