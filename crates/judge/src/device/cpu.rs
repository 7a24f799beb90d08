//! The cpu device: CUDA C++ executed on the host's cores.

use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use warpwright_build::{Target, Toolchain};
use warpwright_jail::Spec;

use super::arena::{Arena, ArenaError, HostArena, Zone};
use super::backend::{DeviceBackend, Profilers, SessionLimits, UnopenedDevice};
use super::device_arbiter::DeviceArbiter;
use super::facts::{DeviceFacts, host_facts};
use super::health::Health;
use crate::error::JudgeError;
use crate::timing::plan::Plan;

/// Windows on the cpu device.
pub(crate) const WINDOWS: Plan = Plan {
    window: Duration::from_millis(12),
    longer: Duration::from_millis(12),
    single: Duration::from_millis(12),
    rounds: 9,
    budget: Duration::from_secs(6),
    sequential: false,
    preview: 0,
    workloads: 1,
};
/// Host memory that one open session is counted with, bytes.
const SESSION_BYTES: u64 = 1 << 30;
/// Runners kept ready: candidates are judged one or two at a time.
const IDLE_RUNNERS: usize = 1;
/// Elements of a self-calibration's tensors: few, so that a short call has many steps and work can be chosen
/// finely.
const CALIBRATION_ELEMENTS: usize = 1 << 11;
/// How many times longer than wanted a warm call may take.
const SLACK: f64 = 2.0;

/// The cpu device before it is opened.
pub(crate) struct UnopenedCpu {
    pub(crate) memory_limit: Option<u64>,
}

impl UnopenedDevice for UnopenedCpu {
    fn allocator(&self) -> &'static str {
        "cpu"
    }

    fn link_allocator(
        &self,
        compiler: Spec,
        _: &Toolchain,
        torch: &Path,
    ) -> Result<Spec, JudgeError> {
        Ok(compiler
            .arg(format!("-I{}", torch.join("include").display()))
            .arg(format!("-L{}", torch.join("lib").display()))
            .arg("-lc10")
            .read_only(torch))
    }

    fn open(self: Box<Self>) -> Result<Arc<dyn DeviceBackend>, JudgeError> {
        let facts = host_facts().within(self.memory_limit);
        Ok(Arc::new(CpuDevice { facts }))
    }
}

/// The host's cores as a device.
struct CpuDevice {
    facts: DeviceFacts,
}

impl DeviceBackend for CpuDevice {
    fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    fn kind(&self) -> &'static str {
        "cpu"
    }

    fn torch_name(&self) -> &'static str {
        "cpu"
    }

    fn target(&self) -> Target {
        Target::Cpu
    }

    fn is_compiler(&self, line: &str) -> bool {
        !line.starts_with("nvcc")
    }

    fn equip(&self, process: Spec) -> Spec {
        process
    }

    fn health(&self) -> Health {
        Health::Host
    }

    fn reserve_cores(&self) -> Vec<usize> {
        Vec::new()
    }

    fn arbiter(&self) -> DeviceArbiter {
        DeviceArbiter::default()
    }

    fn probe(&self) -> Result<(), ArenaError> {
        Ok(())
    }

    fn arena(&self, bytes: u64) -> Result<Arena, ArenaError> {
        HostArena::create(bytes).map(Arena::Host)
    }

    fn candidates_arena(&self, _: u64, _: Zone) -> Option<Result<Arena, ArenaError>> {
        None
    }

    fn baselines_arena(&self, bytes: u64) -> Option<Result<Arena, ArenaError>> {
        Some(self.arena(bytes.min(self.facts.memory_bytes / 5)))
    }

    fn is_accelerator(&self) -> bool {
        false
    }

    fn answers(&self) -> Result<Option<serde_json::Value>, ArenaError> {
        // Kernels are recorded as they are written: host code asks the runtime in its own library. Elsewhere
        // the clock of the processor cannot be taken from a process.
        Ok(cfg!(target_arch = "x86_64").then(|| serde_json::json!({})))
    }

    fn uses_host_cores(&self) -> bool {
        true
    }

    fn has_spare_cores(&self) -> bool {
        false
    }

    fn times_while_others_work(&self) -> bool {
        false
    }

    fn candidates_leave_work(&self) -> bool {
        false
    }

    fn wakes_before_windows(&self) -> bool {
        false
    }

    fn divides_memory(&self) -> bool {
        false
    }

    fn session_limits(&self, _: bool) -> SessionLimits {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let room = self.facts.memory_bytes / 4 / SESSION_BYTES;
        SessionLimits { working: cores, open: (room as usize).clamp(2, 64).max(cores) }
    }

    fn idle_runners(&self, _: u64) -> usize {
        IDLE_RUNNERS
    }

    fn has_compile_modes(&self) -> bool {
        false
    }

    fn windows_reuse_results(&self) -> bool {
        false
    }

    fn windows(&self) -> Plan {
        WINDOWS
    }

    // What slows the host slows candidate and baselines alike.
    fn has_baseline_floors(&self) -> bool {
        false
    }

    fn unequal_seconds(&self) -> f64 {
        0.0
    }

    fn launch_seconds(&self) -> f64 {
        0.0
    }

    // Single calls of honest candidates scatter by more than those of a cheat are longer.
    fn times_single_calls(&self) -> bool {
        false
    }

    fn launches_from_host(&self) -> bool {
        false
    }

    // Caches hold more than a call writes.
    fn memory_bounds_results(&self) -> bool {
        false
    }

    fn guessed_bandwidth(&self) -> f64 {
        3e10
    }

    fn ceiling_bytes(&self) -> u64 {
        256 << 20
    }

    // One copy is as long as a window of a GPU.
    fn ceiling_copies(&self) -> usize {
        2
    }

    fn calibration_elements(&self) -> usize {
        CALIBRATION_ELEMENTS
    }

    fn examination_slack(&self) -> f64 {
        SLACK
    }

    fn profilers(&self) -> Profilers {
        Profilers::Host
    }
}
