//! Start, end and clean-up.
#![expect(clippy::disallowed_types, reason = "one test plays a caller that is killed")]

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use warpwright_jail::{JailError, Limits, Outcome, Output, Process, Spec, Stdin};

use crate::support::{
    assert_worked, attack, attack_program, eventually, folder, inside, jails, namespaces, outside,
    processes_of,
};

/// For what ends only when the test ends it: longer than [`eventually`] waits.
const LIFETIME: Duration = Duration::from_mins(10);

fn seconds(wall: f64) -> Limits {
    Limits { wall: Duration::from_secs_f64(wall), ..Limits::default() }
}

/// A program that runs until the other end of its input is closed.
fn until_closed(input: UnixStream) -> Spec {
    Spec::new("cat").with_system().stdin(Stdin::Descriptor(input.into()))
}

/// A daemon that no deadline ends.
fn daemon(heartbeat: &Path, folder: &Path) -> Spec {
    attack(["daemon", &heartbeat.display().to_string()])
        .read_write(folder)
        .limits(Limits { wall: LIFETIME, ..Limits::default() })
}

#[test]
fn outcome_reports_exit_code_or_signal() {
    for (backend, jail) in jails() {
        for (arguments, outcome) in [
            (vec!["exit", "0"], Outcome::Exited(0)),
            (vec!["exit", "42"], Outcome::Exited(42)),
            (vec!["abort"], Outcome::Signalled(libc::SIGABRT)),
        ] {
            assert_eq!(inside(&jail, attack(arguments)).outcome, outcome, "{}", backend.name());
        }
    }
}

#[test]
fn deadline_ends_daemons() {
    for (backend, jail) in jails() {
        let (_guard, folder) = folder();
        let heartbeat = folder.join("heartbeat");
        // A slow machine needs more time until the daemon lives.
        let lived = [0.6, 6.0, 60.0].into_iter().any(|wall| {
            let spec = attack(["daemon", &heartbeat.display().to_string()])
                .read_write(&folder)
                .limits(seconds(wall));
            let finished = inside(&jail, spec);
            assert_eq!(finished.outcome, Outcome::DeadlineExceeded, "{}", backend.name());
            heartbeat.exists()
        });
        assert!(lived, "{}: positive control", backend.name());
        assert!(eventually(|| processes_of(&heartbeat) == 0), "{}", backend.name());
    }
}

#[test]
fn daemons_end_with_the_program() {
    for (backend, jail) in jails() {
        let (_guard, folder) = folder();
        let heartbeat = folder.join("heartbeat");
        let script = format!(
            "'{}' daemon '{file}' & while [ ! -e '{file}' ]; do sleep 0.05; done; sleep 0.2",
            attack_program().display(),
            file = heartbeat.display()
        );
        let spec = Spec::new("sh")
            .args(["-c", &script])
            .with_system()
            .read_only(attack_program())
            .read_write(&folder);
        assert_worked(backend, &inside(&jail, spec));
        assert!(heartbeat.exists(), "{}: positive control", backend.name());
        assert!(eventually(|| processes_of(&heartbeat) == 0), "{}", backend.name());
    }
}

#[test]
fn program_ignoring_signals_can_be_killed_from_another_thread() {
    for (backend, jail) in jails() {
        let child = jail.spawn(attack(["deaf"])).expect("a jail");
        assert!(
            eventually(|| child.output_so_far().0.text().contains("deaf")),
            "{}",
            backend.name()
        );
        let killer = child.killer().expect("a killer");
        let thread = std::thread::spawn(move || killer.kill());
        let finished = child.wait().expect("the end");
        assert_eq!(finished.outcome, Outcome::Killed, "{}", backend.name());
        assert_eq!(finished.stdout.text().trim(), "deaf");
        thread.join().expect("the thread");
    }
}

#[test]
fn dropping_a_child_ends_all_processes() {
    for (backend, jail) in jails() {
        let (_guard, folder) = folder();
        let heartbeat = folder.join("heartbeat");
        let spec = daemon(&heartbeat, &folder);
        let mut child = jail.spawn(spec).expect("a jail");
        assert!(eventually(|| heartbeat.exists()));
        assert!(!child.try_wait().expect("its state"));
        assert!(child.pid() > 0);
        assert!(processes_of(&heartbeat) > 0, "{}: positive control", backend.name());
        drop(child);
        assert!(eventually(|| processes_of(&heartbeat) == 0), "{}", backend.name());
    }
}

