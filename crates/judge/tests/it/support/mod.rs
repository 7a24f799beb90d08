//! The configuration of a test's judge, and candidates from text.

pub(crate) mod bias_relu;
pub(crate) mod convolution;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::OnceLock;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use warpwright_jail::Requirement;
use warpwright_judge::{BaselineSet, Degenerate, Device, JudgeConfig, LocalJudge};
use warpwright_record::candidate::Candidate;
use warpwright_record::verdict::{Profile, Stage, Verdict};
use warpwright_task::Task;

/// A task and a candidate for it.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) task: String,
    pub(crate) model: String,
    pub(crate) kernels: Vec<(&'static str, String)>,
}

impl Case {
    pub(crate) fn candidate(&self) -> Candidate {
        let mut files = BTreeMap::new();
        files.insert("model_new.py".to_owned(), self.model.clone().into_bytes());
        for (name, text) in &self.kernels {
            files.insert(format!("kernels/{name}"), text.clone().into_bytes());
        }
        Candidate::from_files(files)
    }
}

fn workspace() -> PathBuf {
    let baked = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    baked.canonicalize().unwrap_or_else(|_| std::env::current_dir().unwrap())
}

/// The interpreter that `make setup` made, or the one named.
pub(crate) fn python() -> PathBuf {
    std::env::var_os("WARPWRIGHT_PYTHON")
        .map_or_else(|| workspace().join(".venv/bin/python"), PathBuf::from)
}

pub(crate) fn config(device: Device) -> JudgeConfig {
    JudgeConfig {
        device,
        profile: Profile::Strict,
        seed: 1,
        baselines: BaselineSet::Usual,
        degenerate: Degenerate::Judged,
        isolation: Requirement::Any,
        python: python(),
        cache: workspace().join("target/test-cache"),
        tier: None,
        share_baselines: true,
        libraries: warpwright_record::libraries::LibrarySet::default(),
        repeat_rate: 0.0,
        memory_limit: None,
        window: None,
    }
}

/// The judge with [`config`] that the tests of this process share: the fork servers of a judge import torch
/// once each, for seconds of a core. A test opens its own if it kills processes, changes the configuration,
/// or asserts on state that a judge gathers over its life.
pub(crate) fn shared_judge(device: Device) -> &'static LocalJudge {
    // Never dropped. The judges' processes end when this process does.
    static CPU: OnceLock<(LocalJudge, CpuSet)> = OnceLock::new();
    static GPU: OnceLock<(LocalJudge, CpuSet)> = OnceLock::new();
    let shared = match device {
        Device::Cpu => &CPU,
        Device::Cuda(0) => &GPU,
        Device::Cuda(_) => panic!("tests share a judge on the cpu device and on cuda:0 only"),
    };
    let (judge, cores) = shared.get_or_init(|| {
        let judge = LocalJudge::open(config(device)).unwrap();
        (judge, sched_getaffinity(None).unwrap())
    });
    // Opening takes the cores of timed processes from the thread that opens. Each test has its own thread.
    sched_setaffinity(None, cores).unwrap();
    judge
}

/// Verdicts on several candidates for one task, by one session.
pub(crate) fn judge_all(
    device: Device,
    task: &str,
    candidates: impl IntoIterator<Item = Candidate>,
    stage: Stage,
) -> Vec<Verdict> {
    let mut session = shared_judge(device).task(&Task::from_source("case", task)).unwrap();
    candidates.into_iter().map(|c| session.judge(&c, stage).unwrap()).collect()
}

pub(crate) fn judge_one(device: Device, case: &Case, stage: Stage) -> Verdict {
    judge_all(device, &case.task, [case.candidate()], stage).remove(0)
}

/// Each line eight spaces further in: the body of a method.
pub(crate) fn body(text: &str) -> String {
    text.lines().flat_map(|line| ["        ", line, "\n"]).collect()
}
