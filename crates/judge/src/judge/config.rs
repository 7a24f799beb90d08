//! What a judge is opened with.

use std::path::PathBuf;
use std::time::Duration;

use warpwright_jail::Requirement;
use warpwright_record::libraries::LibrarySet;
use warpwright_record::verdict::{Profile, Tier};

use crate::admission::degenerate::Degenerate;
use crate::device::facts::Device;

/// Which baselines a candidate is timed against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaselineSet {
    /// Eager and `torch.compile` in its default mode.
    Plain,
    /// `Plain` and, on a GPU, `reduce-overhead`.
    Usual,
    /// `Usual` and, on a GPU, `max-autotune`.
    All,
}

/// Part of the verdicts of the device tier that are made again in a new GPU context. A disagreement voids the
/// verdicts of the replayer since its last agreement.
pub const REPEAT_RATE: f64 = 0.01;

/// Configuration of a judge.
#[derive(Clone, Debug)]
pub struct JudgeConfig {
    /// Where candidates run.
    pub device: Device,
    /// Rules of precision and comparison.
    pub profile: Profile,
    /// Seed of the reference's weights. Secrets (inputs, addresses, which timed calls are compared) come from
    /// the system's entropy instead.
    pub seed: u64,
    /// Baselines to time against.
    pub baselines: BaselineSet,
    /// Whether degenerate tasks are refused or judged without reward.
    pub degenerate: Degenerate,
    /// Minimum isolation; with less, opening the judge fails.
    pub isolation: Requirement,
    /// Python interpreter with torch.
    pub python: PathBuf,
    /// Cache folder for builds, compiled baselines and calibrations.
    pub cache: PathBuf,
    /// Most memory of the device that the judge may use, in bytes; `None` for all that is free when it is opened.
    /// On a GPU contexts of its processes are not counted, and on the cpu device the memory of torch is not.
    pub memory_limit: Option<u64>,
    /// The tier in which candidates are judged; `None` for the device tier where it is possible, and the host
    /// tier elsewhere.
    pub tier: Option<Tier>,
    /// Whether candidates of a task that are timed in the same half minute share most of its baselines' windows. In
    /// the device tier only.
    pub share_baselines: bool,
    /// Header libraries that candidates for a GPU may use, besides CUDA, cuBLAS and cuDNN.
    pub libraries: LibrarySet,
    /// How many verdicts of the device tier are made again in a new GPU context, as a part of 1: usually
    /// [`REPEAT_RATE`].
    pub repeat_rate: f64,
    /// Length of a timed window; `None` for the device's default. Only for measuring the accuracy of
    /// shorter windows.
    pub window: Option<Duration>,
}
