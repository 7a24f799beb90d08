//! The verdict: what the judge says of one candidate. Plain data, versioned, the only source of
//! reward. It is produced by the judge alone; nothing here is taken from a candidate's own word
//! except texts, which are capped and marked as such.

mod baselines;
mod seconds;
mod workloads;

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::baselines::{BASELINES, Speedup, Times};
pub use self::seconds::PhaseSeconds;
pub use self::workloads::{SCALED_DOWN, WorkloadVerdict, judged_workloads};
use crate::blob::BlobHash;
use crate::conditions::Conditions;
use crate::fingerprint::Fingerprint;
use crate::fit::{Fit, MemoryUse};
use crate::inputs::InputFamily;
use crate::libraries::Libraries;

/// Version of the serialised form and of the rules by which it came about. A reader refuses a newer
/// one; an older one is shown and marked, and never reused: 1 was paid to candidates that computed
/// outside the clock.
pub const VERDICT_VERSION: u32 = 2;

/// Precision and comparison policy (design, invariant 4).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// Full float32 for matmul and convolution on both sides; tolerance scaled to eager's own
    /// error against a float64 oracle.
    Strict,
    /// TF32 on both sides; tolerance as in `strict`, scaled to TF32's own error.
    Tf32,
    /// The user's dtype, autocast and flags on both sides; tolerance as in `strict`.
    AsRun,
    /// The paper's comparison: `atol = rtol = 1e-2` against eager, five inputs.
    Paper,
}

impl Profile {
    /// Every profile.
    pub const ALL: [Self; 4] = [Self::Strict, Self::Tf32, Self::AsRun, Self::Paper];

    /// The name on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Tf32 => "tf32",
            Self::AsRun => "as-run",
            Self::Paper => "paper",
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Profile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|profile| profile.name() == text);
        found.ok_or_else(|| format!("`{text}` is no profile: strict, tf32, as-run or paper"))
    }
}

/// Half-precision dtype that reference, candidate and floating inputs were cast to.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Dtype {
    /// `torch.bfloat16`.
    Bf16,
    /// `torch.float16`.
    Fp16,
}

impl Dtype {
    /// The dtype with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Bf16, Self::Fp16].into_iter().find(|dtype| dtype.name() == name)
    }

    /// The name on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What of a candidate executes while it is judged.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Its host code too, in a process of its own that is frozen outside the candidate's windows.
    #[default]
    Host,
    /// Nothing: its launches were recorded without a GPU, and a trusted process launched them.
    Device,
}

impl Tier {
    /// The name on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Device => "device",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Tier {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = [Self::Host, Self::Device].into_iter().find(|tier| tier.name() == text);
        found.ok_or_else(|| format!("`{text}` is no tier: device or host"))
    }
}

/// A candidate's turn in a replayer. A repeat that disagrees voids a range of turns (`void.rs`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayerTurn {
    /// Random name of the replayer's process; no two have the same.
    pub id: String,
    /// Number of the candidate among those that it served, from 1.
    pub turn: u32,
}

/// How far judging went.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Built only.
    Built,
    /// Built and compared with the oracle.
    Verified,
    /// Built, compared, timed against the baselines.
    Measured,
}

/// What the judge says of one candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// [`VERDICT_VERSION`] of the writer.
    pub version: u32,
    /// Task name.
    pub task: String,
    /// BLAKE3 of the candidate's files.
    pub candidate: String,
    /// `cuda:N` or `cpu`.
    pub device: String,
    /// Where candidate host code ran while it was judged.
    #[serde(default)]
    pub tier: Tier,
    /// The launch plan that was judged, in the device tier: BLAKE3 of its file, which `warpwright replay` reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<BlobHash>,
    /// The replayer that launched it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replayer: Option<ReplayerTurn>,
    /// Policy of precision and comparison.
    pub profile: Profile,
    /// The dtype that reference, candidate and floating inputs were cast to; `None`: they kept their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<Dtype>,
    /// How `--fit` scaled the task down; `None`: it has its own size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fit: Option<Fit>,
    /// Whether a call computed gradients too: forward, then backward.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub backward: bool,
    /// How far judging was asked to go.
    pub stage: Stage,
    /// Right on every check that was run, built and inside the rules. `false` at stage `built`.
    pub verified: bool,
    /// The first thing that went wrong.
    pub failure: Option<Failure>,
    /// Findings that say a result was not honestly earned. Non-empty means not verified.
    pub integrity: Vec<IntegrityFinding>,
    /// One entry per comparison with the oracle, in order.
    pub checks: Vec<Check>,
    /// Milliseconds per call. With several workloads, geometric means.
    pub times_ms: Times,
    /// Baseline time over candidate time. With several workloads, geometric means.
    pub speedup: Speedup,
    /// One entry per workload that the candidate was judged on, or that was refused; empty for a task with one set of
    /// inputs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workloads: Vec<WorkloadVerdict>,
    /// Rewards by scheme; all -1 when not verified.
    pub reward: Reward,
    /// Least time that the unavoidable bytes need at the measured bandwidth, in milliseconds.
    pub floor_ms: Option<f64>,
    /// Unavoidable bytes of one call: every input, parameter and output once.
    pub unavoidable_bytes: u64,
    /// Header libraries (CUTLASS, CCCL) that were allowed and used; absent where none was.
    #[serde(default, skip_serializing_if = "Libraries::is_empty")]
    pub libraries: Libraries,
    /// Registers, spills, shared memory per kernel, where the compiler reported them.
    pub kernels: Vec<KernelResources>,
    /// What computed a verified result; `None` where nothing was verified.
    #[serde(default)]
    pub provenance: Option<Provenance>,
    /// Compiler warnings and notes of a successful build.
    pub diagnostics: Vec<Diagnostic>,
    /// What confined the processes that took part.
    pub isolation: Isolation,
    /// What was weaker than the rules ask, each in a sentence.
    pub caveats: Vec<String>,
    /// The machine while the candidate was timed; `None` where it was not.
    #[serde(default)]
    pub conditions: Option<Conditions>,
    /// Most memory that judging held; `None` where the candidate was not loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryUse>,
    /// Seconds spent per phase.
    pub seconds: PhaseSeconds,
    /// Where and under what this was measured.
    pub fingerprint: Fingerprint,
}

