//! The jail's helper: this program, started again, to set up and supervise one jail.
//!
//! Three processes, outermost first:
//!
//! * the **supervisor** ([`supervisor`]), outside the jail: makes the control group, starts the first
//!   process, keeps deadline and limits, kills, reports to the caller;
//! * the **first process** (process 1 of the namespaces): builds the root ([`rootfs`]), starts the
//!   program, reaps orphans, passes the program's end on;
//! * the **program**, after the last steps of [`confine`].
//!
//! With a fork server ([`serve`]) the same three are forks of that server, and nothing is executed.

mod bubblewrap;
mod cgroup;
mod confine;
mod failure;
mod first;
pub(crate) mod landlock;
mod ownership;
pub(crate) mod probe;
mod rootfs;
mod seccomp;
mod serve;
mod supervisor;
mod watch;

use std::sync::atomic::{AtomicBool, Ordering};

use crate::plan::{INSIDE, PROBE, SUPERVISE};
use crate::sys;

pub(crate) use self::seccomp::server_filter;
pub use self::serve::{Program, serve_forks};

static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Call it first thing in `main`: when this process was started as a jail's helper, it does that work
/// and never returns; otherwise it notes that this program can be started so, and returns at once.
pub fn init_if_requested() {
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next();
    let number = || std::env::args().nth(2).and_then(|text| text.parse().ok());
    match first.as_ref().and_then(|text| text.to_str()) {
        Some(SUPERVISE) => sys::exit_now(number().map_or(2, supervisor::main)),
        Some(INSIDE) => sys::exit_now(number().map_or(2, bubblewrap::inside)),
        Some(PROBE) => sys::exit_now(probe::main()),
        _ => REGISTERED.store(true, Ordering::Relaxed),
    }
}

/// Did this program call [`init_if_requested`]?
pub(crate) fn is_registered() -> bool {
    REGISTERED.load(Ordering::Relaxed)
}
