//! Putting a file in its place whole.

use std::io::Write;
use std::path::{Path, PathBuf};

use fs_err as fs;

use super::error::DataSetError;

/// Writes `bytes` beside `path`, waits until they are on the disk, and renames. On failure nothing is
/// left behind, and what was at `path` stays. Killed in between, the old file stays too, and beside it a
/// file whose name ends in `.tmp`.
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

/// A name beside `path` for a file that is being written.
fn temporary(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}
