//! A writer that is killed at random moments.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::time::Duration;

use warpwright_record::blob::BlobHash;
use warpwright_record::event::Event;
use warpwright_record::reader::RunReader;
use warpwright_record::run::RunInfo;
use warpwright_record::writer::{ResumePolicy, RunWriter};

use crate::lifecycle::note;

/// Names the run folder, and makes `child_writes` write into it instead of passing immediately.
const DIR: &str = "RECORD_TEST_CHILD_DIR";

/// Not a test: the code of the killed process.
#[test]
#[ignore = "is run as a child process by the other tests of this file"]
fn child_writes() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let dir = Path::new(&dir);
    let mut out = std::io::stdout();
    let mut run = if dir.join("run.json").exists() {
        RunWriter::resume(dir, ResumePolicy::SameProgram).unwrap()
    } else {
        RunWriter::create(dir, RunInfo::default()).unwrap()
    };
    for i in 0u64.. {
        let blob = run.put_blob(&i.to_le_bytes()).unwrap();
        let seq = run.append(&note(blob.to_string())).unwrap();
        writeln!(out, "{seq}").unwrap();
        if i % 16 == 15 {
            // So that kills fall into closing and unpacking too.
            run.close().unwrap();
            run = RunWriter::resume(dir, ResumePolicy::SameProgram).unwrap();
        }
    }
}

#[expect(clippy::disallowed_types, reason = "a test's own executable, to be killed")]
fn write_and_kill(dir: &Path, after: Duration) -> Option<u64> {
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "child::child_writes", "--nocapture", "-q"])
        .env(DIR, dir)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let acknowledged = |line: std::io::Result<String>| line.unwrap().trim().parse::<u64>().ok();
    // The harness prints lines of its own first.
    let mut last = lines.by_ref().find_map(acknowledged);
    std::thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
    for line in lines {
        // The very last line may be cut short: then it is no acknowledgement.
        last = last.max(line.ok().and_then(|l| l.trim().parse().ok()));
    }
    last
}

#[test]
fn kill_9_at_random_times_loses_no_acknowledged_event() {
    let dir = tempfile::tempdir().unwrap();
    let mut resumed = 0;
    let mut micros = 1u64;
    for _ in 0..12 {
        // A fixed, uneven sequence of moments within 40 ms; the scheduler adds the chance.
        micros =
            micros.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let last = write_and_kill(dir.path(), Duration::from_micros((micros >> 33) % 40_000));
        let last = last.expect("the child never wrote anything");

        let reader = RunReader::open(dir.path()).unwrap();
        let events: Vec<Event> = reader.events().unwrap().map(|line| line.unwrap().event).collect();
        assert!(events.len() as u64 > last, "event {last} was acknowledged, then lost");
        assert!(events.len() as u64 <= last + 3, "more events than were ever sent");
        for event in &events {
            if let Event::Note { text, .. } = event {
                let hash: BlobHash = text.parse().unwrap();
                assert_eq!(reader.blob(hash).unwrap().len(), 8);
            }
        }
        let now = events.iter().filter(|e| matches!(e, Event::RunResumed { .. })).count();
        assert!(now >= resumed);
        resumed = now;
    }
    assert!(resumed >= 11, "every later round takes the run up again");
}
