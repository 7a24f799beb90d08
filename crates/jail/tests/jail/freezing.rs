//! Freezing everything in a jail from outside.

use std::path::{Path, PathBuf};
use std::time::Duration;

use warpwright_jail::{Child, FreezeError, Limits, Outcome, Spec};

use crate::support::{Place, attack, eventually, folder, jails, processes_of};

/// Beats of the clock during which a frozen program must not beat. Both beat equally often.
const BEATS: u32 = 15;

/// A program that writes `heartbeat`, and that no deadline ends.
fn beating(action: &str, heartbeat: &Path, folder: &Path) -> Spec {
    attack([action, &heartbeat.display().to_string()])
        .read_write(folder)
        .limits(Limits { wall: Duration::from_mins(10), ..Limits::default() })
}

fn changes(heartbeat: &Path, since: &str) -> bool {
    fs_err::read_to_string(heartbeat).is_ok_and(|now| now != since)
}

/// A daemon that nobody freezes. It tells the time: on a slow machine it is slow as well.
struct Clock {
    _child: Child,
    heartbeat: PathBuf,
    _guard: tempfile::TempDir,
}

impl Clock {
    #[expect(clippy::expect_used, reason = "part of a test")]
    fn start(jail: &Place) -> Self {
        let (guard, folder) = folder();
        let heartbeat = folder.join("clock");
        let child = jail.spawn(beating("daemon", &heartbeat, &folder)).expect("a clock");
        assert!(eventually(|| heartbeat.exists()));
        Self { _child: child, heartbeat, _guard: guard }
    }

    /// The content of another heartbeat that stays the same for [`BEATS`]; `None` if it changes.
    #[expect(clippy::expect_used, reason = "part of a test")]
    fn stands_still(&self, other: &Path) -> Option<String> {
        let before = fs_err::read_to_string(other).ok()?;
        for _ in 0..BEATS {
            let last = fs_err::read_to_string(&self.heartbeat).expect("the clock");
            assert!(eventually(|| changes(&self.heartbeat, &last)), "the clock stopped");
        }
        (!changes(other, &before)).then_some(before)
    }
}

#[test]
fn frozen_jail_stops_and_continues_when_thawed() {
    for (backend, jail) in jails() {
        let (_guard, folder) = folder();
        let heartbeat = folder.join("heartbeat");
        let clock = Clock::start(&jail);
        // A daemon: neither the program nor in its session.
        let child = jail.spawn(beating("daemon", &heartbeat, &folder)).expect("a jail");
        assert!(eventually(|| heartbeat.exists()));
        let mut freezer = child.freezer().expect("a way to stop it");
        for _ in 0..3 {
            freezer.freeze().expect("frozen");
            let frozen = clock.stands_still(&heartbeat);
            let frozen = frozen.unwrap_or_else(|| {
                panic!("{} by {}: it goes on", backend.name(), freezer.mechanism())
            });
            freezer.thaw().expect("thawed");
            // Also the positive control: it beats unless it is frozen.
            assert!(eventually(|| changes(&heartbeat, &frozen)), "{}", backend.name());
        }
    }
}

#[test]
fn frozen_jail_can_be_killed() {
    for (backend, jail) in jails() {
        let (_guard, folder) = folder();
        let heartbeat = folder.join("heartbeat");
        let spec = beating("daemon", &heartbeat, &folder);
        let mut child = jail.spawn(spec).expect("a jail");
        assert!(eventually(|| heartbeat.exists()));
        child.freezer().expect("a way to stop it").freeze().expect("frozen");
        child.kill();
        assert_eq!(child.wait().expect("the end").outcome, Outcome::Killed, "{}", backend.name());
        assert!(eventually(|| processes_of(&heartbeat) == 0), "{}", backend.name());
    }
}

/// SIGCONT resumes processes that SIGSTOP stopped. A control group's freezer is unaffected. Without
/// one, the freezer detects that a process ran.
#[test]
fn program_sending_itself_sigcont_stays_frozen_or_is_detected() {
    for (backend, jail) in jails() {
        let (_guard, folder) = folder();
        let heartbeat = folder.join("heartbeat");
        let clock = Clock::start(&jail);
        let spec = beating("wake-itself", &heartbeat, &folder);
        let child = jail.spawn(spec).expect("a jail");
        assert!(eventually(|| heartbeat.exists()));
        let mut freezer = child.freezer().expect("a way to stop it");
        match (freezer.mechanism(), freezer.freeze()) {
            ("cgroup v1" | "cgroup v2", Ok(())) => {
                assert!(clock.stands_still(&heartbeat).is_some(), "{}", backend.name());
                freezer.thaw().expect("thawed");
            }
            // So often that it is never found stopped twice.
            (_, Err(FreezeError::StillRunning)) => {}
            // Whether the timer outlives SIGSTOP is the kernel's matter. What counts: either nothing ran,
            // or that something did is found.
            (_, Ok(())) => {
                let still = clock.stands_still(&heartbeat).is_some();
                let thawed = freezer.thaw();
                let found = matches!(thawed, Err(FreezeError::RanWhileFrozen));
                assert!(
                    still || found,
                    "{} by {}: {thawed:?}",
                    backend.name(),
                    freezer.mechanism()
                );
            }
            (mechanism, error) => panic!("{} by {mechanism}: {error:?}", backend.name()),
        }
    }
}
