//! Where things are kept that can be made again.

use std::path::{Path, PathBuf};

use crate::environment;

/// `--cache` or `WARPWRIGHT_CACHE`, else the user's cache folder, else one under the current folder.
pub(crate) fn cache(named: Option<&Path>) -> PathBuf {
    if let Some(path) = named {
        return path.to_owned();
    }
    let base = environment::get(environment::XDG_CACHE_HOME).map(PathBuf::from).or_else(|| {
        environment::get(environment::HOME).map(|home| PathBuf::from(home).join(".cache"))
    });
    base.unwrap_or_else(|| PathBuf::from(".cache")).join("warpwright")
}
