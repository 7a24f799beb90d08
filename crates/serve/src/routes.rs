//! The server's routes, and the short answers that no other file has.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::app::App;
use crate::problem::{Kind, Problem};
use crate::protocol::TrainerProtocol;
use crate::request::Client;
use crate::{dashboard, gym, judge, openapi, openenv, rewards, voids};

/// Every protocol besides the judge's own.
const PROTOCOLS: [&dyn TrainerProtocol; 3] =
    [&rewards::RewardFunctions, &gym::NemoGym, &openenv::OpenEnv];

/// The router with every path.
pub fn router(app: Arc<App>) -> Router {
    let protocols = PROTOCOLS.iter().fold(Router::new(), |all, one| all.merge(one.routes()));
    protocols
        .route("/judge", post(judge::judge))
        .route("/judge/batch", post(judge::batch))
        .route("/", get(dashboard::page))
        .route("/dashboard/app.js", get(dashboard::script))
        .route("/dashboard/style.css", get(dashboard::style))
        .route("/dashboard/state", get(dashboard::state))
        .route("/dashboard/verdicts/{number}", get(dashboard::verdict))
        .route("/tasks", get(tasks))
        .route("/void", get(voids::voids))
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
