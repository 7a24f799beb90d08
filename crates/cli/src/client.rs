//! HTTP client of a remote judge, `warpwright serve`.

use std::time::{Duration, Instant};

use rand::RngExt;
use ureq::Agent;
use ureq::http::{Response, StatusCode, Uri};
use ureq::tls::{RootCerts, TlsConfig};
use warpwright_serve::{JudgeRequest, JudgeResponse, Problem};

use crate::failure::{Failure, chain};
use crate::printer::Printer;

/// Connection timeout.
const CONNECT: Duration = Duration::from_secs(10);
/// How long the client waits for the server beyond the deadline.
const GRACE: Duration = Duration::from_secs(10);
/// How long the client retries while the server is unreachable.
const UNREACHED: Duration = Duration::from_mins(1);
/// Pause before a retry when the server names none, and the longest pause.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// Largest answer that the client reads.
const ANSWER_BYTES: u64 = 64 << 20;

/// A client of one server, with its token.
pub(crate) struct Client {
    url: String,
    token: Option<String>,
    agent: Agent,
}

impl Client {
    /// A client of the server at `url`. It sends a token unencrypted only to this machine.
    pub(crate) fn new(url: &str, token: Option<String>) -> Result<Self, Failure> {
        let base = url.trim().trim_end_matches('/');
        let bad = |why: &str| {
            let hint = "write it like `--server http://127.0.0.1:8000`".to_owned();
            Failure::usage(format!("failed to use the server URL {base}: {why}"), hint)
        };
        let uri: Uri = base.parse().map_err(|_| bad("it is not a URL"))?;
        let host = uri.host().ok_or_else(|| bad("it has no host"))?.trim_matches(['[', ']']);
        let encrypted = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(bad("it begins with neither http:// nor https://")),
        };
        let local = host == "localhost"
            || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback());
        if token.is_some() && !encrypted && !local {
            return Err(bad("the token would be sent unencrypted; use https://"));
        }
        // Fails where the process has one already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .user_agent(concat!("warpwright/", env!("CARGO_PKG_VERSION")))
            .tls_config(TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build())
            .timeout_connect(Some(CONNECT));
        if local {
            config = config.proxy(None);
        }
        let agent = Agent::new_with_config(config.build());
        Ok(Self { url: base.to_owned(), token, agent })
    }

    /// Requests a verdict until the server answers or `within` is over. The client retries with the
    /// same idempotency key when the server is full, shuts down or is unreachable, so that no
    /// candidate is judged twice.
    pub(crate) fn judge(
        &self,
        mut request: JudgeRequest,
        within: Duration,
        printer: Printer,
    ) -> Result<JudgeResponse, Failure> {
        let key = format!("{:032x}", rand::rng().random::<u128>());
        let until = Instant::now() + within;
        // The same each time: to the server a key stands for a body.
        request.deadline_seconds = Some(within.as_secs_f64());
        let (mut told, mut reached) = (String::new(), Instant::now());
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let (why, pause) = match self.post("/judge", &key, &request, left) {
                Ok(response) if response.status() == StatusCode::OK => {
                    return self.answer(response);
                }
                Ok(response) => {
                    reached = Instant::now();
                    let problem = self.problem(response)?;
                    let again = matches!(problem.status, 429 | 502 | 503);
                    let after = problem.retry_after.map_or(PAUSE, Duration::from_secs);
                    if !again {
                        return Err(self.failed(&problem));
                    }
                    (problem.detail, after.min(LONGEST_PAUSE))
                }
                Err(error) => (chain(&error), PAUSE),
            };
            if Instant::now() + pause >= until || reached.elapsed() > UNREACHED {
                let message = format!("failed to get a verdict from {}: {why}", self.url);
                let hint =
                    "`warpwright serve` starts a server; `--deadline` sets how long to wait for it";
                return Err(Failure::infrastructure(message, hint.to_owned()));
            }
            if told != why {
                printer.say(&format!("{}: {why}; retrying", self.url));
                told = why;
            }
            std::thread::sleep(pause);
        }
    }

    fn post(
        &self,
        path: &str,
        key: &str,
        request: &JudgeRequest,
        within: Duration,
    ) -> Result<Response<ureq::Body>, ureq::Error> {
        let mut post =
            self.agent.post(format!("{}{path}", self.url)).header("Idempotency-Key", key);
        if let Some(token) = &self.token {
            post = post.header("Authorization", format!("Bearer {token}"));
        }
        post.config().timeout_global(Some(within + GRACE)).build().send_json(request)
    }

    fn answer(&self, mut response: Response<ureq::Body>) -> Result<JudgeResponse, Failure> {
        let body = response.body_mut().with_config().limit(ANSWER_BYTES);
        body.read_json().map_err(|error| {
            let message = format!("failed to read the response of {}: {}", self.url, chain(&error));
            Failure::infrastructure(
                message,
                "check that the server has the version of this program".to_owned(),
            )
        })
    }

    fn problem(&self, mut response: Response<ureq::Body>) -> Result<Problem, Failure> {
        let status = response.status();
        let text = response.body_mut().with_config().limit(1 << 20).read_to_string();
        serde_json::from_str(&text.unwrap_or_default()).map_err(|_| {
            let message =
                format!("failed to get a verdict from {}: it answered {status}", self.url);
            Failure::infrastructure(
                message,
                "check that `warpwright serve` listens at this address".to_owned(),
            )
        })
    }

    fn failed(&self, problem: &Problem) -> Failure {
        let message = format!(
            "failed to get a verdict from {}: {}: {}",
            self.url, problem.title, problem.detail
        );
        match problem.status {
            500.. => Failure::infrastructure(message, problem.hint.clone()),
            _ => Failure::usage(message, problem.hint.clone()),
        }
    }
}
