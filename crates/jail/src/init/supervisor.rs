//! The supervisor of one jail: starts it, keeps its bounds, ends it, reports.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, IntoRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt as _;

use crate::isolation::Backend;
use crate::plan::{InForce, Plan, Report, VERSION};
use crate::scratch::Scratch;
use crate::spec::Gpu;
use crate::sys::{self, Fork};
use crate::tree::{self, Inherited};

use super::cgroup::Group;
use super::confine::{self, Become, Identity};
use super::failure::{Failure, Step as _};
use super::first::{self, Lines};
use super::rootfs::Owner;
use super::watch::{Running, Watch};
use super::{bubblewrap, landlock, ownership};

/// Entry of the helper; `plan_fd` is a file that holds the plan. Returns the exit code.
pub(super) fn main(plan_fd: RawFd) -> i32 {
    let plan: Plan = match sys::adopt(plan_fd)
        .map(File::from)
        .map(|file| serde_json::from_reader(io::BufReader::new(file)))
    {
        Ok(Ok(plan)) => plan,
        // Without a plan there is no line to the caller either; it sees the exit code.
        _ => return 3,
    };
    let Ok(control) = sys::adopt(plan.control_fd) else { return 3 };
    if plan.version != VERSION {
        return 4;
    }
    Supervisor { plan, control, becomes: Become::Execute, inherited: Inherited::default() }.live()
}

/// The life of a supervisor that is a fork: `fds` are those of a request to a fork server. Returns the exit
/// code. The program is what `go_on` does in a process of the jail.
pub(super) fn forked(fds: Vec<OwnedFd>, go_on: &dyn Fn(&Plan) -> i32) -> i32 {
    let Ok(inherited) = Inherited::of_this_process() else { return 3 };
    // What the helper finds when it is executed: no handlers, and no end by a caller that is gone.
    sys::reset_signals();
    sys::ignore_signal(libc::SIGPIPE);
    let mut fds = fds.into_iter();
    let (Some(plan), Some(control)) = (fds.next(), fds.next()) else { return 3 };
    let Ok(mut plan) = serde_json::from_reader::<_, Plan>(io::BufReader::new(File::from(plan)))
    else {
        return 3;
    };
    if plan.version != VERSION {
        return 4;
    }
    for number in 0..3 {
        let Some(stream) = fds.next() else { return 3 };
        if sys::duplicate_onto(stream.as_raw_fd(), number).is_err() {
            return 3;
        }
    }
    plan.control_fd = control.as_raw_fd();
    for (source, _) in &mut plan.fds {
        let Some(fd) = fds.next() else { return 3 };
        *source = fd.into_raw_fd();
    }
    Supervisor { plan, control, becomes: Become::GoOn(go_on), inherited }.live()
}

struct Supervisor<'a> {
    plan: Plan,
    control: OwnedFd,
    becomes: Become<'a>,
    /// What the program's process has from the start.
    inherited: Inherited,
}

