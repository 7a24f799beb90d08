//! Locks of one GPU: two in this process are two processes to the kernel, since each has files of its own.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::Arc;

use super::*;
use crate::device::device_arbiter::{DeviceArbiter, Purpose};

const UUID: &str = "GPU-0f0f";

fn lock_in(folder: &Path) -> DeviceLock {
    DeviceLock::open(folder, UUID, "cuda:0")
}

impl DeviceLock {
    /// Whether another process waits for the device.
    fn is_waited_for(&self) -> bool {
        self.files.as_ref().unwrap().is_waited_for()
    }

    /// What it says from now on, and has not said yet.
    fn said(&self) -> Arc<Mutex<Vec<String>>> {
        let said = Arc::new(Mutex::default());
        let into = Arc::clone(&said);
        self.set_notice(Box::new(move |text| lock::<Vec<String>>(&into).push(text.to_owned())));
        said
    }
}

/// Waits for what another thread or process brings about.
fn until(is: impl Fn() -> bool) {
    while !is() {
        std::thread::sleep(PAUSE);
    }
}

#[test]
fn exclusive_turn_waits_for_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (lock_in(folder.path()), lock_in(folder.path()));
    one.share(true);
    other.share(true);
    assert!(!one.is_waited_for(), "both share");
    other.end();
    std::thread::scope(|scope| {
        let alone = scope.spawn(|| other.alone());
        until(|| one.is_waited_for());
        assert!(!alone.is_finished());
        one.end();
    });
    assert!(other.is_exclusive());
    std::thread::scope(|scope| {
        let shares = scope.spawn(|| one.share(true));
        until(|| other.is_waited_for());
        assert!(!shares.is_finished());
        other.end();
    });
    one.end();
    assert_eq!((lock(&one.state).turns, lock(&other.state).turns), (0, 0));
}

#[test]
fn overlapping_turns_let_another_process_in() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (lock_in(folder.path()), lock_in(folder.path()));
    one.share(true);
    std::thread::scope(|scope| {
        let alone = scope.spawn(|| other.alone());
        until(|| one.is_waited_for());
        let next = scope.spawn(|| one.share(true));
        // A process that starts is waited for by turns that are there.
        one.share(false);
        one.end();
        assert!(!alone.is_finished() && !next.is_finished());
        one.end();
        alone.join().unwrap();
        assert!(!next.is_finished());
        other.end();
    });
    one.end();
}

#[test]
fn lock_of_a_killed_process_is_free() {
    let folder = tempfile::tempdir().unwrap();
    let lock = lock_in(folder.path());
    #[expect(clippy::disallowed_types, reason = "a test needs a second process, without a jail")]
    let mut holder = std::process::Command::new("flock")
        .args(["--no-fork", "--exclusive"])
        .arg(folder.path().join(format!("warpwright-gpu-{UUID}.lock")))
        .args(["sh", "-c", "echo held; exec sleep 600"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "held\n");
    std::thread::scope(|scope| {
        let shares = scope.spawn(|| lock.share(true));
        until(|| lock_in(folder.path()).is_waited_for());
        assert!(!shares.is_finished());
        holder.kill().unwrap();
    });
    lock.end();
    holder.wait().unwrap();
}

#[test]
fn wait_for_another_process_is_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let one = lock_in(folder.path());
    let other = DeviceLock { said_after: Duration::ZERO, ..lock_in(folder.path()) };
    let said = other.said();
    for _ in 0..2 {
        one.alone();
        std::thread::scope(|scope| {
            scope.spawn(|| other.share(true));
            until(|| one.is_waited_for() && !lock(&said).is_empty());
            one.end();
        });
        other.end();
    }
    assert_eq!(
        *lock(&said),
        ["note: cuda:0 is used by another warpwright process; waiting for it"]
    );
}

#[test]
fn lock_file_is_for_all_users_and_never_followed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("warpwright-gpu-0.lock");
    shared_file(&path).unwrap();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o666);
    shared_file(&path).expect("one that is there is opened");

    let aim = folder.path().join("aim");
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&aim, &link).unwrap();
    shared_file(&link).unwrap_err();
    assert!(!aim.exists(), "nothing is made through a link");
    let pipe = folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(shared_file(&pipe).unwrap_err().to_string().contains("not a regular file"));
    shared_file(folder.path()).unwrap_err();
}

#[test]
fn without_a_lock_file_judging_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    for (folder, identity, reason) in [
        (missing.as_path(), UUID, "No such file or directory"),
        (folder.path(), "../GPU", "the driver gives it no UUID"),
    ] {
        let lock = DeviceLock::open(folder, identity, "cuda:0");
        let said = lock.said();
        lock.share(true);
        lock.alone();
        lock.make_exclusive();
        lock.end();
        let said = super::lock(&said).join("\n");
        assert!(said.starts_with("warning: other warpwright processes on cuda:0"), "{said}");
        assert!(said.contains(reason), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

/// A candidate enters beside a process that starts, while another judge waits to measure on the GPU.
#[test]
fn two_judges_never_measure_side_by_side() {
    let folder = tempfile::tempdir().unwrap();
    let arbiter = || DeviceArbiter::of_gpu(Some(lock_in(folder.path())));
    let (one, other) = (arbiter(), arbiter());
    let watch = lock_in(folder.path());
    let starts = one.share(Purpose::Start);
    let held = one.alone_for(Purpose::Measurement, None, true);
    assert!(!one.device_lock().is_exclusive(), "a process starts");
    std::thread::scope(|scope| {
        let measured = scope.spawn(|| {
            let _held = other.alone(Purpose::Measurement);
            assert!(!one.device_lock().is_exclusive());
        });
        until(|| watch.is_waited_for());
        // It does not wait for the other judge, since the candidate will wait for it.
        drop(one.share(Purpose::Start));
        assert!(!measured.is_finished());
        drop(starts);
        // The other judge comes first.
        held.timed();
        assert!(one.device_lock().is_exclusive());
        let next = scope.spawn(|| drop(other.share(Purpose::Reference)));
        until(|| watch.is_waited_for());
        assert!(!next.is_finished());
        drop(held);
    });
}
