//! The thread that reads everything a shell sends: output, reports, and unexpected requests.
//!
//! It reads continuously, so that a background command never blocks while a policy generates. Its
//! memory is bounded.

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::service::Refuser;
use crate::tools::shell::capped::{Capped, MAX_OUTPUT_BYTES};
use crate::tools::shell::disk::DiskWatch;
use crate::tools::shell::job::{Job, JobState, MAX_RUNNING};

/// Maximum bytes of a report.
const MAX_REPORT_BYTES: usize = 256;
/// Maximum reports waiting; a shell that sends more is broken.
const MAX_REPORTS: usize = 256;
/// Maximum bytes read in a tenth of a second before a pause.
const BURST_BYTES: usize = 16 << 20;
const BURST_TIME: Duration = Duration::from_millis(100);
/// A pipe holds 64 KiB; this many reads empty one that is not refilled.
const DRAIN_READS: usize = 16;

/// A report of the shell or its keeper on the report socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    /// Process id of the sender, from the kernel.
    pub(crate) pid: u32,
    /// `ready`, `hello`, `end MARK CODE`, `left CODE`, `job MARK` or `over MARK CODE`.
    pub(crate) text: String,
}

/// State shared by the pump and the calls.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    wake: OwnedFd,
}

#[derive(Debug)]
struct State {
    output: Capped,
    reports: VecDeque<Report>,
    slots: [Option<Arc<Job>>; MAX_RUNNING],
    /// Whether a call is running: judge requests then belong to it, and are not refused.
    asking: bool,
    closed: bool,
    /// Why the shell must be ended.
    broken: Option<String>,
}

impl Shared {
    fn new() -> std::io::Result<Self> {
        let state = State {
            output: Capped::new(MAX_OUTPUT_BYTES),
            reports: VecDeque::new(),
            slots: std::array::from_fn(|_| None),
            asking: false,
            closed: false,
            broken: None,
        };
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { state: Mutex::new(state), changed: Condvar::new(), wake })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rouse(&self) {
        // An eventfd that is not nearly full takes this.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Sets whether judge requests belong to a call from now on.
    pub(crate) fn set_asking(&self, asking: bool) {
        self.lock().asking = asking;
        self.rouse();
    }

    /// The next report; `None` if none arrives within `patience`.
    pub(crate) fn report(&self, patience: Duration) -> Option<Report> {
        let state = self.lock();
        let waited = self.changed.wait_timeout_while(state, patience, |state| {
            state.reports.is_empty() && state.broken.is_none()
        });
        waited.unwrap_or_else(PoisonError::into_inner).0.reports.pop_front()
    }

    /// Why the shell must be ended, if it must.
    pub(crate) fn broken(&self) -> Option<String> {
        self.lock().broken.clone()
    }

    /// The output since the last call.
    pub(crate) fn take_output(&self) -> String {
        self.lock().output.take()
    }

    /// Reserves a slot for a background command's output.
    pub(crate) fn take_slot(&self, job: &Arc<Job>) -> Option<usize> {
        let mut state = self.lock();
        let is_free = |slot: &Option<Arc<Job>>| {
            slot.as_ref().is_none_or(|job| job.state() != JobState::Running)
        };
        let at = state.slots.iter().position(is_free)?;
        state.slots[at] = Some(Arc::clone(job));
        Some(at)
    }
}

/// The descriptors that the pump reads.
#[derive(Debug)]
pub(crate) struct Sources {
    pub(crate) output: OwnedFd,
    pub(crate) reports: OwnedFd,
    pub(crate) slots: Vec<OwnedFd>,
    pub(crate) listener: Arc<UnixListener>,
    pub(crate) disk: DiskWatch,
}

/// The running thread; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Pump {
    pub(crate) shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Pump {
    pub(crate) fn start(sources: Sources) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::new()?);
        let thread = std::thread::Builder::new().name("shell".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || {
                Pumping {
                    shared: &shared,
                    sources,
                    refuser: Refuser::default(),
                    burst: (Instant::now(), 0),
                    next_refusal: Instant::now(),
                }
                .run();
            }
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.rouse();
        if let Some(thread) = self.thread.take() {
            // A panic there was reported there.
            drop(thread.join());
        }
    }
}

struct Pumping<'a> {
    shared: &'a Shared,
    sources: Sources,
    refuser: Refuser,
    burst: (Instant, usize),
    next_refusal: Instant,
}

