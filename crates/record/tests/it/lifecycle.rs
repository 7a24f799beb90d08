//! Create, append, close, resume, refuse.

use std::time::Duration;

use proptest::prelude::*;
use warpwright_record::blob::BlobHash;
use warpwright_record::error::{ReadError, WriteError};
use warpwright_record::event::{EpisodeId, Event, NoteLevel, RunOutcome};
use warpwright_record::history::History;
use warpwright_record::index::rebuild_index;
use warpwright_record::reader::RunReader;
use warpwright_record::run::{PROGRAM_VERSION, RunInfo};
use warpwright_record::verdict::Profile;
use warpwright_record::writer::{ResumePolicy, RunWriter};

use crate::sample;

pub(crate) fn events(dir: &std::path::Path) -> Vec<Event> {
    let reader = RunReader::open(dir).unwrap();
    reader.events().unwrap().map(|line| line.unwrap().event).collect()
}

pub(crate) fn note(text: impl Into<String>) -> Event {
    Event::Note { episode: None, level: NoteLevel::Info, text: text.into() }
}

fn edit_json(path: &std::path::Path, key: &str, value: serde_json::Value) {
    let mut json: serde_json::Value = serde_json::from_slice(&fs_err::read(path).unwrap()).unwrap();
    json[key] = value;
    fs_err::write(path, serde_json::to_vec(&json).unwrap()).unwrap();
}

#[test]
fn appended_events_are_read_back_before_and_after_closing() {
    let dir = tempfile::tempdir().unwrap();
    let run = sample::write_run(dir.path());
    let mut expected = vec![Event::RunStarted {
        program: PROGRAM_VERSION.to_owned(),
        command: "warpwright optimize examples/ --device cuda:0".to_owned(),
    }];
    expected.extend(sample::good_episode(&run));
    expected.extend(sample::bad_episode(&run));
    expected.extend(sample::killed_episode(&run));
    assert_eq!(events(dir.path()), expected, "while the writer is still open");

    sample::finish(run);
    expected.push(Event::RunFinished { outcome: RunOutcome::Completed });
    assert!(!dir.path().join("events.jsonl").exists());
    assert_eq!(events(dir.path()), expected, "from the compressed form");
}

#[test]
fn closed_run_can_be_resumed() {
    let dir = tempfile::tempdir().unwrap();
    sample::finish(sample::write_run(dir.path()));
    let before = events(dir.path());
    let run = RunWriter::resume(dir.path(), ResumePolicy::SameProgram).unwrap();
    assert_eq!(run.append(&note("more")).unwrap(), before.len() as u64 + 1);
    run.close().unwrap();
    let after = events(dir.path());
    assert_eq!(after[..before.len()], before);
    assert!(matches!(after[before.len()], Event::RunResumed { torn_bytes: 0, forced: false, .. }));
    assert_eq!(after[before.len() + 1], note("more"));
}

#[test]
fn two_writers_cannot_share_a_run() {
    let dir = tempfile::tempdir().unwrap();
    let run = RunWriter::create(dir.path(), RunInfo::default()).unwrap();
    let second = RunWriter::resume(dir.path(), ResumePolicy::SameProgram).unwrap_err();
    let pid = std::process::id();
    assert!(
        matches!(&second, WriteError::Locked { holder, .. } if *holder == format!("process {pid}"))
    );
    let second = RunWriter::create(dir.path(), RunInfo::default()).unwrap_err();
    assert!(matches!(second, WriteError::Locked { .. }));
    drop(run);
    RunWriter::resume(dir.path(), ResumePolicy::SameProgram).unwrap();
}

/// Locks the run for `seconds` by a process that inherited the lock, as a forked child does.
#[expect(clippy::disallowed_types, reason = "the test needs a process that outlives another")]
fn inherited_lock(run: &std::path::Path, written: &str, seconds: &str) -> std::process::Child {
    let lock = std::fs::File::options().read(true).write(true).open(run.join("lock")).unwrap();
    lock.try_lock().unwrap();
    fs_err::write(run.join("lock"), written).unwrap();
    std::process::Command::new("sleep").arg(seconds).stdin(lock).spawn().unwrap()
}

