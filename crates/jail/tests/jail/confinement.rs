//! Resources that jailed code cannot reach: the network, other processes, privileges, the caller's
//! environment.

use std::net::TcpListener;
use std::time::Duration;

use warpwright_jail::{Backend, JailError, Network, Outcome};

use crate::support::{
    Victim, assert_refused, assert_worked, attack, eventually, folder, inside, is_root, jails,
    namespaces, outside,
};

#[test]
fn jailed_program_has_no_network() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a listener");
    let port = listener.local_addr().expect("its address").port().to_string();
    assert_eq!(outside(&["connect", &port]), (true, "connected".into()));
    for (backend, jail) in jails() {
        let finished = inside(&jail, attack(["connect", &port]));
        assert_refused(backend, &finished, &["Address family not supported"]);
    }
}

/// A private loopback: the jail reaches itself, and not the host's listener.
#[test]
fn private_loopback_cannot_reach_the_host() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a listener");
    let port = listener.local_addr().expect("its address").port().to_string();
    assert_eq!(outside(&["connect", &port]), (true, "connected".into()));
    for (backend, jail) in jails() {
        let own = || attack(["connect-own"]);
        assert_refused(backend, &inside(&jail, own()), &["Address family not supported"]);
        if !jail.has_own_network() {
            let refused = jail.run(own().network(Network::Loopback));
            assert!(matches!(refused, Err(JailError::Spec { .. })), "{refused:?}");
            continue;
        }
        let said = assert_worked(backend, &inside(&jail, own().network(Network::Loopback)));
        assert_eq!(said, "connected");
        let outwards = attack(["connect", &port]).network(Network::Loopback);
        assert_refused(backend, &inside(&jail, outwards), &["Connection refused"]);
    }
}

#[test]
fn mounted_unix_socket_can_be_used() {
    for (backend, jail) in jails() {
        let (_guard, folder) = folder();
        let path = folder.join("judge.sock");
        let listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
        let server = std::thread::spawn(move || {
            use std::io::{Read as _, Write as _};
            let (mut stream, _) = listener.accept().expect("a caller");
            let mut said = String::new();
            stream.read_to_string(&mut said).expect("its words");
            stream.write_all(format!("{said} pong").as_bytes()).expect("an answer");
        });
        let name = path.display().to_string();
        let finished = inside(&jail, attack(["connect-unix", &name]).read_write(&path));
        assert_eq!(assert_worked(backend, &finished), "ping pong");
        server.join().expect("the server");
        // Not named: not there.
        assert_ne!(
            inside(&jail, attack(["connect-unix", &name])).outcome,
            Outcome::Exited(0),
            "{}",
            backend.name()
        );
    }
}

#[test]
fn processes_outside_cannot_be_killed() {
    let mut victim = Victim::start();
    assert_eq!(outside(&["kill", &victim.pid()]).1, "killed");
    assert!(victim.has_died());
    for (backend, jail) in jails() {
        let mut victim = Victim::start();
        let finished = inside(&jail, attack(["kill", &victim.pid()]));
        assert_refused(backend, &finished, &["No such process", "Operation not permitted"]);
        assert!(victim.is_alive());
    }
}

#[test]
fn dangerous_system_calls_are_refused() {
    let (_guard, folder) = folder();
    let target = folder.display().to_string();
    let user_namespace = libc::CLONE_NEWUSER.to_string();
    for arguments in [vec!["ptrace"], vec!["mount", &target], vec!["unshare", &user_namespace]] {
        let (worked, said) = outside(&arguments);
        assert!(worked, "{arguments:?} outside: {said}");
        for (backend, jail) in jails() {
            let finished = inside(&jail, attack(arguments.clone()).read_only(&folder));
            assert_refused(backend, &finished, &["Operation not permitted"]);
        }
    }
}

