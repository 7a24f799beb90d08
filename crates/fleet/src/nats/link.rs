//! The connection, and the streams that a fleet has.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, Consumer, pull};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType, Stream};
use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectOptions, ServerAddr};
use bytes::Bytes;
use thiserror::Error;

/// Days that NATS keeps the dead-letter queue and file contents.
pub const DEAD_LETTER_DAYS: u64 = 7;
const DAY: Duration = Duration::from_hours(24);
const DEAD_LETTER_AGE: Duration = Duration::from_hours(24 * DEAD_LETTER_DAYS);
/// How long NATS keeps orders and answers that nobody takes: their server is gone by then.
const KEPT: Duration = DAY;
/// Bytes of file contents, at most; the oldest are deleted first.
const FILES_BYTES: i64 = 4 << 30;
const DEAD_LETTER_JOBS: i64 = 1000;
/// Deduplication window: NATS accepts a message id once within it.
const REMEMBERED: Duration = Duration::from_mins(10);
/// Connection timeout.
const CONNECTING: Duration = Duration::from_secs(5);
/// Tries per publication, and the longest pause between two: two minutes in total.
const TRIES: u32 = 60;
const PAUSE: Duration = Duration::from_secs(2);
/// NATS deletes the consumer of a server that was inactive for this long.
const FORGOTTEN: Duration = Duration::from_hours(1);

/// The NATS server, and the fleet on it.
#[derive(Clone)]
pub struct LinkConfig {
    /// `nats://[USER:PASSWORD@]HOST[:PORT]` or `tls://...`; may contain a secret.
    pub url: String,
    /// Name of the fleet: 1 to 32 letters, digits, `-` and `_`.
    pub fleet: String,
    /// How long a worker may send no heartbeat for a job before another worker gets it.
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
    /// The URL is malformed.
    #[error("failed to parse the URL of the NATS server: {0}")]
    Address(String),
    /// The fleet's name is malformed.
    #[error(
        "failed to use the fleet name {0:?}: a fleet name has 1 to 32 letters, digits, `-` and `_`"
    )]
    Name(String),
    /// No server answers, or it refuses the credentials.
    #[error("failed to connect to the NATS server {at}: {why}")]
    Connect {
        /// Host and port.
        at: String,
        /// What it said.
        why: String,
    },
    /// The server has no `JetStream`, or the account may not use it.
    #[error("failed to open the JetStream streams of the NATS server {at}: {why}")]
    JetStream {
        /// Host and port.
        at: String,
        /// What it said.
        why: String,
    },
    /// The operating system started no thread.
    #[error("failed to start threads: {0}")]
    Threads(#[from] std::io::Error),
}

impl LinkError {
    /// How the user can fix it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Address(_) => "write `nats://HOST:4222` or `nats://USER:PASSWORD@HOST:4222`",
            Self::Name(_) => "select another name, e.g. `--fleet gpus`",
            Self::Connect { .. } => {
                "start a server with `nats-server --jetstream --addr 127.0.0.1`, or check the URL and its credentials"
            }
            Self::JetStream { .. } => {
                "start the server with `--jetstream`, and give the account 4 streams and 4 GiB of file storage"
            }
            Self::Threads(_) => "raise the process limit (`ulimit -u`), or stop other programs",
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
    pub(crate) dead_letters: Stream,
}

impl Link {
    pub(crate) async fn open(config: &LinkConfig) -> Result<Self, LinkError> {
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let fleet = &config.fleet;
        if fleet.is_empty() || fleet.len() > 32 || !fleet.chars().all(is_word) {
            return Err(LinkError::Name(fleet.clone()));
        }
        let address: Result<ServerAddr, _> = config.url.parse();
        // The message does not repeat the URL: it may contain a password.
        let address = address.map_err(|error| LinkError::Address(error.to_string()))?;
        let at = format!("{}:{}", address.host(), address.port());
        let options = ConnectOptions::new()
            .name("warpwright")
            .connection_timeout(CONNECTING)
            // A peer that vanishes without closing is detected soon.
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
                max_age: DEAD_LETTER_AGE,
                allow_direct: true,
                ..named(fleet, "files")
            },
            Config {
                max_messages: DEAD_LETTER_JOBS,
                max_age: DEAD_LETTER_AGE,
                ..named(fleet, "dead-letters")
            },
        ];
        let mut made = Vec::new();
        for config in streams {
            let stream = context.get_or_create_stream(config).await;
            made.push(stream.map_err(|error| LinkError::JetStream {
                at: at.clone(),
                why: error.to_string(),
            })?);
        }
        let Ok([jobs, answers, files, dead_letters]) = <[Stream; 4]>::try_from(made) else {
            return Err(LinkError::JetStream {
                at,
                why: "NATS did not create every stream".to_owned(),
            });
        };
        let (fleet, lease) = (fleet.clone(), config.lease);
        Ok(Self { client, context, lease, fleet, jobs, answers, files, dead_letters })
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

    pub(crate) fn dead_letter_subject(&self, kind: &str) -> String {
        self.subject(&format!("dead-letters.{kind}"))
    }

    /// Core NATS, not stored: an absent server does not need it.
    pub(crate) fn begun_subject(&self, server: &str) -> String {
        self.subject(&format!("begun.{server}"))
    }

    /// Core NATS, not stored.
    pub(crate) fn presence_subject(&self) -> String {
        self.subject("presence")
    }

    /// Publishes until NATS acknowledges, for two minutes. NATS accepts each `identity` once.
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

    /// The consumer of a kind's jobs, shared by all its workers.
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

    /// The consumer of the answers to a server.
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

/// A unique random name: 16 hexadecimal digits.
pub(crate) fn fresh_name() -> String {
    format!("{:016x}", rand::random::<u64>())
}