#[test]
#[expect(clippy::disallowed_types, reason = "the test needs the number of a process that is gone")]
fn resume_waits_for_a_lock_held_after_its_process_died() {
    let dir = tempfile::tempdir().unwrap();
    drop(RunWriter::create(dir.path(), RunInfo::default()).unwrap());
    let mut gone = std::process::Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    let mut child = inherited_lock(dir.path(), &gone.id().to_string(), "600");
    let lock = fs_err::canonicalize(dir.path().join("lock")).unwrap();
    let has_opened_it = || {
        let mut open = fs_err::read_dir("/proc/self/fd").unwrap().flatten();
        open.any(|file| fs_err::read_link(file.path()).is_ok_and(|path| path == lock))
    };
    std::thread::scope(|scope| {
        let resumed =
            scope.spawn(|| RunWriter::resume(dir.path(), ResumePolicy::SameProgram).map(drop));
        while !has_opened_it() {
            assert!(!resumed.is_finished(), "it waits for the lock");
            std::thread::sleep(Duration::from_millis(1));
        }
        // It has opened the lock and now finds it taken.
        std::thread::sleep(Duration::from_millis(50));
        child.kill().unwrap();
        child.wait().unwrap();
        resumed.join().unwrap().unwrap();
    });

    // Of a process that lives nobody waits for the end.
    let mut child = inherited_lock(dir.path(), &std::process::id().to_string(), "600");
    let second = RunWriter::resume(dir.path(), ResumePolicy::SameProgram).unwrap_err();
    assert!(matches!(second, WriteError::Locked { .. }));
    assert!(child.try_wait().unwrap().is_none(), "it was refused while the lock was held");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn existing_run_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    drop(RunWriter::create(dir.path(), RunInfo::default()).unwrap());
    let error = RunWriter::create(dir.path(), RunInfo::default()).unwrap_err();
    assert!(matches!(error, WriteError::Exists { .. }));
    assert!(error.hint().unwrap().contains("--resume"));
}

#[test]
fn error_names_the_folder_without_a_run() {
    let dir = tempfile::tempdir().unwrap();
    let error = RunReader::open(dir.path()).unwrap_err();
    assert!(matches!(error, ReadError::NotARun { .. }));
    let error = RunWriter::resume(dir.path(), ResumePolicy::SameProgram).unwrap_err();
    assert!(error.to_string().contains("there is no run.json"), "{error}");
    assert!(!dir.path().join("lock").exists(), "nothing is written into a strange folder");
}

#[test]
fn resuming_with_another_version_needs_force() {
    let dir = tempfile::tempdir().unwrap();
    drop(RunWriter::create(dir.path(), RunInfo::default()).unwrap());
    edit_json(&dir.path().join("run.json"), "program", "0.0.9".into());
    let error = RunWriter::resume(dir.path(), ResumePolicy::SameProgram).unwrap_err();
    assert!(matches!(&error, WriteError::OtherProgram { recorded, .. } if recorded == "0.0.9"));
    assert!(error.hint().unwrap().contains("--force"));
    assert_eq!(events(dir.path()).len(), 1, "a refusal changes nothing");

    drop(RunWriter::resume(dir.path(), ResumePolicy::Forced).unwrap());
    assert!(matches!(&events(dir.path())[1], Event::RunResumed { forced: true, .. }));
    // From now on this version is the one that wrote last.
    drop(RunWriter::resume(dir.path(), ResumePolicy::SameProgram).unwrap());
}

