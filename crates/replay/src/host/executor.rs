//! An executor: a fork that runs one program, confined.
//!
//! It says by one message that it is ready, or why it cannot be; after one byte it runs, and says by another message
//! what came of it. From then on nothing that it says is believed: it is no more than "the window is over".

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::report::Report;
use super::{confine, run};
use crate::failure::Failure;
use crate::staged::Program;

/// The executor's end of the socket, as it numbers it.
const SOCKET: c_int = 3;
/// Longest message of an executor.
const MAX_MESSAGE: usize = 2048;

/// First bytes of messages.
const DONE: u8 = 0;
const FAILED: u8 = 1;

/// An executor that is ready, or has run.
pub(crate) struct Executor {
    process: libc::pid_t,
    socket: OwnedFd,
    /// Names of its operations, in order.
    labels: Vec<String>,
}

/// Memory that this process shares with its forks, of zeros.
pub(super) fn shared_memory(bytes: usize) -> Result<*mut c_void, Failure> {
    #[expect(unsafe_code, reason = "shared memory")]
    // SAFETY: new pages where nothing is.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes.max(1),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if at == libc::MAP_FAILED { Err(system("map shared memory")) } else { Ok(at) }
}

fn system(what: &str) -> Failure {
    Failure::System(format!("failed to {what}: {}", std::io::Error::last_os_error()))
}

impl Executor {
    /// Forks one. `make` runs in it: it loads kernels, and makes the program that is run and what is done afterwards.
    pub(crate) fn fork<After: FnOnce()>(
        labels: Vec<String>,
        report: &Report,
        make: impl FnOnce() -> Result<(Program, After), Failure>,
    ) -> Result<Self, Failure> {
        let pair = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        );
        let (ours, theirs) =
            pair.map_err(|e| Failure::System(format!("failed to make a socket: {e}")))?;
        report.clear();
        #[expect(unsafe_code, reason = "a fork")]
        // SAFETY: this process has one thread.
        let process = unsafe { libc::fork() };
        match process {
            -1 => Err(system("fork an executor")),
            0 => be_executor(&theirs, report, make),
            _ => {
                drop(theirs);
                let made = Self { process, socket: ours, labels };
                match made.answer() {
                    Some(message) => outcome(&message).map(|()| made),
                    None => Err(made.ended(report, "make the calls ready")),
                }
            }
        }
    }

    /// Has it run its program, and waits.
    pub(crate) fn run(&self, report: &Report) -> Result<(), Failure> {
        let sent = rustix::net::send(&self.socket, &[0], SendFlags::NOSIGNAL);
        match sent.ok().and_then(|_| self.answer()) {
            Some(message) if message.first() == Some(&DONE) => Ok(()),
            Some(message) => {
                let code = message.get(1..5).and_then(|code| code.first_chunk()).copied();
                let code = code.map_or(999, i32::from_le_bytes);
                let label = self.label(report);
                Err(Failure::Kernel(format!("{label}: CUDA error {code}")))
            }
            None => Err(self.ended(report, self.label(report))),
        }
    }

    /// The operation that ran last.
    fn label(&self, report: &Report) -> &str {
        self.labels.get(report.node()).map_or("run the operations", String::as_str)
    }

    /// The next message; `None` if there will be none.
    fn answer(&self) -> Option<Vec<u8>> {
        let mut message = vec![0; MAX_MESSAGE];
        loop {
            match rustix::net::recv(&self.socket, &mut message[..], RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                Err(_) | Ok((0, _)) => return None,
                Ok((bytes, _)) => {
                    message.truncate(bytes);
                    return Some(message);
                }
            }
        }
    }

    /// Why it ended without an answer.
    fn ended(&self, report: &Report, label: &str) -> Failure {
        let mut status = 0;
        #[expect(unsafe_code, reason = "a system call")]
        // SAFETY: the process is a child that nobody else waits for; `status` outlives the call. It has closed
        // its socket, so it has ended or is killed.
        unsafe {
            libc::kill(self.process, libc::SIGKILL);
            while libc::waitpid(self.process, &raw mut status, 0) < 0
                && Errno::from_io_error(&std::io::Error::last_os_error()) == Some(Errno::INTR)
            {
            }
        }
        let how = report.deed().unwrap_or_else(|| how(status));
        Failure::Kernel(format!("{label}: {how}"))
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "system calls")]
        // SAFETY: as in `ended`; a process that was waited for is no child, and the second call then fails. No
        // other process of this jail can have got its number: the first call would reach none but a child of this
        // one, which makes one at a time.
        unsafe {
            if libc::waitpid(self.process, std::ptr::null_mut(), libc::WNOHANG) == 0 {
                libc::kill(self.process, libc::SIGKILL);
                libc::waitpid(self.process, std::ptr::null_mut(), 0);
            }
        }
    }
}