/// The caller of [`jails_end_when_their_caller_is_killed`]; does nothing unless started by it.
#[test]
fn caller_to_be_killed() {
    let Some(folder) = std::env::var_os("JAIL_TEST_CALLER").map(std::path::PathBuf::from) else {
        return;
    };
    let jails = jails();
    let children: Vec<_> = jails
        .iter()
        .enumerate()
        .map(|(index, (_, jail))| {
            if let Some(server) = &jail.server {
                fs_err::write(folder.join("server"), server.pid().to_string()).expect("its id");
            }
            let heartbeat = folder.join(index.to_string());
            jail.spawn(daemon(&heartbeat, &folder)).expect("a jail")
        })
        .collect();
    std::thread::sleep(LIFETIME);
    drop(children);
}

#[test]
fn jails_end_when_their_caller_is_killed() {
    let (_guard, folder) = folder();
    let mut caller = std::process::Command::new(std::env::current_exe().expect("own path"))
        .args(["caller_to_be_killed", "--exact", "lifecycle::caller_to_be_killed"])
        .env("JAIL_TEST_CALLER", &folder)
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("the caller starts");
    let hearts: Vec<_> = (0..jails().len()).map(|index| folder.join(index.to_string())).collect();
    assert!(eventually(|| hearts.iter().all(|heart| heart.exists())));
    let server = fs_err::read_to_string(folder.join("server")).expect("one of them is a fork");
    let server = std::path::Path::new("/proc").join(server);
    assert!(server.exists(), "positive control");
    assert!(hearts.iter().all(|heart| processes_of(heart) > 0), "positive control");
    caller.kill().expect("kill -9");
    let caller_pid = caller.id();
    caller.wait().expect("its end");
    assert!(eventually(|| processes_of(&folder) == 0));
    assert!(eventually(|| !server.exists()), "nobody is left to ask it");
    // Nor is the private folder of the Landlock backend left.
    let prefix = format!("warpwright-jail-{caller_pid}-");
    let left = || {
        fs_err::read_dir(std::env::temp_dir())
            .expect("the folder of temporary files")
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
            .count()
    };
    assert!(eventually(|| left() == 0));
}

#[test]
fn jail_ends_when_its_supervisor_is_killed() {
    for (backend, jail) in namespaces() {
        let (_guard, folder) = folder();
        let heartbeat = folder.join("heartbeat");
        let child = jail.spawn(daemon(&heartbeat, &folder)).expect("a jail");
        assert!(eventually(|| heartbeat.exists()));
        assert!(processes_of(&heartbeat) > 0, "{}: positive control", backend.name());
        let status = fs_err::read_to_string(format!("/proc/{}/status", child.pid()))
            .expect("the first process");
        let supervisor =
            status.lines().find_map(|line| line.strip_prefix("PPid:")).expect("its parent").trim();
        assert_eq!(outside(&["kill", supervisor]).1, "killed");
        let error = child.wait().expect_err("nobody told the end");
        assert!(matches!(error, JailError::Supervisor { .. }), "{error}");
        assert!(eventually(|| processes_of(&heartbeat) == 0), "{}", backend.name());
    }
}

#[test]
fn stdin_is_the_given_input_or_empty() {
    for (backend, jail) in jails() {
        let spec = || Spec::new("cat").with_system();
        assert_eq!(assert_worked(backend, &inside(&jail, spec())), "");
        let bytes: Vec<u8> =
            std::iter::repeat_n(b"0123456789".iter().copied(), 50_000).flatten().collect();
        let finished = inside(&jail, spec().stdin(Stdin::Bytes(bytes.clone())));
        assert_eq!(finished.stdout.bytes, bytes, "{}", backend.name());

        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(b"said through a socket").unwrap();
        drop(ours);
        let finished = inside(&jail, spec().stdin(Stdin::Descriptor(theirs.into())));
        assert_eq!(assert_worked(backend, &finished), "said through a socket");
    }
}

