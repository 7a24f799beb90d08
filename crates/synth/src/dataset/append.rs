//! Appends rows to an existing file.

use std::path::Path;

use fs_err as fs;

use super::error::DataSetError;
use super::{DataSet, Pushed, Row, Shares, read};

/// Result of appending rows to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Rows added.
    pub added: usize,
    /// Rows whose source was already present.
    pub present: usize,
    /// Rows of the file after appending.
    pub total: usize,
}

/// Locks the data sets of a file's folder against other processes while it is held.
pub(super) fn lock(path: &Path) -> Result<fs::File, DataSetError> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let attempt = format!("lock {} to change a data set", folder.display());
    let failed = |error| DataSetError::io(&attempt, folder, error);
    let lock = fs::File::open(folder).map_err(failed)?;
    lock.file().lock().map_err(failed)?;
    Ok(lock)
}

impl DataSet {
    /// Appends rows to the file at `path`, or creates it, by atomic replacement: the old file or
    /// the new one is always complete. Processes that append to files of one folder wait for each
    /// other.
    ///
    /// Fails, with the file unchanged, if the file has other shares, is of a newer format or of
    /// another program, if a row is invalid, or if the disk is full.
    pub fn append(
        path: &Path,
        shares: Shares,
        rows: impl IntoIterator<Item = Row>,
    ) -> Result<Appended, DataSetError> {
        let _lock = lock(path)?;
        let mut set = if path.exists() { read::read_own(path)? } else { Self::new(shares) };
        if set.shares != shares {
            let of = |shares: Shares| format!("{}/{}", shares.validation(), shares.test());
            return Err(DataSetError::OtherShares {
                path: path.to_owned(),
                found: of(set.shares),
                asked: of(shares),
            });
        }
        let mut appended = Appended { added: 0, present: 0, total: 0 };
        for row in rows {
            match set.push(row)? {
                Pushed::Added => appended.added += 1,
                Pushed::Present => appended.present += 1,
            }
        }
        appended.total = set.rows.len();
        set.write(path)?;
        Ok(appended)
    }
}
