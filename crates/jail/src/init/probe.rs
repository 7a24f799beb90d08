//! Looks around inside a jail and prints what it can and cannot do, as JSON: the ground of every claim
//! that the jail makes about itself.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::sys;

/// Environment variables by which the caller tells the probe where to push.
pub(crate) const PORT: &str = "JAIL_PROBE_PORT";
pub(crate) const SECRET: &str = "JAIL_PROBE_SECRET";
pub(crate) const FROZEN: &str = "JAIL_PROBE_FROZEN";
pub(crate) const OUTSIDER: &str = "JAIL_PROBE_OUTSIDER";
pub(crate) const SCRATCH: &str = "JAIL_PROBE_SCRATCH";

/// What was seen from inside.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Facts {
    /// The caller's listener on loopback could be reached.
    pub(crate) network: bool,
    /// A file that was not mounted could be read.
    pub(crate) sees_unnamed: bool,
    /// A read-only mount could be written.
    pub(crate) writes_read_only: bool,
    /// A writable mount could be written.
    pub(crate) writes_scratch: bool,
    /// `/tmp`, or what `TMPDIR` names, could be written.
    pub(crate) has_tmp: bool,
    /// The caller's process id could be signalled; inside a process namespace it names someone else.
    pub(crate) signals_caller: bool,
    /// Processes listed in `/proc`.
    pub(crate) processes: usize,
    /// Lines of `/proc/self/status`.
    pub(crate) status: BTreeMap<String, String>,
    /// Refused system calls, by name.
    pub(crate) refused: Vec<String>,
    /// Allowed ones that should not be.
    pub(crate) allowed: Vec<String>,
}

/// Prints the facts; the exit code is 0 when that worked.
pub(super) fn main() -> i32 {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let mut facts = Facts::default();
    if let Ok(port) = variable(PORT).parse::<u16>() {
        let address = ([127, 0, 0, 1], port).into();
        facts.network = TcpStream::connect_timeout(&address, Duration::from_millis(300)).is_ok();
    }
    facts.sees_unnamed = fs_err::read(variable(SECRET)).is_ok();
    facts.writes_read_only =
        fs_err::write(std::path::Path::new(&variable(FROZEN)).join("written"), "x").is_ok();
    facts.writes_scratch =
        fs_err::write(std::path::Path::new(&variable(SCRATCH)).join("written"), "x").is_ok();
    facts.has_tmp = fs_err::write(std::env::temp_dir().join("written"), "x").is_ok();
    if let Ok(pid) = variable(OUTSIDER).parse() {
        facts.signals_caller = sys::kill(pid, 0).is_ok();
    }
    for line in fs_err::read_to_string("/proc/self/status").unwrap_or_default().lines() {
        if let Some((key, value)) = line.split_once(':') {
            facts.status.insert(key.into(), value.trim().into());
        }
    }
    let entries = fs_err::read_dir("/proc").into_iter().flatten().flatten();
    facts.processes = entries
        .filter(|entry| {
            entry.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit)
        })
        .count();
    // With arguments that do no harm where the call is allowed.
    let calls = [
        ("ptrace", libc::SYS_ptrace, [0, 0, 0]),
        ("unshare", libc::SYS_unshare, [libc::CLONE_NEWUSER as usize, 0, 0]),
        ("mount", libc::SYS_mount, [0, 0, 0]),
        ("bpf", libc::SYS_bpf, [0, 0, 0]),
        ("keyctl", libc::SYS_keyctl, [0, 0, 0]),
        ("userfaultfd", libc::SYS_userfaultfd, [0, 0, 0]),
        ("io_uring", libc::SYS_io_uring_setup, [1, 0, 0]),
        (
            "socket(AF_INET)",
            libc::SYS_socket,
            [libc::AF_INET as usize, libc::SOCK_STREAM as usize, 0],
        ),
        (
            "socket(AF_NETLINK)",
            libc::SYS_socket,
            [libc::AF_NETLINK as usize, libc::SOCK_RAW as usize, 0],
        ),
    ];
    for (name, number, arguments) in calls {
        let refused = sys::attempt(number, arguments)
            .err()
            .and_then(|error| error.raw_os_error())
            .is_some_and(|errno| [libc::EPERM, libc::ENOSYS, libc::EAFNOSUPPORT].contains(&errno));
        if refused { facts.refused.push(name.into()) } else { facts.allowed.push(name.into()) }
    }
    match serde_json::to_vec(&facts) {
        Ok(line) if std::io::stdout().write_all(&line).is_ok() => 0,
        _ => 1,
    }
}
