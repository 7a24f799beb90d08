//! The agent's interface to the judge.

use thiserror::Error;
use warpwright_record::blob::BlobHash;
use warpwright_record::candidate::Candidate;
use warpwright_record::findings::{Findings, Inspection};
use warpwright_record::libraries::LibrarySet;
use warpwright_record::verdict::{Stage, Verdict};

/// Judges candidates of one task. `rollout` implements it with the local judge.
pub trait Judge: Send + Sync {
    /// Judges `candidate` up to `stage`. A bad candidate is a verdict, not an error. Equal files may get a
    /// cached verdict.
    fn judge(&self, candidate: &Candidate, stage: Stage) -> Result<Verdict, JudgeUnavailable>;

    /// Verifies and measures `candidate` without the verdict cache: for reported results.
    fn measure_afresh(&self, candidate: &Candidate) -> Result<Verdict, JudgeUnavailable>;

    /// Inspects a candidate with a tool, e.g. a profiler. Errors of the candidate and missing tools are in the
    /// findings. It never changes a verdict.
    fn inspect(
        &self,
        candidate: &Candidate,
        inspection: &Inspection,
    ) -> Result<Findings, JudgeUnavailable>;

    /// The file of a verdict's launch plan, if the judge has it.
    fn plan_file(&self, _hash: BlobHash) -> Option<Vec<u8>> {
        None
    }

    /// Whether a verdict does not count any more; see [`VoidTurns`](warpwright_record::void::VoidTurns).
    fn is_void(&self, _verdict: &Verdict) -> Result<bool, JudgeUnavailable> {
        Ok(false)
    }

    /// Facts about the device.
    fn device(&self) -> DeviceFacts;
}

/// Facts about the device, for policies.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceFacts {
    /// `cuda:N` or `cpu`.
    pub device: String,
    /// `NVIDIA H200`, or the CPU's name.
    pub hardware: String,
    /// `sm_90a`; on the cpu device, the architecture of the additional GPU compilation, if `nvcc`
    /// is present.
    pub arch: Option<String>,
    /// Multiprocessors, or cores on the cpu device.
    pub processors: u32,
    /// Measured copy bandwidth, bytes per second, if calibrated.
    pub bandwidth_bytes_per_second: Option<u64>,
    /// Last-level cache in bytes.
    pub cache_bytes: u64,
    /// Maximum shared memory of a block, bytes.
    pub shared_bytes_per_block: u32,
    /// Header libraries that kernels may use.
    pub libraries: LibrarySet,
}

impl DeviceFacts {
    /// Assumed facts for a device that is not open: `cpu` is a host with two cores, any other an
    /// NVIDIA H200. Nothing is measured.
    pub fn assumed(device: &str) -> Self {
        let cpu = device == "cpu";
        Self {
            device: device.to_owned(),
            hardware: if cpu { "a host" } else { "NVIDIA H200" }.to_owned(),
            arch: (!cpu).then(|| "sm_90".to_owned()),
            processors: if cpu { 2 } else { 132 },
            bandwidth_bytes_per_second: None,
            cache_bytes: 50 << 20,
            shared_bytes_per_block: 227 << 10,
            libraries: LibrarySet::default(),
        }
    }
}

/// An infrastructure error: never a verdict, never a reward.
#[derive(Debug, Error)]
#[error("failed to judge: {message}")]
pub struct JudgeUnavailable {
    /// What failed, and why.
    pub message: String,
}
