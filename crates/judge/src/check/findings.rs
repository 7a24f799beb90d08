//! What is found out about one candidate.

use warpwright_record::blob::BlobHash;
use warpwright_record::conditions::Conditions;
use warpwright_record::fit::MemoryUse;
use warpwright_record::verdict::{
    Check, Failure, IntegrityFinding, PhaseSeconds, Provenance, ReplayerTurn, Speedup, Tier, Times,
};

use crate::check::verify::Looked;
use crate::timing::series::Measured;

/// Findings about one candidate, stage by stage.
#[derive(Clone, Default)]
pub(crate) struct Findings {
    pub(crate) checks: Vec<Check>,
    pub(crate) failure: Option<Failure>,
    pub(crate) integrity: Vec<IntegrityFinding>,
    pub(crate) tier: Tier,
    pub(crate) plan: Option<BlobHash>,
    pub(crate) replayer: Option<ReplayerTurn>,
    pub(crate) provenance: Option<Provenance>,
    pub(crate) times: Times,
    pub(crate) speedup: Speedup,
    /// The samples that they are made of.
    pub(crate) measured: Measured,
    pub(crate) caveats: Vec<String>,
    pub(crate) conditions: Option<Conditions>,
    pub(crate) seconds: PhaseSeconds,
    /// Most bytes of memory that the judge made for the candidate; 0 where it was not loaded.
    pub(crate) candidate_bytes: u64,
    pub(crate) memory: Option<MemoryUse>,
}

impl Findings {
    /// Adds the result of comparing one call.
    pub(crate) fn take(&mut self, looked: Looked) {
        if !looked.void {
            self.checks.push(looked.check);
        }
        if self.failure.is_none() {
            self.failure = looked.failure;
        }
        self.integrity.extend(looked.integrity);
    }

    /// Whether there is something to object to.
    pub(crate) fn bad(&self) -> bool {
        self.failure.is_some() || !self.integrity.is_empty()
    }
}
