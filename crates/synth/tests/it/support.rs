//! A Python with torch, in a jail.

use std::path::PathBuf;
use std::sync::Arc;

use warpwright_jail::{Jail, Requirement};
use warpwright_synth::{Miner, Snippet};

fn workspace() -> PathBuf {
    let baked = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    baked.canonicalize().unwrap_or_else(|_| std::env::current_dir().unwrap())
}

/// The interpreter that `make setup` installs, or the one that the environment names.
pub(crate) fn torch() -> Miner {
    let python = std::env::var_os("WARPWRIGHT_PYTHON")
        .map_or_else(|| workspace().join(".venv/bin/python"), PathBuf::from);
    Miner::new(Arc::new(Jail::detect(Requirement::Any).unwrap()), python)
}

/// An interpreter with transformers, which takes torch from `.venv`.
pub(crate) fn transformers() -> Miner {
    let python = std::env::var_os("WARPWRIGHT_TRANSFORMERS_PYTHON")
        .map_or_else(|| workspace().join(".cache/model-server/bin/python"), PathBuf::from);
    let torch = workspace().join(".venv");
    Miner::new(Arc::new(Jail::detect(Requirement::Any).unwrap()), python).packages(torch)
}

/// Runs all and shows those that fail.
pub(crate) fn all_run(miner: &Miner, snippets: &[Snippet]) {
    let failed = miner.failing(snippets).unwrap();
    let of = |name: &str| {
        snippets.iter().find(|s| s.name == name).map_or("", |s| s.code.as_str()).to_owned()
    };
    let shown: Vec<String> = failed
        .iter()
        .take(6)
        .map(|f| format!("{}: {}\n{}", f.name, f.reason, of(&f.name)))
        .collect();
    let names: Vec<&str> = failed.iter().map(|f| f.name.as_str()).collect();
    assert!(failed.is_empty(), "{} fail: {names:?}\n{}", failed.len(), shown.join("\n---\n"));
}
