//! The device that candidates run on, and the facts that the judge needs of it.

use std::fmt;
use std::str::FromStr;

/// Where candidates run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Device {
    /// CUDA C++ executed on the host.
    Cpu,
    /// A GPU by ordinal.
    Cuda(u32),
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(n) => write!(f, "cuda:{n}"),
        }
    }
}

impl FromStr for Device {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(0)),
            _ => {
                text.strip_prefix("cuda:").and_then(|n| n.parse().ok()).map(Self::Cuda).ok_or_else(
                    || format!("`{text}` is not a device: use `cpu`, `cuda` or `cuda:N`"),
                )
            }
        }
    }
}

/// Facts of the device at hand.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceFacts {
    /// Marketing name.
    pub hardware: String,
    /// `sm_90a`; `None` on the cpu device.
    pub arch: Option<String>,
    /// Multiprocessors, or logical cores.
    pub processors: u32,
    /// Last-level cache in bytes.
    pub cache_bytes: u64,
    /// Shared memory a block may ask for, in bytes.
    pub shared_bytes_per_block: u32,
    /// Driver version; empty on the cpu device.
    pub driver: String,
    /// Memory the judge may plan with, in bytes.
    pub memory_bytes: u64,
    /// Whether the device has more, which the judge may not use.
    pub memory_is_limited: bool,
}

impl DeviceFacts {
    /// The same device with at most so many bytes of memory for the judge.
    #[must_use]
    pub(crate) fn within(self, memory_limit: Option<u64>) -> Self {
        let limit = memory_limit.filter(|limit| *limit < self.memory_bytes);
        let memory_bytes = limit.unwrap_or(self.memory_bytes);
        Self { memory_bytes, memory_is_limited: limit.is_some(), ..self }
    }
}

/// Most of a host's cache that windows go through twice. A server's is shared by many, hundreds of
/// MiB in all, and windows of gigabytes would take longer to make ready than to measure.
const SWEPT_ON_HOST: u64 = 64 << 20;

impl DeviceFacts {
    /// Bytes of cache in which a call may find nothing that an earlier one left.
    pub(crate) fn swept_bytes(&self) -> u64 {
        if self.arch.is_some() { self.cache_bytes } else { self.cache_bytes.min(SWEPT_ON_HOST) }
    }
}

/// Facts of the host as a device.
pub(crate) fn host_facts() -> DeviceFacts {
    let cpuinfo = fs_err::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let hardware = cpuinfo
        .lines()
        .find_map(|l| l.strip_prefix("model name").and_then(|l| l.split_once(": ")))
        .map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.to_owned());
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    DeviceFacts {
        hardware,
        arch: None,
        processors,
        cache_bytes: last_level_cache().unwrap_or(32 << 20),
        shared_bytes_per_block: 227 << 10,
        driver: String::new(),
        memory_bytes: available_memory().unwrap_or(4 << 30),
        memory_is_limited: false,
    }
}

fn last_level_cache() -> Option<u64> {
    let mut largest = None;
    for index in 0..8 {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
        let Ok(text) = fs_err::read_to_string(path) else { break };
        let text = text.trim();
        let size = text.strip_suffix('K').and_then(|n| n.parse::<u64>().ok()).map(|k| k << 10);
        let size = size
            .or_else(|| text.strip_suffix('M').and_then(|n| n.parse().ok()).map(|m: u64| m << 20));
        largest = largest.max(size);
    }
    largest
}

/// `MemAvailable`, in bytes.
fn available_memory() -> Option<u64> {
    let text = fs_err::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|k| k << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_names_round_trip() {
        for text in ["cpu", "cuda:0", "cuda:3"] {
            assert_eq!(text.parse::<Device>().unwrap().to_string(), text);
        }
        assert_eq!("cuda".parse::<Device>(), Ok(Device::Cuda(0)));
        assert!("gpu".parse::<Device>().is_err());
    }
}
