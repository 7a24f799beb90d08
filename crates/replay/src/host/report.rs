//! What an executor leaves behind: memory that it shares with the supervisor. Kernels can write anything into it, so
//! it only makes a message more precise.

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::failure::Failure;

/// Why an executor stopped, as its signal handlers saw it.
const OTHER: u32 = 0;
const SYSTEM_CALL: u32 = 1;
const CLOCK: u32 = 2;

/// The shared words.
#[repr(C)]
struct Words {
    reason: AtomicU32,
    /// Number of the system call.
    call: AtomicU32,
    /// Number of the operation that runs.
    node: AtomicU32,
}

/// Memory that outlives an executor.
pub(crate) struct Report {
    words: &'static Words,
}

/// The report of this process, for signal handlers.
static OWN: AtomicPtr<Words> = AtomicPtr::new(std::ptr::null_mut());

impl Report {
    /// New memory, shared with forks.
    pub(crate) fn create() -> Result<Self, Failure> {
        let at = super::executor::shared_memory(size_of::<Words>())?;
        #[expect(unsafe_code, reason = "shared memory")]
        // SAFETY: zeros are valid words; the mapping is never undone, and nobody refers to it otherwise.
        let words = unsafe { &*at.cast::<Words>() };
        Ok(Self { words })
    }

    /// Forgets what the executor before said.
    pub(crate) fn clear(&self) {
        self.words.reason.store(OTHER, Ordering::Relaxed);
        self.words.node.store(0, Ordering::Relaxed);
    }

    /// Says which operation runs.
    pub(crate) fn at(&self, node: usize) {
        self.words.node.store(node as u32, Ordering::Relaxed);
    }

    pub(crate) fn node(&self) -> usize {
        self.words.node.load(Ordering::Relaxed) as usize
    }

    /// What the executor did, if it is known better than by how it ended.
    pub(crate) fn deed(&self) -> Option<String> {
        match self.words.reason.load(Ordering::Relaxed) {
            SYSTEM_CALL => {
                let number = self.words.call.load(Ordering::Relaxed);
                let name = name_of(number);
                Some(format!("it made a system call: number {number}{name}"))
            }
            CLOCK => Some("it read the processor's time-stamp counter".to_owned()),
            _ => None,
        }
    }

    /// Has the signal handlers of this process write here.
    pub(crate) fn become_own(&self) {
        OWN.store(std::ptr::from_ref(self.words).cast_mut(), Ordering::Relaxed);
    }
}

fn own() -> Option<&'static Words> {
    let words = OWN.load(Ordering::Relaxed);
    #[expect(unsafe_code, reason = "shared memory")]
    // SAFETY: null, or the words of a report, which are never unmapped.
    unsafe {
        words.as_ref()
    }
}

/// Notes a system call that was not allowed. Called in signal handlers.
pub(crate) fn note_system_call(number: i32) {
    if let Some(words) = own() {
        words.call.store(number.unsigned_abs(), Ordering::Relaxed);
        words.reason.store(SYSTEM_CALL, Ordering::Relaxed);
    }
}

/// Notes that the time-stamp counter was read. Called in signal handlers.
pub(crate) fn note_clock() {
    if let Some(words) = own() {
        words.reason.store(CLOCK, Ordering::Relaxed);
    }
}

/// Names of the system calls that a kernel is likeliest to try.
fn name_of(number: u32) -> &'static str {
    match i64::from(number) {
        libc::SYS_openat => " (openat)",
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open => " (open)",
        libc::SYS_clock_gettime => " (clock_gettime)",
        libc::SYS_clock_nanosleep => " (clock_nanosleep)",
        libc::SYS_nanosleep => " (nanosleep)",
        libc::SYS_gettimeofday => " (gettimeofday)",
        libc::SYS_clone => " (clone)",
        libc::SYS_clone3 => " (clone3)",
        libc::SYS_execve => " (execve)",
        libc::SYS_socket => " (socket)",
        libc::SYS_prctl => " (prctl)",
        libc::SYS_rt_sigaction => " (rt_sigaction)",
        libc::SYS_mmap => " (mmap)",
        libc::SYS_mprotect => " (mprotect)",
        libc::SYS_futex => " (futex)",
        _ => "",
    }
}
