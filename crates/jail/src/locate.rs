//! Where the programs and the library lie that jails are made with.

use std::path::{Path, PathBuf};

use crate::error::JailError;
use crate::init;

/// Name of the library that crate `warpwright-jail-fork` makes.
const LIBRARY: &str = "libwarpwright_jail_fork.so";

/// Finds the program that plays the helper.
pub(crate) fn find_init() -> Result<PathBuf, JailError> {
    let mut looked_at = Vec::new();
    if let Some(path) = std::env::var_os("WARPWRIGHT_JAIL_INIT").map(PathBuf::from) {
        if path.is_file() {
            return Ok(path);
        }
        looked_at.push(format!("WARPWRIGHT_JAIL_INIT={}", path.display()));
    }
    if let Ok(own) = std::env::current_exe() {
        if init::is_registered() {
            return Ok(own);
        }
        for folder in own.ancestors().skip(1).take(2) {
            for name in ["warpwright-jail-init", "warpwright"] {
                let path = folder.join(name);
                if path.is_file() {
                    return Ok(path);
                }
                looked_at.push(path.display().to_string());
            }
        }
    }
    Err(JailError::NoInit { looked_at })
}

/// Looks a program up in this process's `PATH`.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

/// The library that has [`serve_forks`](crate::serve_forks) for programs of other languages, if it lies where
/// it is looked for: `WARPWRIGHT_JAIL_FORK`, or beside this program or the helper, or one folder up.
pub(crate) fn find_fork_library(init: &Path) -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("WARPWRIGHT_JAIL_FORK").map(PathBuf::from) {
        return path.is_file().then_some(path);
    }
    let own = std::env::current_exe().ok();
    let around = |program: &Path| -> Vec<PathBuf> {
        program.ancestors().skip(1).take(2).map(|folder| folder.join(LIBRARY)).collect()
    };
    own.as_deref().into_iter().chain([init]).flat_map(around).find(|path| path.is_file())
}
