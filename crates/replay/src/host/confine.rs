//! What is left to an executor before a kernel runs: memory, waiting for its own threads, and the socket to the
//! supervisor. No clock, no files, no new threads, no signal handlers.
//!
//! System calls that end in an error are those by which `printf` and the like would notice that nothing is there. All
//! others end the executor.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{c_long, sock_filter};

use super::report;
use crate::failure::Failure;

const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const ANY_BIT: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;

const NUMBER_OFFSET: u32 = 0;
const ARCHITECTURE_OFFSET: u32 = 4;
const fn low(argument: u32) -> u32 {
    16 + 8 * argument
}
const fn high(argument: u32) -> u32 {
    low(argument) + 4
}

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(not(target_arch = "x86_64"))]
const ARCHITECTURE: u32 = 0xC000_00B7;
/// Numbers from here on belong to the x32 ABI.
const X32: u32 = 0x4000_0000;

/// Allowed, whatever the arguments: memory of its own, its own end, and what `abort` asks.
const ALLOWED: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigprocmask,
    libc::SYS_sched_yield,
    libc::SYS_getpid,
    libc::SYS_gettid,
];
/// These find nothing open.
const CLOSED: &[c_long] =
    &[libc::SYS_writev, libc::SYS_fstat, libc::SYS_newfstatat, libc::SYS_lseek, libc::SYS_ioctl];

const FUTEX_COMMAND: u32 = 0x7f;
const FUTEX_WAIT: u32 = 0;
const FUTEX_WAKE: u32 = 1;
const FUTEX_WAIT_BITSET: u32 = 9;
const FUTEX_WAKE_BITSET: u32 = 10;

fn step(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

fn ret(action: u32) -> sock_filter {
    step(RETURN, action, 0, 0)
}

/// The filter of a process with this id, whose socket to the supervisor is `socket`.
fn filter(process: u32, socket: u32) -> Vec<sock_filter> {
    let allow = ret(libc::SECCOMP_RET_ALLOW);
    // The handler of the signal notes the number.
    let stop = ret(libc::SECCOMP_RET_TRAP);
    let closed = ret(libc::SECCOMP_RET_ERRNO | libc::EBADF as u32);
    let mut code = vec![
        step(LOAD, ARCHITECTURE_OFFSET, 0, 0),
        step(EQUAL, ARCHITECTURE, 1, 0),
        ret(libc::SECCOMP_RET_KILL_PROCESS),
        step(LOAD, NUMBER_OFFSET, 0, 0),
        step(AT_LEAST, X32, 0, 1),
        stop,
    ];
    for (list, action) in [(ALLOWED, allow), (CLOSED, closed)] {
        for &number in list {
            code.extend([step(EQUAL, number as u32, 0, 1), action]);
        }
    }
    // One descriptor.
    for number in [libc::SYS_read, libc::SYS_write] {
        code.extend([
            step(EQUAL, number as u32, 0, 4),
            step(LOAD, low(0), 0, 0),
            step(EQUAL, socket, 0, 1),
            allow,
            closed,
        ]);
    }
    // Memory that is nobody else's, and no more code.
    code.extend([
        step(EQUAL, libc::SYS_mmap as u32, 0, 6),
        step(LOAD, low(2), 0, 0),
        step(ANY_BIT, libc::PROT_EXEC as u32, 3, 0),
        step(LOAD, low(3), 0, 0),
        step(ANY_BIT, libc::MAP_ANONYMOUS as u32, 0, 1),
        allow,
        stop,
        step(EQUAL, libc::SYS_mprotect as u32, 0, 4),
        step(LOAD, low(2), 0, 0),
        step(ANY_BIT, libc::PROT_EXEC as u32, 1, 0),
        allow,
        stop,
    ]);
    // Signals to itself: `abort`.
    code.extend([
        step(EQUAL, libc::SYS_tgkill as u32, 0, 4),
        step(LOAD, low(0), 0, 0),
        step(EQUAL, process, 0, 1),
        allow,
        stop,
    ]);
    // To wait for so long and no longer would be a clock.
    code.extend([
        step(EQUAL, libc::SYS_futex as u32, 0, 11),
        step(LOAD, low(1), 0, 0),
        step(AND, FUTEX_COMMAND, 0, 0),
        step(EQUAL, FUTEX_WAKE, 7, 0),
        step(EQUAL, FUTEX_WAKE_BITSET, 6, 0),
        step(EQUAL, FUTEX_WAIT, 1, 0),
        step(EQUAL, FUTEX_WAIT_BITSET, 0, 5),
        step(LOAD, low(3), 0, 0),
        step(EQUAL, 0, 0, 3),
        step(LOAD, high(3), 0, 0),
        step(EQUAL, 0, 0, 1),
        allow,
    ]);
    code.push(stop);
    code
}

fn failed(what: &str) -> Failure {
    Failure::System(format!("failed to {what}: {}", std::io::Error::last_os_error()))
}

/// Takes the time-stamp counter from this thread and from those that it starts.
pub(super) fn take_clock() -> Result<(), Failure> {
    const PR_SET_TSC: c_int = 26;
    const PR_TSC_SIGSEGV: c_int = 2;
    #[expect(unsafe_code, reason = "a system call")]
    // SAFETY: both arguments are numbers.
    let result = unsafe { libc::prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0) };
    if result == 0 { Ok(()) } else { Err(failed("take the processor's time-stamp counter")) }
}

