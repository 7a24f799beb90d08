//! Problem documents (RFC 9457).

use std::time::Duration;

use axum::Json;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Media type of a problem.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// The kinds of problems. `type` is `urn:warpwright:problem:` and the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The body is not JSON.
    MalformedJson,
    /// The body is JSON, but not in the format of this path.
    InvalidRequest,
    /// The `Content-Type` is not JSON: a page in a browser could have sent the request.
    UnsupportedMediaType,
    /// The body exceeds the size limit.
    BodyTooLarge,
    /// The request came from a web page, or its `Host` header names another host (DNS rebinding).
    MisdirectedRequest,
    /// The request has no token, or one that the server does not accept.
    Unauthorized,
    /// The token has expired.
    TokenExpired,
    /// No resource has this path, or the path does not support the method.
    NotFound,
    /// No served suite has a task of this name.
    UnknownTask,
    /// The session has ended, never began, or belongs to another client.
    UnknownSession,
    /// The judge refuses the task.
    TaskRefused,
    /// The idempotency key was used with another body.
    IdempotencyKeyReused,
    /// A limit of jobs or sessions is reached. `Retry-After` says when to retry.
    Busy,
    /// The deadline passed. A job that was begun is finished, so that a retry may be answered at once.
    DeadlineExceeded,
    /// The judge, a compiler or a GPU failed, and the response format of this path has no field for it.
    InfraError,
    /// The server is shutting down, or has no judge worker.
    Ending,
    /// A bug in the server.
    Internal,
}

impl Kind {
    /// Its HTTP status.
    pub const fn status(self) -> StatusCode {
        match self {
            Self::MalformedJson => StatusCode::BAD_REQUEST,
            Self::InvalidRequest | Self::TaskRefused | Self::IdempotencyKeyReused => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::MisdirectedRequest => StatusCode::MISDIRECTED_REQUEST,
            Self::Unauthorized | Self::TokenExpired => StatusCode::UNAUTHORIZED,
            Self::NotFound | Self::UnknownTask | Self::UnknownSession => StatusCode::NOT_FOUND,
            Self::Busy => StatusCode::TOO_MANY_REQUESTS,
            Self::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
            Self::InfraError | Self::Ending => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// A short description.
    pub const fn title(self) -> &'static str {
        match self {
            Self::MalformedJson => "The body is not JSON",
            Self::InvalidRequest => "The request is invalid",
            Self::UnsupportedMediaType => "The Content-Type is not JSON",
            Self::BodyTooLarge => "The body is too large",
            Self::MisdirectedRequest => "The request is for another host",
            Self::Unauthorized => "A valid token is required",
            Self::TokenExpired => "The token has expired",
            Self::NotFound => "The resource does not exist",
            Self::UnknownTask => "The task does not exist",
            Self::UnknownSession => "The session does not exist",
            Self::TaskRefused => "The judge refuses the task",
            Self::IdempotencyKeyReused => "The idempotency key was used with another body",
            Self::Busy => "The server is busy",
            Self::DeadlineExceeded => "The deadline has passed",
            Self::InfraError => "The judge failed",
            Self::Ending => "The server is not available",
            Self::Internal => "Internal server error",
        }
    }
}

/// A problem document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// `urn:warpwright:problem:` and the name of its kind.
    #[serde(rename = "type")]
    pub uri: String,
    /// Short description of the kind.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// What failed in this request, and why.
    pub detail: String,
    /// How to fix it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Seconds after which to retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
    #[serde(skip)]
    kind: Option<Kind>,
}

impl Problem {
    /// A problem of this kind.
    pub fn new(kind: Kind, detail: impl Into<String>) -> Self {
        let name = serde_json::to_value(kind).ok();
        let name = name.as_ref().and_then(|name| name.as_str()).unwrap_or("internal");
        Self {
            uri: format!("urn:warpwright:problem:{name}"),
            title: kind.title().to_owned(),
            status: kind.status().as_u16(),
            detail: detail.into(),
            hint: None,
            retry_after: None,
            kind: Some(kind),
        }
    }

    /// Sets the hint.
    #[must_use]
    pub fn hint(self, hint: Option<impl Into<String>>) -> Self {
        Self { hint: hint.map(Into::into), ..self }
    }

    /// Sets when to retry, rounded up to whole seconds, at least one.
    #[must_use]
    pub fn retry_after(self, after: Duration) -> Self {
        Self { retry_after: Some((after.as_secs_f64().ceil() as u64).max(1)), ..self }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let (after, kind) = (self.retry_after, self.kind);
        let mut response = (status, Json(self)).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        if let Some(after) = after {
            headers.insert(RETRY_AFTER, HeaderValue::from(after));
        }
        // RFC 6750.
        match kind {
            Some(Kind::Unauthorized) => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            Some(Kind::TokenExpired) => {
                let challenge = "Bearer error=\"invalid_token\"";
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
            }
            _ => {}
        }
        response
    }
}
