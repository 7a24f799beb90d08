//! One server, shared by all episodes of a run.
//!
//! Requests block on the episodes' own threads. Retried: an unavailable server, status
//! 5xx, a truncated answer, and a request to wait (429, 503, 529, `Retry-After`). Not retried: a request that the
//! server refuses. `endpoint/failure.rs` classifies failures.

mod failure;

use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use serde_json::Value;
use thiserror::Error;
use ureq::Agent;
use ureq::http::{HeaderMap, Response, Uri};
use ureq::tls::{RootCerts, TlsConfig};

pub use self::failure::EndpointError;
use self::failure::Failed;
use super::gate::{Backoff, Closed, Gate};
use super::key::Key;
use super::sse;
use super::wire::{Answer, WireFormat, json};

/// Maximum bytes of one streamed answer. Log-probabilities take some hundred bytes per token.
const MAX_BODY_BYTES: u64 = 512 << 20;
/// Maximum bytes of an unstreamed answer.
const MAX_WHOLE_BYTES: u64 = 64 << 20;
/// Maximum tries of a request whose answers are truncated, malformed, late or missing.
const MAX_SPOILED: u32 = 4;
/// Maximum tries of a request that gets 5xx while the server answers others.
const MAX_SERVER_ERRORS: u32 = 8;
/// Interval of checking the stop flag while a request runs.
const POLL: Duration = Duration::from_millis(50);

/// Timeouts and limits of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum concurrent requests.
    pub requests: usize,
    /// Timeout of a connection.
    pub connect: Duration,
    /// Timeout from the request to the first byte of the answer.
    pub first_byte: Duration,
    /// Timeout between two chunks of the answer.
    pub between_chunks: Duration,
    /// Timeout of a whole request.
    pub whole: Duration,
    /// First pause between tries; it doubles with each try.
    pub backoff_first: Duration,
    /// Longest pause between tries.
    pub backoff_most: Duration,
    /// Maximum wait for a server that is unavailable or asks to wait.
    pub patience: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            requests: 32,
            connect: Duration::from_secs(10),
            first_byte: Duration::from_mins(10),
            between_chunks: Duration::from_mins(10),
            whole: Duration::from_hours(1),
            backoff_first: Duration::from_secs(1),
            backoff_most: Duration::from_secs(30),
            patience: Duration::from_mins(10),
        }
    }
}

/// A model server: its URL, wire format, key and limits.
pub struct Endpoint {
    format: Box<dyn WireFormat>,
    url: String,
    key: Option<Key>,
    agent: Agent,
    gate: Gate,
    backoff: Backoff,
    stop: Arc<AtomicBool>,
    notice: Box<dyn Fn(&str) + Send + Sync>,
    _alive: Arc<()>,
}

