//! Programs forked from a prepared process: the state that they inherit, and their end. All other
//! attacks run in forks too, see `support::jails`.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use warpwright_jail::{Backend, ForkServer, Jail, JailError, Limits, Outcome, Spec, Stdin};

use crate::support::{
    assert_refused, assert_worked, attack, eventually, forks, inside, jails, outside, warm,
};

const PATIENCE: Duration = Duration::from_mins(2);

fn bounded(bytes: u64) -> Limits {
    Limits { memory_bytes: Some(bytes), ..Limits::default() }
}

#[test]
fn fork_inherits_only_memory_from_its_parent() {
    for (backend, jail) in forks() {
        let server = jail.server().pid();
        let status =
            |pid: u32| fs_err::read_to_string(format!("/proc/{pid}/status")).expect("its state");
        jail.server().ready(PATIENCE).expect("it is ready");
        // The control: the parent has all this.
        let parent = status(server);
        let user_signals = |name: &str| {
            let line = parent.lines().find_map(|line| line.strip_prefix(name));
            let mask = u64::from_str_radix(line.expect("a mask").trim(), 16).expect("a number");
            (mask >> (libc::SIGUSR1 - 1) & 1, mask >> (libc::SIGUSR2 - 1) & 1)
        };
        assert_eq!([user_signals("SigIgn:"), user_signals("SigCgt:")], [(1, 0), (0, 1)]);
        assert!(parent.contains("SigBlk:\t0000000000004000"), "{parent}");
        let open = fs_err::read_dir(format!("/proc/{server}/fd")).expect("its files").count();
        assert!(open > 3, "{open}");
        let (read, write) = std::io::pipe().expect("a pipe");
        let spec = attack(["as-is", "state"]).fd(write, 7);
        let said = assert_worked(backend, &inside(&jail, spec));
        drop(read);
        assert_eq!(
            said,
            "[0, 1, 2, 7] /tmp 022 own true [0, 0, 0] \
             [\"1\", \"0000000000000000\", \"1\", \"2\"]",
            "{}",
            backend.name()
        );
    }
}

#[test]
fn fork_cannot_change_the_parents_executable() {
    for (backend, jail) in forks() {
        let program = warm(&[]).program;
        let mode = fs_err::metadata(&program).expect("its mode").permissions();
        fs_err::set_permissions(&program, mode).expect("positive control: its owner may");
        let finished = inside(&jail, attack(["as-is", "change-executable"]));
        let said = assert_worked(backend, &finished);
        assert_eq!(said.matches("Err(").count(), 2, "{}: {said}", backend.name());
        assert!(said.starts_with("Err(Os { code: 30"), "{}: {said}", backend.name());
    }
}

#[test]
fn fork_cannot_see_or_kill_its_parent_or_another_fork() {
    for (backend, jail) in forks() {
        let marker = "434343";
        let first = jail.spawn(attack(["sleep", marker])).expect("the first");
        let parent = jail.server().pid().to_string();
        assert!(eventually(|| outside(&["processes"]).1.contains(marker)), "positive control");
        let said = assert_worked(backend, &inside(&jail, attack(["processes"])));
        assert!(!said.contains(marker), "{}: {said}", backend.name());
        for victim in [parent, first.pid().to_string()] {
            let finished = inside(&jail, attack(["kill", &victim]));
            assert_refused(backend, &finished, &["No such process", "Operation not permitted"]);
        }
        assert!(jail.server().is_alive());
    }
}

/// The parent has 96 MiB that a fork shares. They do not count towards the fork's limit.
#[test]
fn memory_limit_excludes_pages_shared_with_the_parent() {
    for (backend, jail) in forks() {
        let hold = |bytes: u64, bound: u64, milliseconds: &str| {
            let spec = attack(["as-is", "hold", &bytes.to_string(), milliseconds]);
            inside(&jail, spec.limits(bounded(bound)))
        };
        assert_worked(backend, &hold(40 << 20, 64 << 20, "300"));
        // Until the jail ends it.
        let finished = hold(120 << 20, 64 << 20, "600000");
        let name = backend.name();
        assert_eq!(finished.outcome, Outcome::OutOfMemory, "{name}: {}", finished.stdout.text());
        // The control: with a higher bound it works.
        assert_worked(backend, &hold(120 << 20, 256 << 20, "300"));
    }
}

