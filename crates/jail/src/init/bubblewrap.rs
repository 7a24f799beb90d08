//! The bubblewrap backend: bubblewrap makes namespaces and mounts, then starts this helper inside as the
//! first process, which goes on as in the other backends.
//!
//! Where the system lets only bubblewrap make user namespaces (a profile of AppArmor, a set-user-id
//! installation), this is the only way to full isolation without root.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, IntoRawFd as _, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use crate::plan::{Handover, Inside, Plan};
use crate::spec::{Access, HOME};
use crate::sys;

use super::confine::{Become, Identity};
use super::failure::{Failure, Step as _};
use super::first::{self, Lines};
use super::rootfs::{Owner, etc_files};

/// Where the helper lies inside.
const HELPER: &str = "/.jail-helper";

/// Replaces this process by bubblewrap. Returns only when that failed.
pub(super) fn exec(plan: &Plan, owner: &Owner, identity: Identity<'_>, lines: &Lines) -> i32 {
    let Err(failure) = try_exec(plan, owner, identity, lines);
    Lines::tell(&lines.status, &Inside::Failed { step: failure.step, message: failure.message });
    1
}

fn try_exec(
    plan: &Plan,
    owner: &Owner,
    identity: Identity<'_>,
    lines: &Lines,
) -> Result<std::convert::Infallible, Failure> {
    let program = plan
        .bubblewrap
        .as_deref()
        .ok_or(io::Error::from_raw_os_error(libc::ENOENT))
        .step("find bubblewrap")?;
    sys::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as u64)
        .step("tie the jail to its supervisor")?;
    for fd in [&lines.status, &lines.executed] {
        sys::set_close_on_exec(fd.as_raw_fd(), false).step("keep descriptors")?;
    }
    let mut inner = plan.clone();
    inner.handover = Some(Handover {
        status_fd: lines.status.as_raw_fd(),
        executed_fd: lines.executed.as_raw_fd(),
        user_processes: identity.user_processes,
        data_bytes: identity.data_bytes,
    });
    let text = serde_json::to_vec(&inner).map_err(io::Error::other).step("write the inner plan")?;
    let plan_fd = hand_down(&text).step("write the inner plan")?;

    let mut arguments = Arguments::new(program);
    arguments.add([
        "--unshare-user",
        "--unshare-pid",
        "--unshare-net",
        "--unshare-ipc",
        "--unshare-uts",
    ]);
    arguments.add([
        "--unshare-cgroup-try",
        "--die-with-parent",
        "--as-pid-1",
        "--hostname",
        "jail",
    ]);
    arguments.add(["--uid", &owner.uid.to_string(), "--gid", &owner.gid.to_string()]);
    for (link, points_to) in &plan.symlinks {
        arguments.add([Path::new("--symlink"), points_to, link]);
    }
    for (name, text) in etc_files(owner.uid, owner.gid) {
        let fd = hand_down(text.as_bytes()).step("write /etc")?;
        arguments.add(["--ro-bind-data", &fd.to_string(), &format!("/etc/{name}")]);
    }
    let size = plan.limits.tmp_bytes.to_string();
    arguments.add(["--proc", "/proc", "--dev", "/dev"]);
    arguments.add(["--perms", "1777", "--size", &size, "--tmpfs", "/dev/shm"]);
    arguments.add(["--perms", "1777", "--size", &size, "--tmpfs", "/tmp"]);
    arguments.add(["--perms", "0700", "--size", &size, "--tmpfs", HOME]);
    for mount in &plan.mounts {
        let option = match mount.access {
            _ if mount.device => "--dev-bind",
            Access::ReadOnly => "--ro-bind",
            Access::ReadWrite => "--bind",
        };
        arguments.add([Path::new(option), &mount.source, &mount.target]);
    }
    arguments.add([Path::new("--ro-bind"), &plan.init, Path::new(HELPER)]);
    arguments.add([
        "--remount-ro",
        "/dev",
        "--remount-ro",
        "/",
        "--",
        HELPER,
        crate::plan::INSIDE,
        &plan_fd.to_string(),
    ]);
    let error = arguments.exec(program);
    Err(Failure::new(format!("start {}", program.display()), &error))
}

/// A file with these bytes that survives the exec; its number.
fn hand_down(bytes: &[u8]) -> io::Result<RawFd> {
    let fd = sys::memory_file(bytes)?;
    sys::set_close_on_exec(fd.as_raw_fd(), false)?;
    Ok(fd.into_raw_fd())
}

struct Arguments(Vec<PathBuf>);

impl Arguments {
    fn new(program: &Path) -> Self {
        Self(vec![program.into()])
    }

    fn add<S: Into<PathBuf>>(&mut self, arguments: impl IntoIterator<Item = S>) {
        self.0.extend(arguments.into_iter().map(Into::into));
    }

    fn exec(&self, program: &Path) -> io::Error {
        let strings = || -> io::Result<(CString, Vec<CString>)> {
            Ok((
                sys::c_string(program)?,
                self.0.iter().map(sys::c_string).collect::<io::Result<_>>()?,
            ))
        };
        match strings() {
            Ok((program, arguments)) => sys::exec(&program, &arguments, &[]),
            Err(error) => error,
        }
    }
}

/// Entry of the helper inside bubblewrap's namespaces. Returns the exit code.
pub(super) fn inside(plan_fd: RawFd) -> i32 {
    let plan: Option<Plan> = sys::adopt(plan_fd).ok().and_then(|file| {
        serde_json::from_reader(io::BufReader::new(std::fs::File::from(file))).ok()
    });
    let Some((plan, handover)) =
        plan.and_then(|plan| plan.handover.clone().map(|handover| (plan, handover)))
    else {
        return 3;
    };
    let line = |fd: RawFd| -> io::Result<OwnedFd> {
        sys::set_close_on_exec(fd, true)?;
        sys::adopt(fd)
    };
    let (Ok(status), Ok(executed)) = (line(handover.status_fd), line(handover.executed_fd)) else {
        return 3;
    };
    let identity = Identity {
        becomes: Become::Execute,
        become_user: None,
        user_processes: handover.user_processes,
        data_bytes: handover.data_bytes,
    };
    first::finish(first::run_program(&plan, identity, status, executed, || Ok(())))
}