#[test]
fn failed_start_is_a_setup_error_that_names_the_step() {
    for (backend, jail) in jails() {
        // A fork has started: what it executes is its own affair.
        if jail.server.is_none() {
            let error =
                jail.run(Spec::new("no-such-program").with_system()).expect_err("nothing to run");
            assert!(
                matches!(&error, JailError::Setup { step, .. } if step.contains("no-such-program")),
                "{error}"
            );
            assert!(error.hint().is_some(), "{}", backend.name());
        }
        let error = jail.run(attack(["exit"]).cwd("/no/such/folder")).expect_err("nowhere to run");
        assert!(
            matches!(&error, JailError::Setup { step, .. } if step.contains("/no/such/folder")),
            "{error}"
        );
        let error = jail.run(attack(["exit"]).cwd("relative")).expect_err("nowhere to run");
        assert!(matches!(&error, JailError::Spec { .. }), "{error}");
    }
}

#[test]
fn elapsed_time_is_that_of_the_program() {
    let pause = Duration::from_millis(100);
    for (backend, jail) in jails() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let begun = Instant::now();
        let child = jail.spawn(until_closed(theirs)).expect("a jail");
        // It has started, and ends after the pause.
        std::thread::sleep(pause);
        drop(ours);
        let finished = child.wait().expect("its end");
        let whole = begun.elapsed();
        assert_worked(backend, &finished);
        let elapsed = finished.elapsed;
        assert!((pause..=whole).contains(&elapsed), "{}: {elapsed:?}", backend.name());
    }
}

#[test]
fn sixteen_jails_run_concurrently() {
    for (backend, jail) in jails() {
        let (inputs, mut children): (Vec<_>, Vec<_>) = (0..16)
            .map(|_| {
                let (ours, theirs) = UnixStream::pair().expect("a pair");
                (ours, jail.spawn(until_closed(theirs)).expect("a jail"))
            })
            .unzip();
        assert!(children.iter_mut().all(|child| !child.try_wait().expect("its state")));
        drop(inputs);
        for child in children {
            assert_worked(backend, &child.wait().expect("its end"));
        }
    }
}

#[test]
fn killing_a_process_ends_its_descendants_only() {
    for (backend, jail) in jails() {
        let (_guard, folder) = folder();
        let (read, write) = std::io::pipe().expect("a pipe");
        let script = "sleep 300 & (sleep 300; sleep 300) & echo ready > ready; wait; echo over";
        let spec = Spec::new("bash")
            .args(["-c", script])
            .with_system()
            .read_write(&folder)
            .cwd(&folder)
            .output(Output::Descriptor(write.into()));
        let mut child = jail.spawn(spec).expect("it starts");
        assert!(eventually(|| folder.join("ready").exists()), "{}", backend.name());
        // The program is the oldest below the jail's first process, however many the backend has.
        let mut program = Process::open(child.pid(), child.pid()).expect("the first process");
        while program.children().len() == 1 {
            program = program.children().remove(0);
        }
        assert_eq!(program.children().len(), 2, "{}", backend.name());
        let newest = program.children().remove(0);
        assert!(eventually(|| newest.children().len() == 1), "{}", backend.name());
        let grandchild = newest.children().remove(0);
        newest.kill_all();
        let ended = eventually(|| !newest.is_alive() && !grandchild.is_alive());
        assert!(ended, "{}", backend.name());
        let left = program.children();
        assert_eq!(left.len(), 1, "{}: the older one goes on", backend.name());
        left[0].kill_all();
        assert!(child.wait_timeout(Duration::from_mins(1)).expect("its end"));
        let finished = child.wait().expect("how it ended");
        assert_eq!(finished.outcome, Outcome::Exited(0), "{}", backend.name());
        assert!(finished.stdout.bytes.is_empty(), "it went elsewhere");
        let said = std::io::read_to_string(read).expect("what it printed");
        assert!(said.ends_with("over\n"), "{}: {said}", backend.name());
        let own = Process::open(1, std::process::id());
        assert!(own.is_ok(), "positive control: everything is below process 1");
        let other = Process::open(std::process::id(), 1);
        assert!(other.expect_err("not in the jail").to_string().contains("not in this jail"));
    }
}
