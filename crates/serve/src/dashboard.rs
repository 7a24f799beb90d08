//! The dashboard: queue, devices, recent verdicts, a task's history, and a verdict with its kernels.
//!
//! The page itself needs no token and contains no data; the requests of its script need one. Text of a candidate
//! is hostile: the script inserts it as text, and the Content-Security-Policy allows no other script.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::problem::{Kind, Problem};
use crate::request::Client;

/// Verdicts per response, at most.
const LINES: usize = 500;
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// `GET /`.
pub(crate) async fn page() -> Response {
    file("text/html; charset=utf-8", include_str!("../assets/dashboard.html"))
}

/// `GET /dashboard/app.js`.
pub(crate) async fn script() -> Response {
    file("text/javascript; charset=utf-8", include_str!("../assets/dashboard.js"))
}

/// `GET /dashboard/style.css`.
pub(crate) async fn style() -> Response {
    file("text/css; charset=utf-8", include_str!("../assets/dashboard.css"))
}

fn file(kind: &'static str, text: &'static str) -> Response {
    let headers = [
        (CONTENT_TYPE, kind),
        (CONTENT_SECURITY_POLICY, POLICY),
        // Another version of the program may be served here tomorrow.
        (CACHE_CONTROL, "no-cache"),
    ];
    (headers, text).into_response()
}

/// Query of `GET /dashboard/state`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct After {
    /// Only verdicts with a greater number.
    #[serde(default)]
    after: u64,
}

/// `GET /dashboard/state`.
pub(crate) async fn state(
    State(app): State<Arc<App>>,
    Client(client): Client,
    Query(After { after }): Query<After>,
) -> Json<Value> {
    let load = app.queue.load();
    let uses = app.uses.said();
    let devices = app.settings.served.iter().map(|served| {
        let used = uses.iter().find(|used| used.device == served.device);
        json!({ "device": served.device, "hardware": served.hardware, "use": used })
    });
    let remote = app.remote_workers().into_iter().map(|worker| {
        let device = format!("{}: {}", worker.worker, worker.devices.join(", "));
        json!({ "device": device, "hardware": worker.hardware, "use": null })
    });
    Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "profile": app.settings.profile,
        "waiting": load.waiting,
        "running": load.running,
        "workers": load.workers,
        "seconds": load.seconds,
        "ending": app.queue.has_ended(),
        "sessions": app.sessions.played(),
        "devices": devices.chain(remote).collect::<Vec<_>>(),
        "verdicts": app.seen.since(&client, after, LINES),
    }))
}

/// `GET /dashboard/verdicts/{number}`.
pub(crate) async fn verdict(
    State(app): State<Arc<App>>,
    Client(client): Client,
    Path(number): Path<u64>,
) -> Result<Response, Problem> {
    let found = app.seen.one(&client, number).ok_or_else(|| {
        Problem::new(Kind::NotFound, format!("the server keeps no verdict {number} of this client"))
            .hint(Some("the server keeps only recent verdicts, and shows a client only its own"))
    })?;
    Ok(([(CONTENT_TYPE, "application/json")], found.page.clone()).into_response())
}
