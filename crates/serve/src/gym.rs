//! Sessions in the protocol of NeMo-Gym's resources servers: `/seed_session`, one path per tool, `/verify`. A
//! cookie holds the session. verifiers, prime-rl and NeMo-RL use it.
//!
//! The response of a tool is its text for the model, also if the model used the tool wrongly. An infrastructure
//! error is never a reward: `/verify` then answers with status 503.

use std::sync::Arc;

use axum::extract::{Path, Query, Request, State};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_TYPE, COOKIE, SET_COOKIE};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use warpwright_agent::tools::specification::{ToolSpecification, specifications};
use warpwright_record::dialogue::first_user_message;
use warpwright_record::message::{Message, ToolCall};
use warpwright_record::verdict::Scheme;
use warpwright_task::Task;

use crate::app::App;
use crate::problem::{Kind, Problem};
use crate::protocol::TrainerProtocol;
use crate::request::{Client, body, named, parse};
use crate::sessions::{Session, Turn, reward};

const COOKIE_NAME: &str = "warpwright_session";
/// The model's tool result after the episode's end.
const OVER: &str =
    "The episode is over: its limits are reached. What lies in the workspace is judged.";

/// A row of the data set, which begins a session. Other fields are ignored.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct SeedSession {
    /// Name of the task: a served one, or, with `reference`, any name.
    task: String,
    /// Source of a task that is not served.
    #[serde(default)]
    reference: Option<String>,
    /// Seed of the episode; random by default.
    #[serde(default)]
    seed: Option<u64>,
}

/// A new session.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SeedSessionResponse {
    /// Its id, which is also the cookie's value.
    session_id: String,
}

/// The row that began the session, and the model's answer. Both are ignored: the judge takes the candidate from
/// the workspace.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct VerifyRequest {
    #[serde(flatten)]
    row: Map<String, Value>,
}

/// The row with its reward.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct VerifyResponse {
    /// All fields of the request.
    #[serde(flatten)]
    row: Map<String, Value>,
    /// Reward of the verdict on the final candidate.
    reward: f64,
    /// Whether the candidate is verified.
    verified: bool,
    /// Speedup over eager; 0 if the candidate is not verified.
    speedup_eager: f64,
    /// Speedup over the best baseline; 0 if the candidate is not verified.
    speedup_best: f64,
    /// Turns of the episode.
    turns: u32,
    /// The session's id, which is also the name of its run folder with `--keep-sessions`.
    session_id: String,
}

/// Options in the URL.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Options {
    /// The verdict's reward scheme that becomes `reward`.
    #[serde(default)]
    pub(crate) reward: Scheme,
}

/// The resource server of NeMo-Gym.
pub(crate) struct NemoGym;

impl TrainerProtocol for NemoGym {
    fn routes(&self) -> Router<Arc<App>> {
        Router::new()
            .route("/seed_session", post(seed_session))
            .route("/verify", post(verify))
            .route("/{tool}", post(tool))
            .route("/gym/rows.jsonl", get(rows))
    }
}

/// `POST /seed_session`.
async fn seed_session(
    State(app): State<Arc<App>>,
    Client(client): Client,
    request: Request,
) -> Result<Response, Problem> {
    let SeedSession { task: name, reference, seed } = parse(&body(&app, request).await?)?;
    let task = named(&app, &name, reference)?;
    let seed = seed.unwrap_or_else(rand::random);
    let session = app.sessions.open(&client, task, seed).await?;
    let response = SeedSessionResponse { session_id: session.id.clone() };
    Ok(([(SET_COOKIE, cookie(&session))], Json(response)).into_response())
}

fn cookie(session: &Session) -> String {
    format!("{COOKIE_NAME}={}; Path=/; HttpOnly; SameSite=Strict", session.id)
}

/// `POST /{tool}`: the arguments in, the tool's text out.
async fn tool(
    State(app): State<Arc<App>>,
    Client(client): Client,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    if !specifications().iter().any(|tool| tool.name == name) {
        return Err(Problem::new(Kind::NotFound, "no tool has this name"));
    }
    let session = of_cookie(&app, &client, request.headers())?;
    let arguments: Value = parse(&body(&app, request).await?)?;
    let text = call(&session, name, arguments).await?.unwrap_or_else(|| OVER.to_owned());
    // Some of Gym's agents know only the cookies of the last answer (NeMo-Gym 0.4.0 and 0.5.1).
    let headers =
        [(CONTENT_TYPE, "text/plain; charset=utf-8".to_owned()), (SET_COOKIE, cookie(&session))];
    Ok((headers, text).into_response())
}

/// Calls a tool; `None` if the episode is over.
pub(crate) async fn call(
    session: &Arc<Session>,
    name: String,
    arguments: Value,
) -> Result<Option<String>, Problem> {
    let id = format!("call_{:016x}", rand::random::<u64>());
    let calls = vec![ToolCall { id, name, arguments }];
    match session.say(Message { calls, ..Message::default() }).await? {
        Turn::Over => Ok(None),
        Turn::Results(results) => {
            let texts: Vec<String> = results.into_iter().map(|result| result.text).collect();
            Ok(Some(texts.join("\n")))
        }
    }
}

/// `POST /verify`.
async fn verify(
    State(app): State<Arc<App>>,
    Client(client): Client,
    Query(options): Query<Options>,
    request: Request,
) -> Result<Json<VerifyResponse>, Problem> {
    let session = of_cookie(&app, &client, request.headers())?;
    let VerifyRequest { row } = parse(&body(&app, request).await?)?;
    let ended = session.finish(&app.seen).await?;
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
        session_id: session.id.clone(),
    }))
}

fn of_cookie(app: &App, client: &str, headers: &HeaderMap) -> Result<Arc<Session>, Problem> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|line| line.split(';')).map(str::trim);
    let id = pairs.find_map(|pair| pair.strip_prefix(COOKIE_NAME)?.strip_prefix('='));
    let id = id.ok_or_else(|| {
        Problem::new(Kind::UnknownSession, "the request has no session cookie")
            .hint(Some("begin a session with POST /seed_session, and send the cookie that it sets"))
    })?;
    app.sessions.find(client, id)
}

/// `GET /gym/rows.jsonl`: one data-set row per served task.
async fn rows(State(app): State<Arc<App>>, _client: Client) -> Response {
    let tools: Vec<Value> = specifications().iter().map(function).collect();
    let row = |task: &Task| {
        let row = json!({
            "task": task.name,
            "responses_create_params": {
                "input": [
                    { "role": "system", "content": app.settings.skill },
                    { "role": "user", "content": first_user_message(&task.name, &task.shown_source()) },
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

/// A tool in the format of the Responses API.
fn function(tool: &ToolSpecification) -> Value {
    json!({
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": false,
    })
}
