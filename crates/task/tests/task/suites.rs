//! Files and folders.

use std::path::Path;

use fs_err as fs;
use insta::{assert_snapshot, with_settings};
use tempfile::{TempDir, tempdir};
use warpwright_task::{MAX_SOURCE_BYTES, Mode, ReadError, Suite, Task};

use crate::GOOD;

/// A folder with these files, each holding a good task.
fn folder(files: &[&str]) -> TempDir {
    let folder = tempdir().expect("a temporary folder");
    for file in files {
        write(folder.path(), file, GOOD);
    }
    folder
}

fn write(folder: &Path, file: &str, contents: &str) {
    let path = folder.join(file);
    fs::create_dir_all(path.parent().expect("a parent")).expect("create");
    fs::write(path, contents).expect("write");
}

fn names(suite: &Suite) -> Vec<&str> {
    suite.tasks.iter().map(|task| task.name.as_str()).collect()
}

/// The error and its hint, with the temporary folder's name taken out.
fn said(folder: &TempDir, error: &ReadError) -> String {
    let text = format!("{error}\nhint: {}", error.hint().unwrap_or_default());
    text.replace(&folder.path().display().to_string(), "FOLDER")
}

#[test]
fn one_file_is_read_as_a_task() {
    let folder = folder(&["rms_norm.py"]);
    let path = folder.path().join("rms_norm.py");
    let task = Task::read(&path).expect("a task");
    assert_eq!(task.name, "rms_norm");
    assert_eq!(task.source, GOOD);
    assert_eq!(task.hash, blake3::hash(GOOD.as_bytes()).to_hex().to_string());
    assert_eq!((task.mode, task.level), (Mode::Eval, None));
    assert_eq!(task.origin.as_deref(), Some(path.as_path()));
    let suite = Suite::read(&path).expect("a suite of one");
    assert_eq!(suite.name, "rms_norm");
    assert_eq!(suite.tasks, [task]);
}

#[test]
fn folder_is_read_in_natural_order() {
    let folder = folder(&[
        "10_c.py",
        "2_b.py",
        "1_a.py",
        "_shared.py",
        ".hidden.py",
        "deep/4_d.py",
        "notes.txt",
    ]);
    let suite = Suite::read(folder.path()).expect("a suite");
    assert_eq!(names(&suite), ["1_a", "2_b", "10_c"]);
}

#[test]
fn kernelbench_checkout_is_read() {
    let files = [
        "KernelBench/level1/10_b.py",
        "KernelBench/level1/9_a.py",
        "KernelBench/level2/1_c.py",
        "KernelBench/level4/2_d.py",
        "scripts/generate.py",
        "setup.py",
    ];
    let folder = folder(&files);
    let expected = ["level1-9_a", "level1-10_b", "level2-1_c", "level4-2_d"];
    for path in [folder.path().to_owned(), folder.path().join("KernelBench")] {
        let suite = Suite::read(&path).expect("a suite");
        assert_eq!(names(&suite), expected);
        let levels: Vec<_> = suite.tasks.iter().map(|task| task.level).collect();
        assert_eq!(levels, [Some(1), Some(1), Some(2), Some(4)]);
    }
    let level = Suite::read(&folder.path().join("KernelBench/level1")).expect("one level");
    assert_eq!(names(&level), ["9_a", "10_b"]);
    assert_eq!(level.tasks[0].level, Some(1));
}

#[test]
fn suite_json_sets_name_and_mode() {
    let folder = folder(&["a.py"]);
    write(folder.path(), "suite.json", r#"{"version": 1, "name": "mine", "mode": "train"}"#);
    let suite = Suite::read(folder.path()).expect("a suite");
    assert_eq!((suite.name.as_str(), suite.tasks[0].mode), ("mine", Mode::Train));
}

#[test]
fn names_that_differ_only_by_case_are_made_unique() {
    let folder = folder(&["Relu.py", "relu.py", "relu-2.py"]);
    assert_eq!(names(&Suite::read(folder.path()).expect("a suite")), ["Relu", "relu-2", "relu-3"]);
}

#[test]
fn error_names_the_bad_path() {
    let folder = folder(&["models/a.py", "models/b.py", "table.csv", "empty/_skipped.py"]);
    write(folder.path(), "large.py", &"#".repeat(MAX_SOURCE_BYTES + 1));
    fs::write(folder.path().join("latin1.py"), b"# caf\xe9\n").expect("write");
    write(folder.path(), "future/suite.json", r#"{"version": 2}"#);
    write(folder.path(), "typo/suite.json", r#"{"version": 1, "mod": "train"}"#);
    let task = |name: &str| said(&folder, &Task::read(&folder.path().join(name)).expect_err(name));
    let suite =
        |name: &str| said(&folder, &Suite::read(&folder.path().join(name)).expect_err(name));
    with_settings!({ omit_expression => true }, {
        assert_snapshot!(task("nothing.py"), @"
        failed to read a task from FOLDER/nothing.py: there is no such file or folder
        hint: check the path; tasks are .py, .jsonl or .parquet files, or folders of .py files
        ");
        assert_snapshot!(task("models"), @"
        failed to read a task from FOLDER/models: it is a folder, not one Python file
        hint: name one file in it, for example FOLDER/models/a.py
        ");
        assert_snapshot!(task("table.csv"), @"
        failed to read a task from FOLDER/table.csv: it is not a .py, .jsonl or .parquet file
        hint: rename a PyTorch module to .py, or a table with a `code` column to .jsonl or .parquet
        ");
        assert_snapshot!(task("large.py"), @"
        failed to read a task from FOLDER/large.py: its 262145 bytes exceed the limit of 262144
        hint: a task is one module's reference; leave weights and data out of the source
        ");
        assert_snapshot!(task("latin1.py"), @"
        failed to read a task from FOLDER/latin1.py: the byte at offset 5 is not UTF-8
        hint: save the file as UTF-8
        ");
        assert_snapshot!(suite("nothing"), @"
        failed to read a task from FOLDER/nothing: there is no such file or folder
        hint: check the path; tasks are .py, .jsonl or .parquet files, or folders of .py files
        ");
        assert_snapshot!(suite("table.csv"), @"
        failed to read a task from FOLDER/table.csv: it is not a .py, .jsonl or .parquet file
        hint: rename a PyTorch module to .py, or a table with a `code` column to .jsonl or .parquet
        ");
        assert_snapshot!(suite("empty"), @"
        failed to read a suite from FOLDER/empty: it contains no tasks
        hint: a suite is a folder of .py files, a KernelBench checkout (level1, level2, ...), a table with a `code` column, or a folder with a definition.json in each folder; files whose names begin with `_` or `.` are ignored
        ");
        assert_snapshot!(suite("future"), @r#"
        failed to read a suite from FOLDER/future/suite.json: its version is 2, and this program reads version 1
        hint: suite.json looks like {"version": 1, "name": "mine", "mode": "eval"}; mode is eval or train
        "#);
        assert_snapshot!(suite("typo"), @r#"
        failed to read a suite from FOLDER/typo/suite.json: unknown field `mod`, expected one of `version`, `name`, `mode` at line 1 column 20
        hint: suite.json looks like {"version": 1, "name": "mine", "mode": "eval"}; mode is eval or train
        "#);
    });
}
