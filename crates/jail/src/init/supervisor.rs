//! The supervisor of one jail: starts it, keeps its bounds, ends it, reports.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use crate::detect::Backend;
use crate::plan::{Cause, InForce, Inside, Plan, Report, VERSION};
use crate::spec::Gpu;
use crate::sys::{self, Fork};

use super::cgroup::Group;
use super::confine::{self, Identity};
use super::first::{self, Lines};
use super::rootfs::Owner;
use super::{Failure, Step as _, bubblewrap, landlock, ownership, tree};

/// Between two looks at memory and CPU time: with a control group the kernel keeps the bound anyway.
const TICK_WITH_GROUP: Duration = Duration::from_millis(50);
const TICK_ALONE: Duration = Duration::from_millis(20);

/// Entry of the helper; `plan_fd` is a file that holds the plan. Returns the exit code.
pub(super) fn main(plan_fd: RawFd) -> i32 {
    let plan: Plan = match sys::adopt(plan_fd).map(File::from).map(|file| serde_json::from_reader(io::BufReader::new(file))) {
        Ok(Ok(plan)) => plan,
        // Without a plan there is no line to the caller either; it sees the exit code.
        _ => return 3,
    };
    let Ok(control) = sys::adopt(plan.control_fd) else { return 3 };
    if plan.version != VERSION {
        return 4;
    }
    let mut supervisor = Supervisor { plan, control, kill_requested: false };
    match supervisor.run() {
        Ok(report) => supervisor.report(&report),
        Err(failure) => supervisor.report(&Report::Failed { step: failure.step, message: failure.message }),
    }
    0
}

struct Supervisor {
    plan: Plan,
    control: OwnedFd,
    kill_requested: bool,
}

/// A started jail, before or while its program runs.
struct Running {
    /// First process, as the host sees it.
    pid: i32,
    status: OwnedFd,
    executed: OwnedFd,
    group: Group,
    in_force: InForce,
}

impl Supervisor {
    fn report(&self, report: &Report) {
        // A caller that is gone needs no report.
        if let (Ok(mut line), Ok(copy)) = (serde_json::to_vec(report), self.control.try_clone()) {
            line.push(b'\n');
            drop(File::from(copy).write_all(&line));
        }
    }

    fn run(&mut self) -> Result<Report, Failure> {
        sys::new_session();
        sys::prctl(libc::PR_SET_CHILD_SUBREAPER, 1).step("adopt orphans")?;
        let control = self.control.as_raw_fd();
        let fds: Vec<RawFd> = self.plan.fds.iter().map(|&(source, _)| source).collect();
        confine::close_others(&|fd| fd == control || fds.contains(&fd));
        sys::set_close_on_exec(control, true).step("keep the control socket")?;

        let running = self.start()?;
        let mut owned = Vec::new();
        let outcome = self.watch(&running, &mut owned);
        // Whatever the outcome, nothing of the jail survives this point.
        drop(sys::kill(running.pid, libc::SIGKILL));
        if !tree::kill_all_below(2000) {
            return Err(Failure {
                step: "end the jail".into(),
                message: "a process of it does not end, even killed".into(),
            });
        }
        let peak = sys::children_peak_bytes();
        running.group.remove();
        for (path, uid, gid) in owned {
            drop(ownership::give(&path, uid, gid));
        }
        outcome.map(|report| match report {
            Report::Ended { cause, elapsed, peak_memory_bytes, cpu } => {
                Report::Ended { cause, elapsed, peak_memory_bytes: Some(peak_memory_bytes.unwrap_or(0).max(peak)), cpu }
            }
            other => other,
        })
    }

