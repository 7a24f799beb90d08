//! Findings: what tools saw in a process that ran a candidate. Information for whoever writes the
//! next version, never part of a verdict and never a reward: the process is the candidate's own, and
//! what it says of itself it could forge.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fingerprint::Fingerprint;
use crate::verdict::Failure;

/// Version of the serialised form. A reader refuses a newer one.
pub const FINDINGS_VERSION: u32 = 1;

/// What is asked about a candidate beside a verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Inspection {
    /// Which kernels one call runs, how long each takes, and what lies between them.
    Kernels,
    /// Hardware counters per kernel.
    Counters,
    /// Invalid accesses, races, uninitialised reads, misused barriers.
    Sanitize {
        /// What to look for; one run each, in order, none twice.
        checks: Vec<SanitizerCheck>,
    },
}

/// What a sanitizer looks for; the names are those of `compute-sanitizer`'s tools.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum SanitizerCheck {
    /// Accesses out of bounds, misaligned or to freed memory.
    Memcheck,
    /// Shared memory accessed by several threads without a barrier between.
    Racecheck,
    /// Global memory read before it was written.
    Initcheck,
    /// Barriers that not all threads reach.
    Synccheck,
}

impl SanitizerCheck {
    /// Every check.
    pub const ALL: [Self; 4] = [Self::Memcheck, Self::Racecheck, Self::Initcheck, Self::Synccheck];

    /// The name on the command line, in JSON and of the tool.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memcheck => "memcheck",
            Self::Racecheck => "racecheck",
            Self::Initcheck => "initcheck",
            Self::Synccheck => "synccheck",
        }
    }
}

/// An answer to an [`Inspection`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Findings {
    /// [`FINDINGS_VERSION`] of the writer.
    pub version: u32,
    /// Task name.
    pub task: String,
    /// BLAKE3 of the candidate's files.
    pub candidate: String,
    /// `cuda:N` or `cpu`.
    pub device: String,
    /// What was asked.
    pub inspection: Inspection,
    /// What came of it.
    pub answer: Answer,
    /// What was weaker than a reader may think, each in a sentence.
    pub caveats: Vec<String>,
    /// Wall seconds of the build; near zero on a cache hit.
    pub build_seconds: f64,
    /// Wall seconds for which the device was taken.
    pub run_seconds: f64,
    /// Where and under what it was seen.
    pub fingerprint: Fingerprint,
}

/// What came of an [`Inspection`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Answer {
    /// To [`Inspection::Kernels`].
    Kernels {
        /// The profile of one call.
        profile: CallProfile,
    },
    /// To [`Inspection::Counters`].
    Counters {
        /// One entry per kernel launched by one call, in order, at most [`MAX_KERNELS`].
        kernels: Vec<KernelCounters>,
        /// Launches left out beyond those.
        left_out: u32,
    },
    /// To [`Inspection::Sanitize`].
    Sanitized {
        /// One per check, in the order asked.
        reports: Vec<SanitizerReport>,
    },
    /// The candidate did not build, load or run.
    Failed {
        /// Why; as in a verdict.
        failure: Failure,
    },
    /// This host or device cannot answer it. Says nothing of the candidate.
    Unavailable {
        /// What is missing.
        reason: String,
        /// What would mend it, where anything would.
        hint: Option<String>,
    },
}

/// Most kernels, findings and reports of one kind that an answer lists.
pub const MAX_KERNELS: usize = 64;

/// One call of a candidate after warm-up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CallProfile {
    /// Calls that were averaged.
    pub calls: u32,
    /// Microseconds of one call on the process's own clock, with tracing on.
    pub wall_us: f64,
    /// Microseconds of one call in which at least one kernel or copy ran.
    pub busy_us: f64,
    /// Microseconds of one call between its first and last activity in which none ran.
    pub gap_us: f64,
    /// Kernels and copies one call starts.
    pub launches: f64,
    /// By time, the longest first, at most [`MAX_KERNELS`].
    pub kernels: Vec<KernelTime>,
    /// Kernels left out beyond those.
    pub left_out: u32,
    /// Unavoidable bytes of one call: every input, parameter and output once.
    pub unavoidable_bytes: u64,
    /// Bytes per second at which those moved while the device was busy.
    pub bandwidth_bytes_per_second: Option<f64>,
    /// That over the measured copy bandwidth: how near to the memory roof the call is, from 0 to
    /// about 1; above where caches serve.
    pub roof_share: Option<f64>,
    /// Measured copy bandwidth of the device, bytes per second.
    pub ceiling_bytes_per_second: Option<u64>,
}

/// What an activity on the device was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ActivityKind {
    /// A kernel.
    Kernel,
    /// A copy.
    Copy,
    /// A fill.
    Fill,
}

