//! The connection, and the streams that a fleet has.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, Consumer, pull};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType, Stream};
use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectOptions, ServerAddr};
use bytes::Bytes;
use thiserror::Error;

/// How long what nobody survived, and contents, are kept.
pub const PARKED_DAYS: u64 = 7;
const DAY: Duration = Duration::from_hours(24);
const PARKED_FOR: Duration = Duration::from_hours(24 * PARKED_DAYS);
/// How long orders and answers are kept that nobody takes: whoever asked has gone by then.
const KEPT: Duration = DAY;
/// Most bytes of contents; the oldest go first.
const FILES_BYTES: i64 = 4 << 30;
const PARKED_JOBS: i64 = 1000;
/// How long NATS remembers what was published, so that the same is not taken twice.
const REMEMBERED: Duration = Duration::from_mins(10);
/// How long a connection may take.
const CONNECTING: Duration = Duration::from_secs(5);
/// How often a publication is tried again before it is given up, and the longest pause: two minutes in all.
const TRIES: u32 = 60;
const PAUSE: Duration = Duration::from_secs(2);
/// Consumers of who has gone are forgotten.
const FORGOTTEN: Duration = Duration::from_hours(1);

/// Where NATS is, and which of the fleets there is meant.
#[derive(Clone)]
pub struct LinkConfig {
    /// `nats://[USER:PASSWORD@]HOST[:PORT]` or `tls://...`; may hold a secret.
    pub url: String,
    /// Letters, digits, `-` and `_`.
    pub fleet: String,
    /// How long a worker may be silent about a job before another gets it.
    pub lease: Duration,
}

impl std::fmt::Debug for LinkConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinkConfig").field("fleet", &self.fleet).finish_non_exhaustive()
    }
}

/// Why NATS cannot be used.
#[derive(Debug, Error)]
pub enum LinkError {
    /// Not an address.
    #[error("failed to read an address of NATS: {0}")]
    Address(String),
    /// A name that cannot be one.
    #[error("failed to name a fleet {0:?}: it has letters, digits, `-` and `_`, 32 at most")]
    Name(String),
    /// Nobody there, or not for us.
    #[error("failed to connect to NATS at {at}: {why}")]
    Connect {
        /// Host and port.
        at: String,
        /// What it said.
        why: String,
    },
    /// No `JetStream`, or not for us.
    #[error("failed to use JetStream of {at}: {why}")]
    JetStream {
        /// Host and port.
        at: String,
        /// What it said.
        why: String,
    },
    /// The system refused threads.
    #[error("failed to start threads: {0}")]
    Threads(#[from] std::io::Error),
}

impl LinkError {
    /// What the user can do.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Address(_) => {
                "it is `nats://HOST:4222`, or with a name and a password before HOST and `@`"
            }
            Self::Name(_) => "e.g. `--fleet gpus`",
            Self::Connect { .. } => "start one: `nats-server --jetstream --addr 127.0.0.1`",
            Self::JetStream { .. } => {
                "start NATS with `--jetstream`, and let the account have streams and 4 GiB of storage"
            }
            Self::Threads(_) => "`ulimit -u` says how many there may be",
        }
    }
}

/// A connection to one fleet's streams.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) client: Client,
    pub(crate) context: Context,
    pub(crate) lease: Duration,
    fleet: String,
    pub(crate) jobs: Stream,
    pub(crate) answers: Stream,
    pub(crate) files: Stream,
    pub(crate) parked: Stream,
}

impl Link {
    pub(crate) async fn open(config: &LinkConfig) -> Result<Self, LinkError> {
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let fleet = &config.fleet;
        if fleet.is_empty() || fleet.len() > 32 || !fleet.chars().all(is_word) {
            return Err(LinkError::Name(fleet.clone()));
        }
        let address: Result<ServerAddr, _> = config.url.parse();
        // Not what was given: it may hold a password.
        let address = address.map_err(|error| LinkError::Address(error.to_string()))?;
        let at = format!("{}:{}", address.host(), address.port());
        let options = ConnectOptions::new()
            .name("warpwright")
            .connection_timeout(CONNECTING)
            // Who vanishes without a word is missed soon.
            .ping_interval((config.lease / 2).max(Duration::from_secs(1)))
            .reconnect_delay_callback(|tries| {
                Duration::from_millis(100 * u64::try_from(tries.clamp(1, 10)).unwrap_or(10))
            });
        let client = options.connect(address).await.map_err(|error| {
            let why = error.to_string();
            LinkError::Connect { at: at.clone(), why }
        })?;
        let context = jetstream::new(client.clone());
        let streams = [
            Config { retention: RetentionPolicy::WorkQueue, max_age: KEPT, ..named(fleet, "jobs") },
            Config {
                retention: RetentionPolicy::WorkQueue,
                max_age: KEPT,
                ..named(fleet, "answers")
            },
            Config {
                max_messages_per_subject: 1,
                max_bytes: FILES_BYTES,
                max_age: PARKED_FOR,
                allow_direct: true,
                ..named(fleet, "files")
            },
            Config { max_messages: PARKED_JOBS, max_age: PARKED_FOR, ..named(fleet, "parked") },
        ];
        let mut made = Vec::new();
        for config in streams {
            let stream = context.get_or_create_stream(config).await;
            made.push(stream.map_err(|error| LinkError::JetStream {
                at: at.clone(),
                why: error.to_string(),
            })?);
        }
        let Ok([jobs, answers, files, parked]) = <[Stream; 4]>::try_from(made) else {
            return Err(LinkError::JetStream { at, why: "streams are missing".to_owned() });
        };
        let (fleet, lease) = (fleet.clone(), config.lease);
        Ok(Self { client, context, lease, fleet, jobs, answers, files, parked })
    }

