//! Replaces a file atomically.

use std::io::Write;
use std::path::{Path, PathBuf};

use fs_err as fs;

use super::error::DataSetError;

/// Writes `bytes` to a temporary file next to `path`, syncs it to the disk, and renames it. On
/// failure the temporary file is removed and `path` is unchanged. After a kill `path` is unchanged
/// too, and a file whose name ends in `.tmp` may remain.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<(), DataSetError> {
    let temporary = temporary(path);
    let done = fs::File::create(&temporary)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&temporary, path));
    done.map_err(|error| {
        let _ = fs::remove_file(&temporary);
        DataSetError::io("write a data set", path, error)
    })
}

/// Path of the temporary file for `path`.
fn temporary(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}
