//! Freezing everything in a jail from outside.

use std::path::Path;
use std::time::Duration;

use warpwright_jail::{FreezeError, Outcome};

use crate::support::{attack, eventually, folder, jails};

/// The content of a heartbeat that stays the same for a while; `None` if it keeps changing.
fn stands_still(heartbeat: &Path) -> Option<String> {
    let before = fs_err::read_to_string(heartbeat).ok()?;
    std::thread::sleep(Duration::from_millis(150));
    (fs_err::read_to_string(heartbeat).ok()? == before).then_some(before)
}

#[test]
fn frozen_jail_stops_and_continues_when_thawed() {
    for (backend, jail) in jails() {
        let (_guard, folder) = folder();
        let heartbeat = folder.join("heartbeat");
        // A daemon: neither the program nor in its session.
        let spec = attack(["daemon", &heartbeat.display().to_string()]).read_write(&folder);
        let child = jail.spawn(spec).expect("a jail");
        assert!(eventually(|| heartbeat.exists()));
        let mut freezer = child.freezer().expect("a way to stop it");
        assert!(stands_still(&heartbeat).is_none(), "{}: positive control", backend.name());
        for _ in 0..3 {
            freezer.freeze().expect("frozen");
            let frozen = stands_still(&heartbeat);
            assert!(frozen.is_some(), "{} by {}", backend.name(), freezer.mechanism());
            freezer.thaw().expect("thawed");
            let goes_on = || fs_err::read_to_string(&heartbeat).ok() != frozen;
            assert!(eventually(goes_on), "{}", backend.name());
        }
    }
}

#[test]
fn frozen_jail_can_be_killed() {
    for (backend, jail) in jails() {
        let (_guard, folder) = folder();
        let heartbeat = folder.join("heartbeat");
        let spec = attack(["daemon", &heartbeat.display().to_string()]).read_write(&folder);
        let mut child = jail.spawn(spec).expect("a jail");
        assert!(eventually(|| heartbeat.exists()));
        child.freezer().expect("a way to stop it").freeze().expect("frozen");
        child.kill();
        assert_eq!(child.wait().expect("the end").outcome, Outcome::Killed, "{}", backend.name());
        assert!(stands_still(&heartbeat).is_some());
    }
}

/// SIGCONT resumes processes that SIGSTOP stopped. A control group's freezer is unaffected. Without
/// one, the freezer detects that a process ran.
#[test]
fn program_sending_itself_sigcont_stays_frozen_or_is_detected() {
    for (backend, jail) in jails() {
        let (_guard, folder) = folder();
        let heartbeat = folder.join("heartbeat");
        let spec = attack(["wake-itself", &heartbeat.display().to_string()]).read_write(&folder);
        let child = jail.spawn(spec).expect("a jail");
        assert!(eventually(|| heartbeat.exists()));
        let mut freezer = child.freezer().expect("a way to stop it");
        match (freezer.mechanism(), freezer.freeze()) {
            ("cgroup v1" | "cgroup v2", Ok(())) => {
                assert!(stands_still(&heartbeat).is_some(), "{}", backend.name());
                freezer.thaw().expect("thawed");
            }
            // So often that it is never found stopped twice.
            (_, Err(FreezeError::StillRunning)) => {}
            // Whether the timer outlives SIGSTOP is the kernel's matter. What counts: either nothing ran,
            // or that something did is found.
            (_, Ok(())) => {
                let still = stands_still(&heartbeat).is_some();
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
