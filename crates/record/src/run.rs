//! `run.json` and the layout of a run folder.

use std::path::{Path, PathBuf};

use fs_err as fs;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Version of the run folder's format. Raised when an event is added or a meaning changes.
pub const FORMAT_VERSION: u32 = 3;

/// Version of the program that is running.
pub const PROGRAM_VERSION: &str = env!("CARGO_PKG_VERSION");

/// What a caller says of a run it begins.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunInfo {
    /// The command line, for people, e.g. `warpwright optimize model.py`.
    pub command: String,
    /// Everything the run depends on; what `--resume` starts from.
    pub config: serde_json::Value,
}

/// `run.json`, written once when the run begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunHeader {
    /// [`FORMAT_VERSION`] of the writer.
    pub format: u32,
    /// Version of the program that began the run.
    pub program: String,
    /// When.
    pub created: jiff::Timestamp,
    /// The command line.
    pub command: String,
    /// Everything the run depends on.
    pub config: serde_json::Value,
    /// The machine it began on.
    pub machine: Machine,
}

/// The machine as the operating system describes it. Figures carry a
/// [`crate::fingerprint::Fingerprint`] of their own, with device and versions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// E.g. `Debian GNU/Linux 12 (bookworm)`.
    pub system: String,
    /// Kernel release.
    pub kernel: String,
    /// `x86_64`, `aarch64`.
    pub arch: String,
    /// The CPU's name.
    pub cpu: String,
    /// Logical cores this process may use.
    pub cores: u32,
    /// Main memory in bytes.
    pub memory_bytes: u64,
}

impl Machine {
    /// This machine. What cannot be found out stays empty.
    pub fn here() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let after = |text: &str, key: &str, sep: char| {
            text.lines()
                .filter_map(|line| line.split_once(sep))
                .find(|(k, _)| k.trim() == key)
                .map(|(_, v)| v.trim().trim_matches('"').to_owned())
                .unwrap_or_default()
        };
        let memory_kib = after(&read("/proc/meminfo"), "MemTotal", ':');
        let memory_kib: u64 =
            memory_kib.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or_default();
        Self {
            system: after(&read("/etc/os-release"), "PRETTY_NAME", '='),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
            cpu: after(&read("/proc/cpuinfo"), "model name", ':'),
            cores: std::thread::available_parallelism().map_or(0, |n| n.get() as u32),
            memory_bytes: memory_kib * 1024,
        }
    }
}

/// Names inside a run folder.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) root: PathBuf,
}

impl Layout {
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }
    pub(crate) fn header(&self) -> PathBuf {
        self.root.join("run.json")
    }
    pub(crate) fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }
    pub(crate) fn events(&self) -> PathBuf {
        self.root.join("events.jsonl")
    }
    pub(crate) fn packed(&self) -> PathBuf {
        self.root.join("events.jsonl.zst")
    }
    pub(crate) fn index(&self) -> PathBuf {
        self.root.join("index.sqlite")
    }
}
