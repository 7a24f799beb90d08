//! An NVIDIA GPU.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use warpwright_build::{Target, Toolchain};
use warpwright_jail::{Gpu, Spec};

use super::arena::{Arena, ArenaError, CudaArena, CudaDevice, Zone};
use super::backend::{DeviceBackend, Profilers, SessionLimits, UnopenedDevice};
use super::cores;
use super::device_arbiter::DeviceArbiter;
use super::device_lock::DeviceLock;
use super::facts::{Device, DeviceFacts};
use super::health::{self, Health};
use crate::error::JudgeError;
use crate::timing::plan::Plan;

/// Windows on a GPU.
pub(crate) const WINDOWS: Plan = Plan {
    window: Duration::from_millis(8),
    longer: Duration::from_millis(15),
    single: Duration::from_millis(5),
    rounds: 21,
    budget: Duration::from_secs(15),
    sequential: true,
    preview: 9,
    workloads: 1,
};
/// What of a window's constant part may not be the same in two processes, in seconds: how soon the first call
/// begins, and how soon its end is noticed. 300 pairs of identical kernels of 20 us to 5 ms differed by 15 us
/// of a window in the mean, whatever their length, with a standard deviation of 24 us from process to process
/// beside what single windows vary by (`docs/results/judge.md`, Calibration). So many decide on kernels at
/// the margin at the nominal rate and on 95 of 100 that are 7 % faster, as simulated.
pub(crate) const UNEQUAL: f64 = 45e-6;
/// What a call costs less where the replayer launches it than where Python does, in seconds. Intervals of speed-ups
/// allow for it, since it is the tier's and no candidate's merit. Identical kernels of 19 us differed by 0.76 us a call
/// on one host, rounded up here, and by 1.4 us on a slower one (`docs/results/judge.md`, Calibration).
pub(crate) const LAUNCH: f64 = 1e-6;
/// Cores kept for what is timed: one for the process, one for its driver's threads.
const TIMING_CORES: usize = 2;
/// Threads that torch uses on the host.
const HOST_THREADS: usize = 4;
/// Most sessions that judge: beyond, measurements leave no time for more.
const SESSIONS: usize = 8;
/// Most tasks that are examined concurrently.
const EXAMINATIONS: usize = 32;
/// Least memory that is worth a part of its own, bytes.
const PART_BYTES: u64 = 4 << 30;
/// Runners kept ready: a candidate has the device for half a second, starting takes up to ten where many
/// sessions keep the host busy. More cost memory: each has a context of half a GiB.
const IDLE_RUNNERS: usize = 4;
/// The same where a candidate's memory is at least [`LARGE`]: there is more beside it, too.
const IDLE_RUNNERS_OF_LARGE: usize = 6;
/// Bytes.
const LARGE: u64 = 27 << 30;
/// Elements of a self-calibration's tensors: about as many as it has threads at once.
const CALIBRATION_ELEMENTS: usize = 1 << 18;
/// How many times longer than wanted a warm call may take, where others compute meanwhile.
const SLACK: f64 = 4.0;

/// A GPU before it is opened.
pub(crate) struct UnopenedGpu {
    pub(crate) ordinal: u32,
    pub(crate) memory_limit: Option<u64>,
}

impl UnopenedDevice for UnopenedGpu {
    fn allocator(&self) -> &'static str {
        "cuda"
    }

    fn link_allocator(
        &self,
        compiler: Spec,
        toolchain: &Toolchain,
        _: &Path,
    ) -> Result<Spec, JudgeError> {
        let nvcc = toolchain.nvcc.as_ref();
        let lacks =
            || JudgeError::lacks("no CUDA toolkit found", "run `make setup`, or install CUDA");
        let nvcc = nvcc.ok_or_else(lacks)?;
        let include = format!("-I{}", nvcc.root.join("include").display());
        Ok(compiler.arg(include).read_only(&nvcc.root))
    }

    fn open(self: Box<Self>) -> Result<Arc<dyn DeviceBackend>, JudgeError> {
        let gpu = CudaDevice::open(self.ordinal).map_err(|e| JudgeError::Setup {
            message: format!("{} cannot be used: {e}", Device::Cuda(self.ordinal)),
            hint: Some("`--device cpu` needs no GPU".to_owned()),
            source: Some(e.into()),
        })?;
        let state = gpu.state()?;
        let facts = DeviceFacts {
            hardware: state.name,
            arch: Some(state.arch.clone()),
            processors: state.processors,
            cache_bytes: state.l2_bytes,
            shared_bytes_per_block: state.shared_per_block,
            driver: state.driver,
            memory_bytes: state.free_bytes,
            memory_is_limited: false,
        }
        .within(self.memory_limit);
        let identity = gpu.identity()?;
        let node = health::node(&identity);
        let (gpu, arch) = (Arc::new(gpu), state.arch);
        let name = Device::Cuda(self.ordinal).to_string();
        Ok(Arc::new(GpuDevice { gpu, name, facts, arch, identity, node }))
    }
}