impl Supervisor<'_> {
    /// From start to end; the exit code.
    fn live(&self) -> i32 {
        match self.run() {
            Ok(report) => self.report(&report),
            Err(failure) => {
                self.report(&Report::Failed { step: failure.step, message: failure.message });
            }
        }
        0
    }

    fn report(&self, report: &Report) {
        // A caller that is gone needs no report.
        if let (Ok(mut line), Ok(copy)) = (serde_json::to_vec(report), self.control.try_clone()) {
            line.push(b'\n');
            drop(File::from(copy).write_all(&line));
        }
    }

    fn run(&self) -> Result<Report, Failure> {
        sys::new_session();
        // Whatever the caller's is: the program must be able to enter the root that is made here.
        sys::set_umask(0o022);
        sys::prctl(libc::PR_SET_CHILD_SUBREAPER, 1).step("adopt orphans")?;
        let control = self.control.as_raw_fd();
        let fds: Vec<RawFd> = self.plan.fds.iter().map(|&(source, _)| source).collect();
        confine::close_others(&|fd| fd == control || fds.contains(&fd));
        sys::set_close_on_exec(control, true).step("keep the control socket")?;

        let running = self.start()?;
        let mut watch = Watch::new(&self.plan, &running, self.control.as_fd());
        let outcome = watch.until_the_end(&|report| self.report(report));
        let owned = watch.owned;
        // Whatever the outcome, nothing of the jail survives this point.
        running.group.freezer().release();
        drop(sys::kill(running.pid, libc::SIGKILL));
        if !tree::kill_all_below(2000) {
            return Err(Failure {
                step: "end the jail".into(),
                message: "a process of it does not end, even killed".into(),
            });
        }
        // Of a fork that counts what it shares with its parent, too.
        let peak = match self.becomes {
            Become::Execute => sys::children_peak_bytes(),
            Become::GoOn(_) => 0,
        };
        running.group.remove();
        // The caller does this too, unless it was killed.
        drop(self.plan.scratch.clone().map(Scratch));
        for (path, uid, gid) in owned {
            drop(ownership::give(&path, uid, gid));
        }
        let mut report = outcome?;
        if let Report::Ended { peak_memory_bytes, .. } = &mut report {
            *peak_memory_bytes = Some(peak_memory_bytes.unwrap_or(0).max(peak));
        }
        Ok(report)
    }

    fn start(&self) -> Result<Running, Failure> {
        let plan = &self.plan;
        let group = Group::create(&plan.limits);
        let (go_read, go_write) = sys::pipe().step("make a pipe")?;
        let (status_read, status_write) = sys::pipe().step("make a pipe")?;
        let (executed_read, executed_write) = sys::pipe().step("make a pipe")?;
        let (owner, mut identity) = identify(plan, self.becomes)?;
        let mut in_force = InForce::default();
        bounds(plan, &group, &self.inherited, &mut identity, &mut in_force);
        in_force.freezer = Some(group.freezer());
        if let Some((uid, gid)) = identity.become_user {
            // So that /dev/stdout and its like can be opened again inside.
            for fd in 0..3 {
                drop(sys::give_stream(fd, uid, gid));
            }
            for &(fd, _) in &plan.fds {
                // Whatever else is handed over stays as closed as the caller made it.
                if sys::is_write_end(fd) {
                    drop(sys::give_stream(fd, uid, gid));
                }
            }
        }
        let namespaces = libc::CLONE_NEWNS
            | libc::CLONE_NEWPID
            | libc::CLONE_NEWNET
            | libc::CLONE_NEWIPC
            | libc::CLONE_NEWUTS;
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
                    Backend::Namespaces | Backend::UserNamespaces => {
                        first::main(plan, &owner, identity, lines)
                    }
                    Backend::Bubblewrap => bubblewrap::exec(plan, &owner, identity, &lines),
                    Backend::Landlock => first::main_without_namespaces(plan, identity, lines),
                })
            }
            Fork::Parent(pid) => pid,
        };
        drop((go_read, status_write, executed_write, owner));
        self.let_go_of_descriptors();
        let running = Running {
            pid,
            status: status_read,
            executed: executed_read,
            group,
            in_force,
            inherited: self.inherited,
        };
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
            let write = |name: &str, text: String| {
                fs_err::write(format!("/proc/{}/{name}", running.pid), text)
            };
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
}

/// An id for use inside a user namespace: the caller's own, except that nobody is root inside.
fn inner_id(id: u32) -> u32 {
    if id == 0 { 1000 } else { id }
}

/// Who runs inside.
fn identify<'a>(plan: &Plan, becomes: Become<'a>) -> Result<(Owner, Identity<'a>), Failure> {
    let identity = Identity { becomes, become_user: None, user_processes: None, data_bytes: None };
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
            Ok((
                Owner { uid, gid, maps, foreign: true },
                Identity { become_user: Some((uid, gid)), ..identity },
            ))
        }
        Backend::UserNamespaces | Backend::Bubblewrap | Backend::Landlock => {
            let (uid, gid) = (inner_id(sys::effective_uid()), inner_id(sys::effective_gid()));
            Ok((Owner { uid, gid, maps: Vec::new(), foreign: false }, identity))
        }
    }
}

/// Chooses what bounds memory and processes where the control group does not.
fn bounds(
    plan: &Plan,
    group: &Group,
    inherited: &Inherited,
    identity: &mut Identity<'_>,
    in_force: &mut InForce,
) {
    let limits = &plan.limits;
    in_force.memory = match (limits.memory_bytes, group.bounds_memory()) {
        (None, _) => "unbounded, as asked".into(),
        (Some(_), Some(kind)) => kind.into(),
        (Some(bytes), None) if plan.gpu == Gpu::None => {
            // Per process, and generous: writable mappings need not be touched.
            let most = bytes.saturating_mul(2).saturating_add(1 << 30);
            identity.data_bytes = Some(most.saturating_add(inherited.data_bytes));
            "supervisor, RLIMIT_DATA".into()
        }
        (Some(_), None) => "supervisor".into(),
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
            (
                Some(others + u64::from(limits.processes)),
                format!("RLIMIT_NPROC beside {others} of the same user"),
            )
        }
    };
    identity.user_processes = bound;
    in_force.processes = match group.bounds_processes() {
        Some(kind) if bound.is_some() => format!("{kind}, {words}"),
        Some(kind) => kind.into(),
        None => words,
    };
}
