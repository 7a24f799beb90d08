//! The server's state and its routes.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use warpwright_fleet::Queue;
use warpwright_fleet::nats::{RemoteWorkerStatus, Roster};
use warpwright_record::verdict::Profile;
use warpwright_task::Task;

use crate::auth::Tokens;
use crate::dashboard::Uses;
use crate::metrics::Metrics;
use crate::problem::{Kind, Problem};
use crate::replays::Replays;
use crate::seen::Seen;
use crate::sessions::{SessionLimits, Sessions};
use crate::{dashboard, gym, judge, openapi, openenv, rewards};

/// Settings of the server.
#[derive(Debug)]
pub struct Settings {
    /// Bearer tokens of the clients.
    pub tokens: Tokens,
    /// Served tasks, by name.
    pub tasks: BTreeMap<String, Task>,
    /// Devices of this host.
    pub served: Vec<Served>,
    /// Profile of the judge.
    pub profile: Profile,
    /// Limit of a request's body, bytes.
    pub body_bytes: usize,
    /// Timeout of receiving a body.
    pub body_time: Duration,
    /// Deadline of a request that names none.
    pub deadline: Duration,
    /// Limit of a batch, candidates.
    pub batch: usize,
    /// How long a response is kept for its idempotency key.
    pub replay_time: Duration,
    /// Limit of kept responses, bytes.
    pub replay_bytes: usize,
    /// Limits of sessions.
    pub sessions: SessionLimits,
    /// System prompt of an episode: the device and the tools.
    pub skill: String,
}

/// A device that judges.
#[derive(Clone, Debug)]
pub struct Served {
    /// `cuda:N` or `cpu`.
    pub device: String,
    /// `NVIDIA H200`, or the CPU's name.
    pub hardware: String,
}

/// State that all requests share.
#[derive(Debug)]
pub struct App {
    pub(crate) settings: Settings,
    pub(crate) queue: Arc<Queue>,
    pub(crate) metrics: Metrics,
    pub(crate) replays: Replays,
    /// Episodes that clients play. The caller hosts them, see [`Sessions::next`].
    pub sessions: Sessions,
    /// Utilisation of the devices, reported by the caller.
    pub uses: Uses,
    /// Remote workers; unset on a server without NATS.
    pub remote_workers: OnceLock<Arc<Roster>>,
    pub(crate) seen: Seen,
}

impl App {
    /// For a queue whose workers the caller runs.
    pub fn new(settings: Settings, queue: Arc<Queue>) -> Arc<Self> {
        let replays = Replays::new(settings.replay_time, settings.replay_bytes);
        let sessions = Sessions::new(settings.sessions);
        Arc::new(Self {
            settings,
            queue,
            metrics: Metrics::new(),
            replays,
            sessions,
            uses: Uses::default(),
            remote_workers: OnceLock::new(),
            seen: Seen::default(),
        })
    }
}

impl App {
    /// The connected remote workers.
    pub(crate) fn remote_workers(&self) -> Vec<RemoteWorkerStatus> {
        self.remote_workers.get().map(|roster| roster.workers()).unwrap_or_default()
    }
}

/// The router with every path.
pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/judge", post(judge::judge))
        .route("/judge/batch", post(judge::batch))
        .route("/reward/slime", post(rewards::slime))
        .route("/reward/openrlhf", post(rewards::openrlhf))
        .route("/seed_session", post(gym::seed_session))
        .route("/verify", post(gym::verify))
        .route("/{tool}", post(gym::tool))
        .route("/gym/rows.jsonl", get(gym::rows))
        .route("/ws", get(openenv::ws))
        .route("/schema", get(openenv::schema))
        .route("/metadata", get(openenv::metadata))
        .route("/", get(dashboard::page))
        .route("/dashboard/app.js", get(dashboard::script))
        .route("/dashboard/style.css", get(dashboard::style))
        .route("/dashboard/state", get(dashboard::state))
        .route("/dashboard/verdicts/{number}", get(dashboard::verdict))
        .route("/tasks", get(tasks))
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .route("/openapi.json", get(async || Json(openapi::document())))
        .fallback(async || Problem::new(Kind::NotFound, "no resource has this path"))
        .method_not_allowed_fallback(async || {
            Problem::new(Kind::NotFound, "this path does not support this method")
        })
        .layer(from_fn_with_state(Arc::clone(&app), counted))
        .with_state(app)
}

/// Counts requests by path and status.
async fn counted(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    // Unknown paths share one label: a client could invent any number of them.
    let path = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let response = next.run(request).await;
    app.metrics.answered(path.as_deref().unwrap_or("other"), response.status().as_u16());
    response
}

/// Names of the served tasks.
async fn tasks(State(app): State<Arc<App>>, _client: Client) -> Json<Value> {
    Json(json!({ "tasks": app.settings.tasks.keys().collect::<Vec<_>>() }))
}