    fn start(&self) -> Result<Running, Failure> {
        let plan = &self.plan;
        let group = Group::create(&plan.limits);
        let (go_read, go_write) = sys::pipe().step("make a pipe")?;
        let (status_read, status_write) = sys::pipe().step("make a pipe")?;
        let (executed_read, executed_write) = sys::pipe().step("make a pipe")?;
        let (owner, mut identity) = identify(plan)?;
        let mut in_force = InForce::default();
        bounds(plan, &group, &mut identity, &mut in_force);
        if let Some((uid, gid)) = identity.become_user {
            // So that /dev/stdout and its like can be opened again inside.
            for fd in 0..3 {
                drop(sys::change_owner(fd, uid, gid));
            }
        }
        let namespaces = libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
        let flags = match plan.backend {
            Backend::Namespaces => namespaces,
            Backend::UserNamespaces => namespaces | libc::CLONE_NEWUSER,
            Backend::Bubblewrap | Backend::Landlock => 0,
        };
        let pid = match sys::clone_process(flags).step("make namespaces")? {
            Fork::Child => {
                drop((go_write, status_read, executed_read));
                // Nothing happens before the supervisor has mapped ids and filled the control group.
                let mut go = [0];
                if !matches!(File::from(go_read).read(&mut go), Ok(1)) {
                    sys::exit_now(1);
                }
                let lines = Lines { status: status_write, executed: executed_write };
                sys::exit_now(match plan.backend {
                    Backend::Namespaces | Backend::UserNamespaces => first::main(plan, &owner, identity, lines),
                    Backend::Bubblewrap => bubblewrap::exec(plan, &owner, identity, &lines),
                    Backend::Landlock => first::main_without_namespaces(plan, identity, lines),
                })
            }
            Fork::Parent(pid) => pid,
        };
        drop((go_read, status_write, executed_write, owner));
        self.let_go_of_descriptors();
        let running = Running { pid, status: status_read, executed: executed_read, group, in_force };
        let prepared = self.prepare(&running, go_write);
        if let Err(failure) = prepared {
            drop(sys::kill(pid, libc::SIGKILL));
            drop(sys::wait_any(true));
            running.group.remove();
            return Err(failure);
        }
        Ok(running)
    }

    /// What must be true before the first process goes on.
    fn prepare(&self, running: &Running, go: OwnedFd) -> Result<(), Failure> {
        if self.plan.backend == Backend::UserNamespaces {
            let (uid, gid) = (sys::effective_uid(), sys::effective_gid());
            let write = |name: &str, text: String| fs_err::write(format!("/proc/{}/{name}", running.pid), text);
            // Without privileges, group ids can be mapped only after giving up setgroups.
            drop(write("setgroups", "deny".into()));
            write("uid_map", format!("{} {uid} 1", inner_id(uid))).step("map the user")?;
            write("gid_map", format!("{} {gid} 1", inner_id(gid))).step("map the group")?;
        }
        running.group.add(running.pid).step("fill the control group")?;
        File::from(go).write_all(b"g").step("start the first process")
    }

    /// The program's descriptors and standard streams are its own from here on.
    fn let_go_of_descriptors(&self) {
        for &(source, _) in &self.plan.fds {
            sys::close(source);
        }
        if let Ok(null) = fs_err::OpenOptions::new().read(true).write(true).open("/dev/null") {
            for fd in 0..3 {
                drop(sys::duplicate_onto(null.as_raw_fd(), fd));
            }
        }
    }

