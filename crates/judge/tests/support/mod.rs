//! One judge for all tests of a binary, and candidates from text.

use std::collections::BTreeMap;
use std::path::PathBuf;

use warpwright_jail::Requirement;
use warpwright_judge::{BaselineSet, Device, JudgeConfig, JudgeError, LocalJudge};
use warpwright_record::candidate::Candidate;
use warpwright_record::verdict::{Profile, Stage, Verdict};
use warpwright_task::Task;

/// A task and a candidate for it.
pub struct Case {
    pub task: String,
    pub model: String,
    pub kernels: Vec<(&'static str, String)>,
}

impl Case {
    pub fn candidate(&self) -> Candidate {
        let mut files = BTreeMap::new();
        files.insert("model_new.py".to_owned(), self.model.clone().into_bytes());
        for (name, text) in &self.kernels {
            files.insert(format!("kernels/{name}"), text.clone().into_bytes());
        }
        Candidate::from_files(files)
    }
}

fn workspace() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).canonicalize().unwrap()
}

/// The interpreter that `make setup` made, or the one named.
pub fn python() -> PathBuf {
    std::env::var_os("WARPWRIGHT_PYTHON")
        .map_or_else(|| workspace().join(".venv/bin/python"), PathBuf::from)
}

pub fn config() -> JudgeConfig {
    JudgeConfig {
        device: Device::Cpu,
        profile: Profile::Strict,
        seed: 1,
        baselines: BaselineSet::Usual,
        isolation: Requirement::Any,
        python: python(),
        cache: workspace().join("target/test-cache"),
    }
}

pub fn open() -> LocalJudge {
    LocalJudge::open(config()).unwrap()
}

pub fn judge_case(case: &Case, stage: Stage) -> Verdict {
    let judge = open();
    let task = Task::from_source("case", case.task.clone());
    judge.task(&task).unwrap().judge(&case.candidate(), stage).unwrap()
}

#[expect(dead_code, reason = "used by one of the test binaries")]
pub fn refuse_task(source: &str) -> JudgeError {
    let judge = open();
    let task = Task::from_source("case", source);
    match judge.task(&task) {
        Ok(_) => panic!("the task was accepted"),
        Err(error) => error,
    }
}
