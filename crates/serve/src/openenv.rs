//! Sessions as OpenEnv has them: a WebSocket at `/ws` with `reset`, `step`, `state` and `close`. TRL, SkyRL,
//! Unsloth and verifiers speak this. A connection has one session at a time, which ends with it.
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
//! Our own failure is an `error`, never a reward.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::http::header::ORIGIN;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use warpwright_agent::episode::Ended;
use warpwright_agent::feedback;
use warpwright_agent::tools::specification::specifications;
use warpwright_record::dialogue::first_user_message;

use crate::app::{App, Client, named};
use crate::gym::{Options, call};
use crate::problem::{Kind, Problem};
use crate::sessions::{Room, reward};

/// The action that ends an episode.
const SUBMIT: &str = "submit";
/// How long a connection may be silent that has no session.
const SILENCE: Duration = Duration::from_mins(5);

/// Messages that may come before the one before is answered.
const EARLY: usize = 16;

/// What a client says.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", content = "data", rename_all = "snake_case")]
enum Said {
    Reset(Option<Reset>),
    Step(Action),
    State,
    Close,
}

/// How an episode is begun. What else clients send (`episode_id`) is not looked at.
#[derive(Debug, Default, Deserialize)]
struct Reset {
    /// Name of the task; without one the first that is served.
    #[serde(default, alias = "task_id")]
    task: Option<String>,
    #[serde(default)]
    reference: Option<String>,
    #[serde(default)]
    seed: Option<u64>,
}

/// What a policy does.
#[derive(Debug, Deserialize)]
struct Action {
    tool: String,
    #[serde(default)]
    arguments: Map<String, Value>,
}

/// `GET /schema`: what actions and observations are.
pub(crate) async fn schema(_client: Client) -> Json<Value> {
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
                    "description": "What to do; `submit` ends the episode: what lies in the workspace is judged.",
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
                "prompt": { "type": "string", "description": "What is to be done; first" },
                "tools": { "type": "array", "description": "The tools; first" },
                "text": { "type": "string", "description": "What a tool said, or how it ended" },
                "verdict": { "description": "The judge's fresh verdict; last" },
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
pub(crate) async fn metadata(_client: Client) -> Json<Value> {
    Json(json!({
        "name": "warpwright",
        "version": env!("CARGO_PKG_VERSION"),
        "description": "Write CUDA kernels that are right and faster than torch.compile; a judge says whether they are",
    }))
}

/// `GET /ws`.
pub(crate) async fn ws(
    State(app): State<Arc<App>>,
    Client(client): Client,
    Query(options): Query<Options>,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Result<Response, Problem> {
    // A page in a browser may open a WebSocket to any host, and says where it is from. Trainers say nothing.
    if headers.contains_key(ORIGIN) {
        let detail = "a page in a browser may not speak with this server";
        return Err(Problem::new(Kind::MisdirectedRequest, detail));
    }
    let most = app.settings.body_bytes;
    let upgrade = upgrade.max_message_size(most).max_frame_size(most);
    Ok(upgrade
        .on_upgrade(async move |socket| {
            let mut seat = Seat { app, client, options, room: None };
            seat.speak(socket).await;
        })
        .into_response())
}

/// A connection.
struct Seat {
    app: Arc<App>,
    client: String,
    options: Options,
    room: Option<Arc<Room>>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Seat {
    /// Answers until the client goes, says that it does, or is silent for too long.
    async fn speak(&mut self, mut socket: WebSocket) {
        let mut early = VecDeque::new();
        loop {
            let silence =
                if self.room.is_some() { self.app.settings.sessions.idle } else { SILENCE };
            let text = match early.pop_front() {
                Some(text) => text,
                None => match tokio::time::timeout(silence, heard(&mut socket)).await {
                    Ok(Some(text)) => text,
                    _ => return,
                },
            };
            let answer = tokio::select! {
                answer = self.answer(&text) => answer,
                // Whoever waits may go: what runs for it is ended, not waited for.
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

    /// `None` to one who goes.
    async fn answer(&mut self, text: &str) -> Result<Option<Value>, Problem> {
        let said = serde_json::from_str(text).map_err(|error| {
            let kind = if error.is_data() { Kind::InvalidRequest } else { Kind::MalformedJson };
            Problem::new(kind, error.to_string())
        })?;
        Ok(Some(match said {
            Said::Close => return Ok(None),
            Said::State => self.state(),
            Said::Reset(reset) => self.reset(reset.unwrap_or_default()).await?,
            Said::Step(action) => self.step(action).await?,
        }))
    }

    fn leave(&mut self) {
        if let Some(room) = self.room.take() {
            self.app.sessions.close(&room.id);
        }
    }

    async fn reset(&mut self, reset: Reset) -> Result<Value, Problem> {
        self.leave();
        let first = || self.app.settings.tasks.keys().next().cloned();
        let name = reset.task.or_else(first).ok_or_else(|| {
            Problem::new(Kind::InvalidRequest, "reset: it names no task, and none is served")
        })?;
        let task = named(&self.app, &name, reset.reference)?;
        let prompt = first_user_message(&task.name, &task.source);
        let seed = reset.seed.unwrap_or_else(rand::random);
        self.room = Some(self.app.sessions.open(&self.client, task, seed).await?);
        let prompt = format!("{}\n\n{prompt}", self.app.settings.skill);
        Ok(observed(&json!({ "prompt": prompt, "tools": specifications() }), None, false))
    }

    async fn step(&mut self, Action { tool, arguments }: Action) -> Result<Value, Problem> {
        let room = self.room.as_ref().ok_or_else(|| {
            Problem::new(Kind::UnknownSession, "step: no episode was begun")
                .hint(Some("send `reset` first"))
        })?;
        if tool != SUBMIT
            && let Some(text) = call(room, tool, Value::Object(arguments)).await?
        {
            return Ok(observed(&json!({ "text": text }), None, false));
        }
        let ended = room.finish(&self.app.seen).await?;
        Ok(self.last(ended))
    }

    fn last(&self, ended: &Ended) -> Value {
        let text = match &ended.final_verdict {
            Some(verdict) => feedback::render(verdict),
            None => "there was no model_new.py to judge".to_owned(),
        };
        let observation = json!({ "text": text, "verdict": ended.final_verdict });
        observed(&observation, Some(reward(ended, self.options.reward)), true)
    }

    fn state(&self) -> Value {
        let room = self.room.as_ref();
        json!({ "type": "state", "data": {
            "episode_id": room.map(|room| &room.id),
            "step_count": room.map_or(0, |room| room.turns()),
            "task": room.map(|room| &room.task),
            "done": room.is_some_and(|room| room.ended().is_some()),
        } })
    }
}

/// The next text; `None` when there will be none. What is no text is read as one that is no JSON.
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

/// Waits until the client is gone, or has said so much more without waiting that it may as well be. What it says
/// meanwhile is kept.
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

/// OpenEnv's codes are names in capitals.
fn told_problem(problem: &Problem) -> Message {
    let code = problem.uri.rsplit(':').next().unwrap_or_default().replace('-', "_").to_uppercase();
    let data = json!({ "message": problem.detail, "code": code, "hint": problem.hint });
    Message::text(json!({ "type": "error", "data": data }).to_string())
}
