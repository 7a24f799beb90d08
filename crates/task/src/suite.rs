//! Named, ordered sets of tasks.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use fs_err as fs;
use serde::Deserialize;

use crate::definition;
use crate::mode::Mode;
use crate::natural::natural_cmp;
use crate::read_error::ReadError;
use crate::table;
use crate::task::{Task, safe_name};

/// Version of `suite.json` that this program reads.
const MANIFEST_VERSION: u32 = 1;

/// A named, ordered set of tasks with unique names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suite {
    /// From `suite.json`, else the file's or folder's name.
    pub name: String,
    /// Never empty. Files in natural order (`2_x.py` before `10_x.py`), rows as in their table.
    pub tasks: Vec<Task>,
}

/// A folder's optional `suite.json`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    version: u32,
    name: Option<String>,
    #[serde(default)]
    mode: Mode,
}

impl Suite {
    /// From `path`, which is one of
    ///
    /// * a `.py` file: a suite of one;
    /// * a `.jsonl` or `.parquet` file with a column `code`; columns `name`, `level`, `ops`,
    ///   `data_source`, `split` and `mode` are kept where they are;
    /// * a KernelBench checkout, or its `KernelBench` folder: every `.py` of `level1`, `level2`, ...
    ///   with the level kept and the level's folder in the name;
    /// * a `.json` that is a definition of SOL-ExecBench or FlashInfer-Bench, or a folder of such: with
    ///   `definition.json`, with `definitions/TYPE/NAME.json`, or without Python files and with folders
    ///   that have a `definition.json`. A definition that cannot be judged becomes a task whose facts
    ///   are the error;
    /// * any other folder: its `.py` files, not those of folders in it. One level folder of a
    ///   checkout keeps its level.
    ///
    /// Files whose names begin with `_` or `.` do not count. A `suite.json` in the folder
    /// (`{"version": 1, "name": ..., "mode": "eval" | "train"}`) names the suite and sets its mode.
    /// Sources are not checked: see [`Task::facts`].
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let meta = fs::metadata(path).map_err(|error| ReadError::io(path, error))?;
        let mut suite = if meta.is_dir() {
            read_folder(path)?
        } else {
            let tasks = match path.extension().and_then(|e| e.to_str()) {
                Some("jsonl" | "ndjson") => table::read_jsonl(path)?,
                Some("parquet") => table::read_parquet(path)?,
                _ => vec![Task::read(path)?],
            };
            Self { name: stem(path), tasks }
        };
        if suite.tasks.is_empty() {
            return Err(ReadError::Empty { path: path.to_owned() });
        }
        make_names_unique(&mut suite.tasks);
        Ok(suite)
    }
}

fn read_folder(path: &Path) -> Result<Suite, ReadError> {
    let manifest = read_manifest(path)?;
    if path.join("definition.json").is_file() || path.join("definitions").is_dir() {
        return definitions(path, manifest);
    }
    let mut levels = level_folders(path)?;
    if levels.is_empty() {
        levels = level_folders(&path.join("KernelBench")).unwrap_or_default();
    }
    let mut tasks = Vec::new();
    if levels.is_empty() {
        let level = path.file_name().and_then(|name| level_of(&name.to_string_lossy()));
        tasks = read_files(path, level)?;
    } else {
        for (level, folder) in levels {
            for mut task in read_files(&folder, Some(level))? {
                task.name = safe_name(&format!("level{level}-{}", task.name));
                tasks.push(task);
            }
        }
    }
    if tasks.is_empty() {
        return definitions(path, manifest);
    }
    for task in &mut tasks {
        task.mode = manifest.mode;
    }
    Ok(Suite { name: manifest.name.map_or_else(|| stem(path), |name| safe_name(&name)), tasks })
}

/// A folder of definitions of other formats; without tasks where there is none.
fn definitions(path: &Path, manifest: Manifest) -> Result<Suite, ReadError> {
    let mut tasks = definition::folder::read(path)?.unwrap_or_default();
    for task in &mut tasks {
        task.mode = manifest.mode;
    }
    Ok(Suite { name: manifest.name.map_or_else(|| stem(path), |name| safe_name(&name)), tasks })
}

fn read_manifest(folder: &Path) -> Result<Manifest, ReadError> {
    let path = folder.join("suite.json");
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Manifest::default()),
        Err(error) => return Err(ReadError::io(&path, error)),
    };
    let manifest: Manifest = serde_json::from_str(&text)
        .map_err(|error| ReadError::Manifest { path: path.clone(), reason: error.to_string() })?;
    if manifest.version != MANIFEST_VERSION {
        let reason = format!(
            "its version is {}, and this program reads version {MANIFEST_VERSION}",
            manifest.version
        );
        return Err(ReadError::Manifest { path, reason });
    }
    Ok(manifest)
}

/// Folders `level1`, `level2`, ... of `folder`, by level.
fn level_folders(folder: &Path) -> Result<Vec<(u8, PathBuf)>, ReadError> {
    let mut levels: Vec<_> = entries(folder)?
        .into_iter()
        .filter(|path| path.is_dir())
        .filter_map(|path| Some((level_of(&path.file_name()?.to_string_lossy())?, path)))
        .collect();
    levels.sort();
    Ok(levels)
}

fn level_of(folder_name: &str) -> Option<u8> {
    folder_name.strip_prefix("level").or_else(|| folder_name.strip_prefix("level_"))?.parse().ok()
}

/// The `.py` files of `folder` as tasks, in natural order.
fn read_files(folder: &Path, level: Option<u8>) -> Result<Vec<Task>, ReadError> {
    let mut files: Vec<(String, PathBuf)> = entries(folder)?
        .into_iter()
        .filter(|path| path.extension().is_some_and(|e| e == "py") && path.is_file())
        .filter_map(|path| Some((path.file_name()?.to_string_lossy().into_owned(), path)))
        .filter(|(name, _)| !name.starts_with(['_', '.']))
        .collect();
    files.sort_by(|(a, _), (b, _)| natural_cmp(a, b));
    files
        .into_iter()
        .map(|(_, path)| {
            let mut task = Task::read(&path)?;
            task.level = level;
            Ok(task)
        })
        .collect()
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, ReadError> {
    let read = || fs::read_dir(folder)?.map(|entry| entry.map(|e| e.path())).collect();
    let result: io::Result<Vec<PathBuf>> = read();
    result.map_err(|error| ReadError::io(folder, error))
}

/// The last component of `path` without extension; `.` and `..` are resolved first.
fn stem(path: &Path) -> String {
    let resolved = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    safe_name(&resolved.file_stem().unwrap_or_default().to_string_lossy())
}

/// Appends `-2`, `-3`, ... to names already taken. Sanitising, or a data set's own `name` column,
/// can make two alike, and names become folders.
fn make_names_unique(tasks: &mut [Task]) {
    let mut taken = HashSet::new();
    for task in tasks {
        let mut name = task.name.clone();
        let mut count = 1;
        // Case folded: a folder may lie on a file system that ignores case.
        while !taken.insert(name.to_ascii_lowercase()) {
            count += 1;
            name = format!("{}-{count}", task.name);
        }
        task.name = name;
    }
}
