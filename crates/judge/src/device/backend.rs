//! What is specific to a kind of device. A new kind is one file with these two traits, and a line of
//! [`find`](super::find).

use std::path::Path;
use std::sync::Arc;

use warpwright_build::{Target, Toolchain};
use warpwright_jail::Spec;

use super::arena::{Arena, ArenaError, Zone};
use super::device_arbiter::{DeviceArbiter, Held, Purpose};
use super::facts::DeviceFacts;
use super::health::Health;
use crate::error::JudgeError;
use crate::timing::plan::Plan;

/// A device before it is opened.
pub(crate) trait UnopenedDevice {
    /// Name of the source of the library by which processes allocate arenas: `arena_NAME.cpp`.
    fn allocator(&self) -> &'static str;

    /// Adds to a compiler's command what that library is compiled and linked with; `torch` is the folder of
    /// the Python environment's torch. [`JudgeError::Setup`] if the machine lacks it.
    fn link_allocator(
        &self,
        compiler: Spec,
        toolchain: &Toolchain,
        torch: &Path,
    ) -> Result<Spec, JudgeError>;

    /// Opens it. [`JudgeError::Setup`] if the machine lacks it.
    fn open(self: Box<Self>) -> Result<Arc<dyn DeviceBackend>, JudgeError>;
}

/// Concurrency of a pool of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionLimits {
    /// Most sessions that work at the same time.
    pub(crate) working: usize,
    /// Most parts of the memory that open sessions may have, those that work included.
    pub(crate) open: usize,
}

/// The tools that inspect a candidate on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profilers {
    /// CUPTI, Nsight Compute and Compute Sanitizer.
    Nvidia,
    /// The profiler of torch for host cores, and the host compiler's sanitizer.
    Host,
}

/// A device that is open.
pub(crate) trait DeviceBackend: Send + Sync {
    /// Facts that do not change while it is open.
    fn facts(&self) -> &DeviceFacts;

    /// Name of its kind in torch: `cpu` or `cuda`.
    fn kind(&self) -> &'static str;

    /// Its name in torch, for a process that sees no other of its kind.
    fn torch_name(&self) -> &'static str;

    /// What candidates are compiled for.
    fn target(&self) -> Target;

    /// Whether this line of [`Toolchain::describe`] names the compiler of kernels.
    fn is_compiler(&self, line: &str) -> bool;

    /// Adds to a process what it needs to use this device and no other.
    fn equip(&self, process: Spec) -> Spec;

    /// The source of readings of its state.
    fn health(&self) -> Health;

    /// Takes cores from this thread that are kept for what is timed; none if there are too few.
    fn reserve_cores(&self) -> Vec<usize>;

    /// An arbiter of who holds it.
    fn arbiter(&self) -> DeviceArbiter;

    /// Checks that it still works for this process.
    fn probe(&self) -> Result<(), ArenaError>;

    /// New memory for a trusted process.
    fn arena(&self, bytes: u64) -> Result<Arena, ArenaError>;

    /// New memory for all candidates, one after the other, with inputs beside it at `apart`; `None` if each
    /// candidate has memory of its own.
    fn candidates_arena(&self, bytes: u64, apart: Zone) -> Option<Result<Arena, ArenaError>>;

    /// New memory that a baseline process allocates from, at most `bytes`; `None` if it uses torch's own
    /// allocator.
    fn baselines_arena(&self, bytes: u64) -> Option<Result<Arena, ArenaError>>;

    /// Whether candidates run apart from the host's cores.
    fn is_accelerator(&self) -> bool;

    /// What it answers to the questions of a candidate that is recorded: `name`, `total_memory`,
    /// `driver_version`, and `attributes` by their number in `cuda.h`. `None` if launches on it cannot be
    /// recorded.
    fn answers(&self) -> Result<Option<serde_json::Value>, ArenaError>;

    /// Whether it computes on the host's cores, so that whatever a process does there takes time from what
    /// is timed.
    fn uses_host_cores(&self) -> bool;

    /// Whether its host has cores for processes that are started, or compile, before they are needed.
    fn has_spare_cores(&self) -> bool;

    /// Whether sessions may work while a candidate is timed. Its arbiter then keeps them off the device.
    fn times_while_others_work(&self) -> bool;

    /// Whether a candidate can leave work behind that lasts as long as its process: each then has the device
    /// alone from its start to its end.
    fn candidates_leave_work(&self) -> bool;

    /// Whether a process is awake before the clock of its window starts, and the clock stops after the look
    /// at its results. Otherwise it is frozen before the window, and frozen again before the clock stops.
    fn wakes_before_windows(&self) -> bool;

    /// Whether sessions divide its memory. Otherwise untouched memory costs nothing.
    fn divides_memory(&self) -> bool;

    /// Concurrency of a pool that judges candidates, or `examines` tasks.
    fn session_limits(&self, examines: bool) -> SessionLimits;

    /// Idle runners that are kept ready, if a candidate's memory has so many bytes.
    fn idle_runners(&self, arena_bytes: u64) -> usize;

    /// Whether `torch.compile` has the modes `reduce-overhead` and `max-autotune` for it.
    fn has_compile_modes(&self) -> bool;

    /// Whether the results of a baseline's window give way to later ones in the same window. Otherwise those
    /// of a whole window stay alive.
    fn windows_reuse_results(&self) -> bool;

    /// Length and number of windows.
    fn windows(&self) -> Plan;

    /// Whether a baseline's windows always count as at most a multiple of its floor. Otherwise they do on a
    /// busy host, as the candidate's windows do.
    fn has_baseline_floors(&self) -> bool;

    /// Seconds of a window's constant part that may differ between two processes.
    fn unequal_seconds(&self) -> f64;

    /// Seconds by which a call may be shorter in the device tier because no Python launches it.
    fn launch_seconds(&self) -> f64;

    /// Whether windows of a single call are exact enough to be compared with the slope of longer ones.
    fn times_single_calls(&self) -> bool;

    /// Whether empty windows tell how busy the host is with launches.
    fn launches_from_host(&self) -> bool;

    /// Whether every call writes its results to memory, so that none can be faster than memory.
    fn memory_bounds_results(&self) -> bool;

    /// Bytes per second that memory takes, at a guess.
    fn guessed_bandwidth(&self) -> f64;

    /// Most bytes of the copy that measures its bandwidth.
    fn ceiling_bytes(&self) -> u64;

    /// Calls of that copy in one window.
    fn ceiling_copies(&self) -> usize;

    /// Elements of the tensors of a self-calibration.
    fn calibration_elements(&self) -> usize;

    /// How many times longer than wanted a warm call of a task may take that is examined: others may compute
    /// meanwhile.
    fn examination_slack(&self) -> f64;

    /// The tools that inspect candidates.
    fn profilers(&self) -> Profilers;

    /// Holds the device shared for work on the host, where that would disturb what is timed.
    fn share_for_host_work<'g>(
        &self,
        arbiter: &'g DeviceArbiter,
        purpose: Purpose,
    ) -> Option<Held<'g>> {
        self.uses_host_cores().then(|| arbiter.share(purpose))
    }
}
