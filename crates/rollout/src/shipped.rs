//! The shipped data set and the shipped policy.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::error::RolloutError;

/// Names the data set where a path is expected.
pub const NAME: &str = "shipped";

const TASKS: &[u8] =
    include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../datasets/ops.parquet"));

/// The policy's name in records, and its folder in the cache.
pub const POLICY: &str = "row-kernels-3m-v2";

macro_rules! of_policy {
    ($($name:literal),*) => {
        [$(($name, include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../policies/row-kernels-3m-v2/", $name)).as_slice())),*]
    };
}

/// The checkpoint of the policy.
const CHECKPOINT: [(&str, &[u8]); 4] =
    of_policy!["config.json", "model.safetensors", "sampling.json", "tokenizer.json"];

const OPERATORS: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../policies/row-kernels-3m-v2/operators.json"
));

/// Full names of the operators that the policy was trained on (see [`warpwright_task::operators`]).
pub fn known_operators() -> Result<BTreeSet<String>, RolloutError> {
    serde_json::from_str(OPERATORS).map_err(|error| {
        let message = format!("failed to read the operators of the shipped policy: {error}");
        RolloutError::infrastructure(message, None)
    })
}

/// The folder of the shipped policy in the cache.
pub fn policy(cache: &Path) -> Result<PathBuf, RolloutError> {
    let folder = cache.join("policies").join(POLICY);
    for (name, content) in CHECKPOINT {
        put(&folder, name, content)?;
    }
    Ok(folder)
}

/// Resolves `shipped` to the shipped data set, copied into the cache; other paths are unchanged.
pub fn found(path: &Path, cache: &Path) -> Result<PathBuf, RolloutError> {
    if path != Path::new(NAME) {
        return Ok(path.to_owned());
    }
    put(&cache.join("datasets"), "ops.parquet", TASKS)
}

/// Writes a file, unless it exists with the same content.
fn put(folder: &Path, name: &str, content: &[u8]) -> Result<PathBuf, RolloutError> {
    let file = folder.join(name);
    let failed = |error| RolloutError::io("copy the shipped files into the cache", error);
    // Another version's, or one that is cut short, is written again.
    if fs::read(&file).is_ok_and(|found| found == content) {
        return Ok(file);
    }
    fs::create_dir_all(folder).map_err(failed)?;
    let mut partial = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    std::io::Write::write_all(&mut partial, content).map_err(failed)?;
    partial.persist(&file).map_err(|error| failed(error.error))?;
    Ok(file)
}