/// All launches of one kernel with one configuration, per call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelTime {
    /// Demangled name, capped.
    pub name: String,
    /// Kernel, copy or fill.
    pub kind: ActivityKind,
    /// Launches per call.
    pub launches: f64,
    /// Microseconds per call, summed over its launches.
    pub total_us: f64,
    /// Part of all launches' time, from 0 to 1.
    pub share: f64,
    /// Blocks, x y z; zero for copies and fills.
    pub grid: [u32; 3],
    /// Threads of a block, x y z; zero for copies and fills.
    pub block: [u32; 3],
    /// Registers per thread; `None` where nothing reports them.
    pub registers: Option<u32>,
    /// Shared memory of a block in bytes, static and dynamic.
    pub shared_bytes: u32,
    /// Theoretical occupancy; `None` on the cpu device and for architectures without a table.
    pub occupancy: Option<Occupancy>,
    /// Bytes per call, where known: for copies and fills.
    pub bytes: Option<u64>,
    /// Bytes per second, where `bytes` is known; a copy's bytes count twice, read and written.
    pub bandwidth_bytes_per_second: Option<f64>,
}

/// How many warps fit on a multiprocessor at once, by the rules of the CUDA occupancy calculator.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Occupancy {
    /// Resident blocks per multiprocessor.
    pub blocks: u32,
    /// Resident warps per multiprocessor.
    pub warps: u32,
    /// Most warps the architecture can hold.
    pub most_warps: u32,
    /// What keeps it from more.
    pub limit: OccupancyLimit,
}

impl Occupancy {
    /// Resident warps over the most possible, from 0 to 1.
    pub fn share(&self) -> f64 {
        f64::from(self.warps) / f64::from(self.most_warps.max(1))
    }
}

/// What keeps more blocks from a multiprocessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OccupancyLimit {
    /// Threads: the blocks fill it.
    Threads,
    /// The number of blocks.
    Blocks,
    /// Registers.
    Registers,
    /// Shared memory.
    SharedMemory,
}

/// Counters of one launch. `None` where the tool gave none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelCounters {
    /// Demangled name, capped.
    pub name: String,
    /// Blocks, x y z.
    pub grid: [u32; 3],
    /// Threads of a block, x y z.
    pub block: [u32; 3],
    /// Microseconds, at the clocks that the tool sets.
    pub time_us: Option<f64>,
    /// Bytes read from and written to device memory.
    pub dram_bytes: Option<u64>,
    /// Throughput of device memory, percent of its peak.
    pub dram_percent: Option<f64>,
    /// Throughput of the multiprocessors, percent of their peak.
    pub sm_percent: Option<f64>,
    /// Warps resident on average while anything was, percent of the most possible.
    pub achieved_occupancy_percent: Option<f64>,
    /// Warps that could be resident, percent of the most possible.
    pub theoretical_occupancy_percent: Option<f64>,
    /// What keeps it from more.
    pub occupancy_limit: Option<OccupancyLimit>,
    /// Registers per thread.
    pub registers: Option<u32>,
    /// Sectors found in L2, percent.
    pub l2_hit_percent: Option<f64>,
    /// 32-byte sectors per global load request of a warp: 4 for coalesced 4-byte loads, 32 at worst.
    pub load_sectors_per_request: Option<f64>,
    /// The same for stores.
    pub store_sectors_per_request: Option<f64>,
    /// Bank conflicts of shared memory loads and stores.
    pub bank_conflicts: Option<u64>,
    /// Why warps waited: reason and cycles per issued instruction, the longest first, at most four.
    pub stalls: Vec<Stall>,
    /// What the figures mean, one sentence each.
    pub hints: Vec<String>,
}

/// A reason for which warps waited.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stall {
    /// The profiler's name, e.g. `long_scoreboard`.
    pub reason: String,
    /// Warp cycles spent so per issued instruction.
    pub cycles: f64,
}

/// What one run of a sanitizer saw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SanitizerReport {
    /// What was looked for.
    pub check: SanitizerCheck,
    /// Program that looked, e.g. `compute-sanitizer` or `AddressSanitizer`.
    pub tool: String,
    /// How it ended.
    pub outcome: SanitizerOutcome,
    /// Distinct findings in the order seen, at most [`MAX_KERNELS`].
    pub findings: Vec<SanitizerFinding>,
    /// Findings that the tool counted, repetitions included.
    pub total: u64,
}

/// How a sanitizer's run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum SanitizerOutcome {
    /// The call ended by itself; the findings are all there is.
    Complete,
    /// The candidate's process stopped early; there may be more.
    Stopped {
        /// Why.
        message: String,
    },
    /// The check cannot be made here.
    Unavailable {
        /// What is missing.
        reason: String,
    },
}

/// One thing a sanitizer found; repetitions of the same in other threads are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SanitizerFinding {
    /// The tool's words, e.g. `Invalid __global__ write of size 4 bytes`.
    pub what: String,
    /// Whether the tool calls it a warning rather than an error.
    pub warning: bool,
    /// Demangled kernel, if known.
    pub kernel: Option<String>,
    /// Workspace-relative file or bare file name, if known.
    pub file: Option<String>,
    /// 1-based line, if known.
    pub line: Option<u32>,
    /// First thread it was seen in, x y z.
    pub thread: Option<[u32; 3]>,
    /// Block of that thread, x y z.
    pub block: Option<[u32; 3]>,
    /// First address, as the tool writes it.
    pub address: Option<String>,
    /// What else the tool says of it, e.g. how far from the nearest allocation.
    pub details: Vec<String>,
    /// How often it was seen.
    pub times: u64,
}
