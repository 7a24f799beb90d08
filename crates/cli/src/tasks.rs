//! Reads the tasks that a command names, and refuses invalid ones before anything starts.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use warpwright_task::{Suite, Task};

use crate::failure::Failure;
use crate::printer::Printer;

/// Reads every task under the paths, in order, with unique names. An invalid task is refused.
pub(crate) fn read_all(paths: &[PathBuf], printer: Printer) -> Result<Vec<Task>, Failure> {
    let tasks = read(paths)?;
    check_all(&tasks, printer)?;
    Ok(tasks)
}

/// Refuses invalid tasks.
pub(crate) fn check_all(tasks: &[Task], printer: Printer) -> Result<(), Failure> {
    tasks.iter().try_for_each(|task| check(task, printer))
}

/// Like [`read_all`], but keeps invalid tasks in the list: the run reports each and continues.
pub(crate) fn read_suite(paths: &[PathBuf], printer: Printer) -> Result<Vec<Task>, Failure> {
    let tasks = read(paths)?;
    for task in &tasks {
        // The run says so of each broken one.
        let _ = check(task, printer);
    }
    Ok(tasks)
}

/// Reads every task under the paths, in order, with unique names, without checks.
pub(crate) fn read(paths: &[PathBuf]) -> Result<Vec<Task>, Failure> {
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
pub(crate) fn read_one(path: &Path, printer: Printer) -> Result<Task, Failure> {
    let task = Task::read(path)?;
    check(&task, printer)?;
    Ok(task)
}

fn check(task: &Task, printer: Printer) -> Result<(), Failure> {
    match task.facts() {
        Ok(facts) => {
            for warning in facts.warnings(task.mode) {
                let warpwright_task::Warning { position, message, hint } = warning;
                printer.say(&format!("warning: {}, {position}: {message}; {hint}", task.name));
            }
            Ok(())
        }
        Err(error) => Err(Failure::usage(error.to_string(), error.hint().to_owned())),
    }
}
