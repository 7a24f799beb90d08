//! Who is there to judge, for whoever wants to see it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde::Serialize;

use super::notes::Presence;

/// A worker of another host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Far {
    /// Its name.
    pub worker: String,
    /// What it judges on.
    pub devices: Vec<String>,
    /// Of all its devices.
    pub hardware: String,
    /// Jobs that it takes at once.
    pub slots: usize,
    /// Jobs that it is at.
    pub running: usize,
    /// Seconds since it last said that it is there.
    pub silent_seconds: f64,
}

/// Workers of other hosts, and those that may not judge here.
#[derive(Debug, Default)]
pub struct Roster {
    there: Mutex<BTreeMap<String, (Presence, Instant)>>,
}

impl Roster {
    /// Those that judge, by name.
    pub fn there(&self) -> Vec<Far> {
        let there = self.lock();
        let each = there.values().map(|(presence, seen)| Far {
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
        self.there.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
