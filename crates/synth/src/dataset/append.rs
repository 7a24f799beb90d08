//! Adding to a file that an earlier run wrote.

use std::path::Path;

use fs_err as fs;

use super::error::DataSetError;
use super::{DataSet, Pushed, Row, Shares, read};

/// What came of adding rows to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Rows added.
    pub added: usize,
    /// Rows whose source was there before.
    pub present: usize,
    /// Rows of the file now.
    pub total: usize,
}

/// Keeps other processes from changing the data sets of a file's folder as long as it is held.
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
    /// Adds rows to the file at `path`, or makes it, by writing it anew: whatever happens, the old file
    /// or the new one is there whole. Two processes that add to files of one folder wait for each other.
    ///
    /// Fails, with the file as it was, where the file has other shares, is of a newer format or another
    /// program's, where a row cannot be, and where the disk is full.
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
