//! The data set that comes with the program.

use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::failure::Failure;

/// What names it where a path is expected.
pub(crate) const NAME: &str = "shipped";

const TASKS: &[u8] =
    include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../datasets/ops.parquet"));

/// The path itself, or of the data set that comes with the program, put into the cache.
pub(crate) fn found(path: &Path, cache: &Path) -> Result<PathBuf, Failure> {
    if path != Path::new(NAME) {
        return Ok(path.to_owned());
    }
    let folder = cache.join("datasets");
    let file = folder.join("ops.parquet");
    let failed = |error| Failure::io("put the data set that comes with the program there", &error);
    // Another version's, or one that is cut short, is written again.
    if fs::read(&file).is_ok_and(|found| found == TASKS) {
        return Ok(file);
    }
    fs::create_dir_all(&folder).map_err(failed)?;
    let mut partial = tempfile::NamedTempFile::new_in(&folder).map_err(failed)?;
    std::io::Write::write_all(&mut partial, TASKS).map_err(failed)?;
    partial.persist(&file).map_err(|error| failed(error.error))?;
    Ok(file)
}