/// Rewards by scheme (design, "Reward").
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reward {
    /// -1 wrong; 1 right; 2 over 5 % faster than eager; 3 also than `torch.compile`.
    pub paper: f64,
    /// -1 wrong; else the lower bound of the speed-up over the best baseline.
    pub speedup: f64,
    /// -1 wrong; else `1 + clip(log2 s, -0.5, 2)`, `s` taken as 1 between 0.95 and 1.05.
    pub bounded: f64,
}

/// Words in the caveat of every copied verdict; [`Verdict::is_copy`] looks for them.
pub const COPY_CAVEAT: &str = "the same files were";

impl Verdict {
    /// Whether this is a copy of an earlier verdict on the same files. Its seconds are not its own.
    pub fn is_copy(&self) -> bool {
        self.caveats.iter().any(|caveat| caveat.contains(COPY_CAVEAT))
    }

    /// Whether it came about by older rules than today's, under which attacks were paid.
    pub fn is_by_old_rules(&self) -> bool {
        self.version < VERDICT_VERSION
    }
}

impl Reward {
    /// Where nothing was left to be judged, by every scheme: as of a candidate that is wrong.
    pub const NOTHING: f64 = -1.0;

    /// Of a candidate that is right on a task on which that is no achievement.
    pub const UNEARNED: Self = Self { paper: 0.0, speedup: 0.0, bounded: 0.0 };

    /// The one that counts.
    pub const fn by(&self, scheme: Scheme) -> f64 {
        match scheme {
            Scheme::Paper => self.paper,
            Scheme::Bounded => self.bounded,
            Scheme::Speedup => self.speedup,
        }
    }
}

/// Which of a verdict's rewards counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scheme {
    /// -1, 1, 2 or 3: the paper's.
    Paper,
    /// By the lower bound of the speed-up over the best baseline, within bounds.
    #[default]
    Bounded,
    /// That bound itself, for comparison only.
    Speedup,
}

/// One comparison with the oracle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Check {
    /// What was compared: `fresh inputs 3`, `initial weights`, `timed call`; where the inputs were not
    /// the task's own, their family in brackets.
    pub name: String,
    /// Which inputs.
    #[serde(default)]
    pub family: InputFamily,
    /// Whether every element of every output was inside the tolerance.
    pub passed: bool,
    /// Largest absolute error over all outputs.
    #[serde(with = "crate::number")]
    #[schemars(with = "Option<f64>")]
    pub max_abs_error: f64,
    /// Largest absolute error of the same-precision reference against the same truth.
    #[serde(with = "crate::number")]
    #[schemars(with = "Option<f64>")]
    pub reference_max_abs_error: f64,
    /// Largest absolute error of the reference in the next lower precision (for float32: TF32 under
    /// `strict`, bfloat16 under `tf32` and `as-run`), measured on such inputs when the task was
    /// opened; `None` where it could not be.
    #[serde(default)]
    pub lower_precision_max_abs_error: Option<f64>,
    /// Absolute tolerance used for the worst output.
    #[serde(with = "crate::number")]
    #[schemars(with = "Option<f64>")]
    pub atol: f64,
    /// Relative tolerance used for the worst output.
    #[serde(with = "crate::number")]
    #[schemars(with = "Option<f64>")]
    pub rtol: f64,
    /// What truth was: `float64`, or `same precision` where the reference cannot run in float64.
    pub truth: String,
}

/// Why a candidate is not verified. The class is the judge's; `message` may quote the candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Failure {
    /// Class.
    pub class: FailureClass,
    /// One or two sentences for a person or a model.
    pub message: String,
    /// Compiler diagnostics, for `build`.
    pub diagnostics: Vec<Diagnostic>,
    /// Where and how much, for `mismatch` and `non_finite`.
    pub mismatch: Option<Mismatch>,
    /// CUDA error code, where there was one.
    pub cuda_error: Option<i32>,
    /// Last lines the candidate's process wrote, capped; the candidate's word.
    pub output_tail: String,
}

