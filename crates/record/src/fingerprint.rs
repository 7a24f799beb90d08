//! The machine and the versions under which a figure was measured.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::exactness::Exactness;

/// Figures are comparable only under equal fingerprints; they are never averaged across them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Fingerprint {
    /// `cuda:N` or `cpu`.
    pub device: String,
    /// Marketing name of the GPU or CPU.
    pub hardware: String,
    /// Logical cores this process may use.
    pub cores: u32,
    /// GPU driver version; empty on the cpu device.
    pub driver: String,
    /// CUDA toolkit or, on the cpu device, host compiler version.
    pub compiler: String,
    /// `torch.__version__`.
    pub torch: String,
    /// Python version.
    pub python: String,
    /// SM and memory clocks in MHz at the time of measurement; empty on the cpu device.
    pub clocks: String,
    /// Version of this program.
    pub warpwright: String,
    /// Measured device ceilings, if `doctor --calibrate` was run: bytes per second.
    pub bandwidth_bytes_per_second: Option<u64>,
    /// How exactly it measures, if `doctor --calibrate` was run.
    #[serde(default)]
    pub exactness: Option<Exactness>,
}
