//! The result of a build: the artifact folder and its description, or a typed failure.
//!
//! The folder is read by the runner, which is Python, so its files are JSON with plain names:
//!
//! | file | content |
//! |---|---|
//! | `build.json` | [`BuildManifest`]: key, versions, kernels, warnings, BLAKE3 of every file |
//! | `launchers.json` | [`LauncherTable`]: the `extern "C"` functions of `libkernels.so` |
//! | `libkernels.so` | all `.cu` files |
//! | `cuda_extension.so` | the pybind module, if there is a binding |
//! | `inline.json` | [`InlineTable`]: harvested `load_inline` modules by key |
//! | `inline/<key>.so` | their libraries |
//! | `alone/<library>` | for the cpu device: the same libraries for their kernels alone, [`KernelsAlone`] |

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use warpwright_record::libraries::{Library, LibrarySet};
use warpwright_record::verdict::{Diagnostic, FailureClass, KernelResources};

/// Version of every JSON file in an artifact folder.
pub const ARTIFACT_VERSION: u32 = 4;

/// Device to compile for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// A GPU architecture such as `sm_90a`.
    Cuda {
        /// `sm_`, the compute capability, and `a` if the device has architecture-specific features.
        arch: String,
    },
    /// The host, through `hostcuda`.
    Cpu,
}

impl Target {
    /// `cuda-sm_90a` or `cpu`: for keys and messages.
    pub fn label(&self) -> String {
        match self {
            Self::Cuda { arch } => format!("cuda-{arch}"),
            Self::Cpu => "cpu".to_owned(),
        }
    }
}

/// Whether a build for the cpu device also queries `ptxas` for the kernels' GPU resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Resources {
    /// No.
    #[default]
    Skip,
    /// Yes, in threads parallel to the build; failures become warnings. Ignored without `nvcc`, and
    /// for `cuda`, whose compiler reports them anyway.
    Report {
        /// Architecture, e.g. `sm_90a`.
        arch: String,
    },
}

/// Options of a build beyond the candidate and the target.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// GPU resources of a cpu build.
    pub resources: Resources,
    /// Source of the task's reference (`model.py`). A candidate that calls `load_inline` inside
    /// `ModelNew.__init__` is harvested with its `get_init_inputs`.
    pub reference: Option<String>,
    /// Instrumentation of the binary.
    pub instrument: Instrument,
    /// Header libraries that the candidate may use, if it is built for a GPU.
    pub libraries: LibrarySet,
}

/// Instrumentation of a binary. Judged binaries have none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Instrument {
    /// Nothing.
    #[default]
    None,
    /// For profilers: on the cpu device every launch records its times. On a GPU the binary is
    /// unchanged.
    Profile,
    /// For sanitizers: source lines on a GPU, AddressSanitizer on the cpu device.
    Sanitize,
    /// Ablation: launches of the candidate's own kernels do nothing and succeed.
    EmptyKernels,
    /// Ablation: launches of the candidate's own kernels end the process.
    TrapKernels,
    /// Ablation: matrix products and convolutions of NVIDIA's libraries do nothing and succeed.
    EmptyLibraries,
}

impl Instrument {
    /// Whether it removes part of the computation.
    pub fn is_ablation(self) -> bool {
        matches!(self, Self::EmptyKernels | Self::TrapKernels | Self::EmptyLibraries)
    }
}

/// Result of a build. A candidate that does not build is a value, not an error.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// It can be loaded.
    Built(Artifact),
    /// It cannot be built, and the candidate is the cause.
    Failed(Failed),
}

/// A built candidate.
#[derive(Clone, Debug)]
pub struct Artifact {
    /// The folder in the cache. It is read-only. The cache evicts only folders that were not used
    /// recently.
    pub dir: PathBuf,
    /// Launchers that `cuda_extension` exposes.
    pub launchers: Vec<Launcher>,
    /// Whether `cuda_extension.so` exists.
    pub has_extension: bool,
    /// Whether `inline.json` exists.
    pub inline: bool,
    /// Registers, spills and shared memory per kernel, sorted by name; empty without `ptxas`.
    pub kernels: Vec<KernelResources>,
    /// Number of kernels that its sources define; for a GPU, the number of compiled kernels.
    pub own_kernels: u32,
    /// Matrix products and convolutions of NVIDIA's libraries that its binaries call, sorted.
    pub library_calls: Vec<String>,
    /// Per library of a build for the cpu device, by its path: the copy from which kernels run without the
    /// candidate's host code. Empty for a GPU, and for instrumented builds.
    pub kernels_alone: BTreeMap<String, KernelsAlone>,
    /// BLAKE3 of every fat binary that nvcc made of its sources, sorted; empty for the cpu device. A library may hold
    /// others: a source can put bytes into any section.
    pub device_images: Vec<String>,
    /// Header libraries that its device code used, sorted.
    pub libraries: Vec<Library>,
    /// Compiler warnings, capped.
    pub warnings: Vec<Diagnostic>,
    /// Whether everything came from the cache.
    pub cached: bool,
    /// Wall time of this build in seconds.
    pub seconds: f64,
}

