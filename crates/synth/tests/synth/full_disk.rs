//! Full disk or kill: the old file stays.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use fs_err as fs;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use warpwright_synth::{DataSet, DataSetError, Row, Shares};
use warpwright_test_support::{Need, missing};

use crate::rows::row;

/// Rows that do not compress.
fn large(from: u64, count: u64) -> impl Iterator<Item = Row> {
    (from..from + count).map(|number| {
        let mut row = row(number, &["torch.relu"]);
        let mut noise = blake3::Hasher::new();
        noise.update(&number.to_le_bytes());
        let mut bytes = vec![0; 4000];
        noise.finalize_xof().fill(&mut bytes);
        row.code = bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
        row
    })
}

fn check_refused(path: &Path, before: &[u8]) {
    let error = DataSet::append(path, Shares::default(), large(100, 200)).unwrap_err();
    assert!(matches!(error, DataSetError::Full { .. }), "{error}");
    assert!(error.to_string().contains("no space left; the previous file is intact"));
    assert!(error.hint().unwrap().contains("free space"));
    assert_eq!(fs::read(path).unwrap(), before);
    let folder = path.parent().unwrap();
    let left = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().ends_with(".tmp")).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Mounts a file system of 256 KiB.
#[test]
fn full_file_system_keeps_the_old_file() {
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
        let folder = tempfile::tempdir().unwrap();
        let tmpfs = Some("tmpfs");
        mount(tmpfs, folder.path(), tmpfs, MsFlags::empty(), Some("size=256k")).unwrap();
        let path = folder.path().join("set.parquet");
        DataSet::append(&path, Shares::default(), large(0, 5)).unwrap();
        let before = fs::read(&path).unwrap();
        check_refused(&path, &before);
        let appended = DataSet::append(&path, Shares::default(), large(5, 5)).unwrap();
        assert_eq!(appended.total, 10, "with room, it goes on");
    });
    thread.join().unwrap();
}

const DIR: &str = "SYNTH_TEST_FOLDER";

#[expect(clippy::disallowed_types, reason = "a test's own executable")]
fn child(test: &str, folder: &Path) -> std::process::Command {
    let mut command = std::process::Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", test, "--nocapture"]).env(DIR, folder);
    command
}

/// Runs for every user: a file size limit, which the kernel enforces during a write.
#[test]
fn file_size_limit_keeps_the_old_file() {
    if let Some(folder) = std::env::var_os(DIR) {
        limited(Path::new(&folder));
        return;
    }
    // The limit counts for a whole process: a process of its own.
    let folder = tempfile::tempdir().unwrap();
    let output =
        child("full_disk::file_size_limit_keeps_the_old_file", folder.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("went to the end"), "{text}");
}

fn limited(folder: &Path) {
    // Without this the kernel ends the process instead of failing the write.
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGXFSZ);
    signals.thread_block().unwrap();
    let path = folder.join("set.parquet");
    DataSet::append(&path, Shares::default(), large(0, 5)).unwrap();
    let before = fs::read(&path).unwrap();
    let (_, hard) = getrlimit(Resource::RLIMIT_FSIZE).unwrap();
    setrlimit(Resource::RLIMIT_FSIZE, 100_000, hard).unwrap();
    check_refused(&path, &before);
    println!("went to the end");
}

/// The same limit with the default signal action: the kernel kills the process during a write.
#[test]
fn kill_during_a_write_keeps_the_old_file() {
    if let Some(folder) = std::env::var_os(DIR) {
        let path = Path::new(&folder).join("set.parquet");
        let (_, hard) = getrlimit(Resource::RLIMIT_FSIZE).unwrap();
        setrlimit(Resource::RLIMIT_FSIZE, 100_000, hard).unwrap();
        let _ = DataSet::append(&path, Shares::default(), large(100, 200));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("set.parquet");
    DataSet::append(&path, Shares::default(), large(0, 5)).unwrap();
    let before = fs::read(&path).unwrap();
    let killed = child("full_disk::kill_during_a_write_keeps_the_old_file", folder.path())
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    assert_eq!(killed.signal(), Some(Signal::SIGXFSZ as i32));
    let left = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().ends_with(".tmp")).collect();
    assert_eq!(left.len(), 1, "it was killed while it wrote: {left:?}");
    assert_eq!(fs::read(&path).unwrap(), before);
    let appended = DataSet::append(&path, Shares::default(), large(5, 5)).unwrap();
    assert_eq!(appended.total, 10, "the next run goes on");
}
