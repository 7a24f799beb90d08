//! The kind of a worker: verdicts are comparable only within one kind.

use serde::{Deserialize, Serialize};

/// Version, rules and hardware of a judge. Verdicts are comparable only if all three are equal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kind {
    /// Version of Warpwright.
    pub version: String,
    /// Profile, baselines and seed of the judge.
    pub rules: String,
    /// Name of the device, e.g. `NVIDIA H200`.
    pub hardware: String,
}

impl Kind {
    /// Its hash, as a token of a NATS subject.
    pub(crate) fn word(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for part in [&self.version, &self.rules, &self.hardware] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        hasher.finalize().to_hex()[..16].to_owned()
    }

    /// Why the server refuses a worker of this kind; `None` if it does not.
    pub(crate) fn objection(&self, worker: &Self) -> Option<String> {
        let differs = [
            ("version", &self.version, &worker.version),
            ("rules", &self.rules, &worker.rules),
            ("hardware", &self.hardware, &worker.hardware),
        ];
        let (what, wanted, found) =
            differs.into_iter().find(|(_, wanted, found)| wanted != found)?;
        Some(format!("the worker's {what} is {found:?}, the server's {wanted:?}"))
    }
}