/// Why an endpoint cannot be used. A usage error, except for [`Self::Thread`].
#[derive(Debug, Error)]
pub enum OpenError {
    /// The base URL is malformed.
    #[error("failed to use the base URL {url}: expected http:// or https:// and a host")]
    Url {
        /// As given.
        url: String,
    },
    /// The API key would be sent unencrypted.
    #[error("failed to use the base URL {url}: the API key would be sent unencrypted")]
    PlainKey {
        /// As given.
        url: String,
    },
    /// The thread that watches the stop flag could not be started.
    #[error("failed to start the thread that watches for interrupts: {0}")]
    Thread(#[from] std::io::Error),
}

/// An answer and the number of requests it took.
#[derive(Clone, Debug, PartialEq)]
pub struct Completed {
    /// The answer.
    pub answer: Answer,
    /// Requests sent, the last one included.
    pub attempts: u32,
}

impl Endpoint {
    /// Creates an endpoint; opens no connection yet. With `named_key` the user chose this key for
    /// this server, so it may be sent unencrypted. Any other key is sent only over TLS or to this
    /// machine. Waiting and running requests end soon after `stop` is set.
    pub fn new(
        format: Box<dyn WireFormat>,
        base_url: &str,
        key: Option<Key>,
        named_key: bool,
        limits: Limits,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, OpenError> {
        let base = base_url.trim().trim_end_matches('/');
        let bad = || OpenError::Url { url: base.to_owned() };
        let uri: Uri = base.parse().map_err(|_| bad())?;
        let host = uri.host().ok_or_else(bad)?.trim_matches(['[', ']']);
        let encrypted = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(bad()),
        };
        // A user and password would end in errors and records.
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(OpenError::Url { url: "with a user or password in it".to_owned() });
        }
        let local = host == "localhost"
            || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback());
        if key.is_some() && !encrypted && !local && !named_key {
            return Err(OpenError::PlainKey { url: base.to_owned() });
        }
        // Fails where the process has one already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("warpwright/", env!("CARGO_PKG_VERSION")))
            .tls_config(TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build())
            .max_idle_connections(limits.requests)
            .max_idle_connections_per_host(limits.requests)
            .timeout_resolve(Some(limits.connect))
            .timeout_connect(Some(limits.connect))
            .timeout_recv_response(Some(limits.first_byte))
            .timeout_per_read(Some(limits.between_chunks))
            .timeout_per_write(Some(limits.between_chunks))
            .timeout_global(Some(limits.whole));
        if local {
            config = config.proxy(None);
        }
        let agent = Agent::new_with_config(config.build());
        let alive = Arc::new(());
        watch(agent.clone(), Arc::clone(&stop), Arc::downgrade(&alive))?;
        let backoff = Backoff { first: limits.backoff_first, most: limits.backoff_most };
        Ok(Self {
            url: format.url(base),
            format,
            key,
            agent,
            gate: Gate::new(limits.requests, backoff, limits.patience),
            backoff,
            stop,
            notice: Box::new(|_| {}),
            _alive: alive,
        })
    }

    /// `notice` receives a sentence when the server becomes unavailable and when it answers again.
    #[must_use]
    pub fn with_notice(mut self, notice: Box<dyn Fn(&str) + Send + Sync>) -> Self {
        self.notice = notice;
        self
    }

    /// The wire format.
    pub fn format(&self) -> &dyn WireFormat {
        self.format.as_ref()
    }

    /// Sends a request until it gets an answer. Blocks; several threads may call it concurrently.
    pub fn complete(&self, body: &Value) -> Result<Completed, EndpointError> {
        let body = body.to_string();
        let asked = Instant::now();
        let (mut attempts, mut spoiled, mut server_errors, mut waits) = (0, 0, 0, 0);
        loop {
            let permit = self.gate.enter(asked, &self.stop).map_err(|closed| match closed {
                Closed::Stopped => self.interrupted(),
                Closed::Away { seconds, why } => {
                    EndpointError::Away { url: self.url.clone(), seconds, why }
                }
            })?;
            attempts += 1;
            let tried = self.attempt(&body);
            if self.stop.load(Ordering::SeqCst) {
                return Err(self.interrupted());
            }
            match &tried {
                Err(Failed::Unreachable(why)) => _ = self.failed(why, true),
                Err(Failed::Server(_)) => {}
                _ => {
                    if self.gate.answered() {
                        (self.notice)(&format!("{} answers again", self.url));
                    }
                }
            }
            match tried {
                Ok(answer) => return Ok(Completed { answer, attempts }),
                Err(Failed::Fatal(error)) => return Err(error),
                Err(Failed::Unreachable(_)) => {}
                Err(Failed::Wait { wait, words }) => {
                    waits += 1;
                    let wait = wait.unwrap_or_else(|| self.backoff.after(waits));
                    if asked.elapsed() + wait > self.gate.patience() {
                        let (url, seconds) = (self.url.clone(), self.gate.patience().as_secs());
                        return Err(EndpointError::Busy { url, seconds, words });
                    }
                    self.gate.hold(wait);
                }
                Err(Failed::Server(why)) => {
                    server_errors += 1;
                    if !self.failed(&why, false) {
                        drop(permit);
                        if server_errors >= MAX_SERVER_ERRORS {
                            return Err(self.failing(attempts, why));
                        }
                        self.sleep(self.backoff.after(server_errors))?;
                    }
                }
                Err(Failed::Spoiled(why)) => {
                    drop(permit);
                    spoiled += 1;
                    if spoiled >= MAX_SPOILED {
                        return Err(self.failing(attempts, why));
                    }
                    self.sleep(self.backoff.after(spoiled))?;
                }
            }
        }
    }

    /// Reports a failure to the gate; returns whether the server counts as unavailable.
    fn failed(&self, why: &str, at_once: bool) -> bool {
        let (away, news) = self.gate.failed(why, at_once);
        if news {
            let patience = self.gate.patience().as_secs();
            (self.notice)(&format!(
                "{} is unavailable ({why}); retrying for up to {patience} s",
                self.url
            ));
        }
        away
    }

    fn interrupted(&self) -> EndpointError {
        EndpointError::Interrupted { url: self.url.clone() }
    }

    fn failing(&self, tries: u32, why: String) -> EndpointError {
        EndpointError::Failing { url: self.url.clone(), tries, why }
    }

    fn sleep(&self, wait: Duration) -> Result<(), EndpointError> {
        let until = Instant::now() + wait;
        while Instant::now() < until {
            if self.stop.load(Ordering::SeqCst) {
                return Err(self.interrupted());
            }
            std::thread::sleep(POLL.min(until.saturating_duration_since(Instant::now())));
        }
        Ok(())
    }

    /// Sends the request once.
    fn attempt(&self, body: &str) -> Result<Answer, Failed> {
        let mut request = self
            .agent
            .post(&self.url)
            .header("content-type", "application/json")
            .header("accept", "text/event-stream, application/json");
        for (name, value) in self.format.headers(self.key.as_ref()) {
            request = request.header(name, value);
        }
        let response = request.send(body).map_err(|error| self.unsent(&error))?;
        if !response.status().is_success() {
            return Err(self.refusal(response));
        }
        if is_json(response.headers()) {
            let text = self.text(response, MAX_WHOLE_BYTES).map_err(Failed::Spoiled)?;
            if text.trim().is_empty() {
                return Err(Failed::Spoiled("the answer is empty".to_owned()));
            }
            let whole = json(&text).and_then(|body| self.format.whole(&body));
            return whole.map_err(|error| self.spoiled(&error));
        }
        self.stream(response)
    }

    fn stream(&self, response: Response<ureq::Body>) -> Result<Answer, Failed> {
        let mut reader = response.into_body().into_with_config().limit(MAX_BODY_BYTES).reader();
        let mut parser = sse::Parser::default();
        let mut assembler = self.format.assembler();
        let (mut chunk, mut seen, mut events) = (vec![0; 16 << 10], 0, 0);
        'stream: loop {
            let read = match reader.read(&mut chunk) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) => {
                    let why = format!("the event stream ended after {seen} bytes: {error}");
                    return Err(Failed::Spoiled(self.redacted(&why)));
                }
            };
            seen += read;
            let parsed = parser.push(&chunk[..read]);
            for mut event in parsed.map_err(|error| Failed::Spoiled(error.to_string()))? {
                events += 1;
                if let Some(key) = &self.key {
                    event.data = key.redact(&event.data).into_owned();
                }
                match assembler.event(&event) {
                    Ok(true) => break 'stream,
                    Ok(false) => {}
                    Err(error) => return Err(self.spoiled(&error)),
                }
            }
        }
        if events == 0 {
            let what = if seen == 0 { "empty" } else { "not an event stream" };
            return Err(Failed::Spoiled(format!("the answer is {what} ({seen} bytes)")));
        }
        // To the end, so that the connection can be used again.
        let _ = reader.read(&mut chunk);
        assembler.finish().map_err(|error| self.spoiled(&error))
    }

    /// A body as text, without the key.
    fn text(&self, response: Response<ureq::Body>, most: u64) -> Result<String, String> {
        let mut bytes = Vec::new();
        let reader = response.into_body().into_with_config().limit(most + 1).reader();
        let read = reader.take(most).read_to_end(&mut bytes);
        let text = self.redacted(&String::from_utf8_lossy(&bytes));
        match read {
            Ok(_) => Ok(text),
            Err(error) => Err(self.redacted(&format!("the body ended early: {error}"))),
        }
    }

    fn redacted(&self, text: &str) -> String {
        self.key.as_ref().map_or_else(|| text.to_owned(), |key| key.redact(text).into_owned())
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint")
            .field("format", &self.format)
            .field("url", &self.url)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// Ends running requests when the stop flag is set; ends itself with the endpoint.
fn watch(agent: Agent, stop: Arc<AtomicBool>, alive: Weak<()>) -> std::io::Result<()> {
    let watching = move || {
        while alive.strong_count() > 0 {
            if stop.load(Ordering::SeqCst) {
                agent.shutdown();
                return;
            }
            std::thread::sleep(POLL);
        }
    };
    std::thread::Builder::new().name("endpoint-stop".to_owned()).spawn(watching).map(|_| ())
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.trim_start().to_ascii_lowercase().starts_with("application/json")
}
