//! The system call filter: everything is allowed except what a compiler, a shell, Python or CUDA never
//! needs and an attacker would like.
//!
//! Written as plain BPF because two things must come before any list: refusing the x32 numbers, which
//! would walk past a list of x86-64 numbers, and refusing foreign architectures.

use std::io;

use libc::{c_long, sock_filter};

use crate::spec::Network;
use crate::sys;

const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const ANY_BIT: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;

const NUMBER_OFFSET: u32 = 0;
const ARCHITECTURE_OFFSET: u32 = 4;
/// Low half of argument `n` (both architectures here are little-endian).
const fn argument(n: u32) -> u32 {
    16 + 8 * n
}

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;

/// Numbers from here on belong to the x32 ABI on x86-64; no other architecture uses them.
const X32: u32 = 0x4000_0000;

const NEW_NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;

/// set-user-id and set-group-id: a writable mount would carry such a file out of the jail.
const SET_ID_BITS: u32 = 0o6000;

/// Refused with EPERM, beside [`MAKING_JAILS`].
const FORBIDDEN: &[c_long] = &[
    // other processes
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    // the file system's layout
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    SYS_OPEN_TREE_ATTR,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    // namespaces
    libc::SYS_unshare,
    libc::SYS_setns,
    // keys
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // the kernel
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_kexec_file_load,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_uselib,
];

/// Refused with ENOSYS, so that programs fall back: their arguments lie in memory, out of a filter's sight
/// (clone3, openat2), or are a second way to make system calls (`io_uring`).
const UNKNOWN: &[c_long] = &[
    libc::SYS_clone3,
    libc::SYS_openat2,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// System call, argument, refused when any of these bits is set.
const FORBIDDEN_BITS: &[(c_long, u32, u32)] = &[
    (libc::SYS_clone, 0, NEW_NAMESPACES),
    (libc::SYS_fchmod, 1, SET_ID_BITS),
    (libc::SYS_fchmodat, 2, SET_ID_BITS),
    (SYS_FCHMODAT2, 2, SET_ID_BITS),
    (libc::SYS_mknodat, 2, SET_ID_BITS),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1, SET_ID_BITS),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1, SET_ID_BITS),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1, SET_ID_BITS),
];

/// Newer than libc's list; the same number on every architecture.
const SYS_FCHMODAT2: c_long = 452;
const SYS_OPEN_TREE_ATTR: c_long = 467;

/// Opening calls: (call, argument with the flags, argument with the mode). The mode counts only when a file
/// may be created; otherwise the register holds rubbish.
const OPENING: &[(c_long, u32, u32)] = &[
    (libc::SYS_openat, 2, 3),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1, 2),
];
const CREATES: u32 = (libc::O_CREAT | (libc::O_TMPFILE & !libc::O_DIRECTORY)) as u32;

/// Terminal requests that push input into whoever started us.
const FORBIDDEN_IOCTLS: [u32; 2] = [libc::TIOCSTI as u32, 0x541C /* TIOCLINUX */];

