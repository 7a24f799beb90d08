//! Readings of a GPU through NVML. Only a judge of a GPU loads the library: the program runs without NVIDIA's
//! driver.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use super::{Gauge, GpuProcess, NoReading, Reasons, Sample};

/// The driver's own name for it: the one without a version comes with development packages only.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// One GPU, read through NVML.
pub(crate) struct NvmlGauge {
    device: Device<'static>,
}

impl NvmlGauge {
    /// The GPU that CUDA calls `GPU-...`.
    pub(crate) fn open(identity: &str) -> Result<Self, NoReading> {
        let nvml = library().as_ref().map_err(|why| NoReading::Refused(why.clone()))?;
        Ok(Self { device: nvml.device_by_uuid(identity).map_err(no_reading)? })
    }
}

/// The minor number of the node in `/dev` of the GPU that CUDA calls `GPU-...`, if there is one and NVML
/// knows it.
pub(crate) fn node(identity: &str) -> Option<u32> {
    let device = library().as_ref().ok()?.device_by_uuid(identity).ok()?;
    let minor = device.minor_number().ok()?;
    Path::new(&format!("/dev/nvidia{minor}")).exists().then_some(minor)
}

/// The library, loaded once for all GPUs and for as long as the program lives.
fn library() -> &'static Result<Nvml, String> {
    static LOADED: OnceLock<Result<Nvml, String>> = OnceLock::new();
    LOADED.get_or_init(|| {
        let loaded = Nvml::builder().lib_path(OsStr::new(LIBRARY)).init();
        loaded.map_err(|e| format!("NVML ({LIBRARY}): {e}"))
    })
}

fn no_reading(error: NvmlError) -> NoReading {
    match error {
        NvmlError::GpuLost | NvmlError::ResetRequired | NvmlError::NotFound => {
            NoReading::Lost(format!("NVML: {error}"))
        }
        other => NoReading::Refused(format!("NVML: {other}")),
    }
}

/// A reading that a GPU may not have.
fn known<T>(read: Result<T, NvmlError>) -> Result<Option<T>, NoReading> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_)) => Ok(None),
        Err(error) => Err(no_reading(error)),
    }
}

impl Gauge for NvmlGauge {
    fn sample(&self) -> Result<Sample, NoReading> {
        let device = &self.device;
        let sample = Sample {
            sm_mhz: known(device.clock_info(Clock::SM))?,
            memory_mhz: known(device.clock_info(Clock::Memory))?,
            celsius: known(device.temperature(TemperatureSensor::Gpu))?,
            watts: known(device.power_usage())?.map(|milliwatts| milliwatts / 1000),
            reasons: known(device.current_throttle_reasons())?
                .map_or_else(Reasons::default, |reasons| Reasons(reasons.bits())),
        };
        if sample == Sample::default() {
            return Err(NoReading::Refused("NVML does not list this GPU".to_owned()));
        }
        Ok(sample)
    }

    fn processes(&self, since: SystemTime) -> Result<Vec<GpuProcess>, NoReading> {
        let listed = self.device.running_compute_processes().map_err(no_reading)?;
        // Not every driver keeps it; nothing used since then is an error of its own.
        let since = since.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
        let used = self.device.process_utilization_stats(since);
        let told = match &used {
            Ok(_) | Err(NvmlError::NotFound) => true,
            Err(_) => false,
        };
        let mut most: HashMap<u32, u32> = HashMap::new();
        for sample in used.unwrap_or_default() {
            if sample.timestamp > since {
                let seen = most.entry(sample.pid).or_default();
                *seen = sample.sm_util.max(*seen);
            }
        }
        let process = |info: nvml_wrapper::struct_wrappers::device::ProcessInfo| GpuProcess {
            pid: info.pid,
            memory_bytes: match info.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(bytes),
                UsedGpuMemory::Unavailable => None,
            },
            sm_percent: told.then(|| most.get(&info.pid).copied().unwrap_or(0)),
        };
        Ok(listed.into_iter().map(process).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where there is no driver, as on the machines that run most tests, this is an answer like any
    /// other; where there is one, an identity that no GPU has is.
    #[test]
    fn a_missing_gpu_is_a_plain_error() {
        let none = NvmlGauge::open("GPU-00000000-0000-0000-0000-000000000000");
        let why = none.err().map(|why| why.to_string()).unwrap_or_default();
        assert!(why.starts_with("NVML"), "{why}");
    }

    #[test]
    fn only_fatal_nvml_errors_mean_a_lost_gpu() {
        assert!(matches!(no_reading(NvmlError::GpuLost), NoReading::Lost(_)));
        assert!(matches!(no_reading(NvmlError::ResetRequired), NoReading::Lost(_)));
        assert!(matches!(no_reading(NvmlError::NoPermission), NoReading::Refused(_)));
        assert_eq!(known::<u32>(Err(NvmlError::NotSupported)), Ok(None));
        assert!(known::<u32>(Err(NvmlError::Unknown)).is_err());
    }
}
