//! What is trained on, and what is held out.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use warpwright_rollout::tasks;
use warpwright_task::Task;

use crate::error::TrainError;

/// Tasks: files, folders or data sets, relative to the configuration's folder. A data set's split `train` is trained on,
/// its split `test` is held out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tasks {
    /// Tasks to train on.
    #[schemars(extend("x-verl" = ["data.train_files"]))]
    pub train: Vec<PathBuf>,
    /// Tasks for evaluation only.
    #[serde(default)]
    #[schemars(extend("x-verl" = ["data.val_files"]))]
    pub held_out: Vec<PathBuf>,
    /// Limit on the tasks to train on; the run's seed decides which. Default: all.
    #[schemars(extend("x-verl" = ["data.train_max_samples"]))]
    pub max_train_tasks: Option<usize>,
    /// Limit on the held-out tasks. Default: all.
    #[schemars(extend("x-verl" = ["data.val_max_samples"]))]
    pub max_held_out_tasks: Option<usize>,
    /// Excludes a data set's tasks with more operators than this. Default: none.
    pub max_operators: Option<usize>,
    /// Number of workloads of each task, drawn by the run's seed, that the policy does not see: only final candidates
    /// are judged on them. A task with one set of inputs stays as it is. Default: 0.
    #[serde(default)]
    pub held_out_shapes: usize,
}

impl Tasks {
    pub(super) fn check(&self) -> Result<(), String> {
        if self.train.is_empty() {
            return Err("tasks.train is empty".to_owned());
        }
        if self.max_train_tasks == Some(0) || self.max_held_out_tasks == Some(0) {
            return Err(
                "tasks.max_train_tasks and tasks.max_held_out_tasks must be at least 1".to_owned()
            );
        }
        Ok(())
    }

    /// The tasks to train on and those held out. A task that is among both is refused.
    pub fn read(
        &self,
        folder: &Path,
        seed: u64,
        notice: &dyn Fn(&str),
    ) -> Result<(Vec<Task>, Vec<Task>), TrainError> {
        let named = |paths: &[PathBuf], split: &str| -> Result<Vec<Task>, TrainError> {
            let paths: Vec<PathBuf> = paths.iter().map(|path| folder.join(path)).collect();
            self.of_split(&paths, tasks::read(&paths)?, split)
        };
        let mut train = named(&self.train, "train")?;
        let mut held_out = named(&self.held_out, "test")?;
        refuse_both(&train, &held_out)?;
        draw(&mut train, self.max_train_tasks, seed);
        draw(&mut held_out, self.max_held_out_tasks, seed);
        tasks::check_all(&train, notice)?;
        tasks::check_all(&held_out, notice)?;
        Ok((self.without_shapes(train, seed)?, self.without_shapes(held_out, seed)?))
    }

    /// Holds out workloads of each task that has some.
    fn without_shapes(&self, tasks: Vec<Task>, seed: u64) -> Result<Vec<Task>, TrainError> {
        let one = |task: Task| {
            // One whose workloads cannot be read is refused with the reason.
            if task.workloads().is_ok_and(|workloads| workloads.is_empty()) {
                return Ok(task);
            }
            task.hold_out(self.held_out_shapes, seed).map_err(|error| {
                TrainError::usage(
                    error.to_string(),
                    format!("{}; or lower tasks.held_out_shapes", error.hint()),
                )
            })
        };
        tasks.into_iter().map(one).collect()
    }