/// For load balancers and process managers: needs no token, contains nothing about clients.
async fn health(State(app): State<Arc<App>>) -> Response {
    let load = app.queue.load();
    let (status, word) = if app.queue.has_ended() {
        (Kind::Ending.status(), "ending")
    } else if load.workers == 0 {
        (Kind::Ending.status(), "no_workers")
    } else {
        (axum::http::StatusCode::OK, "healthy")
    };
    let devices = app.settings.served.iter();
    let devices = devices.map(|s| json!({ "device": s.device, "hardware": s.hardware }));
    let body = json!({
        "status": word,
        "version": env!("CARGO_PKG_VERSION"),
        "profile": app.settings.profile,
        "devices": devices.collect::<Vec<_>>(),
        "workers": load.workers,
        "waiting": load.waiting,
        "running": load.running,
        "sessions": app.sessions.played(),
        "remote_workers": app.remote_workers(),
    });
    (status, Json(body)).into_response()
}

/// Metrics, in `OpenMetrics` format.
async fn metrics(State(app): State<Arc<App>>, _client: Client) -> Result<Response, Problem> {
    let text = app.metrics.text(app.queue.load(), app.sessions.played());
    let text = text.map_err(|_| Problem::new(Kind::Internal, "failed to encode the metrics"))?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(CONTENT_TYPE, kind)], text).into_response())
}

/// The authenticated client.
pub(crate) struct Client(pub(crate) String);

impl FromRequestParts<Arc<App>> for Client {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let tokens = &app.settings.tokens;
        // DNS rebinding: a page in a local browser can point its own host name here. It cannot know a token.
        if !tokens.are_needed() && !is_of_this_machine(parts) {
            let hint = Some(
                "send the request to 127.0.0.1 or localhost, or start the server with `--tokens`",
            );
            let detail = "a server without tokens answers only requests whose Host header is localhost or a loopback address";
            return Err(Problem::new(Kind::MisdirectedRequest, detail).hint(hint));
        }
        tokens.client(&parts.headers).map(Self)
    }
}

/// Whether the `Host` header is `localhost` or a loopback address.
fn is_of_this_machine(parts: &Parts) -> bool {
    let header = parts.headers.get(HOST).and_then(|value| value.to_str().ok());
    let Some(authority) = header.and_then(|value| value.parse::<Authority>().ok()) else {
        return false;
    };
    let host = authority.host().trim_matches(['[', ']']);
    host.eq_ignore_ascii_case("localhost")
        || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// Limit of a reference's source, bytes.
const REFERENCE_BYTES: usize = 1 << 20;

/// The task of this name: a served one, or, with `reference`, a new one.
pub(crate) fn named(app: &App, name: &str, reference: Option<String>) -> Result<Task, Problem> {
    match reference {
        Some(source) if source.len() > REFERENCE_BYTES => {
            let detail =
                format!("reference: {} bytes exceed the limit of {REFERENCE_BYTES}", source.len());
            Err(Problem::new(Kind::InvalidRequest, detail))
        }
        Some(source) => Ok(Task::from_source(name, source)),
        None => app.settings.tasks.get(name).cloned().ok_or_else(|| {
            let name: String = name.chars().take(120).collect();
            Problem::new(Kind::UnknownTask, format!("the server has no task {name:?}"))
                .hint(Some("GET /tasks lists the tasks; or send the task's source as `reference`"))
        }),
    }
}

/// The body's bytes, within the limits of size and time.
pub(crate) async fn body(app: &App, request: Request) -> Result<Bytes, Problem> {
    let Settings { body_bytes, body_time, .. } = app.settings;
    let too_large = || {
        let detail = format!("the body is larger than the limit of {} MiB", body_bytes >> 20);
        Problem::new(Kind::BodyTooLarge, detail)
    };
    let header = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = header.and_then(|text| text.split(';').next()).unwrap_or_default().trim();
    if !media_type.eq_ignore_ascii_case("application/json") {
        let hint = Some("send `Content-Type: application/json`, e.g. with `curl --json`");
        let detail = format!("the Content-Type is {media_type:?}, not application/json");
        return Err(Problem::new(Kind::UnsupportedMediaType, detail).hint(hint));
    }
    let length = request.headers().get("content-length").and_then(|value| value.to_str().ok());
    if length.and_then(|length| length.parse::<u64>().ok()).is_some_and(|n| n > body_bytes as u64) {
        return Err(too_large());
    }
    // The other error, a cut connection, has no reader.
    let read = axum::body::to_bytes(request.into_body(), body_bytes);
    let Ok(read) = tokio::time::timeout(body_time, read).await else {
        let detail = format!("the body did not arrive within {} s", body_time.as_secs());
        return Err(Problem::new(Kind::InvalidRequest, detail));
    };
    read.map_err(|_| too_large())
}

/// Parses a body. Errors name the field.
pub(crate) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let problem = |path: String, error: &serde_json::Error| {
        let kind = if error.is_data() { Kind::InvalidRequest } else { Kind::MalformedJson };
        let at = if path == "." { String::new() } else { format!("{path}: ") };
        Problem::new(kind, format!("{at}{error}"))
    };
    let mut json = serde_json::Deserializer::from_slice(body);
    let parsed = serde_path_to_error::deserialize(&mut json)
        .map_err(|error| problem(error.path().to_string(), error.inner()))?;
    json.end().map_err(|error| problem(".".to_owned(), &error))?;
    Ok(parsed)
}
