//! The server's settings, and the state that its requests share.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use warpwright_fleet::Queue;
use warpwright_fleet::nats::{RemoteWorkerStatus, Roster};
use warpwright_record::verdict::Profile;
use warpwright_task::Task;

use crate::auth::Tokens;
use crate::metrics::Metrics;
use crate::replays::Replays;
use crate::seen::Seen;
use crate::sessions::{SessionLimits, Sessions};
use crate::utilisation::Uses;
use crate::voids::Voids;

/// Settings of the server.
#[derive(Debug)]
pub struct Settings {
    /// Bearer tokens of the clients.
    pub tokens: Tokens,
    /// Served tasks, by name.
    pub tasks: BTreeMap<String, Task>,
    /// Devices of this host.
    pub served: Vec<Served>,
    /// Profile of the judge.
    pub profile: Profile,
    /// Limit of a request's body, bytes.
    pub body_bytes: usize,
    /// Timeout of receiving a body.
    pub body_time: Duration,
    /// Deadline of a request that names none.
    pub deadline: Duration,
    /// Limit of a batch, candidates.
    pub batch: usize,
    /// How long a response is kept for its idempotency key.
    pub replay_time: Duration,
    /// Limit of kept responses, bytes.
    pub replay_bytes: usize,
    /// Limits of sessions.
    pub sessions: SessionLimits,
    /// System prompt of an episode: the device and the tools.
    pub skill: String,
}

/// A device that judges.
#[derive(Clone, Debug)]
pub struct Served {
    /// `cuda:N` or `cpu`.
    pub device: String,
    /// `NVIDIA H200`, or the CPU's name.
    pub hardware: String,
}

/// State that all requests share.
#[derive(Debug)]
pub struct App {
    pub(crate) settings: Settings,
    pub(crate) queue: Arc<Queue>,
    pub(crate) metrics: Metrics,
    pub(crate) replays: Replays,
    /// Episodes that clients play. The caller hosts them, see [`Sessions::next`].
    pub sessions: Sessions,
    /// Utilisation of the devices, reported by the caller.
    pub uses: Uses,
    /// Void verdicts, reported by the caller.
    pub voids: Voids,
    /// Remote workers; unset on a server without NATS.
    pub remote_workers: OnceLock<Arc<Roster>>,
    pub(crate) seen: Seen,
}

impl App {
    /// For a queue whose workers the caller runs.
    pub fn new(settings: Settings, queue: Arc<Queue>) -> Arc<Self> {
        let replays = Replays::new(settings.replay_time, settings.replay_bytes);
        let sessions = Sessions::new(settings.sessions);
        Arc::new(Self {
            settings,
            queue,
            metrics: Metrics::new(),
            replays,
            sessions,
            uses: Uses::default(),
            voids: Voids::default(),
            remote_workers: OnceLock::new(),
            seen: Seen::default(),
        })
    }
}

impl App {
    /// The connected remote workers.
    pub(crate) fn remote_workers(&self) -> Vec<RemoteWorkerStatus> {
        self.remote_workers.get().map(|roster| roster.workers()).unwrap_or_default()
    }
}
