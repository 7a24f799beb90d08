//! The only way an agent sees the judge.

use thiserror::Error;
use warpwright_record::candidate::Candidate;
use warpwright_record::findings::{Findings, Inspection};
use warpwright_record::verdict::{Stage, Verdict};

/// Judges candidates of one task. `cli` implements it with the local judge; a remote judge will be
/// another implementation.
pub trait Judge: Send + Sync {
    /// Takes `candidate` as far as `stage`. A bad candidate is a verdict, not an error. The same files
    /// may get the same verdict again without being run.
    fn judge(&self, candidate: &Candidate, stage: Stage) -> Result<Verdict, JudgeUnavailable>;

    /// Verifies and measures `candidate`, whatever was judged before: for a result that is reported.
    fn measure_afresh(&self, candidate: &Candidate) -> Result<Verdict, JudgeUnavailable>;

    /// Looks at the process of a candidate with a tool. What the candidate does wrong, and what this
    /// judge has no tool for, is in the findings. Never changes a verdict.
    fn inspect(
        &self,
        candidate: &Candidate,
        inspection: &Inspection,
    ) -> Result<Findings, JudgeUnavailable>;

    /// Facts a policy may use: device, architecture, measured ceilings, library policy.
    fn device(&self) -> DeviceFacts;
}

/// What a policy is told about the device.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceFacts {
    /// `cuda:N` or `cpu`.
    pub device: String,
    /// `NVIDIA H200`, or the CPU's name.
    pub hardware: String,
    /// `sm_90a`; on the cpu device the architecture compiled for in passing, if `nvcc` is present.
    pub arch: Option<String>,
    /// Multiprocessors, or cores on the cpu device.
    pub processors: u32,
    /// Measured copy bandwidth, bytes per second, if calibrated.
    pub bandwidth_bytes_per_second: Option<u64>,
    /// Last-level cache in bytes.
    pub cache_bytes: u64,
    /// Shared memory a block may ask for, bytes.
    pub shared_bytes_per_block: u32,
}

impl DeviceFacts {
    /// What is assumed of a device that nothing runs on, to see what would be said or written for
    /// it: `cpu` is a host with two cores, anything else an NVIDIA H200. Nothing of it is measured.
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
        }
    }
}

/// Our own failure: never a verdict, never a reward.
#[derive(Debug, Error)]
#[error("failed to judge: {message}")]
pub struct JudgeUnavailable {
    /// What was attempted and what went wrong.
    pub message: String,
}
