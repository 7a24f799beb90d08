//! What went wrong, as a document (RFC 9457).

use std::time::Duration;

use axum::Json;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Media type of a problem.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// Every problem that is told. `type` is `urn:warpwright:problem:` and the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The body is not JSON.
    MalformedJson,
    /// The body is JSON, but not what is asked for here.
    InvalidRequest,
    /// The body is not said to be JSON: a page in a browser could have sent it.
    UnsupportedMediaType,
    /// The body is larger than is read here.
    BodyTooLarge,
    /// The request was meant for another host: a name that a page in a browser had lead here.
    MisdirectedRequest,
    /// No token, or one that is not known.
    Unauthorized,
    /// The token was good until some time ago.
    TokenExpired,
    /// Nothing is served at this path, or not by this method.
    NotFound,
    /// No suite that is served has a task of this name.
    UnknownTask,
    /// The session was ended, or never begun, or is another client's.
    UnknownSession,
    /// The task cannot be judged against.
    TaskRefused,
    /// The key was used with another body.
    IdempotencyKeyReused,
    /// Too much waits. `Retry-After` says when to ask again.
    Busy,
    /// The deadline passed. What was begun is finished; the same question may be answered at once later.
    DeadlineExceeded,
    /// A judge, a compiler or a GPU failed, and the form of the answer has no place to say so.
    InfraError,
    /// The server is ending.
    Ending,
    /// Ours.
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

    /// For people.
    pub const fn title(self) -> &'static str {
        match self {
            Self::MalformedJson => "The body is not JSON",
            Self::InvalidRequest => "The request is not one that is understood here",
            Self::UnsupportedMediaType => "The body is not said to be JSON",
            Self::BodyTooLarge => "The body is too large",
            Self::MisdirectedRequest => "The request was meant for another host",
            Self::Unauthorized => "A token is needed",
            Self::TokenExpired => "The token has expired",
            Self::NotFound => "Nothing is served here",
            Self::UnknownTask => "There is no such task",
            Self::UnknownSession => "There is no such session",
            Self::TaskRefused => "The task cannot be judged against",
            Self::IdempotencyKeyReused => "The idempotency key was used with another body",
            Self::Busy => "Too much is under way",
            Self::DeadlineExceeded => "The deadline has passed",
            Self::InfraError => "The judge failed",
            Self::Ending => "The server is ending",
            Self::Internal => "The server failed",
        }
    }
}

/// A problem document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// `urn:warpwright:problem:` and the name of its kind.
    #[serde(rename = "type")]
    pub uri: String,
    /// What kind it is, for people.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// What happened this time.
    pub detail: String,
    /// What can be done about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Seconds after which to ask again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
    #[serde(skip)]
    kind: Option<Kind>,
}

impl Problem {
    /// One of this kind.
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

    /// With what can be done.
    #[must_use]
    pub fn hint(self, hint: Option<impl Into<String>>) -> Self {
        Self { hint: hint.map(Into::into), ..self }
    }

    /// With when to ask again, rounded up to whole seconds, at least one.
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