/// Has faults and forbidden system calls noted before they end the process.
pub(super) fn watch() -> Result<(), Failure> {
    install(libc::SIGSEGV, on_fault)?;
    install(libc::SIGSYS, on_system_call)
}

type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

fn install(signal: c_int, handler: Handler) -> Result<(), Failure> {
    #[expect(unsafe_code, reason = "a signal handler")]
    // SAFETY: zeros are a valid structure; the handlers only write to shared memory, and end the process.
    let result = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESETHAND;
        libc::sigaction(signal, &raw const action, std::ptr::null_mut())
    };
    if result == 0 { Ok(()) } else { Err(failed("watch for faults")) }
}

/// The instruction runs again, and the signal then ends the process.
extern "C" fn on_fault(_: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // What is read here may fault itself.
    static ENTERED: AtomicBool = AtomicBool::new(false);
    if ENTERED.swap(true, Ordering::Relaxed) {
        return;
    }
    #[expect(unsafe_code, reason = "a signal handler")]
    // SAFETY: the kernel passes both; an instruction that raised this fault can be read.
    unsafe {
        /// The kernel raised it, not an address.
        const SI_KERNEL: c_int = 0x80;
        if (*info).si_code == SI_KERNEL && reads_clock(context) {
            report::note_clock();
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "a signal handler")]
unsafe fn reads_clock(context: *mut c_void) -> bool {
    // SAFETY: the caller passes what a handler got; the instruction has two bytes or more.
    unsafe {
        let context = &*context.cast::<libc::ucontext_t>();
        let at = context.uc_mcontext.gregs[libc::REG_RIP as usize] as *const u8;
        let (first, second) = (at.read(), at.add(1).read());
        (first, second) == (0x0f, 0x31)
            || (first, second) == (0x0f, 0x01) && at.add(2).read() == 0xf9
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[expect(unsafe_code, reason = "as above")]
unsafe fn reads_clock(_: *mut c_void) -> bool {
    false
}

extern "C" fn on_system_call(_: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    /// Where `si_syscall` lies.
    const NUMBER: usize = 24;
    #[expect(unsafe_code, reason = "a signal handler")]
    // SAFETY: the kernel passes the structure, which has the number there.
    unsafe {
        let number = info.cast::<[u8; 4]>().byte_add(NUMBER).read();
        report::note_system_call(i32::from_ne_bytes(number));
        libc::_exit(1);
    }
}

/// Leaves this process, with all its threads, what the filter allows.
pub(super) fn confine(socket: c_int) -> Result<(), Failure> {
    const TSYNC: u32 = 1;
    let filter = filter(std::process::id(), socket.unsigned_abs());
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    #[expect(unsafe_code, reason = "system calls")]
    // SAFETY: the kernel copies `len` instructions and does not write to them.
    let result = unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
            return Err(failed("give up privileges"));
        }
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, TSYNC, &raw const program)
    };
    // A positive number is a thread that could not be confined.
    if result == 0 { Ok(()) } else { Err(failed("load the filter of system calls")) }
}
