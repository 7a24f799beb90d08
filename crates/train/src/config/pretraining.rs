//! What a policy from scratch reads first.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use warpwright_task::Task;
use warpwright_teacher::Flaws;

use super::Fitting;
use super::fitting::check_flaws;
use super::tasks::{Tasks, refuse_both};
use crate::error::TrainError;

/// Source code that lies on the machine, and kernels that are written and not judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pretraining {
    /// Tasks for which the built-in policy writes kernels; paths as in `tasks.train`.
    #[serde(default)]
    pub tasks: Vec<PathBuf>,
    /// Limit on `pretrain.tasks`; the run's seed samples them. Default: all. `collect.max_tasks` takes the first tasks
    /// instead.
    pub max_tasks: Option<usize>,
    /// Excludes a data set's tasks with more operators than this. Default: none.
    pub max_operators: Option<usize>,
    /// Kernels per task.
    #[serde(default = "kernels_per_task")]
    pub kernels_per_task: usize,
    /// Rates of the kernels' flaws. Only first messages are written, so rates of later messages have no effect.
    #[serde(default)]
    pub flaws: Flaws,
    /// Folders of source code. `site-packages/NAME` lies in Python's packages and `cuda/NAME` in the CUDA toolkit; other
    /// paths are relative to the configuration's folder.
    #[serde(default)]
    pub sources: Vec<PathBuf>,
    /// Limit on the source code, MiB.
    #[serde(default = "max_source_mib")]
    pub max_source_mib: f64,
    /// Limit on the kernels' share of all tokens; kernels beyond it are left out, chosen by the run's seed. Default: no
    /// limit.
    pub max_kernel_share: Option<f64>,
    /// How it trains.
    pub fit: Fitting,
}

fn kernels_per_task() -> usize {
    1
}
fn max_source_mib() -> f64 {
    16.0
}

impl Pretraining {
    pub(super) fn check(&self) -> Result<(), String> {
        check_flaws(&self.flaws, "pretrain")?;
        if self.tasks.is_empty() && self.sources.is_empty() {
            return Err("[pretrain] needs tasks or sources".to_owned());
        }
        if self.kernels_per_task == 0 || self.max_tasks == Some(0) {
            return Err(
                "pretrain.kernels_per_task and pretrain.max_tasks must be at least 1".to_owned()
            );
        }
        if self.max_source_mib.is_nan() || self.max_source_mib <= 0.0 {
            return Err("pretrain.max_source_mib must be more than 0".to_owned());
        }
        if self.max_kernel_share.is_some() && self.sources.is_empty() {
            return Err("pretrain.max_kernel_share needs pretrain.sources".to_owned());
        }
        if self.max_kernel_share.is_some_and(|share| !(0.0..1.0).contains(&share)) {
            return Err("pretrain.max_kernel_share must be at least 0 and below 1".to_owned());
        }
        Ok(())
    }

    /// The tasks for which kernels are written. A held-out task is refused.
    pub fn read(
        &self,
        folder: &Path,
        seed: u64,
        held_out: &[Task],
        notice: &dyn Fn(&str),
    ) -> Result<Vec<Task>, TrainError> {
        let tasks = Tasks {
            train: self.tasks.clone(),
            held_out: Vec::new(),
            max_train_tasks: self.max_tasks,
            max_held_out_tasks: None,
            max_operators: self.max_operators,
            held_out_shapes: 0,
        };
        let (tasks, _) = tasks.read(folder, seed, notice)?;
        refuse_both(&tasks, held_out)?;
        Ok(tasks)
    }
}
