//! A page to look at: queue, devices, verdicts as they come, a task's history, a verdict with its kernels.
//!
//! The page itself needs no token and says nothing; what it asks for does. Everything on it that comes from a
//! candidate is hostile: it is put there as text, and no script but its own runs (Content-Security-Policy).

use std::sync::{Arc, Mutex, PoisonError};

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::app::{App, Client};
use crate::problem::{Kind, Problem};

/// Lines of one answer.
const LINES: usize = 500;
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// How busy a device was of late.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceUse {
    /// `cuda:N` or `cpu`.
    pub device: String,
    /// Share of the time in which something held it, 0 to 1.
    pub busy: f64,
    /// The same by what held it: `measuring` and so on.
    pub by: Vec<(String, f64)>,
}

/// What was last said of devices.
#[derive(Debug, Default)]
pub struct Uses(Mutex<Vec<DeviceUse>>);

impl Uses {
    /// Replaces what was said before.
    pub fn say(&self, uses: Vec<DeviceUse>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = uses;
    }

    fn said(&self) -> Vec<DeviceUse> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

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

/// What is wanted of the verdicts.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct After {
    /// Those with a greater number.
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
    let far = app.far_workers().into_iter().map(|far| {
        let device = format!("{}: {}", far.worker, far.devices.join(", "));
        json!({ "device": device, "hardware": far.hardware, "use": null })
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
        "devices": devices.chain(far).collect::<Vec<_>>(),
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
        Problem::new(Kind::NotFound, format!("verdict {number} is not kept"))
            .hint(Some("only the last ones are, and those of others are theirs"))
    })?;
    Ok(([(CONTENT_TYPE, "application/json")], found.page.clone()).into_response())
}