    /// Watches until the program ends, breaks a bound, or the caller wants it gone.
    fn watch(&mut self, running: &Running, owned: &mut Vec<(std::path::PathBuf, u32, u32)>) -> Result<Report, Failure> {
        let mut started: Option<Instant> = None;
        let mut status = Messages::default();
        let mut peak = 0;
        let mut cpu = None;
        let born = Instant::now();
        let limits = self.plan.limits.clone();
        let tick = if running.group.bounds_memory().is_some() { TICK_WITH_GROUP } else { TICK_ALONE };
        let mut next_look = born + Duration::from_millis(5);
        let end = |cause, started: Option<Instant>, peak, cpu| {
            Ok(Report::Ended {
                cause,
                elapsed: started.unwrap_or(born).elapsed(),
                peak_memory_bytes: Some(peak),
                cpu,
            })
        };
        loop {
            let deadline = started.unwrap_or(born) + limits.wall;
            let now = Instant::now();
            if now >= deadline {
                return end(Cause::Deadline, started, peak, cpu);
            }
            let wait = deadline.min(next_look).saturating_duration_since(now);
            // Rounded up, so that the loop does not spin through the last millisecond.
            let wait_ms = wait.as_millis().min(60_000) as i32 + 1;
            let mut fds = vec![self.control.as_fd(), running.status.as_fd()];
            if started.is_none() {
                fds.push(running.executed.as_fd());
            }
            let ready = sys::poll_readable(&fds, wait_ms).step("watch the jail")?;
            let executed = ready.get(2).copied().unwrap_or(false);
            if ready[0] && self.caller_wants_the_end() {
                return end(Cause::Killed, started, peak, cpu);
            }
            if ready[1] || executed {
                let open = status.read(&running.status).step("listen to the jail")?;
                for message in status.take() {
                    match message {
                        Inside::Failed { step, message } => return Err(Failure { step, message }),
                        Inside::Owned { path, uid, gid } => owned.push((path, uid, gid)),
                        Inside::Exited(_) | Inside::Signalled(_) => {
                            if started.is_none() {
                                self.report(&Report::Started { pid: running.pid, in_force: running.in_force.clone() });
                            }
                            self.look(running, &mut peak, &mut cpu);
                            let cause = if running.group.out_of_memory() {
                                Cause::Memory
                            } else if let Inside::Exited(code) = message {
                                Cause::Exited(code)
                            } else if let Inside::Signalled(signal) = message {
                                let over = limits.cpu.is_some_and(|bound| cpu.is_some_and(|cpu: Duration| cpu > bound));
                                // RLIMIT_CPU may be quicker than the next look.
                                let by_limit = signal == libc::SIGKILL || signal == libc::SIGXCPU;
                                if over && by_limit { Cause::Cpu } else { Cause::Signalled(signal) }
                            } else {
                                continue;
                            };
                            return end(cause, started, peak, cpu);
                        }
                    }
                }
                if !open && started.is_none() && !executed {
                    return Err(Failure {
                        step: "start the first process".into(),
                        message: "it ended without a word".into(),
                    });
                }
                if !open {
                    // The first process is gone without a word: killed from outside, or for memory.
                    let cause = if running.group.out_of_memory() { Cause::Memory } else { Cause::Signalled(libc::SIGKILL) };
                    return end(cause, started, peak, cpu);
                }
            }
            if executed && started.is_none() {
                started = Some(Instant::now());
                self.report(&Report::Started { pid: running.pid, in_force: running.in_force.clone() });
            }
            if Instant::now() >= next_look {
                next_look = Instant::now() + tick;
                let memory = self.look(running, &mut peak, &mut cpu);
                if running.group.out_of_memory()
                    || (running.group.bounds_memory().is_none()
                        && limits.memory_bytes.is_some_and(|bound| memory.is_some_and(|memory| memory > bound)))
                {
                    return end(Cause::Memory, started, peak, cpu);
                }
                if limits.cpu.is_some_and(|bound| cpu.is_some_and(|cpu: Duration| cpu > bound)) {
                    return end(Cause::Cpu, started, peak, cpu);
                }
            }
        }
    }

    /// Measures memory and CPU time.
    fn look(&self, running: &Running, peak: &mut u64, cpu: &mut Option<Duration>) -> Option<u64> {
        let mut memory = running.group.memory_bytes();
        let mut time = running.group.cpu_time();
        if memory.is_none() || time.is_none() {
            let usage = tree::usage(std::process::id() as i32);
            memory = memory.or(Some(usage.memory_bytes));
            time = time.or(Some(usage.cpu));
        }
        *peak = memory.unwrap_or(0).max(*peak);
        *cpu = time.max(*cpu);
        memory
    }

    /// Any byte means kill, and so does the end of the stream: the caller is dead.
    fn caller_wants_the_end(&mut self) -> bool {
        self.kill_requested = true;
        true
    }
}

/// An id for use inside a user namespace: the caller's own, except that nobody is root inside.
fn inner_id(id: u32) -> u32 {
    if id == 0 { 1000 } else { id }
}