/// How a process ended that kernels ran in.
fn how(status: c_int) -> String {
    if !libc::WIFSIGNALED(status) {
        return "its process ended by itself".to_owned();
    }
    match libc::WTERMSIG(status) {
        libc::SIGSEGV => "a segmentation fault (SIGSEGV)".to_owned(),
        libc::SIGBUS => "a bus error (SIGBUS)".to_owned(),
        libc::SIGILL => "an illegal instruction (SIGILL)".to_owned(),
        libc::SIGFPE => "an arithmetic error (SIGFPE)".to_owned(),
        libc::SIGSYS => "it made a system call (SIGSYS)".to_owned(),
        libc::SIGABRT => {
            "it aborted (SIGABRT), as a block does that waits for itself at a barrier, or one \
             without memory"
                .to_owned()
        }
        other => format!("its process ended by signal {other}"),
    }
}

/// What a message before the first kernel says.
fn outcome(message: &[u8]) -> Result<(), Failure> {
    match message.split_first() {
        Some((&DONE, _)) => Ok(()),
        Some((_, text)) => Err(Failure::System(String::from_utf8_lossy(text).into_owned())),
        None => Err(Failure::System("an executor said nothing".to_owned())),
    }
}

/// The life of a fork. It never returns: nothing of the supervisor's may be dropped here.
fn be_executor<After: FnOnce()>(
    socket: &OwnedFd,
    report: &Report,
    make: impl FnOnce() -> Result<(Program, After), Failure>,
) -> ! {
    let prepared = prepare(socket, report, make);
    let (program, after) = match prepared {
        Ok(made) => made,
        Err(failure) => {
            let mut message = vec![FAILED];
            message.extend(failure.to_string().bytes().take(MAX_MESSAGE - 1));
            say(socket.as_raw_fd(), &message);
            leave()
        }
    };
    say(SOCKET, &[DONE]);
    wait();
    // From here on the process is the candidate's.
    match run::run(&program, report) {
        Ok(()) => {
            after();
            say(SOCKET, &[DONE]);
        }
        Err(code) => {
            let [a, b, c, d] = code.to_le_bytes();
            say(SOCKET, &[FAILED, a, b, c, d]);
        }
    }
    wait();
    leave()
}

fn prepare<After: FnOnce()>(
    socket: &OwnedFd,
    report: &Report,
    make: impl FnOnce() -> Result<(Program, After), Failure>,
) -> Result<(Program, After), Failure> {
    #[expect(unsafe_code, reason = "a system call")]
    // SAFETY: both arguments are numbers.
    let tied = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
    if tied != 0 {
        return Err(system("tie an executor to its supervisor"));
    }
    report.become_own();
    confine::take_clock()?;
    confine::watch()?;
    let made = make()?;
    #[expect(unsafe_code, reason = "system calls")]
    // SAFETY: descriptors are numbers; those that are closed belong to values that are never dropped here.
    unsafe {
        let first = SOCKET.unsigned_abs() + 1;
        if libc::dup2(socket.as_raw_fd(), SOCKET) < 0
            || libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) != 0
        {
            return Err(system("close what an executor does not need"));
        }
    }
    confine::confine(SOCKET)?;
    Ok(made)
}

fn say(socket: c_int, message: &[u8]) {
    #[expect(unsafe_code, reason = "a system call")]
    // SAFETY: the message is as long as said.
    unsafe {
        libc::write(socket, message.as_ptr().cast(), message.len());
    }
}

/// Waits for a byte. Without a supervisor there is no use in this process.
fn wait() {
    let mut byte = 0u8;
    loop {
        #[expect(unsafe_code, reason = "a system call")]
        // SAFETY: `byte` outlives the call.
        let read = unsafe { libc::read(SOCKET, (&raw mut byte).cast(), 1) };
        match read {
            1 => return,
            -1 if std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
            _ => leave(),
        }
    }
}

fn leave() -> ! {
    #[expect(unsafe_code, reason = "a system call")]
    // SAFETY: ends the process at once, without what is done at exit.
    unsafe {
        libc::_exit(0)
    }
}