fn step(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

fn refuse(errno: i32) -> sock_filter {
    step(RETURN, libc::SECCOMP_RET_ERRNO | errno as u32, 0, 0)
}

/// Refused like [`FORBIDDEN`] to all but those who make jails.
const MAKING_JAILS: &[c_long] = &[
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_mount_setattr,
    libc::SYS_sethostname,
];

/// Refused like [`FORBIDDEN`] to programs that may make no timers.
const MAKING_TIMERS: &[c_long] = &[libc::SYS_timer_create, libc::SYS_timerfd_create];

/// The filter of a jail's program.
pub(super) fn filter(network: Network, timers: bool) -> Vec<sock_filter> {
    let making_timers = if timers { &[] } else { MAKING_TIMERS };
    build(&[FORBIDDEN, MAKING_JAILS, making_timers].concat(), FORBIDDEN_BITS, network)
}

/// The filter of a fork server: it makes jails, and otherwise needs no more than a program inside one.
pub(crate) fn server_filter() -> Vec<sock_filter> {
    let bits: Vec<_> =
        FORBIDDEN_BITS.iter().filter(|entry| entry.0 != libc::SYS_clone).copied().collect();
    build(FORBIDDEN, &bits, Network::None)
}

/// A filter, in the order in which it decides.
fn build(
    forbidden: &[c_long],
    forbidden_bits: &[(c_long, u32, u32)],
    network: Network,
) -> Vec<sock_filter> {
    let allow = step(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0);
    let mut code = vec![
        step(LOAD, ARCHITECTURE_OFFSET, 0, 0),
        step(EQUAL, ARCHITECTURE, 1, 0),
        step(RETURN, libc::SECCOMP_RET_KILL_PROCESS, 0, 0),
        step(LOAD, NUMBER_OFFSET, 0, 0),
        step(AT_LEAST, X32, 0, 1),
        refuse(libc::ENOSYS),
    ];
    for &(list, errno) in &[(forbidden, libc::EPERM), (UNKNOWN, libc::ENOSYS)] {
        for &number in list {
            code.extend([step(EQUAL, number as u32, 0, 1), refuse(errno)]);
        }
    }
    for &(number, index, bits) in forbidden_bits {
        code.extend([
            step(EQUAL, number as u32, 0, 4),
            step(LOAD, argument(index), 0, 0),
            step(ANY_BIT, bits, 0, 1),
            refuse(libc::EPERM),
            allow,
        ]);
    }
    for &(number, flags, mode) in OPENING {
        code.extend([
            step(EQUAL, number as u32, 0, 6),
            step(LOAD, argument(flags), 0, 0),
            step(ANY_BIT, CREATES, 0, 3),
            step(LOAD, argument(mode), 0, 0),
            step(ANY_BIT, SET_ID_BITS, 0, 1),
            refuse(libc::EPERM),
            allow,
        ]);
    }
    // Unix sockets only: no address family of a network, nor netlink, packet, vsock. With a loopback
    // of its own also IPv4, which leads nowhere else there.
    let second = match network {
        Network::None => libc::AF_UNIX,
        Network::Loopback => libc::AF_INET,
    };
    code.extend([
        step(EQUAL, libc::SYS_socket as u32, 0, 5),
        step(LOAD, argument(0), 0, 0),
        step(EQUAL, libc::AF_UNIX as u32, 2, 0),
        step(EQUAL, second as u32, 1, 0),
        refuse(libc::EAFNOSUPPORT),
        allow,
    ]);
    code.push(step(EQUAL, libc::SYS_ioctl as u32, 0, 1 + 2 * FORBIDDEN_IOCTLS.len() as u8));
    code.push(step(LOAD, argument(1), 0, 0));
    for request in FORBIDDEN_IOCTLS {
        code.extend([step(EQUAL, request, 0, 1), refuse(libc::EPERM)]);
    }
    code.push(allow);
    code
}

/// Loads the filter into this process, for good, and for all it starts.
pub(super) fn load(network: Network, timers: bool) -> io::Result<()> {
    sys::load_filter(&filter(network, timers))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;

    /// Runs the filter as the kernel would: the independent reading of the jump offsets.
    fn decide(architecture: u32, number: u32, arguments: [u32; 6]) -> u32 {
        decide_with(&filter(Network::None, true), architecture, number, arguments)
    }

    fn decide_with(
        code: &[sock_filter],
        architecture: u32,
        number: u32,
        arguments: [u32; 6],
    ) -> u32 {
        let mut accumulator = 0;
        let mut at = 0;
        loop {
            let instruction = code[at];
            at += 1;
            let jump =
                |taken: bool| usize::from(if taken { instruction.jt } else { instruction.jf });
            match instruction.code {
                RETURN => return instruction.k,
                LOAD => {
                    accumulator = match instruction.k {
                        0 => number,
                        4 => architecture,
                        // High halves hold rubbish here, as the kernel would ignore them for these calls.
                        offset => match (offset - 16) % 8 {
                            0 => arguments[((offset - 16) / 8) as usize],
                            _ => u32::MAX,
                        },
                    }
                }
                EQUAL => at += jump(accumulator == instruction.k),
                AT_LEAST => at += jump(accumulator >= instruction.k),
                ANY_BIT => at += jump(accumulator & instruction.k != 0),
                other => panic!("instruction {other}"),
            }
        }
    }

    fn call(number: c_long, arguments: [u32; 6]) -> u32 {
        decide(ARCHITECTURE, number as u32, arguments)
    }

    fn errno(errno: i32) -> u32 {
        libc::SECCOMP_RET_ERRNO | errno as u32
    }

    #[test]
    fn only_listed_system_calls_are_refused() {
        let special: Vec<u32> = FORBIDDEN_BITS
            .iter()
            .map(|entry| entry.0)
            .chain(OPENING.iter().map(|entry| entry.0))
            .chain([libc::SYS_socket, libc::SYS_ioctl])
            .map(|number| number as u32)
            .collect();
        let forbidden = [FORBIDDEN, MAKING_JAILS].concat();
        for number in 0..1000_u32 {
            let expected = if forbidden.contains(&c_long::from(number)) {
                errno(libc::EPERM)
            } else if UNKNOWN.contains(&c_long::from(number)) {
                errno(libc::ENOSYS)
            } else if c_long::from(number) == libc::SYS_socket {
                errno(libc::EAFNOSUPPORT)
            } else {
                ALLOW
            };
            assert_eq!(decide(ARCHITECTURE, number, [0; 6]), expected, "call {number}");
            // Even with every bit of every argument set, only the calls with conditions change.
            if !special.contains(&number) {
                assert_eq!(decide(ARCHITECTURE, number, [u32::MAX; 6]), expected, "call {number}");
            }
        }
    }

    #[test]
    fn timers_are_refused_unless_allowed() {
        let without = filter(Network::None, false);
        for number in [libc::SYS_timer_create, libc::SYS_timerfd_create] {
            assert_eq!(call(number, [0; 6]), ALLOW, "call {number}");
            let refused = decide_with(&without, ARCHITECTURE, number as u32, [0; 6]);
            assert_eq!(refused, errno(libc::EPERM), "call {number}");
        }
        let sleeps = decide_with(&without, ARCHITECTURE, libc::SYS_nanosleep as u32, [0; 6]);
        assert_eq!(sleeps, ALLOW);
    }

    #[test]
    fn other_architectures_and_x32_calls_are_refused() {
        assert_eq!(
            decide(0x4000_0003, libc::SYS_getpid as u32, [0; 6]),
            libc::SECCOMP_RET_KILL_PROCESS
        );
        assert_eq!(call(c_long::from(X32) + libc::SYS_getpid, [0; 6]), errno(libc::ENOSYS));
        assert_eq!(call(c_long::from(X32) + libc::SYS_ptrace, [0; 6]), errno(libc::ENOSYS));
    }

    #[test]
    fn conditions_check_the_correct_argument() {
        let with = |index: usize, value: u32| {
            let mut arguments = [0; 6];
            arguments[index] = value;
            arguments
        };
        let refused = errno(libc::EPERM);
        for flag in [libc::CLONE_NEWUSER, libc::CLONE_NEWNS, libc::CLONE_NEWPID, libc::CLONE_NEWNET]
        {
            assert_eq!(call(libc::SYS_clone, with(0, (flag | libc::SIGCHLD) as u32)), refused);
        }
        assert_eq!(
            call(libc::SYS_clone, with(0, (libc::CLONE_VM | libc::CLONE_THREAD) as u32)),
            ALLOW
        );
        assert_eq!(call(libc::SYS_fchmodat, with(2, 0o4755)), refused);
        assert_eq!(call(libc::SYS_fchmodat, with(2, 0o2755)), refused);
        assert_eq!(call(libc::SYS_fchmodat, with(2, 0o1777)), ALLOW);
        let open = |flags: i32, mode: u32| {
            let mut arguments = [0; 6];
            (arguments[2], arguments[3]) = (flags as u32, mode);
            call(libc::SYS_openat, arguments)
        };
        assert_eq!(open(libc::O_CREAT | libc::O_WRONLY, 0o4755), refused);
        assert_eq!(open(libc::O_TMPFILE | libc::O_RDWR, 0o4755), refused);
        assert_eq!(open(libc::O_CREAT | libc::O_WRONLY, 0o755), ALLOW);
        // Without creation the mode's register is not an argument.
        assert_eq!(open(libc::O_RDONLY, 0o4755), ALLOW);
        assert_eq!(open(libc::O_DIRECTORY, 0o4755), ALLOW);
        for family in
            [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK, libc::AF_PACKET, libc::AF_VSOCK]
        {
            assert_eq!(call(libc::SYS_socket, with(0, family as u32)), errno(libc::EAFNOSUPPORT));
        }
        assert_eq!(call(libc::SYS_socket, with(0, libc::AF_UNIX as u32)), ALLOW);
        let loopback = filter(Network::Loopback, true);
        let with_loopback = |family: i32| {
            let number = libc::SYS_socket as u32;
            decide_with(&loopback, ARCHITECTURE, number, with(0, family as u32))
        };
        assert_eq!([libc::AF_UNIX, libc::AF_INET].map(with_loopback), [ALLOW; 2]);
        for family in [libc::AF_INET6, libc::AF_NETLINK, libc::AF_PACKET, libc::AF_VSOCK] {
            assert_eq!(with_loopback(family), errno(libc::EAFNOSUPPORT));
        }
        for request in FORBIDDEN_IOCTLS {
            assert_eq!(call(libc::SYS_ioctl, with(1, request)), refused);
        }
        assert_eq!(call(libc::SYS_ioctl, with(1, libc::TIOCGWINSZ as u32)), ALLOW);
    }
}
