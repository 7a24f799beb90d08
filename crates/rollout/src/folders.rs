//! The cache folder, and copies of whole folders.

use std::path::{Component, Path, PathBuf};

use fs_err as fs;

use crate::environment;

/// `--cache` or `WARPWRIGHT_CACHE`, else the user's cache folder, else one under the current folder. Absolute and
/// without `..` and links, as far as it exists: jailed processes see it at the same place.
pub fn cache(named: Option<&Path>) -> PathBuf {
    resolved(&named.map_or_else(usual_cache, Path::to_owned))
}

/// The same place named from the root, without `..`, and without links in what exists of it.
fn resolved(path: &Path) -> PathBuf {
    let Ok(path) = std::path::absolute(path) else { return path.to_owned() };
    let mut place = PathBuf::new();
    for part in path.components() {
        match part {
            // Links are resolved by now, so the folder above is the one that the system would take.
            Component::ParentDir => {
                place.pop();
            }
            part => {
                place.push(part);
                if let Ok(real) = fs::canonicalize(&place) {
                    place = real;
                }
            }
        }
    }
    place
}

fn usual_cache() -> PathBuf {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_folder_has_no_parent_parts_or_links() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        fs::create_dir_all(root.join("real/inner")).unwrap();
        std::os::unix::fs::symlink("real/inner", root.join("link")).unwrap();
        for (named, wanted) in [
            ("a", "a"),
            ("a/../b", "b"),
            ("a/./b/", "a/b"),
            ("real/../cache", "cache"),
            ("link/cache", "real/inner/cache"),
            // The folder above what the link names, as the system takes it.
            ("link/../cache", "real/cache"),
            ("none/link/../../b", "b"),
        ] {
            assert_eq!(cache(Some(&root.join(named))), root.join(wanted), "{named}");
        }
        let here = fs::canonicalize(std::env::current_dir().unwrap()).unwrap();
        assert_eq!(cache(Some(Path::new("x/../y"))), here.join("y"));
        assert_eq!(cache(Some(Path::new("/../x"))), Path::new("/x"));
    }
}
