//! Prometheus metrics.

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use warpwright_fleet::{Answer, Failed, Load};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    path: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

/// The server's metrics.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<Request, Counter>,
    jobs: Family<Outcome, Counter>,
    replays: Counter,
    waited: Histogram,
    judged: Histogram,
    waiting: Gauge,
    running: Gauge,
    workers: Gauge,
    sessions: Gauge,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("warpwright");
        // From 5 ms to 40 minutes.
        let histogram = || Histogram::new(exponential_buckets(0.005, 2.0, 20));
        let new = Self {
            requests: Family::default(),
            jobs: Family::default(),
            replays: Counter::default(),
            waited: histogram(),
            judged: histogram(),
            waiting: Gauge::default(),
            running: Gauge::default(),
            workers: Gauge::default(),
            sessions: Gauge::default(),
            registry: Registry::default(),
        };
        registry.register("requests", "Requests, by path and status", new.requests.clone());
        registry.register("jobs", "Candidates, by outcome", new.jobs.clone());
        registry.register(
            "replays",
            "Responses replayed for their idempotency key",
            new.replays.clone(),
        );
        let seconds = |of| format!("Seconds per candidate, {of}");
        registry.register("wait_seconds", seconds("waiting in the queue"), new.waited.clone());
        registry.register("judge_seconds", seconds("running in the judge"), new.judged.clone());
        registry.register("waiting", "Candidates in the queue", new.waiting.clone());
        registry.register("running", "Candidates that the judge runs", new.running.clone());
        registry.register("workers", "Judge workers", new.workers.clone());
        registry.register("sessions", "Running sessions", new.sessions.clone());
        Self { registry, ..new }
    }

    pub(crate) fn answered(&self, path: &str, status: u16) {
        self.requests.get_or_create(&Request { path: path.to_owned(), status }).inc();
    }

    pub(crate) fn replayed(&self) {
        self.replays.inc();
    }

    pub(crate) fn began(&self, after: Duration) {
        self.waited.observe(after.as_secs_f64());
    }

    pub(crate) fn ended(&self, answer: &Answer, after: Duration) {
        let outcome = match answer {
            Ok(verdict) if verdict.verified => "verified",
            Ok(_) => "not_verified",
            Err(Failed::Task { .. }) => "task_refused",
            Err(Failed::Infrastructure { .. } | Failed::Ending) => "infra_error",
        };
        self.jobs.get_or_create(&Outcome { outcome }).inc();
        self.judged.observe(after.as_secs_f64());
    }

    pub(crate) fn text(&self, load: Load, sessions: usize) -> Result<String, fmt::Error> {
        let gauges = [
            (&self.waiting, load.waiting),
            (&self.running, load.running),
            (&self.workers, load.workers),
            (&self.sessions, sessions),
        ];
        for (gauge, value) in gauges {
            gauge.set(value as i64);
        }
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}
