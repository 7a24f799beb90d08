//! Finds the definitions of a folder.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::natural::natural_cmp;
use crate::read_error::ReadError;
use crate::task::Task;

/// The file of a problem of SOL-ExecBench.
pub(crate) const DEFINITION: &str = "definition.json";
const WORKLOADS: &str = "workload.jsonl";
/// The folder of a trace set of FlashInfer-Bench that has its definitions.
const DEFINITIONS: &str = "definitions";
/// How deep below the opened folder problems are sought.
const DEEPEST: usize = 4;
/// Most folders that are looked into.
const MOST_FOLDERS: usize = 20_000;

/// The tasks of a folder of definitions; `None` where it has none.
///
/// * `DIR/definition.json` and `DIR/workload.jsonl`: one problem of SOL-ExecBench;
/// * `DIR/definitions/TYPE/NAME.json` and `DIR/workloads/TYPE/NAME.jsonl`: a trace set of
///   FlashInfer-Bench;
/// * problems in folders below, at most four deep: a data set of SOL-ExecBench.
pub(crate) fn read(folder: &Path) -> Result<Option<Vec<Task>>, ReadError> {
    if let Some(definition) = super::named_by(folder) {
        return Ok(Some(vec![one(&definition)?]));
    }
    let of_traces = folder.join(DEFINITIONS);
    let mut found = if of_traces.is_dir() {
        let definitions = search(&of_traces, MOST_FOLDERS, &|path| {
            path.extension().is_some_and(|e| e == "json")
        })?;
        definitions.into_iter().map(|path| (workloads_of_trace(folder, &path), path)).collect()
    } else {
        let definitions = search(folder, MOST_FOLDERS, &|path| {
            path.file_name().is_some_and(|name| name == DEFINITION)
        })?;
        definitions
            .into_iter()
            .map(|path| (path.with_file_name(WORKLOADS), path))
            .collect::<Vec<_>>()
    };
    found.sort_by(|(_, a), (_, b)| natural_cmp(&a.to_string_lossy(), &b.to_string_lossy()));
    if found.is_empty() {
        return Ok(None);
    }
    let tasks = found.into_iter().map(|(workloads, definition)| {
        super::read(&definition, &workloads, folder)
            .unwrap_or_else(|error| super::refused(&definition, &called(&definition), &error))
    });
    Ok(Some(tasks.collect()))
}

/// The task of one definition.
pub(crate) fn one(definition: &Path) -> Result<Task, ReadError> {
    let folder = definition.parent().unwrap_or(Path::new("."));
    // `ROOT/definitions/TYPE/NAME.json`.
    let root =
        definition.ancestors().skip(2).take(2).find_map(|above| {
            (above.file_name()? == DEFINITIONS).then(|| above.parent()).flatten()
        });
    let workloads = match root {
        Some(root) => workloads_of_trace(root, definition),
        None if definition.file_name().is_some_and(|name| name == DEFINITION) => {
            definition.with_file_name(WORKLOADS)
        }
        None => definition.with_extension("jsonl"),
    };
    super::read(definition, &workloads, root.unwrap_or(folder))
}

/// The workloads of `ROOT/definitions/TYPE/NAME.json`. Early trace sets had them elsewhere.
fn workloads_of_trace(root: &Path, definition: &Path) -> PathBuf {
    let inner = definition.strip_prefix(root.join(DEFINITIONS)).unwrap_or(definition);
    let now = root.join("workloads").join(inner.with_extension("jsonl"));
    let early = root.join("traces/workloads");
    [early.join(inner.with_extension("jsonl")), early.join(inner.with_extension("workload.jsonl"))]
        .into_iter()
        .find(|path| !now.is_file() && path.is_file())
        .unwrap_or(now)
}

/// What a definition that cannot be read is called: its folder or file.
fn called(definition: &Path) -> String {
    let of_problem = definition.file_name().is_some_and(|name| name == DEFINITION);
    let name = if of_problem {
        definition.parent().and_then(Path::file_name)
    } else {
        definition.file_stem()
    };
    name.unwrap_or_default().to_string_lossy().into_owned()
}

/// Files in `begin` and in at most `most` folders below whose names are `wanted`. Links to folders are not followed.
fn search(
    begin: &Path,
    most: usize,
    wanted: &dyn Fn(&Path) -> bool,
) -> Result<Vec<PathBuf>, ReadError> {
    let mut found = Vec::new();
    let mut next = VecDeque::from([(begin.to_owned(), 0)]);
    let mut looked = 0;
    while let Some((folder, depth)) = next.pop_front() {
        looked += 1;
        if looked > most {
            return Err(ReadError::Definition {
                path: begin.to_owned(),
                reason: format!("it has more than {most} folders in it"),
                cure: "name the folder of the definitions, or one of its folders",
            });
        }
        for entry in fs::read_dir(&folder).map_err(|error| ReadError::io(&folder, error))? {
            let entry = entry.map_err(|error| ReadError::io(&folder, error))?;
            let kind = entry.file_type().map_err(|error| ReadError::io(&folder, error))?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(['.', '_']) {
                continue;
            }
            if kind.is_dir() && depth < DEEPEST {
                next.push_back((entry.path(), depth + 1));
            } else if !kind.is_dir() && wanted(&entry.path()) {
                found.push(entry.path());
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_with_too_many_folders_is_refused() {
        let root = tempfile::tempdir().unwrap();
        for number in 0..4 {
            let folder = root.path().join(number.to_string());
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join(DEFINITION), "{}").unwrap();
        }
        let named = |path: &Path| path.ends_with(DEFINITION);
        assert_eq!(search(root.path(), 5, &named).unwrap().len(), 4);
        let error = search(root.path(), 4, &named).unwrap_err();
        assert!(error.to_string().ends_with("it has more than 4 folders in it"), "{error}");
    }
}
