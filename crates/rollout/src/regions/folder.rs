//! Writes the tasks of a divided model, and `regions.json` beside them.

use std::path::{Path, PathBuf};

use fs_err as fs;
use warpwright_record::regions::REGIONS_FILE;

use super::Extracted;
use crate::error::RolloutError;

/// Folder of the tasks.
const TASKS: &str = "tasks";

/// Refuses a folder that has files: tasks of another model would be taken for those of this one.
pub fn check(out: &Path) -> Result<(), RolloutError> {
    let empty = match fs::read_dir(out) {
        Ok(mut entries) => entries.next().is_none(),
        Err(_) => !out.exists(),
    };
    if empty {
        return Ok(());
    }
    let message = format!("failed to write to {}: it has files, or is no folder", out.display());
    Err(RolloutError::usage(message, "name a new folder with --out".to_owned()))
}

/// Writes both; returns the folder of the tasks.
pub fn write(out: &Path, extracted: &Extracted) -> Result<PathBuf, RolloutError> {
    check(out)?;
    let tasks = out.join(TASKS);
    let io = |error| RolloutError::io(format!("write to {}", out.display()), error);
    fs::create_dir_all(&tasks).map_err(io)?;
    for task in &extracted.tasks {
        fs::write(tasks.join(format!("{}.py", task.name)), &task.source).map_err(io)?;
    }
    let text = serde_json::to_string_pretty(&extracted.regions)
        .map_err(|error| io(std::io::Error::other(error)))?;
    fs::write(out.join(REGIONS_FILE), text + "\n").map_err(io)?;
    Ok(tasks)
}