    /// Restricts data sets to a split; files and folders are unchanged.
    fn of_split(
        &self,
        paths: &[PathBuf],
        mut tasks: Vec<Task>,
        split: &str,
    ) -> Result<Vec<Task>, TrainError> {
        let is_table = |path: &Path| {
            path.extension().is_some_and(|e| e == "parquet" || e == "jsonl" || e == "ndjson")
        };
        let of_table = |task: &Task, path: &PathBuf| task.origin.as_ref() == Some(path);
        for path in paths.iter().filter(|path| is_table(path)) {
            let has = |task: &Task| of_table(task, path) && task.split.as_deref() == Some(split);
            if !tasks.iter().any(has) {
                let message = format!(
                    "failed to read tasks from {}: no row has the split `{split}`",
                    path.display()
                );
                let hint = "its column `split` must be train, validation or test; or name files and \
                            folders instead";
                return Err(TrainError::usage(message, hint.to_owned()));
            }
            tasks.retain(|task| !of_table(task, path) || has(task));
        }
        if let Some(most) = self.max_operators {
            tasks.retain(|task| task.ops.as_ref().is_none_or(|ops| ops.len() <= most));
            if tasks.is_empty() && !paths.is_empty() {
                let message = format!("failed to find a task of at most {most} operators");
                return Err(TrainError::usage(message, "raise tasks.max_operators".to_owned()));
            }
        }
        Ok(tasks)
    }
}

pub(super) fn refuse_both(train: &[Task], held_out: &[Task]) -> Result<(), TrainError> {
    let known: HashMap<&str, &Task> =
        train.iter().map(|task| (task.source.as_str(), task)).collect();
    let Some(both) = held_out.iter().find(|task| known.contains_key(task.source.as_str())) else {
        return Ok(());
    };
    let message = format!(
        "failed to hold out {}: it is also the training task {}",
        both.name,
        known[both.source.as_str()].name
    );
    Err(TrainError::usage(message, "remove it from tasks.train or from tasks.held_out".to_owned()))
}

/// Samples `count` of them, keeping their order.
fn draw(tasks: &mut Vec<Task>, count: Option<usize>, seed: u64) {
    let Some(count) = count.filter(|count| *count < tasks.len()) else { return };
    let mut numbers: Vec<usize> = (0..tasks.len()).collect();
    numbers.shuffle(&mut StdRng::seed_from_u64(seed));
    numbers.truncate(count);
    let mut number = 0..;
    tasks.retain(|_| number.next().is_some_and(|number| numbers.contains(&number)));
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x\n";

    fn read(held_out_shapes: usize, rows: &str) -> Result<(Vec<Task>, Vec<Task>), TrainError> {
        let folder = tempfile::tempdir().unwrap();
        let single = format!("{HEAD}def get_inputs():\n    return [torch.randn(4)]\n");
        let several = format!(
            "{HEAD}def get_workloads():\n    return [{{'rows': 1}}, {{'rows': 2}}, {{'rows': 3}}]\n\
             def get_inputs(rows={rows}):\n    return [torch.randn(rows)]\n"
        );
        fs_err::write(folder.path().join("single.py"), single).unwrap();
        fs_err::write(folder.path().join("several.py"), several).unwrap();
        let text =
            format!("train = ['single.py', 'several.py']\nheld_out_shapes = {held_out_shapes}\n");
        let tasks: Tasks = toml::from_str(&text).unwrap();
        tasks.read(folder.path(), 5, &|_| ())
    }

    #[test]
    fn held_out_shapes_hide_workloads_of_tasks() {
        let shown = |held_out: usize| {
            let (train, _) = read(held_out, "1").unwrap();
            let shown = |task: &Task| task.shown().unwrap().workloads().unwrap().len();
            train.iter().map(|task| (task.name.clone(), shown(task))).collect::<Vec<_>>()
        };
        let of = |several: usize| vec![("single".to_owned(), 0), ("several".to_owned(), several)];
        assert_eq!((shown(0), shown(2)), (of(3), of(1)));
        let hashes = || read(2, "1").unwrap().0.into_iter().map(|task| task.hash);
        assert!(hashes().eq(hashes()), "the seed decides");
        let few = read(3, "1").unwrap_err().to_string();
        assert!(few.contains("hold out 3 workloads of task several: it has 3"), "{few}");
        let computed = read(1, "1 + 0").unwrap_err().to_string();
        assert!(computed.contains("a default of `get_inputs` is computed"), "{computed}");
        assert!(read(0, "1 + 0").is_ok(), "nothing is held out");
    }
}