#[test]
fn newer_format_is_read_if_known_and_never_written() {
    let dir = tempfile::tempdir().unwrap();
    let run = RunWriter::create(dir.path(), RunInfo::default()).unwrap();
    run.append(&note("readable")).unwrap();
    drop(run);
    edit_json(&dir.path().join("run.json"), "format", 4.into());
    assert_eq!(events(dir.path()).len(), 2, "nothing in it is unknown");
    for policy in [ResumePolicy::SameProgram, ResumePolicy::Forced] {
        let error = RunWriter::resume(dir.path(), policy).unwrap_err();
        assert!(matches!(error, WriteError::NewerFormat { found: 4, supported: 3, .. }));
        assert_eq!(error.hint().unwrap(), "update warpwright");
    }

    let log = dir.path().join("events.jsonl");
    let mut text = fs_err::read_to_string(&log).unwrap();
    text += "{\"version\":4,\"seq\":2,\"time\":\"2027-01-01T00:00:00Z\",\"event\":{\"type\":\"warp\"}}\n";
    fs_err::write(&log, text).unwrap();
    let reader = RunReader::open(dir.path()).unwrap();
    let last = reader.events().unwrap().last().unwrap().unwrap_err();
    assert!(matches!(&last, ReadError::NewerFormat { found: 4, .. }), "{last}");
    assert!(last.to_string().contains("line 3"), "{last}");
}

#[test]
fn newer_event_line_under_an_old_header_blocks_appending() {
    let dir = tempfile::tempdir().unwrap();
    drop(RunWriter::create(dir.path(), RunInfo::default()).unwrap());
    let log = dir.path().join("events.jsonl");
    let text = fs_err::read_to_string(&log).unwrap().replace("\"version\":3", "\"version\":4");
    fs_err::write(&log, text).unwrap();
    let error = RunWriter::resume(dir.path(), ResumePolicy::Forced).unwrap_err();
    assert!(matches!(error, WriteError::NewerFormat { found: 4, .. }));
}

#[test]
fn blobs_are_checked_against_their_names() {
    let dir = tempfile::tempdir().unwrap();
    let run = RunWriter::create(dir.path(), RunInfo::default()).unwrap();
    let hash = run.put_blob(b"kernel").unwrap();
    let reader = RunReader::open(dir.path()).unwrap();
    assert_eq!(reader.blob(hash).unwrap(), b"kernel");
    let missing = BlobHash::of(b"never stored");
    assert!(matches!(reader.blob(missing), Err(ReadError::BlobMissing { .. })));

    fs_err::write(hash.path(dir.path()), b"Kernel").unwrap();
    let error = reader.blob(hash).unwrap_err();
    assert!(matches!(error, ReadError::BlobDamaged { .. }), "{error}");
    // Storing the bytes again mends it.
    assert_eq!(run.put_blob(b"kernel").unwrap(), hash);
    assert_eq!(reader.blob(hash).unwrap(), b"kernel");
}

#[test]
fn candidate_round_trips_through_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let run = RunWriter::create(dir.path(), RunInfo::default()).unwrap();
    let candidate = sample::candidate("");
    let stored = run.put_candidate(&candidate).unwrap();
    let reader = RunReader::open(dir.path()).unwrap();
    let read = reader.candidate(&stored.files).unwrap();
    assert_eq!(read, candidate);
    assert_eq!(read.hash(), stored.hash);
}

#[test]
fn profile_name_equals_its_json_value() {
    for profile in Profile::ALL {
        assert_eq!(serde_json::to_value(profile).unwrap(), profile.name());
        assert_eq!(profile.name().parse(), Ok(profile));
    }
    assert!("fast".parse::<Profile>().unwrap_err().contains("strict, tf32, as-run or paper"));
}

