//! Full disks: the error names lost events, and written events stay.

use std::path::Path;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use warpwright_record::error::WriteError;
use warpwright_record::event::Event;
use warpwright_record::reader::RunReader;
use warpwright_record::run::RunInfo;
use warpwright_record::writer::{ResumePolicy, RunWriter};
use warpwright_test_support::{Need, missing};

use crate::lifecycle::note;

/// Appends until there is no space left; returns how many notes went in, and the error.
fn fill(run: &RunWriter) -> (usize, WriteError) {
    for i in 0..10_000 {
        if let Err(error) = run.append(&note(format!("{i:0500}"))) {
            return (i, error);
        }
    }
    panic!("the disk never became full");
}

fn read(dir: &Path) -> Vec<Event> {
    let reader = RunReader::open(dir).unwrap();
    reader.events().unwrap().map(|line| line.unwrap().event).collect()
}

fn check_full(error: &WriteError, intact: usize) {
    assert!(matches!(error, WriteError::Full { intact: i, .. } if *i == intact as i64), "{error}");
    let text = error.to_string();
    assert!(text.contains("no space left; lost: event note;"), "{text}");
    assert!(text.contains(&format!("intact up to its event {intact}")), "{text}");
    assert!(error.hint().unwrap().contains("free space"));
}

/// Mounts a file system of 256 KiB.
#[test]
fn full_file_system_loses_only_reported_events() {
    // A thread has a mount namespace of its own, so nobody else sees the small file system.
    let thread = std::thread::spawn(|| {
        let none = None::<&str>;
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        if unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_FS).is_err()
            || mount(none, "/", none, private, none).is_err()
        {
            missing(Need::Mount);
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let tmpfs = Some("tmpfs");
        mount(tmpfs, dir.path(), tmpfs, MsFlags::empty(), Some("size=256k")).unwrap();
        let filler = dir.path().join("filler");
        fs_err::write(&filler, vec![1; 100 << 10]).unwrap();
        let run_dir = dir.path().join("run");
        let run = RunWriter::create(&run_dir, RunInfo::default()).unwrap();

        let (notes, error) = fill(&run);
        check_full(&error, notes);
        assert_eq!(read(&run_dir).len(), notes + 1);

        let error = run.put_blob(&vec![7; 64 << 10]).unwrap_err();
        assert!(error.to_string().contains("lost: a blob of 65536 bytes"), "{error}");
        let blobs = || walk(&run_dir.join("blobs"));
        assert!(blobs().is_empty(), "half a blob stays behind: {:?}", blobs());
        let error = run.close().unwrap_err();
        assert!(error.hint().is_some(), "closing needs space: {error}");
        assert_eq!(read(&run_dir).len(), notes + 1, "a failed close harms nothing");

        let error = RunWriter::resume(&run_dir, ResumePolicy::SameProgram);
        assert!(!matches!(error, Err(WriteError::Read(_))), "{error:?}");
        drop(error);
        fs_err::remove_file(&filler).unwrap();
        let run = RunWriter::resume(&run_dir, ResumePolicy::SameProgram).unwrap();
        run.append(&note("there is room again")).unwrap();
        run.close().unwrap();
        assert_eq!(read(&run_dir).last(), Some(&note("there is room again")));
    });
    thread.join().unwrap();
}

fn walk(dir: &Path) -> Vec<std::path::PathBuf> {
    let Ok(entries) = fs_err::read_dir(dir) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(walk(&path)) } else { found.push(path) }
    }
    found
}

/// Runs for every user: a file size limit, which the kernel enforces during a write.
#[test]
fn file_size_limit_loses_only_reported_events() {
    const DIR: &str = "RECORD_TEST_LIMITED";
    if let Some(dir) = std::env::var_os(DIR) {
        limited(Path::new(&dir));
        return;
    }
    // The limit counts for a whole process: a process of its own.
    let dir = tempfile::tempdir().unwrap();
    #[expect(clippy::disallowed_types, reason = "a test's own executable, with a limit")]
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "full_disk::file_size_limit_loses_only_reported_events", "--nocapture"])
        .env(DIR, dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("went to the end"), "{text}");
}

fn limited(dir: &Path) {
    // Without this the kernel ends the process instead of failing the write.
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGXFSZ);
    signals.thread_block().unwrap();
    let run = RunWriter::create(dir, RunInfo::default()).unwrap();
    let (_, hard) = getrlimit(Resource::RLIMIT_FSIZE).unwrap();
    setrlimit(Resource::RLIMIT_FSIZE, 20_000, hard).unwrap();
    let (notes, error) = fill(&run);
    check_full(&error, notes);
    assert_eq!(read(dir).len(), notes + 1);

    setrlimit(Resource::RLIMIT_FSIZE, hard, hard).unwrap();
    run.append(&note("there is room again")).unwrap();
    run.close().unwrap();
    let events = read(dir);
    assert_eq!((events.len(), events.last()), (notes + 2, Some(&note("there is room again"))));
    println!("went to the end");
}
