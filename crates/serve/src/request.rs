//! What handlers read from a request: its client, its body and its task.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{FromRequestParts, Request};
use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use serde::de::DeserializeOwned;
use warpwright_task::Task;

use crate::app::{App, Settings};
use crate::problem::{Kind, Problem};

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
