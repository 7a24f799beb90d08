//! An entry of the cache: a folder with a list of the hashes of its files.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use fs_err as fs;

/// Name of the list in every entry.
pub(crate) const HASHES: &str = "hashes.json";

/// The kinds of entry.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// One compiled file and the compiler's output.
    Object,
    /// A whole candidate.
    Artifact,
    /// A precompiled header.
    Header,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Object, Self::Artifact, Self::Header];

    pub(crate) fn folder(self) -> &'static str {
        match self {
            Self::Object => "objects",
            Self::Artifact => "artifacts",
            Self::Header => "headers",
        }
    }
}

/// Whether the entry matches its list.
pub(crate) fn whole(place: &Path) -> bool {
    let Ok(list) = fs::read(place.join(HASHES)) else { return false };
    let Ok(expected) = serde_json::from_slice::<BTreeMap<String, String>>(&list) else {
        return false;
    };
    let Ok(files) = files_below(place) else { return false };
    files.keys().filter(|n| *n != HASHES).count() == expected.len()
        && expected.iter().all(|(name, hash)| {
            files.get(name).is_some_and(|path| hash_file(path).is_ok_and(|h| h == *hash))
        })
}

/// Regular files below `root` by relative name. Anything else is an error: compilers create only
/// files.
pub(crate) fn files_below(root: &Path) -> std::io::Result<BTreeMap<String, PathBuf>> {
    let mut found = BTreeMap::new();
    let mut open = vec![(String::new(), root.to_owned())];
    while let Some((prefix, folder)) = open.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            let kind = entry.file_type()?;
            if kind.is_dir() {
                open.push((format!("{name}/"), entry.path()));
            } else if kind.is_file() {
                found.insert(name, entry.path());
            } else {
                let what = format!("{} is not a regular file", entry.path().display());
                return Err(std::io::Error::other(what));
            }
        }
    }
    Ok(found)
}

pub(crate) fn hash_file(path: &Path) -> std::io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    std::io::copy(&mut fs::File::open(path)?, &mut hasher)?;
    Ok(hasher.finalize().to_hex().to_string())
}

/// Makes a folder readable to the runner, which has another uid.
pub(crate) fn open_to_readers(folder: &Path) -> std::io::Result<()> {
    fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_to_readers(&entry.path())?;
        } else {
            fs::set_permissions(entry.path(), std::fs::Permissions::from_mode(0o644))?;
        }
    }
    Ok(())
}
