//! Kills the judge's own processes and fills its disk: verdicts stay correct, and later ones succeed.
//!
//! `long_killing_any_process_never_blames_the_task` needs a process of its own: it kills any child process, those
//! of the shared judge among them. nextest runs each test in its own process; under `cargo test` run it alone,
//! with `--exact`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::bias_relu::{model, task};
use crate::support::{Case, config};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use warpwright_judge::{Device, JudgeConfig, JudgeError, LocalJudge, SessionPool};
use warpwright_record::candidate::Candidate;
use warpwright_record::verdict::{FailureClass, Stage, Verdict};
use warpwright_task::Task;
use warpwright_test_support::{Need, missing};

const KERNEL: &str = r#"
#include <cuda_runtime.h>
__global__ void bias_relu(const float* x, const float* bias, float* y, int n, int columns) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i] + bias[i % columns], 0.0f);
}
extern "C" void bias_relu_launcher(const float* x, const float* bias, float* y, int n, int columns,
                                   cudaStream_t stream) {
    bias_relu<<<(n + 255) / 256, 256, 0, stream>>>(x, bias, y, n, columns);
}
"#;

const FORWARD: &str = "y = torch.empty_like(x)\n\
    cuda_extension.bias_relu_launcher(x, self.bias, y, x.numel(), x.shape[1])\n\
    return y";

fn honest() -> Candidate {
    let kernels = vec![("bias_relu.cu", KERNEL.to_owned())];
    Case { task: String::new(), model: model(FORWARD), kernels }.candidate()
}

/// Parent of every process that has not ended.
fn processes() -> BTreeMap<i32, i32> {
    let mut found = BTreeMap::new();
    for entry in fs_err::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let Ok(stat) = fs_err::read_to_string(entry.path().join("stat")) else { continue };
        let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        if let (Some(state), Some(parent)) = (fields.next(), fields.next())
            && state != "Z"
        {
            found.insert(pid, parent.parse().unwrap());
        }
    }
    found
}

/// All descendants of this process.
fn descendants() -> BTreeSet<i32> {
    let parents = processes();
    let ours = std::process::id() as i32;
    let below = |pid: &i32| {
        let mut at = *pid;
        while let Some(&parent) = parents.get(&at) {
            if parent == ours {
                return true;
            }
            at = parent;
        }
        false
    };
    parents.keys().copied().filter(below).collect()
}

/// Name of the Python module or program that a process runs.
fn named(pid: i32) -> String {
    let line = fs_err::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    let word = words.iter().find(|word| word.starts_with("warpwright_oracle"));
    word.or(words.first()).map_or_else(String::new, |word| word.clone().into_owned())
}

/// The judge's folders for its processes.
fn folders() -> BTreeSet<PathBuf> {
    let entries = fs_err::read_dir(std::env::temp_dir()).unwrap().flatten();
    let ours = entries.map(|entry| entry.path()).filter(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().contains("warpwright"))
    });
    ours.collect()
}

/// Kills processes with such a name at these delays. Each verdict is correct, or names the crash where that `may`
/// be the candidate's, or is missing because of an infrastructure error. No error blames the task. The next verdict
/// is correct.
fn kill_many(
    device: Device,
    delays_ms: &[u64],
    may: fn(&str) -> bool,
    is_victim: fn(&str) -> bool,
) {
    let judge = LocalJudge::open(config(device)).unwrap();
    let pool = SessionPool::new(&judge);
    let task = Task::from_source("task", task(128, 256));
    let candidate = honest();
    let judged = || pool.afresh(&task, &candidate, Stage::Measured);
    let right = |verdict: &Verdict| verdict.verified && verdict.integrity.is_empty();
    let first = judged().unwrap();
    assert!(right(&first), "{first:#?}");

    let mut hit = 0;
    for (i, &delay_ms) in delays_ms.iter().enumerate() {
        let (told, victim) = std::thread::scope(|scope| {
            let killer = scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(delay_ms));
                let there = descendants().into_iter();
                let there: Vec<i32> = there.filter(|pid| is_victim(&named(*pid))).collect();
                let victim = *there.get((7 * i + 3) % there.len().max(1))?;
                let name = named(victim);
                kill(victim);
                Some(name)
            });
            (judged(), killer.join().unwrap())
        });
        hit += usize::from(victim.is_some());
        let text = match &told {
            Ok(verdict) if right(verdict) => "verified".to_owned(),
            Ok(verdict) => {
                let failure = verdict.failure.as_ref();
                assert!(
                    victim.as_deref().is_some_and(may)
                        && failure.is_some_and(|failure| failure.class == FailureClass::Crash),
                    "{victim:?} after {delay_ms} ms: {failure:?}, {:?}",
                    verdict.integrity
                );
                "crash".to_owned()
            }
            Err(error @ JudgeError::Infrastructure { .. }) => error.to_string(),
            Err(error) => panic!("{victim:?} after {delay_ms} ms: {error:?}"),
        };
        println!("{victim:?} after {delay_ms} ms: {text}");
        let next = judged().unwrap();
        assert!(right(&next), "after {victim:?} at {delay_ms} ms: {next:#?}");
    }
    assert!(2 * hit > delays_ms.len(), "there is usually a process to kill");
    drop(pool);
    drop(judge);
    let left: Vec<String> = descendants().into_iter().map(named).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

