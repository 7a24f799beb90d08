//! Reads the tasks that a command names, and refuses invalid ones before anything starts.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use warpwright_task::{Suite, Task};

use crate::error::RolloutError;

/// Reads every task under the paths, in order, with unique names. An invalid task is refused.
pub fn read_all(paths: &[PathBuf], notice: &dyn Fn(&str)) -> Result<Vec<Task>, RolloutError> {
    let tasks = read(paths)?;
    check_all(&tasks, notice)?;
    Ok(tasks)
}

/// Refuses invalid tasks.
pub fn check_all(tasks: &[Task], notice: &dyn Fn(&str)) -> Result<(), RolloutError> {
    tasks.iter().try_for_each(|task| check(task, notice))
}

/// Like [`read_all`], but keeps invalid tasks in the list: the run reports each and continues.
pub fn read_suite(paths: &[PathBuf], notice: &dyn Fn(&str)) -> Result<Vec<Task>, RolloutError> {
    let tasks = read(paths)?;
    for task in &tasks {
        // The run says so of each broken one.
        let _ = check(task, notice);
    }
    Ok(tasks)
}

/// Reads every task under the paths, in order, with unique names, without checks.
pub fn read(paths: &[PathBuf]) -> Result<Vec<Task>, RolloutError> {
    let mut tasks = Vec::new();
    for path in paths {
        tasks.extend(Suite::read(path)?.tasks);
    }
    let mut names = HashSet::new();
    for task in &mut tasks {
        let base = task.name.clone();
        let mut number = 2;
        while !names.insert(task.name.clone()) {
            task.name = format!("{base}-{number}");
            number += 1;
        }
    }
    Ok(tasks)
}

/// Reads one task from one file.
pub fn read_one(path: &Path, notice: &dyn Fn(&str)) -> Result<Task, RolloutError> {
    let task = Task::read(path)?;
    check(&task, notice)?;
    Ok(task)
}

fn check(task: &Task, notice: &dyn Fn(&str)) -> Result<(), RolloutError> {
    for left_out in task.notes() {
        notice(&format!("warning: {}: left out: {left_out}", task.name));
    }
    for unchecked in task.unchecked() {
        notice(&format!(
            "warning: {}: not checked: {unchecked}; it is not a comparison of axes, and workloads may break it",
            task.name
        ));
    }
    match task.facts() {
        Ok(facts) => {
            for warning in facts.warnings(task.mode) {
                let warpwright_task::Warning { position, message, hint } = warning;
                notice(&format!("warning: {}, {position}: {message}; {hint}", task.name));
            }
            Ok(())
        }
        Err(error) => Err(RolloutError::usage(error.to_string(), error.hint().to_owned())),
    }
}
