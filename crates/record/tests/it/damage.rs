//! Torn and damaged event logs.

use proptest::prelude::*;
use warpwright_record::error::{ReadError, WriteError};
use warpwright_record::event::Event;
use warpwright_record::reader::RunReader;
use warpwright_record::run::RunInfo;
use warpwright_record::writer::{ResumePolicy, RunWriter};

use crate::lifecycle::{events, note};

/// A run with notes, and the bytes of its log.
fn written(notes: usize) -> (tempfile::TempDir, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let run = RunWriter::create(dir.path(), RunInfo::default()).unwrap();
    for i in 0..notes {
        run.append(&note(format!("event {i} — with \"quotes\" and \\ and ünïcode\n"))).unwrap();
    }
    let log = fs_err::read(dir.path().join("events.jsonl")).unwrap();
    (dir, log)
}

#[test]
fn torn_last_line_is_dropped_and_the_run_resumes() {
    let (dir, log) = written(3);
    let whole = events(dir.path());
    let last = log[..log.len() - 1].iter().rposition(|b| *b == b'\n').unwrap() + 1;
    for cut in last..log.len() {
        fs_err::write(dir.path().join("events.jsonl"), &log[..cut]).unwrap();
        let reader = RunReader::open(dir.path()).unwrap();
        let mut iterator = reader.events().unwrap();
        let read: Vec<Event> = iterator.by_ref().map(|line| line.unwrap().event).collect();
        assert_eq!(read, whole[..3], "cut at byte {cut}");
        assert_eq!(iterator.torn_bytes(), (cut - last) as u64);

        let run = RunWriter::resume(dir.path(), ResumePolicy::SameProgram).unwrap();
        run.append(&note("after")).unwrap();
        drop(run);
        let read = events(dir.path());
        let torn = (cut - last) as u64;
        assert!(matches!(read[3], Event::RunResumed { torn_bytes, .. } if torn_bytes == torn));
        assert_eq!((read.len(), &read[4]), (5, &note("after")));
    }
}

#[test]
fn damage_before_the_last_line_is_named_and_blocks_appending() {
    let (dir, log) = written(3);
    let second = log.iter().position(|b| *b == b'\n').unwrap() + 1;
    let mut bad = log.clone();
    bad[second] = b'#';
    fs_err::write(dir.path().join("events.jsonl"), &bad).unwrap();
    let reader = RunReader::open(dir.path()).unwrap();
    let read: Vec<_> = reader.events().unwrap().collect();
    assert_eq!(read.len(), 2, "the iterator ends at the damage");
    let error = read[1].as_ref().unwrap_err();
    assert!(matches!(error, ReadError::Damaged { line: 2, .. }), "{error}");
    let error = RunWriter::resume(dir.path(), ResumePolicy::Forced).unwrap_err();
    assert!(matches!(error, WriteError::Read(ReadError::Damaged { line: 2, .. })), "{error}");
    assert_eq!(fs_err::read(dir.path().join("events.jsonl")).unwrap(), bad);
}

#[test]
fn missing_line_is_detected() {
    let (dir, log) = written(3);
    let mut lines: Vec<&[u8]> = log.split_inclusive(|b| *b == b'\n').collect();
    lines.remove(1);
    fs_err::write(dir.path().join("events.jsonl"), lines.concat()).unwrap();
    let reader = RunReader::open(dir.path()).unwrap();
    let error = reader.events().unwrap().find_map(Result::err).unwrap();
    assert!(error.to_string().contains("line 2: found event 2 instead of event 1"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// A change of one byte leaves the events of earlier lines unchanged.
    #[test]
    fn one_changed_byte_never_changes_an_earlier_event(at in 0.0..1.0f64, byte in any::<u8>()) {
        let (dir, log) = written(4);
        let whole = events(dir.path());
        let at = (at * log.len() as f64) as usize;
        let line = log[..at].split(|b| *b == b'\n').count() - 1;
        let mut bad = log;
        bad[at] = byte;
        fs_err::write(dir.path().join("events.jsonl"), &bad).unwrap();
        let reader = RunReader::open(dir.path()).unwrap();
        let read: Vec<_> = reader.events().unwrap().collect();
        for (i, expected) in whole.iter().enumerate().take(line) {
            prop_assert_eq!(&read[i].as_ref().unwrap().event, expected);
        }
    }
}
