//! The starter suite: what it promises its users, and that it stays what it was.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use warpwright_task::{InitInputs, Mode, Suite};

/// BLAKE3 over the suite's sources, as [`fingerprint`] makes it.
const FROZEN: &str = "b602530b6a14e08b2b33e941f76039efc885f1ea5fb37535b53fb66618ddc549";

fn starter() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../suites/starter")
}

/// Over `suite.json` and every `level*/*.py`, sorted by path: the path relative to the suite and
/// the bytes, each with its length in front.
fn fingerprint(suite: &Path) -> String {
    let mut files = vec![PathBuf::from("suite.json")];
    for level in fs_err::read_dir(suite).expect("the suite") {
        let level = level.expect("an entry").path();
        if !level.is_dir() {
            continue;
        }
        for file in fs_err::read_dir(&level).expect("a level") {
            let file = file.expect("an entry").path();
            if file.extension().is_some_and(|e| e == "py") {
                files.push(file.strip_prefix(suite).expect("a file of the suite").to_owned());
            }
        }
    }
    files.sort();
    let mut hasher = blake3::Hasher::new();
    for file in files {
        let path: Vec<_> = file.iter().map(|part| part.to_string_lossy()).collect();
        for bytes in [path.join("/").into_bytes(), fs_err::read(suite.join(&file)).expect("a file")]
        {
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(&bytes);
        }
    }
    hasher.finalize().to_hex().to_string()
}

#[test]
fn starter_suite_is_unchanged() {
    let found = fingerprint(&starter());
    assert_eq!(
        found, FROZEN,
        "a task of suites/starter changed. Figures measured on it would no longer compare, and the \
         built-in policy may have been tuned since: do not edit it. Put the changed tasks in a new \
         version of the suite, beside this one, with a test and a hash of its own"
    );
}

#[test]
fn starter_suite_has_three_levels_of_valid_tasks() {
    let suite = Suite::read(&starter()).expect("a suite");
    assert_eq!(suite.name, "starter-1");
    let of_level = |level| suite.tasks.iter().filter(|t| t.level == Some(level)).count();
    assert!((1..=3).all(|level| of_level(level) >= 12), "{:?}", [1, 2, 3].map(of_level));
    assert_eq!((1..=3).map(of_level).sum::<usize>(), suite.tasks.len());
    assert!(suite.tasks.len() >= 36, "only {} tasks", suite.tasks.len());
    for task in &suite.tasks {
        let facts = task.facts().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(facts.init_inputs, InitInputs::Declared, "{}", task.name);
        assert_eq!(facts.required_packages(), ["torch"], "{}", task.name);
        assert_eq!(facts.warnings(Mode::Train), [], "{}", task.name);
        assert_eq!(facts.device_uses, [], "{}", task.name);
        assert_eq!(task.mode, Mode::Eval, "{}", task.name);
    }
}

#[test]
fn starter_tasks_have_distinct_names_and_sources() {
    let suite = Suite::read(&starter()).expect("a suite");
    // Without level and number, which `Suite::read` makes unique whatever the rest is.
    let bare = |name: &str| name.splitn(3, ['-', '_']).last().map(str::to_owned);
    let names: HashSet<_> = suite.tasks.iter().map(|task| bare(&task.name)).collect();
    assert_eq!(names.len(), suite.tasks.len());
    let sources: HashSet<_> = suite.tasks.iter().map(|task| &task.hash).collect();
    assert_eq!(sources.len(), suite.tasks.len());
}