/// Classes of failure (design, invariant 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// Did not compile or link.
    Build,
    /// Uses something the rules forbid, found in the sources or the binary's imports.
    ForbiddenImport,
    /// Called a forbidden operator while running.
    ForbiddenCall,
    /// `model_new.py` raised while being loaded, or has no `ModelNew`.
    Load,
    /// The reference's `state_dict` does not fit `ModelNew` strictly.
    StateDict,
    /// `forward` or `prepare` raised.
    Exception,
    /// A launch failed.
    Launch,
    /// Illegal memory access on the device.
    IllegalAddress,
    /// Too many registers, threads or shared memory.
    OutOfResources,
    /// Allocated more than its arena or its memory limit.
    OutOfMemory,
    /// Did not answer before its deadline.
    Hang,
    /// The process died.
    Crash,
    /// Wrong number of outputs, shape, dtype, device, or memory outside the arena.
    Shape,
    /// NaN or infinity where the reference has none.
    NonFinite,
    /// Values outside the tolerance.
    Mismatch,
    /// Changed its inputs.
    MutatedInput,
    /// Its launches cannot be recorded, and only the device tier was allowed; or a call ends before all of
    /// its streams are joined.
    NotRecordable,
    /// See `integrity`.
    Integrity,
}

/// One compiler message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Diagnostic {
    /// Workspace-relative file, if known.
    pub file: Option<String>,
    /// 1-based line.
    pub line: Option<u32>,
    /// 1-based column.
    pub column: Option<u32>,
    /// Severity.
    pub severity: Severity,
    /// The compiler's text.
    pub message: String,
    /// Source lines around it, with line numbers.
    pub excerpt: String,
}

/// Severity of a diagnostic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Stops the build.
    Error,
    /// Does not.
    Warning,
    /// Adds to the one before.
    Note,
}

/// Where and how much an output differs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Mismatch {
    /// Which output, in the order the reference returns them.
    pub output: u32,
    /// Which check: as in [`Check::name`].
    pub check: String,
    /// Which inputs.
    #[serde(default)]
    pub family: InputFamily,
    /// Elements outside the tolerance.
    pub elements: u64,
    /// Of how many.
    pub of: u64,
    /// Largest absolute error.
    #[serde(with = "crate::number")]
    #[schemars(with = "Option<f64>")]
    pub max_abs_error: f64,
    /// Absolute tolerance.
    #[serde(with = "crate::number")]
    #[schemars(with = "Option<f64>")]
    pub atol: f64,
    /// Relative tolerance.
    #[serde(with = "crate::number")]
    #[schemars(with = "Option<f64>")]
    pub rtol: f64,
    /// The first few offending elements.
    pub examples: Vec<Element>,
}

/// One offending element.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Element {
    /// Multi-dimensional index.
    pub index: Vec<u64>,
    /// What the oracle says. NaN and infinities as text would be lost in JSON: see `text`.
    pub expected: Option<f64>,
    /// What the candidate gave.
    pub got: Option<f64>,
    /// `expected 1.5, got nan`.
    pub text: String,
}

/// A finding against the honesty of a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IntegrityFinding {
    /// Attack class, snake case, e.g. `late_write`, `aliased_output`, `stale_output`.
    pub class: String,
    /// What was seen.
    pub message: String,
}

/// What computed a verified result, as far as it can be told from outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Provenance {
    /// Kernels that the candidate's sources define; on a GPU, that were compiled.
    pub own_kernels: u32,
    /// Matrix products and convolutions of cuBLAS and cuDNN that its binaries call, sorted.
    pub library_calls: Vec<String>,
    /// How a run ended in which one of them did nothing.
    pub ablation: AblationResult,
}

/// How a candidate fared once its kernels, or the library calls, did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AblationResult {
    /// There was nothing to find out: the task computes nothing, or a launch plan tells what computes.
    NotRun,
    /// It failed without its kernels, as it must.
    FailedWithoutKernels,
    /// It launches no kernels of its own, and failed without the library calls.
    FailedWithoutLibraries,
    /// It was still right: something else computes. See `integrity`.
    Passed,
}

/// Resources of one kernel as `ptxas` reports them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KernelResources {
    /// Demangled kernel name.
    pub name: String,
    /// Architecture compiled for, e.g. `sm_90a`.
    pub arch: String,
    /// Registers per thread.
    pub registers: u32,
    /// Bytes spilled to local memory by stores.
    pub spill_store_bytes: u32,
    /// Bytes re-loaded.
    pub spill_load_bytes: u32,
    /// Static shared memory in bytes.
    pub shared_bytes: u32,
    /// Stack frame in bytes.
    pub stack_bytes: u32,
}

/// What confined a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Isolation {
    /// Level.
    pub level: IsolationLevel,
    /// Mechanisms in force, e.g. `mount namespace`, `seccomp`.
    pub enforced: Vec<String>,
    /// What the rules ask and could not be had here.
    pub missing: Vec<String>,
}

/// Level of isolation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IsolationLevel {
    /// Everything the rules ask.
    Full,
    /// Some of it; `missing` says what is not.
    #[default]
    Partial,
}
