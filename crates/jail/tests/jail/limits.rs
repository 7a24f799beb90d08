//! Limits on the whole process tree.

use std::time::Duration;

use warpwright_jail::{Backend, Limits, Outcome, Spec};
use warpwright_test_support::{Need, missing};

use crate::support::{
    assert_refused, assert_worked, attack, folder, inside, jails, namespaces, outside,
};

/// Milliseconds for which a program holds too much memory: until the jail ends it.
const HOLD: &str = "600000";

#[test]
fn process_count_is_bounded() {
    assert_eq!(outside(&["fork", "200"]), (true, "200".into()));
    for (backend, jail) in jails() {
        if backend == Backend::Landlock
            && jail.isolation().enforced.iter().any(|claim| claim == "processes: unbounded")
        {
            // Root without control groups.
            missing(Need::Cgroup);
            continue;
        }
        let limits = Limits { processes: 20, ..Limits::default() };
        let finished = inside(&jail, attack(["fork", "200"]).limits(limits));
        assert_refused(backend, &finished, &["Resource temporarily unavailable"]);
        let said = finished.stdout.text();
        let count: u32 =
            said.split(' ').next().and_then(|count| count.parse().ok()).expect("a count");
        // Without a user id of its own the jail's share is counted beside what the user runs elsewhere.
        let most = if backend == Backend::Landlock { 100 } else { 20 };
        assert!((1..=most).contains(&count), "{}: {said}", backend.name());
    }
}

#[test]
fn yielding_program_has_a_lower_priority() {
    for (backend, jail) in jails() {
        let niceness = |yields| {
            let limits = Limits { yields, ..Limits::default() };
            let finished = inside(&jail, Spec::new("/usr/bin/nice").with_system().limits(limits));
            assert_worked(backend, &finished);
            finished.stdout.text().trim().parse::<i32>().expect("a number")
        };
        let usual = niceness(false);
        assert_eq!(niceness(true), (usual + 10).min(19), "{}", backend.name());
    }
}

#[test]
fn timers_work_only_if_allowed() {
    for (backend, jail) in jails() {
        for kind in ["signal", "descriptor"] {
            let made = |timers| {
                let limits = Limits { timers, ..Limits::default() };
                inside(&jail, attack(["timer", kind]).limits(limits))
            };
            assert_worked(backend, &made(true));
            assert_refused(backend, &made(false), &["Operation not permitted"]);
        }
    }
}

#[test]
fn memory_of_one_process_is_bounded() {
    let (small, large) = ((32_u64 << 20).to_string(), (768_u64 << 20).to_string());
    for (backend, jail) in jails() {
        let limits = || Limits { memory_bytes: Some(256 << 20), ..Limits::default() };
        let finished = inside(&jail, attack(["memory", &small]).limits(limits()));
        assert_worked(backend, &finished);
        let peak = finished.peak_memory_bytes.expect("a peak");
        assert!((32 << 20..64 << 20).contains(&peak), "{}: {peak}", backend.name());
        // The control: without the limit it works.
        assert_worked(backend, &inside(&jail, attack(["memory", &(320_u64 << 20).to_string()])));
        let finished = inside(&jail, attack(["memory", &large, HOLD]).limits(limits()));
        assert_eq!(
            finished.outcome,
            Outcome::OutOfMemory,
            "{}: {}",
            backend.name(),
            finished.stdout.text()
        );
        assert_ne!(finished.memory_bound, "");
    }
}

#[test]
fn memory_of_the_tree_is_bounded() {
    let share = (64_u64 << 20).to_string();
    for (backend, jail) in jails() {
        let limits = || Limits { memory_bytes: Some(256 << 20), ..Limits::default() };
        assert_worked(
            backend,
            &inside(&jail, attack(["memory-tree", "2", &share]).limits(limits())),
        );
        let finished = inside(&jail, attack(["memory-tree", "8", &share, HOLD]).limits(limits()));
        assert_eq!(
            finished.outcome,
            Outcome::OutOfMemory,
            "{}: {}",
            backend.name(),
            finished.stdout.text()
        );
    }
}

#[test]
fn file_sizes_are_bounded() {
    let (_guard, folder) = folder();
    let file = folder.join("file").display().to_string();
    let bytes = (16 << 20).to_string();
    for (backend, jail) in jails() {
        let fill = |limits| {
            inside(&jail, attack(["fill", &file, &bytes]).read_write(&folder).limits(limits))
        };
        assert_worked(backend, &fill(Limits::default()));
        let finished = fill(Limits { file_bytes: 8 << 20, ..Limits::default() });
        assert_refused(backend, &finished, &["File too large"]);
        assert_eq!(fs_err::metadata(&file).expect("the file").len(), 8 << 20);
    }
}

#[test]
fn temporary_space_is_bounded() {
    let bytes = (16 << 20).to_string();
    for (backend, jail) in namespaces() {
        for path in ["/tmp/file", "/home/jail/file", "/dev/shm/file"] {
            let fill = |tmp_bytes| {
                inside(
                    &jail,
                    attack(["fill", path, &bytes])
                        .limits(Limits { tmp_bytes, ..Limits::default() }),
                )
            };
            assert_worked(backend, &fill(32 << 20));
            assert_refused(backend, &fill(8 << 20), &["No space left on device"]);
        }
    }
}

#[test]
fn open_files_are_bounded() {
    for (backend, jail) in jails() {
        let said = assert_worked(backend, &inside(&jail, attack(["read", "/proc/self/limits"])));
        let line = said.lines().find(|line| line.starts_with("Max open files")).expect("the limit");
        assert_eq!(line.split_whitespace().nth(3), Some("1024"), "{}: {line}", backend.name());
    }
}

#[test]
fn cpu_time_of_the_tree_is_bounded() {
    for (backend, jail) in jails() {
        let limits = Limits {
            cpu: Some(Duration::from_millis(600)),
            wall: Duration::from_mins(10),
            ..Limits::default()
        };
        let finished = inside(&jail, attack(["burn", "2"]).limits(limits));
        assert_eq!(finished.outcome, Outcome::CpuExceeded, "{}", backend.name());
        assert!(finished.cpu.is_some_and(|cpu| cpu >= Duration::from_millis(600)));
    }
}

#[test]
fn output_is_bounded_and_keeps_head_and_tail() {
    for (backend, jail) in jails() {
        let limits = Limits { output_bytes: 10_000, ..Limits::default() };
        let finished = inside(&jail, attack(["flood"]).limits(limits));
        let said = assert_worked(backend, &finished);
        assert!(finished.stdout.truncated && !finished.stderr.truncated);
        assert!(finished.stdout.bytes.len() < 10_100, "{}", finished.stdout.bytes.len());
        assert!(said.starts_with("xxx") && said.ends_with("the end"), "{}", backend.name());
    }
}

#[test]
fn available_cgroups_enforce_the_limits() {
    for (backend, jail) in jails() {
        let claims = jail.isolation().enforced.join("; ");
        assert!(claims.contains("memory: ") && claims.contains("processes: "), "{claims}");
        if backend == Backend::Namespaces {
            let enforced = claims.contains("memory: cgroup");
            let is_mounted = std::path::Path::new("/sys/fs/cgroup/memory").exists();
            assert!(enforced || !is_mounted, "{claims}");
            if !enforced {
                missing(Need::Cgroup);
            }
        }
    }
}
