//! The cache folder, and copies of whole folders.

use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::environment;

/// `--cache` or `WARPWRIGHT_CACHE`, else the user's cache folder, else one under the current folder.
pub fn cache(named: Option<&Path>) -> PathBuf {
    if let Some(path) = named {
        return path.to_owned();
    }
    let base = environment::get(environment::XDG_CACHE_HOME).map(PathBuf::from).or_else(|| {
        environment::get(environment::HOME).map(|home| PathBuf::from(home).join(".cache"))
    });
    base.unwrap_or_else(|| PathBuf::from(".cache")).join("warpwright")
}

/// Copies a folder recursively.
pub fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let place = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &place)?;
        } else {
            fs::copy(entry.path(), place)?;
        }
    }
    Ok(())
}
