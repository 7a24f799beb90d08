//! What a policy from scratch reads first.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use warpwright_task::Task;
use warpwright_teacher::Flaws;

use super::tasks::{Tasks, refuse_both};
use super::{Fitting, check_flaws};
use crate::failure::Failure;
use crate::printer::Printer;

/// Source code that lies on the machine, and kernels that are written and not judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pretraining {
    /// Tasks that kernels are written for, as `tasks.train`.
    #[serde(default)]
    pub(crate) tasks: Vec<PathBuf>,
    /// Most of these, drawn by the run's seed; all.
    pub(crate) sample: Option<usize>,
    /// Of data sets, only tasks of at most so many operators; any.
    pub(crate) most_operators: Option<usize>,
    /// Kernels of each task.
    #[serde(default = "versions")]
    pub(crate) versions: usize,
    /// What is wrong with them, how often; what comes after the first message is left out.
    #[serde(default)]
    pub(crate) flaws: Flaws,
    /// Folders of source code: `site-packages/NAME` and `cuda/NAME` lie in Python's and in the toolkit,
    /// others begin at the configuration's folder.
    #[serde(default)]
    pub(crate) sources: Vec<PathBuf>,
    /// Most source code, MiB.
    #[serde(default = "source_mib")]
    pub(crate) source_mib: f64,
    /// Share of the tokens that are kernels' at most: others are left out, by the run's seed. All.
    pub(crate) share: Option<f64>,
    /// How it is learned.
    pub(crate) fit: Fitting,
}

fn versions() -> usize {
    1
}
fn source_mib() -> f64 {
    16.0
}

impl Pretraining {
    pub(super) fn check(&self) -> Result<(), &'static str> {
        check_flaws(&self.flaws, "pretrain.flaws are shares between 0 and 1")?;
        if self.tasks.is_empty() && self.sources.is_empty() {
            return Err("pretrain needs tasks or sources");
        }
        if self.versions == 0 || self.sample == Some(0) {
            return Err("pretrain.versions and pretrain.sample are at least 1");
        }
        if self.source_mib.is_nan() || self.source_mib <= 0.0 {
            return Err("pretrain.source_mib is more than 0");
        }
        if self.share.is_some() && self.sources.is_empty() {
            return Err("pretrain.share needs sources: of what kernels are to be a share");
        }
        if self.share.is_some_and(|share| !(0.0..1.0).contains(&share)) {
            return Err("pretrain.share is at least 0 and below 1");
        }
        Ok(())
    }

    /// The tasks that kernels are written for. One that is held out is refused.
    pub(crate) fn read(
        &self,
        folder: &Path,
        seed: u64,
        held_out: &[Task],
        printer: Printer,
    ) -> Result<Vec<Task>, Failure> {
        let tasks = Tasks {
            train: self.tasks.clone(),
            held_out: Vec::new(),
            sample: self.sample,
            held_out_sample: None,
            most_operators: self.most_operators,
        };
        let (tasks, _) = tasks.read(folder, seed, printer)?;
        refuse_both(&tasks, held_out)?;
        Ok(tasks)
    }
}
