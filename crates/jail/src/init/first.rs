//! The first process of a jail with namespaces: builds the root, starts the program, reaps what is orphaned.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};

use crate::plan::{Inside, Plan};
use crate::spec::Network;
use crate::sys::{self, Fork};

use super::confine::{self, Become, Identity};
use super::failure::{Failure, Step as _};
use super::landlock;
use super::rootfs::{self, Owner};

/// Ends of the pipes that lead to the supervisor.
pub(super) struct Lines {
    /// Reports, one JSON object a line.
    pub(super) status: OwnedFd,
    /// Open until the program has been executed.
    pub(super) executed: OwnedFd,
}

impl Lines {
    pub(super) fn tell(status: &OwnedFd, message: &Inside) {
        // If nobody listens any more, this process is about to be killed.
        if let (Ok(mut line), Ok(copy)) = (serde_json::to_vec(message), status.try_clone()) {
            line.push(b'\n');
            drop(File::from(copy).write_all(&line));
        }
    }
}

/// The whole life of the first process of new namespaces. Its exit code says nothing; the lines do.
pub(super) fn main(plan: &Plan, owner: &Owner, identity: Identity<'_>, lines: Lines) -> i32 {
    let Lines { status, executed } = lines;
    let prepared = (|| {
        // When the supervisor dies, the jail dies.
        sys::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as u64)
            .step("tie the jail to its supervisor")?;
        sys::set_host_name("jail").step("name the host")?;
        if plan.network == Network::Loopback
            && let Err(error) = sys::raise_loopback()
        {
            let note = format!("the loopback interface could not be raised: {error}");
            Lines::tell(&status, &Inside::Note(note));
        }
        // Better this one than the judge, should the whole machine run out.
        drop(fs_err::write("/proc/self/oom_score_adj", "500"));
        rootfs::enter(plan, owner, &mut |message| Lines::tell(&status, &message))
    })();
    finish(match prepared {
        Ok(()) => run_program(plan, identity, status, executed, || Ok(())),
        Err(failure) => Err((status, failure)),
    })
}

/// The same without namespaces: only starts the program and reaps.
pub(super) fn main_without_namespaces(plan: &Plan, identity: Identity<'_>, lines: Lines) -> i32 {
    let Lines { status, executed } = lines;
    drop(sys::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as u64));
    drop(fs_err::write("/proc/self/oom_score_adj", "500"));
    finish(run_program(plan, identity, status, executed, || {
        drop(sys::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as u64));
        landlock::restrict(plan)
    }))
}

/// Reports what went wrong, if something did; the exit code.
pub(super) fn finish(result: Result<(), (OwnedFd, Failure)>) -> i32 {
    match result {
        Ok(()) => 0,
        Err((status, failure)) => {
            Lines::tell(&status, &Inside::Failed { step: failure.step, message: failure.message });
            1
        }
    }
}

/// Starts the program as a child and waits for its end. `restrict` runs in the child just before the
/// system call filter.
pub(super) fn run_program(
    plan: &Plan,
    identity: Identity<'_>,
    status: OwnedFd,
    executed: OwnedFd,
    restrict: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), (OwnedFd, Failure)> {
    let started = match identity.becomes {
        Become::Execute => sys::clone_process(0),
        Become::GoOn(_) => sys::fork(),
    };
    let program = match started.step("start the program") {
        Ok(Fork::Child) => sys::exit_now(program(
            plan,
            identity,
            status.as_raw_fd(),
            executed.as_raw_fd(),
            restrict,
        )),
        Ok(Fork::Parent(pid)) => pid,
        Err(failure) => return Err((status, failure)),
    };
    drop(executed);
    // The program's descriptors are its own: a reader of its pipes must see their end.
    let keep = status.as_raw_fd();
    confine::close_others(&|fd| fd == keep);
    for fd in 0..3 {
        sys::close(fd);
    }
    // From here on this process only waits; whatever it could do, it does not need.
    drop(sys::drop_capabilities());
    while let Ok(Some((pid, ended))) = sys::wait_any(true) {
        if pid == program {
            let message = match ended {
                sys::Ended::Exited(code) => Inside::Exited(code),
                sys::Ended::Signalled(signal) => Inside::Signalled(signal),
            };
            Lines::tell(&status, &message);
            break;
        }
    }
    Ok(())
}

fn program(
    plan: &Plan,
    identity: Identity<'_>,
    status: RawFd,
    executed: RawFd,
    restrict: impl FnOnce() -> Result<(), Failure>,
) -> i32 {
    let failure = match confine::place_descriptors(plan, &[status, executed]) {
        Ok(kept) => {
            let failure = confine::run(plan, identity, &kept, restrict);
            return report(&failure, kept.first().copied().unwrap_or(status));
        }
        Err(failure) => failure,
    };
    report(&failure, status)
}

fn report(failure: &Failure, status: RawFd) -> i32 {
    if let Ok(status) = sys::adopt(status) {
        Lines::tell(
            &status,
            &Inside::Failed { step: failure.step.clone(), message: failure.message.clone() },
        );
    }
    1
}
