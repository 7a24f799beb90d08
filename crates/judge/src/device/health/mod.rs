//! Whether the machine is fit for timing while a candidate is timed.
//!
//! ```text
//!   nvml (clocks, throttle reasons, processes) ──► watch ──► decide: keep a round, or measure it again
//!   host (/proc: who used the cores)           ──►   │  ──► tenants: who else has the GPU
//!                                                    └───► the verdict's conditions and caveats,
//!                                                          or an error that is not the candidate's
//! ```
//!
//! This module only reads: the owner of the card sets its clocks and limits. Readings are taken between
//! windows, never during one. The decisions are pure (`decide`, `tenants`) and tested with recorded
//! readings, because a GPU does not overheat or fall off the bus on demand. `docs/decisions/0013` explains
//! which readings reject a round and which only become caveats.

mod decide;
mod host;
mod nvml;
mod tenants;
mod watch;

use std::time::SystemTime;

use thiserror::Error;

pub(crate) use host::Cores;
#[cfg(test)]
pub(crate) use host::{process_seconds, tree};
pub(crate) use nvml::{NvmlGauge, node};
pub(crate) use watch::Watch;

/// The driver's bits for reasons that lower the clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reasons(pub(crate) u64);

impl Reasons {
    /// `nvmlClocksEventReason*` of nvml.h by the names of `nvidia-smi`. That nothing runs is no
    /// reason worth a word: readings are taken between windows.
    const NAMES: [(u64, &str); 8] = [
        (0x002, "applications_clocks_setting"),
        (Self::POWER_CAP, "sw_power_cap"),
        (Self::SLOWDOWN, "hw_slowdown"),
        (0x010, "sync_boost"),
        (Self::SOFT_THERMAL, "sw_thermal_slowdown"),
        (Self::THERMAL, "hw_thermal_slowdown"),
        (Self::BRAKE, "hw_power_brake_slowdown"),
        (0x100, "display_clock_setting"),
    ];
    pub(crate) const POWER_CAP: u64 = 0x004;
    /// The hardware divides clocks by two or more; older drivers say so of any change of clocks as
    /// well, so a clock must have fallen too.
    pub(crate) const SLOWDOWN: u64 = 0x008;
    const SOFT_THERMAL: u64 = 0x020;
    const THERMAL: u64 = 0x040;
    const BRAKE: u64 = 0x080;

    /// Those with which the hardware divides clocks by two or more at once, and nothing else.
    pub(crate) fn violent(self) -> Self {
        Self(self.0 & (Self::THERMAL | Self::BRAKE))
    }

    /// Those that a reader must know of where rounds with them count.
    pub(crate) fn doubtful(self) -> Self {
        Self(self.0 & (Self::SLOWDOWN | Self::SOFT_THERMAL))
    }

    pub(crate) fn has(self, bits: u64) -> bool {
        self.0 & bits != 0
    }

    /// In the driver's terms.
    pub(crate) fn names(self) -> Vec<&'static str> {
        Self::NAMES.iter().filter(|(bit, _)| self.has(*bit)).map(|(_, name)| *name).collect()
    }
}

/// A GPU at one moment. What it does not tell is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) sm_mhz: Option<u32>,
    pub(crate) memory_mhz: Option<u32>,
    pub(crate) celsius: Option<u32>,
    pub(crate) watts: Option<u32>,
    pub(crate) reasons: Reasons,
}

/// A process that has a GPU open, as its driver lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GpuProcess {
    pub(crate) pid: u32,
    pub(crate) memory_bytes: Option<u64>,
    /// Largest share of the GPU's time in percent since the moment asked about.
    pub(crate) sm_percent: Option<u32>,
}

/// Why the GPU's state could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum NoReading {
    /// The driver does not report it here.
    #[error("{0}")]
    Refused(String),
    /// The GPU disappeared.
    #[error("{0}")]
    Lost(String),
}

/// Reads a GPU's state.
pub(crate) trait Gauge: Send + Sync {
    /// Its state now. Costs a millisecond or so: not to be asked beside a window.
    fn sample(&self) -> Result<Sample, NoReading>;

    /// The processes that have it open now, and what they used since `since`.
    fn processes(&self, since: SystemTime) -> Result<Vec<GpuProcess>, NoReading>;
}

/// Source of a judge's readings of its device.
pub(crate) enum Health {
    /// The cpu device: only the host is watched.
    Host,
    /// A GPU with readings.
    Gpu(Box<dyn Gauge>),
    /// A GPU without readings, and the reason.
    Blind(String),
}

impl Health {
    /// Of the GPU with this identity.
    pub(crate) fn of_gpu(identity: &str) -> Self {
        match NvmlGauge::open(identity) {
            Ok(gauge) => Self::Gpu(Box::new(gauge)),
            Err(why) => Self::Blind(why.to_string()),
        }
    }

    pub(crate) fn gauge(&self) -> Option<&dyn Gauge> {
        match self {
            Self::Gpu(gauge) => Some(&**gauge),
            Self::Host | Self::Blind(_) => None,
        }
    }
}

#[cfg(test)]
mod gpu_tests;
#[cfg(test)]
mod tests;
