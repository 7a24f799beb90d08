//! What two verdicts must have in common to be compared.

use serde::{Deserialize, Serialize};

/// What makes verdicts comparable: who differs in any of it judges for somebody else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kind {
    /// Of the program.
    pub version: String,
    /// The rules: profile, baselines, seed.
    pub rules: String,
    /// Name of the device, e.g. `NVIDIA H200`.
    pub hardware: String,
}

impl Kind {
    /// A word for it that a subject may have.
    pub(crate) fn word(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for part in [&self.version, &self.rules, &self.hardware] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        hasher.finalize().to_hex()[..16].to_owned()
    }

    /// Why a worker of another kind does not judge here.
    pub(crate) fn objection(&self, worker: &Self) -> Option<String> {
        let differs = [
            ("version", &self.version, &worker.version),
            ("rules", &self.rules, &worker.rules),
            ("hardware", &self.hardware, &worker.hardware),
        ];
        let (what, wanted, found) =
            differs.into_iter().find(|(_, wanted, found)| wanted != found)?;
        Some(format!("its {what} is {found:?}, the server's {wanted:?}"))
    }
}
