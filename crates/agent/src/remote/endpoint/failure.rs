//! Classifies failures of a request: which are retried, which are fatal, and the caller's error.

use std::time::Duration;

use thiserror::Error;
use ureq::http::{HeaderMap, Response, StatusCode};

use super::Endpoint;
use crate::remote::wire::{WireError, words};

/// Maximum bytes of an error's body.
const MAX_ERROR_BYTES: u64 = 64 << 10;
/// Maximum `Retry-After` that is honoured.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(10);

/// Why there is no answer. An infrastructure error: the episode can be resumed.
#[derive(Debug, Error)]
pub enum EndpointError {
    /// 404.
    #[error(
        "failed to get an answer from {url}: the server has no such model or path (404): {words}"
    )]
    NotFound {
        /// The request's URL.
        url: String,
        /// The server's message.
        words: String,
    },
    /// 401, 402, 403.
    #[error(
        "failed to get an answer from {url}: the server refuses the API key, or needs one ({status}): {words}"
    )]
    Key {
        /// The request's URL.
        url: String,
        /// The status.
        status: u16,
        /// The server's message.
        words: String,
    },
    /// Another 4xx, or a redirection.
    #[error(
        "failed to get an answer from {url}: the server refuses the request ({status}): {words}"
    )]
    Refused {
        /// The request's URL.
        url: String,
        /// The status.
        status: u16,
        /// The server's message.
        words: String,
    },
    /// The server asks to wait longer than [`Limits::patience`](super::Limits::patience).
    #[error(
        "failed to get an answer from {url}: the server asks to wait longer than {seconds} s: {words}"
    )]
    Busy {
        /// The request's URL.
        url: String,
        /// The patience, seconds.
        seconds: u64,
        /// The server's message.
        words: String,
    },
    /// The server cannot be reached, or fails on every request.
    #[error(
        "failed to get an answer from {url}: the server has been unavailable for {seconds} s: {why}"
    )]
    Away {
        /// The request's URL.
        url: String,
        /// Seconds since the first failure.
        seconds: u64,
        /// The last failure.
        why: String,
    },
    /// Every try of this request failed.
    #[error("failed to get an answer from {url}: {tries} requests failed; last error: {why}")]
    Failing {
        /// The request's URL.
        url: String,
        /// Number of tries.
        tries: u32,
        /// The last failure.
        why: String,
    },
    /// The user interrupted.
    #[error("failed to get an answer from {url}: interrupted")]
    Interrupted {
        /// The request's URL.
        url: String,
    },
}

/// How one request failed.
pub(super) enum Failed {
    /// Not retried.
    Fatal(EndpointError),
    /// The server asks to wait.
    Wait { wait: Option<Duration>, words: String },
    /// No connection.
    Unreachable(String),
    /// The server's own error.
    Server(String),
    /// An unusable answer: truncated, malformed, late or empty.
    Spoiled(String),
}

impl Endpoint {
    pub(super) fn spoiled(&self, error: &WireError) -> Failed {
        Failed::Spoiled(self.redacted(&error.to_string()))
    }

    /// Classifies a request without any answer.
    pub(super) fn unsent(&self, error: &ureq::Error) -> Failed {
        use std::io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
        let why = self.redacted(&error.to_string());
        match error {
            ureq::Error::HostNotFound
            | ureq::Error::ConnectionFailed
            | ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => {
                Failed::Unreachable(why)
            }
            ureq::Error::Io(error)
                if [ConnectionRefused, HostUnreachable, NetworkUnreachable]
                    .contains(&error.kind()) =>
            {
                Failed::Unreachable(why)
            }
            ureq::Error::Tls(_) | ureq::Error::Rustls(_) | ureq::Error::BadUri(_) => {
                let (url, words) = (self.url.clone(), why);
                Failed::Fatal(EndpointError::Refused { url, status: 0, words })
            }
            ureq::Error::Timeout(_) => Failed::Spoiled(format!("the answer timed out: {why}")),
            _ => Failed::Spoiled(why),
        }
    }

    /// Classifies an answer with an error status.
    pub(super) fn refusal(&self, response: Response<ureq::Body>) -> Failed {
        let (status, wait) = (response.status(), retry_after(response.headers()));
        let location = response.headers().get("location").and_then(|to| to.to_str().ok());
        let elsewhere = location.map(|to| self.redacted(&format!("the server redirects to {to}")));
        let body = self.text(response, MAX_ERROR_BYTES).unwrap_or_else(|why| why);
        let (url, words) = (self.url.clone(), words(&body));
        let code = status.as_u16();
        match status {
            StatusCode::NOT_FOUND => Failed::Fatal(EndpointError::NotFound { url, words }),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::PAYMENT_REQUIRED => {
                Failed::Fatal(EndpointError::Key { url, status: code, words })
            }
            // Waiting does not fill an account.
            StatusCode::TOO_MANY_REQUESTS if words.contains("insufficient_quota") => {
                Failed::Fatal(EndpointError::Refused { url, status: code, words })
            }
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                Failed::Wait { wait, words: format!("{code} {words}") }
            }
            // Anthropic's name for overload.
            _ if code == 529 => Failed::Wait { wait, words: format!("{code} {words}") },
            StatusCode::REQUEST_TIMEOUT | StatusCode::CONFLICT | StatusCode::TOO_EARLY => {
                Failed::Spoiled(format!("{code} {words}"))
            }
            _ if status.is_server_error() => Failed::Server(format!("{code} {words}")),
            _ => {
                let words = elsewhere.unwrap_or(words);
                Failed::Fatal(EndpointError::Refused { url, status: code, words })
            }
        }
    }
}

/// How long the server asks to wait: `retry-after-ms`, or `retry-after` in seconds. A date is ignored: the clocks
/// may differ.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let seconds =
        number("retry-after-ms").map(|ms| ms / 1000.0).or_else(|| number("retry-after"))?;
    let wait = Duration::try_from_secs_f64(seconds.max(0.0)).ok()?;
    Some(wait.min(MAX_RETRY_AFTER))
}