/// Who runs inside.
fn identify(plan: &Plan) -> Result<(Owner, Identity), Failure> {
    let identity = Identity { become_user: None, user_processes: None, data_bytes: None };
    match plan.backend {
        Backend::Namespaces => {
            let (uid, gid) = (ownership::own_uid(), ownership::GROUP);
            let mut maps: Vec<((u32, u32), OwnedFd)> = Vec::new();
            for mount in plan.mounts.iter().filter(|mount| !mount.system && !mount.device) {
                let meta = fs_err::metadata(&mount.source).step_on("look at", &mount.source)?;
                let ids = (meta.uid(), meta.gid());
                if maps.iter().all(|(known, _)| *known != ids)
                    // Without user namespaces the files change hands instead.
                    && let Ok(map) = ownership::id_map(ids.0, ids.1, uid)
                {
                    maps.push((ids, map));
                }
            }
            Ok((Owner { uid, gid, maps, foreign: true }, Identity { become_user: Some((uid, gid)), ..identity }))
        }
        Backend::UserNamespaces | Backend::Bubblewrap | Backend::Landlock => {
            let (uid, gid) = (inner_id(sys::effective_uid()), inner_id(sys::effective_gid()));
            Ok((Owner { uid, gid, maps: Vec::new(), foreign: false }, identity))
        }
    }
}

/// Chooses what bounds memory and processes where the control group does not.
fn bounds(plan: &Plan, group: &Group, identity: &mut Identity, in_force: &mut InForce) {
    let limits = &plan.limits;
    in_force.memory = match (limits.memory_bytes, group.bounds_memory()) {
        (None, _) => "unbounded, as asked".into(),
        (Some(_), Some(kind)) => kind.into(),
        (Some(bytes), None) if plan.gpu == Gpu::None => {
            // Per process, and generous: writable mappings need not be touched.
            identity.data_bytes = Some(bytes.saturating_mul(2).saturating_add(1 << 30));
            format!("supervisor every {} ms, RLIMIT_DATA", TICK_ALONE.as_millis())
        }
        (Some(_), None) => format!("supervisor every {} ms", TICK_ALONE.as_millis()),
    };
    let uid = sys::effective_uid();
    let (bound, words) = match (plan.backend, uid) {
        // The user id, or the user namespace, is the jail's alone, so the kernel's count is the jail's.
        (Backend::Namespaces | Backend::UserNamespaces | Backend::Bubblewrap, _) => {
            (Some(u64::from(limits.processes)), "RLIMIT_NPROC".to_owned())
        }
        // The kernel exempts root.
        (Backend::Landlock, 0) => (None, "unbounded".to_owned()),
        (Backend::Landlock, _) => {
            let others = landlock::threads_of_user(uid);
            (Some(others + u64::from(limits.processes)), format!("RLIMIT_NPROC beside {others} of the same user"))
        }
    };
    identity.user_processes = bound;
    in_force.processes = match group.bounds_processes() {
        Some(kind) if bound.is_some() => format!("{kind}, {words}"),
        Some(kind) => kind.into(),
        None => words,
    };
}

/// Splits the status pipe into messages.
#[derive(Default)]
struct Messages {
    pending: Vec<u8>,
}

impl Messages {
    /// Reads what is there; false at the end.
    fn read(&mut self, pipe: &OwnedFd) -> io::Result<bool> {
        if !sys::poll_readable(&[pipe.as_fd()], 0)?.first().copied().unwrap_or(false) {
            return Ok(true);
        }
        let mut buffer = [0; 4096];
        let count = File::from(pipe.try_clone()?).read(&mut buffer)?;
        self.pending.extend_from_slice(&buffer[..count]);
        Ok(count > 0)
    }

    fn take(&mut self) -> Vec<Inside> {
        let mut messages = Vec::new();
        while let Some(end) = self.pending.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.pending.drain(..=end).collect();
            messages.extend(serde_json::from_slice(&line).ok());
        }
        messages
    }
}