/// A library for its kernels alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KernelsAlone {
    /// Path relative to the artifact folder. An offset in the library's image is the same in this file's.
    File(String),
    /// Why there is none: the candidate is judged with its host code.
    Refused(String),
}

/// Why a candidate did not build.
#[derive(Clone, Debug)]
pub struct Failed {
    /// [`FailureClass::Build`] or [`FailureClass::ForbiddenImport`].
    pub class: FailureClass,
    /// One or two sentences.
    pub message: String,
    /// Compiler messages, errors first, capped.
    pub diagnostics: Vec<Diagnostic>,
    /// Last lines of the compilers' output, capped, without machine paths.
    pub raw_tail: String,
    /// Wall time of this build in seconds.
    pub seconds: f64,
}

/// `launchers.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LauncherTable {
    /// [`ARTIFACT_VERSION`].
    pub version: u32,
    /// File name in the same folder.
    pub library: String,
    /// Exposed launchers, sorted by name.
    pub launchers: Vec<Launcher>,
}

/// One `extern "C"` function that Python may call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Launcher {
    /// Symbol and Python name.
    pub name: String,
    /// Workspace-relative file that defines it.
    pub file: String,
    /// Parameters in order, without the trailing stream.
    pub params: Vec<Param>,
    /// Return type.
    pub returns: Returns,
    /// Whether a `cudaStream_t` follows the parameters; the Python caller does not pass it.
    pub has_stream: bool,
}

/// One parameter of a launcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Param {
    /// Name in the source; `arg0`, `arg1`, ... if it has none.
    pub name: String,
    /// Tensor or number.
    pub kind: ParamKind,
    /// Element type of the pointer, or type of the number; `None` for `void*` and for pointers to
    /// types that have no torch dtype.
    pub element: Option<Element>,
    /// Elements of `element` in one pointee: 4 for `float4*`; 1 otherwise. The tensor's address
    /// must be a multiple of this many elements.
    pub lanes: u32,
    /// Whether the pointee is `const`: such a tensor is an input only.
    pub constant: bool,
}

/// How Python passes an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ParamKind {
    /// A tensor (its `data_ptr()`), or `None` for a null pointer.
    Pointer,
    /// A number.
    Scalar,
}

/// Types that C and torch share, by torch's names; `uint16` to `uint64` are mostly for numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Element {
    /// `bool`.
    Bool,
    /// `char`, `signed char`, `int8_t`.
    Int8,
    /// `unsigned char`, `uint8_t`.
    Uint8,
    /// `short`.
    Int16,
    /// `unsigned short`.
    Uint16,
    /// `int`.
    Int32,
    /// `unsigned`.
    Uint32,
    /// `long`, `long long`, `int64_t`, `ptrdiff_t`.
    Int64,
    /// `unsigned long`, `size_t`.
    Uint64,
    /// `__half`.
    Float16,
    /// `__nv_bfloat16`.
    Bfloat16,
    /// `__nv_fp8_e4m3`.
    #[serde(rename = "float8_e4m3fn")]
    Float8E4m3fn,
    /// `__nv_fp8_e5m2`.
    #[serde(rename = "float8_e5m2")]
    Float8E5m2,
    /// `float`.
    Float32,
    /// `double`.
    Float64,
}

/// Return type of a launcher. A non-zero value raises in Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Returns {
    /// Nothing.
    Void,
    /// An `int`, 32 bits.
    Int,
    /// A `cudaError_t`, 32 bits.
    CudaError,
}

/// `inline.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InlineTable {
    /// [`ARTIFACT_VERSION`].
    pub version: u32,
    /// Modules by key, which `harvest.py` computes from the arguments of `load_inline` or `load`.
    pub modules: BTreeMap<String, InlineModule>,
}

/// One harvested module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InlineModule {
    /// Python module name: the `PyInit_` suffix in the library.
    pub name: String,
    /// Path relative to the artifact folder.
    pub library: String,
}

/// `build.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BuildManifest {
    /// [`ARTIFACT_VERSION`].
    pub version: u32,
    /// Cache key of the artifact.
    pub key: String,
    /// [`Target::label`].
    pub target: String,
    /// Compilers and torch, as in the key.
    pub tools: Vec<String>,
    /// Whether `cuda_extension.so` exists.
    pub has_extension: bool,
    /// Whether `inline.json` exists.
    pub inline: bool,
    /// See [`Artifact::kernels`].
    pub kernels: Vec<KernelResources>,
    /// See [`Artifact::own_kernels`].
    pub own_kernels: u32,
    /// See [`Artifact::library_calls`].
    pub library_calls: Vec<String>,
    /// See [`Artifact::kernels_alone`].
    pub kernels_alone: BTreeMap<String, KernelsAlone>,
    /// See [`Artifact::device_images`].
    pub device_images: Vec<String>,
    /// See [`Artifact::libraries`].
    pub libraries: Vec<Library>,
    /// See [`Artifact::warnings`].
    pub warnings: Vec<Diagnostic>,
}