#[test]
fn program_has_no_capabilities_and_its_own_user() {
    for (backend, jail) in jails() {
        let finished = inside(&jail, attack(["read", "/proc/self/status"]));
        let said = assert_worked(backend, &finished);
        let field = |name: &str| {
            said.lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap_or_else(|| panic!("no {name}: {said}"))
                .trim()
        };
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
            assert_eq!(u64::from_str_radix(field(set), 16), Ok(0), "{} {set}", backend.name());
        }
        assert_eq!((field("NoNewPrivs:"), field("Seccomp:")), ("1", "2"));
        let uid: u32 = field("Uid:")
            .split_whitespace()
            .next()
            .and_then(|uid| uid.parse().ok())
            .expect("a number");
        match backend {
            Backend::Namespaces => {
                assert!(uid > 0x6000_0000, "{uid}");
                assert_eq!(u64::from_str_radix(field("CapBnd:"), 16), Ok(0));
            }
            Backend::Landlock if is_root() => {}
            _ => assert_eq!(uid, 65534),
        }
    }
}

#[test]
fn two_jails_cannot_see_each_other() {
    for (backend, jail) in namespaces() {
        let marker = "424242";
        let mut first = jail.spawn(attack(["sleep", marker])).expect("the first jail");
        // The control: from outside it is visible.
        assert!(eventually(|| outside(&["processes"]).1.contains(marker)));
        let said = assert_worked(backend, &inside(&jail, attack(["processes"])));
        assert!(
            said.contains("attack processes") && !said.contains(marker),
            "{}: {said}",
            backend.name()
        );
        assert!(!first.wait_timeout(Duration::ZERO).expect("its state"));
    }
}

#[test]
fn only_the_given_environment_is_inherited() {
    for (backend, jail) in jails() {
        let said =
            assert_worked(backend, &inside(&jail, attack(["environment"]).env("GIVEN", "yes")));
        let mut names: Vec<&str> = said.lines().filter_map(|line| line.split('=').next()).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            ["GIVEN", "HOME", "LANG", "PATH", "TMPDIR", "USER"],
            "{}",
            backend.name()
        );
        // The control: this process has more to give away.
        assert!(std::env::vars().count() > 6 || std::env::var_os("CARGO_MANIFEST_DIR").is_none());
    }
}

#[test]
fn only_given_descriptors_are_open_at_their_numbers() {
    let (_guard, folder) = folder();
    fs_err::write(folder.join("secret"), "a secret").expect("a file");
    // Kept open across exec, as a careless library would: the worst case.
    let careless = fs_err::File::open(folder.join("secret")).expect("a file");
    let careless = duplicate_that_survives_exec(&careless);
    assert!(outside(&["descriptors"]).1.contains(&careless.to_string()));
    for (backend, jail) in jails() {
        let open = |name: &str| {
            fs_err::write(folder.join(name), name).expect("a file");
            fs_err::File::open(folder.join(name)).expect("a file").into_parts().0
        };
        // Crossing numbers: each target may be the number of another source.
        let spec = |action: &str| {
            attack(action.split(' '))
                .fd(open("third"), 4)
                .fd(open("fourth"), 3)
                .fd(open("tenth"), 10)
        };
        let said = assert_worked(backend, &inside(&jail, spec("descriptors")));
        assert_eq!(said, "[0, 1, 2, 3, 4, 10]", "{}", backend.name());
    }
}

/// A descriptor that survives exec.
fn duplicate_that_survives_exec(file: &fs_err::File) -> i32 {
    use std::os::fd::AsRawFd as _;
    #[expect(unsafe_code, reason = "std marks every descriptor to be closed")]
    // SAFETY: a valid descriptor; the copy is leaked on purpose.
    unsafe {
        libc::dup(file.as_raw_fd())
    }
}

#[test]
fn honest_programs_have_what_they_need() {
    for (backend, jail) in jails() {
        let mut actions = vec!["memory-file", "standard-output"];
        if backend != Backend::Landlock {
            actions.extend(["shared-memory", "name"]);
        }
        for action in actions {
            assert_worked(backend, &inside(&jail, attack([action])));
        }
    }
}

#[test]
fn graphics_mode_keeps_shared_memory_and_thread_names() {
    for (backend, jail) in jails() {
        for action in ["shared-memory", "name", "memory-file"] {
            let spec = attack([action]).gpu(warpwright_jail::Gpu::All);
            assert_worked(backend, &inside(&jail, spec));
        }
        assert_worked(
            backend,
            &inside(&jail, attack(["list", "/sys/class"]).gpu(warpwright_jail::Gpu::All)),
        );
    }
}
