//! The first process of a jail with namespaces: builds the root, starts the program, reaps what is orphaned.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};

use crate::plan::{Inside, Plan};
use crate::sys::{self, Fork};

use super::confine::{self, Identity};
use super::rootfs::{self, Owner};
use super::{Failure, Step as _};

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

/// The whole life of the first process. Its exit code says nothing; the lines do.
pub(super) fn main(plan: &Plan, owner: &Owner, identity: Identity, lines: Lines) -> i32 {
    match live(plan, owner, identity, lines) {
        Ok(()) => 0,
        Err((status, failure)) => {
            Lines::tell(&status, &Inside::Failed { step: failure.step, message: failure.message });
            1
        }
    }
}

fn live(plan: &Plan, owner: &Owner, identity: Identity, lines: Lines) -> Result<(), (OwnedFd, Failure)> {
    let Lines { status, executed } = lines;
    let prepared = (|| {
        // When the supervisor dies, the jail dies.
        sys::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as u64).step("tie the jail to its supervisor")?;
        sys::set_host_name("jail").step("name the host")?;
        // Better this one than the judge, should the whole machine run out.
        drop(fs_err::write("/proc/self/oom_score_adj", "500"));
        rootfs::enter(plan, owner, &mut |message| Lines::tell(&status, &message))
    })();
    if let Err(failure) = prepared {
        return Err((status, failure));
    }
    run_program(plan, identity, status, executed)
}

/// Starts the program as a child and waits for its end.
pub(super) fn run_program(
    plan: &Plan,
    identity: Identity,
    status: OwnedFd,
    executed: OwnedFd,
) -> Result<(), (OwnedFd, Failure)> {
    let program = match sys::clone_process(0).step("start the program") {
        Ok(Fork::Child) => {
            let failure = program(plan, identity, status.as_raw_fd(), executed.as_raw_fd());
            sys::exit_now(failure)
        }
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
            Lines::tell(&status, &match ended {
                sys::Ended::Exited(code) => Inside::Exited(code),
                sys::Ended::Signalled(signal) => Inside::Signalled(signal),
            });
            break;
        }
    }
    Ok(())
}

fn program(plan: &Plan, identity: Identity, status: RawFd, executed: RawFd) -> i32 {
    let failure = match confine::place_descriptors(plan, &[status, executed]) {
        Ok(kept) => {
            let failure = confine::run(plan, identity, || Ok(()));
            return report(&failure, kept.first().copied().unwrap_or(status));
        }
        Err(failure) => failure,
    };
    report(&failure, status)
}

fn report(failure: &Failure, status: RawFd) -> i32 {
    if let Ok(status) = sys::adopt(status) {
        Lines::tell(&status, &Inside::Failed { step: failure.step.clone(), message: failure.message.clone() });
    }
    1
}