    fn subject(&self, rest: &str) -> String {
        format!("warpwright.{}.{rest}", self.fleet)
    }

    pub(crate) fn job_subject(&self, kind: &str, server: &str) -> String {
        self.subject(&format!("jobs.{kind}.{server}"))
    }

    pub(crate) fn answer_subject(&self, server: &str) -> String {
        self.subject(&format!("answers.{server}"))
    }

    pub(crate) fn file_subject(&self, hash: &str, part: usize) -> String {
        self.subject(&format!("files.{hash}.{part}"))
    }

    pub(crate) fn parked_subject(&self, kind: &str) -> String {
        self.subject(&format!("parked.{kind}"))
    }

    /// Not kept: who is not there does not need it.
    pub(crate) fn begun_subject(&self, server: &str) -> String {
        self.subject(&format!("begun.{server}"))
    }

    /// The same.
    pub(crate) fn presence_subject(&self) -> String {
        self.subject("presence")
    }

    /// Publishes until NATS says that it has it, for two minutes. What has an identity is taken once.
    pub(crate) async fn publish(
        &self,
        subject: String,
        payload: Bytes,
        identity: Option<&str>,
    ) -> Result<(), String> {
        let mut tries = 0;
        loop {
            let mut message = PublishMessage::build().payload(payload.clone());
            if let Some(identity) = identity {
                message = message.message_id(identity);
            }
            let said = match self.context.send_publish(subject.clone(), message).await {
                Ok(ack) => ack.await.map(|_| ()),
                Err(error) => Err(error),
            };
            let Err(error) = said else { return Ok(()) };
            tries += 1;
            if tries >= TRIES {
                return Err(error.to_string());
            }
            tokio::time::sleep((PAUSE / 10 * tries).min(PAUSE)).await;
        }
    }

    /// Who takes the jobs of a kind: all its workers together.
    pub(crate) async fn job_consumer(&self, kind: &str) -> Result<Consumer<pull::Config>, String> {
        let config = pull::Config {
            durable_name: Some(format!("kind-{kind}")),
            filter_subject: self.job_subject(kind, "*"),
            ack_policy: AckPolicy::Explicit,
            ack_wait: self.lease,
            max_ack_pending: 100_000,
            ..pull::Config::default()
        };
        let made = self.jobs.create_consumer(config).await;
        made.map_err(|error| error.to_string())
    }

    /// Who takes the answers to a server.
    pub(crate) async fn answer_consumer(
        &self,
        server: &str,
    ) -> Result<Consumer<pull::Config>, String> {
        let config = pull::Config {
            durable_name: Some(format!("server-{server}")),
            filter_subject: self.answer_subject(server),
            ack_policy: AckPolicy::Explicit,
            ack_wait: Duration::from_mins(2),
            max_ack_pending: 100_000,
            inactive_threshold: FORGOTTEN,
            ..pull::Config::default()
        };
        let made = self.answers.create_consumer(config).await;
        made.map_err(|error| error.to_string())
    }
}

fn named(fleet: &str, what: &str) -> Config {
    Config {
        name: format!("warpwright-{fleet}-{what}"),
        subjects: vec![format!("warpwright.{fleet}.{what}.>")],
        storage: StorageType::File,
        discard: DiscardPolicy::Old,
        duplicate_window: REMEMBERED,
        ..Config::default()
    }
}

/// A name that nobody else has.
pub(crate) fn fresh_name() -> String {
    format!("{:016x}", rand::random::<u64>())
}