#[test]
fn history_omits_turns_superseded_by_a_resumption() {
    let dir = tempfile::tempdir().unwrap();
    let run = sample::write_run(dir.path());
    let history = History::read(&RunReader::open(dir.path()).unwrap()).unwrap();
    assert_eq!(history.outcome, None);
    assert!(history.episodes[&EpisodeId(0)].resume_point().is_none(), "it stopped by itself");
    let killed = &history.episodes[&EpisodeId(2)];
    assert_eq!(killed.turns.len(), 2);
    let point = killed.resume_point().unwrap();
    assert_eq!((point.next_turn, point.turns.len()), (2, 1));
    assert_eq!(point.files.unwrap().len(), 2);
    assert!((point.elapsed_seconds - 4.0).abs() < 1e-9);
    assert!((killed.standing().unwrap().speedup.eager.unwrap().value - 1.6).abs() < 1e-9);

    let episode = EpisodeId(2);
    run.append(&Event::EpisodeResumed { episode, turn: 2 }).unwrap();
    let history = History::read(&RunReader::open(dir.path()).unwrap()).unwrap();
    assert_eq!(history.episodes[&episode].turns.len(), 1);
}

#[test]
fn index_can_be_rebuilt_from_the_events() {
    let dir = tempfile::tempdir().unwrap();
    sample::finish(sample::write_run(dir.path()));
    let path = dir.path().join("index.sqlite");
    let rows = |path: &std::path::Path| {
        let db = rusqlite::Connection::open(path).unwrap();
        let sql = "SELECT e.task, count(v.id), max(v.speedup) FROM episodes e
                   JOIN verdicts v USING (episode) GROUP BY e.episode ORDER BY e.episode";
        let mut statement = db.prepare(sql).unwrap();
        let rows = statement
            .query_map([], |r| {
                Ok((r.get::<_, String>(0)?, r.get::<_, i64>(1)?, r.get::<_, Option<f64>>(2)?))
            })
            .unwrap();
        rows.collect::<Result<Vec<_>, _>>().unwrap()
    };
    let first = rows(&path);
    assert_eq!(first.len(), 3);
    assert_eq!((first[0].1, first[1].1, first[2].1), (5, 1, 1));
    assert_eq!(first[1].2, None, "a wrong candidate has no speed-up");
    fs_err::remove_file(&path).unwrap();
    assert_eq!(rebuild_index(dir.path()).unwrap(), path);
    assert_eq!(rows(&path), first);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_text_number_and_blob_round_trip(
        text in any::<String>(),
        figures in proptest::collection::vec(any::<f64>(), 4),
        bytes in proptest::collection::vec(any::<u8>(), 0..2000),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let run = RunWriter::create(dir.path(), RunInfo::default()).unwrap();
        let mut verdict = sample::measured(&text, "cuda:0", &sample::candidate(&text), 2.0);
        verdict.checks[0].max_abs_error = figures[0];
        verdict.checks[0].atol = figures[1];
        verdict.caveats.push(text.clone());
        let seconds = if figures[2].is_finite() { figures[2] } else { 1.0 };
        verdict.seconds.build = seconds;
        verdict.times_ms.candidate.as_mut().unwrap().high = figures[3];
        let sent = Event::VerdictGiven {
            episode: EpisodeId(0),
            turn: Some(1),
            verdict: Box::new(verdict.clone()),
            files: run.put_files([(text.as_str(), bytes.as_slice())]).unwrap(),
        };
        run.append(&sent).unwrap();
        run.close().unwrap();

        // What is not a number comes back as infinity; everything else to the bit.
        let back = |x: f64| if x.is_finite() { x } else { f64::INFINITY };
        verdict.checks[0].max_abs_error = back(figures[0]);
        verdict.checks[0].atol = back(figures[1]);
        verdict.times_ms.candidate.as_mut().unwrap().high = back(figures[3]);
        let read = events(dir.path());
        let Event::VerdictGiven { verdict: got, files, .. } = &read[1] else { panic!() };
        prop_assert_eq!(&**got, &verdict);
        let reader = RunReader::open(dir.path()).unwrap();
        prop_assert_eq!(reader.blob(files[0].blob).unwrap(), bytes);
    }
}
