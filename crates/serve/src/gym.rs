//! Sessions as NeMo-Gym's resources servers have them: `/seed_session`, a path for each tool, `/verify`. The
//! session is a cookie. verifiers, prime-rl and NeMo-RL speak this.
//!
//! A tool's answer is its text, for the model to read, also where the tool was used wrongly. Our own failure is
//! never a reward: `/verify` has status 503 then.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, Request, State};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_TYPE, COOKIE, SET_COOKIE};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use warpwright_agent::tools::specification::{ToolSpecification, specifications};
use warpwright_record::dialogue::first_user_message;
use warpwright_record::message::{Message, ToolCall};
use warpwright_record::verdict::Scheme;
use warpwright_task::Task;

use crate::app::{App, Client, body, named, parse};
use crate::problem::{Kind, Problem};
use crate::sessions::{Room, Turn, reward};

const COOKIE_NAME: &str = "warpwright_session";
/// What a model reads when it goes on after the end.
const OVER: &str =
    "The episode is over: its limits are reached. What lies in the workspace is judged.";

/// A row of the data set, as it is sent to begin a session; the rest of it is not looked at.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct SeedSession {
    /// Name of the task: of one that is served, or, with `reference`, any.
    task: String,
    /// Its source, if it is not one that is served.
    #[serde(default)]
    reference: Option<String>,
    /// Decides what is drawn.
    #[serde(default)]
    seed: Option<u64>,
}

/// A session that was begun.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SeedSessionResponse {
    /// Its name, which is also the cookie's value.
    session_id: String,
}

/// The row with which a session was begun, and what the model answered; neither is looked at: what lies in the
/// workspace is judged.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct VerifyRequest {
    #[serde(flatten)]
    row: Map<String, Value>,
}

/// The row with its reward.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct VerifyResponse {
    /// All that was sent.
    #[serde(flatten)]
    row: Map<String, Value>,
    /// By the fresh verdict on the final candidate.
    reward: f64,
    /// Whether it is right.
    verified: bool,
    /// How many times faster than eager; 0 where it is not right.
    speedup_eager: f64,
    /// How many times faster than the best baseline; 0 where it is not right.
    speedup_best: f64,
    /// Turns of the episode.
    turns: u32,
    /// The session: its record's name, where records are kept.
    session_id: String,
}

/// What can be said of a reward, in the URL.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Options {
    /// Which of the verdict's rewards is the reward.
    #[serde(default)]
    pub(crate) reward: Scheme,
}

/// `POST /seed_session`.
pub(crate) async fn seed_session(
    State(app): State<Arc<App>>,
    Client(client): Client,
    request: Request,
) -> Result<Response, Problem> {
    let SeedSession { task: name, reference, seed } = parse(&body(&app, request).await?)?;
    let task = named(&app, &name, reference)?;
    let seed = seed.unwrap_or_else(rand::random);
    let room = app.sessions.open(&client, task, seed).await?;
    let session = SeedSessionResponse { session_id: room.id.clone() };
    Ok(([(SET_COOKIE, cookie(&room))], Json(session)).into_response())
}

fn cookie(room: &Room) -> String {
    format!("{COOKIE_NAME}={}; Path=/; HttpOnly; SameSite=Strict", room.id)
}

/// `POST /{tool}`: the arguments in, the tool's text out.
pub(crate) async fn tool(
    State(app): State<Arc<App>>,
    Client(client): Client,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    if !specifications().iter().any(|tool| tool.name == name) {
        return Err(Problem::new(Kind::NotFound, "nothing is served at this path"));
    }
    let room = of_cookie(&app, &client, request.headers())?;
    let arguments: Value = parse(&body(&app, request).await?)?;
    let text = call(&room, name, arguments).await?.unwrap_or_else(|| OVER.to_owned());
    // Some of Gym's agents know only the cookies of the last answer (NeMo-Gym 0.4.0 and 0.5.1).
    let headers =
        [(CONTENT_TYPE, "text/plain; charset=utf-8".to_owned()), (SET_COOKIE, cookie(&room))];
    Ok((headers, text).into_response())
}

/// Has a tool do something; `None` where the episode is over.
pub(crate) async fn call(
    room: &Arc<Room>,
    name: String,
    arguments: Value,
) -> Result<Option<String>, Problem> {
    let id = format!("call_{:016x}", rand::random::<u64>());
    let calls = vec![ToolCall { id, name, arguments }];
    match room.say(Message { calls, ..Message::default() }).await? {
        Turn::Over => Ok(None),
        Turn::Results(results) => {
            let texts: Vec<String> = results.into_iter().map(|result| result.text).collect();
            Ok(Some(texts.join("\n")))
        }
    }
}

/// `POST /verify`.
pub(crate) async fn verify(
    State(app): State<Arc<App>>,
    Client(client): Client,
    Query(options): Query<Options>,
    request: Request,
) -> Result<Json<VerifyResponse>, Problem> {
    let room = of_cookie(&app, &client, request.headers())?;
    let VerifyRequest { row } = parse(&body(&app, request).await?)?;
    let ended = room.finish(&app.seen).await?;
    let verdict = ended.final_verdict.as_ref();
    let right = verdict.filter(|verdict| verdict.verified);
    let of =
        |speedup: Option<warpwright_record::interval::Interval>| speedup.map_or(0.0, |s| s.value);
    Ok(Json(VerifyResponse {
        row,
        reward: reward(ended, options.reward),
        verified: right.is_some(),
        speedup_eager: right.map_or(0.0, |verdict| of(verdict.speedup.eager)),
        speedup_best: right.map_or(0.0, |verdict| of(verdict.speedup.best)),
        turns: ended.turns,
        session_id: room.id.clone(),
    }))
}

fn of_cookie(app: &App, client: &str, headers: &HeaderMap) -> Result<Arc<Room>, Problem> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|line| line.split(';')).map(str::trim);
    let id = pairs.find_map(|pair| pair.strip_prefix(COOKIE_NAME)?.strip_prefix('='));
    let id = id.ok_or_else(|| {
        Problem::new(Kind::UnknownSession, "there is no cookie of a session")
            .hint(Some("POST /seed_session begins one; send the cookie that it sets"))
    })?;
    app.sessions.find(client, id)
}

/// `GET /gym/rows.jsonl`: a row for each task that is served, as trainers read them.
pub(crate) async fn rows(State(app): State<Arc<App>>, _client: Client) -> Response {
    let tools: Vec<Value> = specifications().iter().map(function).collect();
    let row = |task: &Task| {
        let row = json!({
            "task": task.name,
            "responses_create_params": {
                "input": [
                    { "role": "system", "content": app.settings.skill },
                    { "role": "user", "content": first_user_message(&task.name, &task.source) },
                ],
                "tools": tools,
                "parallel_tool_calls": false,
            },
        });
        format!("{row}\n")
    };
    let text: String = app.settings.tasks.values().map(row).collect();
    ([(CONTENT_TYPE, "application/jsonl; charset=utf-8")], text).into_response()
}

/// As the Responses API has tools.
fn function(tool: &ToolSpecification) -> Value {
    json!({
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": false,
    })
}