impl Pumping<'_> {
    fn run(mut self) {
        loop {
            let (closed, asking) = {
                let state = self.shared.lock();
                (state.closed, state.asking)
            };
            if closed {
                return;
            }
            let now = Instant::now();
            let may_refuse = !asking && now >= self.next_refusal;
            let mut until = self.sources.disk.due();
            if !asking && !may_refuse {
                until = until.min(self.next_refusal);
            }
            let Some(ready) = self.wait(until.saturating_duration_since(now), may_refuse) else {
                self.give_up("failed to read from the shell");
                return;
            };
            if ready.output && !self.read_output(1) {
                return;
            }
            for slot in ready.slots {
                self.read_slot(slot, 1);
            }
            if ready.reports {
                self.read_reports();
            }
            if ready.requests {
                self.refuse();
            }
            if Instant::now() >= self.sources.disk.due()
                && let Some(reason) = self.sources.disk.look()
            {
                self.give_up(&reason);
            }
            self.rest();
        }
    }

    fn give_up(&self, reason: &str) {
        self.shared.lock().broken.get_or_insert_with(|| reason.to_owned());
        self.shared.changed.notify_all();
    }

    fn wait(&self, time: Duration, may_refuse: bool) -> Option<Ready> {
        let sources = &self.sources;
        let mut fds = vec![&self.shared.wake, &sources.output, &sources.reports];
        fds.extend(&sources.slots);
        let mut fds: Vec<PollFd<'_>> =
            fds.into_iter().map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)).collect();
        if may_refuse {
            fds.push(PollFd::from_borrowed_fd(sources.listener.as_fd(), PollFlags::IN));
        }
        let time =
            Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
        match poll(&mut fds, Some(&time)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready[0] {
            let _ = rustix::io::read(&self.shared.wake, &mut [0_u8; 8]);
        }
        let first = 3;
        let count = sources.slots.len();
        Some(Ready {
            output: ready[1],
            reports: ready[2],
            slots: (0..count).filter(|slot| ready[first + slot]).collect(),
            requests: ready.get(first + count).copied().unwrap_or(false),
        })
    }

    /// Reads output. Returns false if every writer is gone.
    fn read_output(&mut self, times: usize) -> bool {
        let mut buffer = vec![0; 64 << 10];
        for _ in 0..times {
            match read(&self.sources.output, &mut buffer) {
                Some(0) => return false,
                Some(count) => {
                    self.burst.1 += count;
                    self.shared.lock().output.push(&buffer[..count]);
                }
                None => break,
            }
        }
        true
    }

    fn read_slot(&mut self, slot: usize, times: usize) {
        let mut buffer = vec![0; 64 << 10];
        for _ in 0..times {
            let Some(count @ 1..) = read(&self.sources.slots[slot], &mut buffer) else { return };
            self.burst.1 += count;
            let job = self.shared.lock().slots[slot].clone();
            if let Some(job) = job {
                job.print(&buffer[..count]);
            }
        }
    }

    fn read_reports(&mut self) {
        for _ in 0..MAX_REPORTS {
            let Some(report) = receive(&self.sources.reports) else { return };
            // What was printed before the report belongs before it.
            self.read_output(DRAIN_READS);
            if let Some(rest) = report.text.strip_prefix("over ") {
                self.over(rest);
                continue;
            }
            let mut state = self.shared.lock();
            if state.reports.len() >= MAX_REPORTS {
                drop(state);
                self.give_up("the shell sent too many reports on its private descriptors");
                return;
            }
            state.reports.push_back(report);
            drop(state);
            self.shared.changed.notify_all();
        }
    }

    /// Records that a background command has ended.
    fn over(&mut self, rest: &str) {
        let Some((mark, code)) = rest.split_once(' ') else { return };
        let slots = self.shared.lock().slots.clone();
        let of_mark = |slot: &Option<Arc<Job>>| slot.as_ref().is_some_and(|job| job.mark == mark);
        let Some(slot) = slots.iter().position(of_mark) else { return };
        self.read_slot(slot, DRAIN_READS);
        if let (Some(job), Ok(code)) = (&slots[slot], code.parse()) {
            job.end(JobState::Exited(code));
        }
        self.shared.lock().slots[slot] = None;
    }

    fn refuse(&mut self) {
        // Under the lock: a call that begins meanwhile finds its own requests still waiting.
        let state = self.shared.lock();
        if !state.asking {
            self.refuser.refuse_waiting(&self.sources.listener);
            self.next_refusal = Instant::now() + Refuser::PAUSE;
        }
    }

    /// Pauses after a burst: endless output must not occupy our processor.
    fn rest(&mut self) {
        let (begun, bytes) = self.burst;
        if begun.elapsed() >= BURST_TIME {
            self.burst = (Instant::now(), 0);
        } else if bytes > BURST_BYTES {
            std::thread::sleep(BURST_TIME.saturating_sub(begun.elapsed()));
            self.burst = (Instant::now(), 0);
        }
    }
}

struct Ready {
    output: bool,
    reports: bool,
    slots: Vec<usize>,
    requests: bool,
}

/// Number of bytes read; `None` if no data is available now.
fn read(fd: &OwnedFd, buffer: &mut [u8]) -> Option<usize> {
    rustix::io::read(fd, buffer).ok()
}

fn receive(socket: &OwnedFd) -> Option<Report> {
    let mut bytes = [0; MAX_REPORT_BYTES];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let message = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags).ok()?;
    let mut pid = 0;
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmCredentials(sender) = part {
            pid = sender.pid.as_raw_nonzero().get() as u32;
        }
    }
    if message.bytes == 0 {
        return None;
    }
    let text = String::from_utf8_lossy(&bytes[..message.bytes]).into_owned();
    Some(Report { pid, text })
}

/// Makes the reading end of a pipe, or a socket, non-blocking.
pub(crate) fn unblocked(fd: OwnedFd) -> std::io::Result<OwnedFd> {
    rustix::io::ioctl_fionbio(&fd, true)?;
    Ok(fd)
}
