//! Python with transformers, and test models.

#![expect(clippy::disallowed_types, reason = "runs our own script, which is the oracle")]

use std::path::{Path, PathBuf};
use std::process::Command;

use tch::Tensor;
use warpwright_engine::{LocalEngine, Settings};
use warpwright_learn::engine::Row;
use warpwright_learn::model_config::ModelConfig;

/// Runs `tests/qwen3.py`; `scripts/setup.d/model-server` installs what it needs.
#[track_caller]
pub(crate) fn transformers(what: &str, folder: &Path) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let named = std::env::var_os("WARPWRIGHT_TRANSFORMERS_PYTHON").map(PathBuf::from);
    let python = named.unwrap_or_else(|| here.join("../../.cache/model-server/bin/python"));
    let done = Command::new(&python)
        .arg(here.join("tests/qwen3.py"))
        .arg(what)
        .arg(folder)
        .env("HF_HUB_OFFLINE", "1")
        .output()
        .unwrap_or_else(|e| panic!("{}: {e}; scripts/setup.d/model-server", python.display()));
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// Tensors of a file.
#[track_caller]
pub(crate) fn tensors(path: &Path) -> Vec<(String, Tensor)> {
    Tensor::read_safetensors(path).unwrap()
}

/// One tensor of a file.
#[track_caller]
pub(crate) fn named<'t>(tensors: &'t [(String, Tensor)], name: &str) -> &'t Tensor {
    &tensors.iter().find(|(n, _)| n == name).unwrap_or_else(|| panic!("no {name}")).1
}

pub(crate) fn tiny() -> ModelConfig {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    ModelConfig::read(&here.join("tests/tiny.json")).unwrap()
}

pub(crate) fn engine(settings: Settings) -> LocalEngine {
    // Tests run concurrently, and this model is too small for more threads.
    LocalEngine::initial(&tiny(), 5, Settings { num_threads: Some(1), ..settings }).unwrap()
}

/// Rows of several lengths, whose actions are all but the first few tokens.
pub(crate) fn rows() -> Vec<Row> {
    let of = |length: u32, skip: u32| Row {
        ids: (0..length).map(|i| (i * i + 7 * length + skip) % 61).collect(),
        actions: (1 + skip..length).collect(),
        ..Row::default()
    };
    vec![of(20, 3), of(3, 0), of(33, 10), of(9, 7)]
}

pub(crate) fn actions(rows: &[Row]) -> f64 {
    rows.iter().map(|row| row.actions.len()).sum::<usize>() as f64
}