/// Mounts a file system of this size for this thread alone. False if mounting is not allowed.
fn small_disk(path: &Path, mebibytes: u32) -> bool {
    let none = None::<&str>;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    let size = format!("size={mebibytes}m");
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_FS).is_ok()
        && mount(none, "/", none, private, none).is_ok()
        && mount(Some("tmpfs"), path, Some("tmpfs"), MsFlags::empty(), Some(size.as_str())).is_ok()
}

/// Compilers and judge write into the cache: a full disk is an infrastructure error that names the path. The
/// next verdict succeeds once there is space again.
#[test]
fn a_full_disk_is_an_infrastructure_error() {
    // The mount namespace is that of one thread: other tests of this process keep theirs.
    std::thread::spawn(judge_on_a_full_disk).join().unwrap();
}

fn judge_on_a_full_disk() {
    let cache = tempfile::tempdir().unwrap();
    // The judge's threads start from this one and inherit its mounts.
    // The compiler's copy of torch's headers has 100 MiB.
    if !small_disk(cache.path(), 512) {
        missing(Need::Mount);
        return;
    }
    let judge =
        LocalJudge::open(JudgeConfig { cache: cache.path().to_owned(), ..config(Device::Cpu) });
    let judge = judge.unwrap();
    let pool = SessionPool::new(&judge);
    let task = Task::from_source("task", task(128, 256));
    let candidate = honest();
    pool.open(&task).unwrap();
    let filler = cache.path().join("filler");
    let mut file = fs_err::File::create(&filler).unwrap();
    let block = vec![1_u8; 1 << 16];
    while file.write_all(&block).is_ok() {}
    drop(file);
    match pool.afresh(&task, &candidate, Stage::Measured) {
        Err(error @ JudgeError::Infrastructure { .. }) => {
            let text = error.to_string();
            assert!(text.contains("space"), "{text}");
        }
        other => panic!("{other:?}"),
    }
    fs_err::remove_file(&filler).unwrap();
    let verdict = pool.afresh(&task, &candidate, Stage::Measured).unwrap();
    assert!(verdict.verified, "{verdict:#?}");
}

/// Kills a child process, which may have ended already.
fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
}

/// The machine decides which process is hit. A new session is opened after each kill.
#[test]
fn long_killing_any_process_never_blames_the_task() {
    let before = folders();
    let delays: Vec<u64> = (0..40).map(|i| 50 + 70 * i).collect();
    kill_many(Device::Cpu, &delays, |_| true, |_| true);
    let after = folders();
    let left: Vec<_> = after.difference(&before).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

/// From its start to the end of its candidate. None of the candidate's host code is in there.
#[test]
fn gpu_killing_replayers_never_blames_the_candidate() {
    let delays: Vec<u64> = (0..12).map(|i| 20 + 150 * i).collect();
    let is_replayer = |name: &str| name.ends_with("warpwright-replayer");
    kill_many(Device::Cuda(0), &delays, |_| false, is_replayer);
}
