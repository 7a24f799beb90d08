//! Texts of a build, and its files: source trees and JSON.

use std::collections::BTreeMap;
use std::path::Path;

use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::error::BuildError;

/// Texts of all files of a build, by name.
pub(crate) type Texts = BTreeMap<String, String>;

pub(crate) fn read_json<T: for<'d> Deserialize<'d>>(path: &Path) -> Result<T, BuildError> {
    let bytes = fs::read(path)?;
    serde_json::from_slice(&bytes)
        .map_err(|source| BuildError::Json { path: path.to_owned(), source })
}

pub(crate) fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<(), BuildError> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|source| BuildError::Json { path: path.to_owned(), source })?;
    Ok(fs::write(path, text + "\n")?)
}

/// Writes `files` below `root`.
pub(crate) fn write_tree(root: &Path, files: &Texts) -> std::io::Result<()> {
    for (name, text) in files {
        let path = root.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, text)?;
    }
    // A folder on every include path must exist, or compilers warn.
    fs::create_dir_all(root.join("kernels"))
}
