//! The data set: tasks with their measurements, in one Parquet file.
//!
//! A [`DataSet`] is rows in the order in which they were added, and the [`Shares`] that divide the
//! combinations of operators into training, validation and test. A combination's split depends on
//! its hash alone, so that adding tasks never moves one. `docs/reference/data-set.md` documents the
//! columns.
//!
//! ```
//! use warpwright_synth::{DataSet, Row, Shares};
//!
//! let folder = std::env::temp_dir().join(format!("data-set-{}", std::process::id()));
//! std::fs::create_dir(&folder)?;
//! let mut set = DataSet::new(Shares::default());
//! let row = Row::unmeasured("relu", "import torch\n...", &["torch.relu"], "torch#1");
//! set.push(row.clone())?;
//! set.write(&folder.join("tasks.parquet"))?;
//! let again = DataSet::read(&folder.join("tasks.parquet"))?;
//! assert_eq!(again.rows(), [row]);
//! assert_eq!(set.stats().rows, 1);
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod append;
mod card;
mod error;
mod measured;
mod read;
mod remove;
mod row;
mod schema;
mod split;
mod stats;
mod write;

use std::collections::HashSet;
use std::path::Path;

pub use append::Appended;
pub use card::card;
pub use error::DataSetError;
pub use measured::{Measured, TensorForm};
pub use row::Row;
pub use schema::FORMAT_VERSION;
pub use split::{Combination, Shares, Split};
pub use stats::{Device, Quantiles, SplitStats, Stats};

/// Tasks in the order in which they were added, each source once, under unique names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DataSet {
    shares: Shares,
    rows: Vec<Row>,
    /// Lower-case names: names become folders.
    names: HashSet<String>,
    /// BLAKE3 of every source.
    sources: HashSet<[u8; 32]>,
}

/// Result of pushing a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The row was appended.
    Added,
    /// Its source was already present; the existing row stays.
    Present,
}

impl DataSet {
    /// An empty data set.
    pub fn new(shares: Shares) -> Self {
        Self { shares, ..Self::default() }
    }

    /// The rows, in the order in which they were added.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The split shares of combinations.
    pub fn shares(&self) -> Shares {
        self.shares
    }

    /// The split of a row.
    pub fn split_of(&self, row: &Row) -> Split {
        self.shares.split_of(&row.combination())
    }

    /// The rows of one split.
    pub fn split(&self, split: Split) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| self.split_of(row) == split)
    }

    /// Adds a row, unless its source is already present. A name that is taken gets the suffix `-2`,
    /// `-3`, ...
    ///
    /// Fails if the row has an invalid value, such as a time of zero.
    pub fn push(&mut self, mut row: Row) -> Result<Pushed, DataSetError> {
        row.check().map_err(|reason| DataSetError::BadRow { name: row.name.clone(), reason })?;
        if !self.sources.insert(*blake3::hash(row.code.as_bytes()).as_bytes()) {
            return Ok(Pushed::Present);
        }
        let wanted = row.name.clone();
        let mut count = 1;
        while !self.names.insert(row.name.to_ascii_lowercase()) {
            count += 1;
            row.name = format!("{wanted}-{count}");
        }
        self.rows.push(row);
        Ok(Pushed::Added)
    }

    /// Reads a file: one that this program wrote, the released CUDA-Agent-Ops-6K, or any other with
    /// a column `code` (see [`warpwright_task::Suite::read`]), whose rows are unmeasured.
    ///
    /// Fails if the file is of a newer format or damaged, or has invalid rows.
    pub fn read(path: &Path) -> Result<Self, DataSetError> {
        read::read(path)
    }

    /// Writes the file by atomic replacement: the old file or the new one is always complete.
    pub fn write(&self, path: &Path) -> Result<(), DataSetError> {
        write::replace(path, &schema::encode(self, path)?)
    }

    /// Statistics of the set.
    pub fn stats(&self) -> Stats {
        Stats::of(self)
    }
}