#[test]
fn forks_outlive_their_parent_and_new_ones_fail() {
    for (backend, jail) in forks() {
        let (mut ours, theirs) = UnixStream::pair().expect("a pair");
        let spec = Spec::new("cat").with_system().stdin(Stdin::Descriptor(theirs.into()));
        let child = jail.spawn(spec).expect("a fork");
        jail.server().kill();
        assert!(eventually(|| !jail.server().is_alive()));
        let error = jail.spawn(attack(["exit", "0"])).expect_err("nothing to fork");
        assert!(matches!(&error, JailError::Fork { .. }), "{error}");
        ours.write_all(b"said after its parent's end").expect("it reads");
        drop(ours);
        let finished = child.wait().expect("its end");
        assert_eq!(assert_worked(backend, &finished), "said after its parent's end");
    }
}

#[test]
fn fork_server_with_two_threads_refuses_to_start() {
    for (_, jail) in forks() {
        let server = ForkServer::start(&jail.jail, &warm(&["two-threads"])).expect("it starts");
        let error = server.ready(PATIENCE).expect_err("a fork would have one thread only");
        assert!(error.to_string().contains("it has 2 threads"), "{error}");
        assert!(eventually(|| !server.is_alive()));
    }
}

#[test]
fn fork_server_is_refused_on_backends_without_forks() {
    for (backend, place) in jails() {
        if matches!(backend, Backend::Bubblewrap | Backend::Landlock) {
            let error = ForkServer::start(&place.jail, &warm(&[])).expect_err("it cannot");
            assert!(error.to_string().contains(backend.name()), "{error}");
        }
    }
}

#[test]
fn failed_fork_server_start_names_the_cause() {
    let (_, jail) = forks().remove(0);
    let mut nowhere = warm(&[]);
    nowhere.program = "/no/such/program".into();
    let error = ForkServer::start(&jail.jail, &nowhere).expect_err("nothing to start");
    assert!(error.to_string().contains("/no/such/program"), "{error}");
    let mut other = warm(&[]);
    other.program = "/bin/sh".into();
    other.args = vec!["-c".into(), "echo not a server >&2".into()];
    let server = ForkServer::start(&jail.jail, &other).expect("it starts");
    let error = server.ready(PATIENCE).expect_err("it ends");
    assert!(error.to_string().contains("not a server"), "{error}");
}

/// The server's system calls: no sockets except Unix ones, and none that inspect other processes.
#[test]
fn fork_server_has_no_network_and_one_seccomp_filter() {
    for (backend, jail) in forks() {
        jail.server().ready(PATIENCE).expect("it is ready");
        let pid = jail.server().pid();
        let status = fs_err::read_to_string(format!("/proc/{pid}/status")).expect("its state");
        let stat = fs_err::read_to_string(format!("/proc/{pid}/stat")).expect("its state");
        assert_eq!(stat.split(' ').nth(5), Some(pid.to_string().as_str()), "its own session");
        assert!(status.contains("Seccomp:\t2") && status.contains("NoNewPrivs:\t1"), "{status}");
        for namespace in ["net", "ipc", "mnt"] {
            let of = |pid: &str| fs_err::read_link(format!("/proc/{pid}/ns/{namespace}"));
            let theirs = of(&pid.to_string()).expect("its namespace");
            assert_ne!(theirs, of("self").expect("ours"), "{}", backend.name());
        }
    }
}

/// See docs/decisions/0019.
#[test]
fn long_start_times_of_every_backend_are_printed() {
    for (backend, place) in jails() {
        let way = if place.server.is_some() { "forked" } else { "executed" };
        let mut seconds: Vec<f64> = (0..20)
            .map(|_| {
                let start = Instant::now();
                assert_worked(backend, &inside(&place, attack(["exit", "0"])));
                start.elapsed().as_secs_f64()
            })
            .collect();
        seconds.sort_by(f64::total_cmp);
        println!("{} {way}: {:.1} ms", backend.name(), 1e3 * seconds[10]);
    }
    assert!(Jail::detect(warpwright_jail::Requirement::Any).is_ok());
}
