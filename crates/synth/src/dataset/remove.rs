//! Removes tasks from a file.

use std::collections::BTreeSet;
use std::path::Path;

use super::append::lock;
use super::error::DataSetError;
use super::{DataSet, Row, read};

impl DataSet {
    /// Removes the tasks of these names from the file at `path`, by atomic replacement, and returns
    /// them in the file's order. The other tasks keep their splits.
    ///
    /// Fails, with the file unchanged, if a name is unknown, if the file is of a newer format or of
    /// another program, or if the disk is full.
    pub fn remove(path: &Path, names: &BTreeSet<String>) -> Result<Vec<Row>, DataSetError> {
        let _lock = lock(path)?;
        let set = read::read_own(path)?;
        let known: BTreeSet<&String> = set.rows.iter().map(|row| &row.name).collect();
        if let Some(name) = names.iter().find(|name| !known.contains(name)) {
            return Err(DataSetError::Unknown { path: path.to_owned(), name: name.clone() });
        }
        let (gone, kept) = set.rows.into_iter().partition(|row| names.contains(&row.name));
        let mut left = Self::new(set.shares);
        let kept: Vec<Row> = kept;
        for row in kept {
            left.push(row)?;
        }
        left.write(path)?;
        Ok(gone)
    }
}
