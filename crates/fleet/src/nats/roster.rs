//! The remote workers that are connected.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde::Serialize;

use super::notes::Presence;

/// A remote worker, as `/health` shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RemoteWorkerStatus {
    /// Its name.
    pub worker: String,
    /// Its devices: `cuda:N` or `cpu`.
    pub devices: Vec<String>,
    /// Name of its hardware, e.g. `NVIDIA H200`; the same for all its devices.
    pub hardware: String,
    /// Jobs that it judges concurrently.
    pub slots: usize,
    /// Jobs that it judges now.
    pub running: usize,
    /// Seconds since its last heartbeat.
    pub silent_seconds: f64,
}

/// The remote workers of a server.
#[derive(Debug, Default)]
pub struct Roster {
    present: Mutex<BTreeMap<String, (Presence, Instant)>>,
}

impl Roster {
    /// The connected workers, sorted by name.
    pub fn workers(&self) -> Vec<RemoteWorkerStatus> {
        let present = self.lock();
        let each = present.values().map(|(presence, seen)| RemoteWorkerStatus {
            worker: presence.worker.clone(),
            devices: presence.devices.clone(),
            hardware: presence.kind.hardware.clone(),
            slots: presence.slots,
            running: presence.running,
            silent_seconds: seen.elapsed().as_secs_f64(),
        });
        each.collect()
    }

    pub(crate) fn came(&self, presence: Presence) {
        self.lock().insert(presence.worker.clone(), (presence, Instant::now()));
    }

    pub(crate) fn went(&self, worker: &str) {
        self.lock().remove(worker);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, (Presence, Instant)>> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