/// A GPU that is open.
struct GpuDevice {
    gpu: Arc<CudaDevice>,
    /// `cuda:N`.
    name: String,
    facts: DeviceFacts,
    arch: String,
    /// As `CUDA_VISIBLE_DEVICES` takes it.
    identity: String,
    /// Number of its node in `/dev`, if that is known: processes see no other's.
    node: Option<u32>,
}

impl DeviceBackend for GpuDevice {
    fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    fn kind(&self) -> &'static str {
        "cuda"
    }

    fn torch_name(&self) -> &'static str {
        "cuda:0"
    }

    fn target(&self) -> Target {
        Target::Cuda { arch: self.arch.clone() }
    }

    fn is_compiler(&self, line: &str) -> bool {
        line.starts_with("nvcc")
    }

    fn equip(&self, process: Spec) -> Spec {
        // Torch's threads wait by spinning, on every core there is; on a GPU host they have little to do.
        process
            .gpu(self.node.map_or(Gpu::All, Gpu::One))
            .env("CUDA_VISIBLE_DEVICES", &self.identity)
            .env("OMP_NUM_THREADS", HOST_THREADS.to_string())
    }

    fn health(&self) -> Health {
        Health::of_gpu(&self.identity)
    }

    // Launching is a processor's work: a busy one makes short kernels look slow.
    fn reserve_cores(&self) -> Vec<usize> {
        cores::reserve(TIMING_CORES)
    }

    fn arbiter(&self) -> DeviceArbiter {
        DeviceArbiter::of_gpu(Some(DeviceLock::of_gpu(&self.identity, &self.name)))
    }

    fn probe(&self) -> Result<(), ArenaError> {
        self.gpu.probe()
    }

    fn arena(&self, bytes: u64) -> Result<Arena, ArenaError> {
        CudaArena::create(&self.gpu, bytes, Zone { offset: bytes, bytes: 0 }).map(Arena::Cuda)
    }

    fn candidates_arena(&self, bytes: u64, apart: Zone) -> Option<Result<Arena, ArenaError>> {
        Some(CudaArena::create(&self.gpu, bytes, apart).map(Arena::Cuda))
    }

    fn baselines_arena(&self, _: u64) -> Option<Result<Arena, ArenaError>> {
        None
    }

    fn is_accelerator(&self) -> bool {
        true
    }

    fn answers(&self) -> Result<Option<serde_json::Value>, ArenaError> {
        Ok(Some(serde_json::json!({
            "name": self.facts.hardware,
            "total_memory": self.gpu.total_bytes()?,
            "driver_version": self.gpu.driver_version()?,
            "runtime_version": self.gpu.driver_version()?,
            "attributes": self.gpu.attributes()?,
        })))
    }

    fn uses_host_cores(&self) -> bool {
        false
    }

    fn has_spare_cores(&self) -> bool {
        true
    }

    fn times_while_others_work(&self) -> bool {
        true
    }

    fn candidates_leave_work(&self) -> bool {
        true
    }

    fn wakes_before_windows(&self) -> bool {
        true
    }

    fn divides_memory(&self) -> bool {
        true
    }

    fn session_limits(&self, examines: bool) -> SessionLimits {
        let most = if examines { EXAMINATIONS } else { SESSIONS };
        let parts = (self.facts.memory_bytes / PART_BYTES).clamp(1, most as u64) as usize;
        SessionLimits { working: parts, open: parts }
    }

    fn idle_runners(&self, arena_bytes: u64) -> usize {
        if arena_bytes < LARGE { IDLE_RUNNERS } else { IDLE_RUNNERS_OF_LARGE }
    }

    fn has_compile_modes(&self) -> bool {
        true
    }

    fn windows_reuse_results(&self) -> bool {
        true
    }

    fn windows(&self) -> Plan {
        WINDOWS
    }

    fn has_baseline_floors(&self) -> bool {
        true
    }

    fn unequal_seconds(&self) -> f64 {
        UNEQUAL
    }

    fn launch_seconds(&self) -> f64 {
        LAUNCH
    }

    fn times_single_calls(&self) -> bool {
        true
    }

    fn launches_from_host(&self) -> bool {
        true
    }

    fn memory_bounds_results(&self) -> bool {
        true
    }

    fn guessed_bandwidth(&self) -> f64 {
        4e12
    }

    fn ceiling_bytes(&self) -> u64 {
        1 << 30
    }

    fn ceiling_copies(&self) -> usize {
        16
    }

    fn calibration_elements(&self) -> usize {
        CALIBRATION_ELEMENTS
    }

    fn examination_slack(&self) -> f64 {
        SLACK
    }

    fn profilers(&self) -> Profilers {
        Profilers::Nvidia
    }
}
