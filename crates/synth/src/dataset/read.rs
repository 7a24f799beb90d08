//! Reads a data set file, or another table of tasks.

use std::collections::BTreeMap;
use std::path::Path;

use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde::de::DeserializeOwned;
use warpwright_task::Suite;

use super::error::DataSetError;
use super::schema::{FORMAT_VERSION, HEADER_KEY, Header};
use super::{DataSet, Measured, Pushed, Row, Shares};
use crate::proposal::Provenance;

/// The version field, which is read first: a file of another version must be refused for that
/// reason.
#[derive(serde::Deserialize)]
struct Version {
    version: u32,
}

/// Reads our own file, or any table with a column `code`.
pub(super) fn read(path: &Path) -> Result<DataSet, DataSetError> {
    if path.extension().is_none_or(|extension| extension != "parquet") {
        return foreign(path);
    }
    match read_own(path) {
        Err(DataSetError::Foreign { .. }) => foreign(path),
        other => other,
    }
}

/// Reads our own file. The `parquet` crate asserts invariants that a damaged file can break, so a
/// panic is reported as damage.
pub(super) fn read_own(path: &Path) -> Result<DataSet, DataSetError> {
    std::panic::catch_unwind(|| unguarded(path)).unwrap_or_else(|_| {
        let reason = "the file is damaged".to_owned();
        Err(DataSetError::Parquet { path: path.to_owned(), reason })
    })
}

fn unguarded(path: &Path) -> Result<DataSet, DataSetError> {
    let file = fs_err::File::open(path)
        .map_err(|error| DataSetError::io("read a data set", path, error))?
        .into_parts()
        .0;
    let damaged = |error: ParquetError| DataSetError::Parquet {
        path: path.to_owned(),
        reason: error.to_string(),
    };
    let reader = SerializedFileReader::new(file).map_err(damaged)?;
    let mut set = DataSet::new(header(path, &reader)?.shares);
    for (index, row) in reader.get_row_iter(None).map_err(damaged)?.enumerate() {
        let row = row.map_err(damaged)?;
        let mut cells = Cells(row.into_columns().into_iter().collect());
        let refuse = |reason| DataSetError::Row { path: path.to_owned(), row: index + 1, reason };
        let row = row_of(&mut cells).map_err(refuse)?;
        match set.push(row) {
            Ok(Pushed::Added) => {}
            Ok(Pushed::Present) => {
                return Err(refuse("its source is that of an earlier row".to_owned()));
            }
            Err(DataSetError::BadRow { reason, .. }) => return Err(refuse(reason)),
            Err(other) => return Err(other),
        }
    }
    Ok(set)
}

fn header(
    path: &Path,
    reader: &SerializedFileReader<std::fs::File>,
) -> Result<Header, DataSetError> {
    let metadata = reader.metadata().file_metadata().key_value_metadata();
    let text = metadata
        .into_iter()
        .flatten()
        .find(|entry| entry.key == HEADER_KEY)
        .and_then(|entry| entry.value.as_deref())
        .ok_or_else(|| DataSetError::Foreign { path: path.to_owned() })?;
    let damaged = |error: serde_json::Error| DataSetError::Parquet {
        path: path.to_owned(),
        reason: format!("its header is not one: {error}"),
    };
    let Version { version } = serde_json::from_str(text).map_err(damaged)?;
    if version > FORMAT_VERSION {
        return Err(DataSetError::Newer { path: path.to_owned(), found: version });
    }
    serde_json::from_str(text).map_err(damaged)
}

/// Column to value.
struct Cells(BTreeMap<String, Field>);

impl Cells {
    /// `None` if the column is null or absent.
    fn take(&mut self, column: &str) -> Option<Field> {
        self.0.remove(column).filter(|field| !matches!(field, Field::Null))
    }

    fn text(&mut self, column: &str) -> Result<Option<String>, String> {
        match self.take(column) {
            None => Ok(None),
            Some(Field::Str(text)) => Ok(Some(text)),
            // JSON columns are bytes to the reader.
            Some(Field::Bytes(bytes)) => match bytes.as_utf8() {
                Ok(text) => Ok(Some(text.to_owned())),
                Err(error) => Err(format!("`{column}` is not text: {error}")),
            },
            Some(_) => Err(format!("`{column}` is not text")),
        }
    }

    fn json<T: DeserializeOwned>(&mut self, column: &str) -> Result<Option<T>, String> {
        self.text(column)?
            .map(|text| serde_json::from_str(&text))
            .transpose()
            .map_err(|error| format!("`{column}` cannot be read: {error}"))
    }

    fn whole(&mut self, column: &str) -> Result<Option<u64>, String> {
        match self.take(column) {
            None => Ok(None),
            Some(Field::ULong(value)) => Ok(Some(value)),
            Some(_) => Err(format!("`{column}` is not a whole number")),
        }
    }

    fn number(&mut self, column: &str) -> Result<Option<f64>, String> {
        match self.take(column) {
            None => Ok(None),
            Some(Field::Double(value)) => Ok(Some(value)),
            Some(_) => Err(format!("`{column}` is not a number")),
        }
    }
}

fn there<T>(column: &str, value: Option<T>) -> Result<T, String> {
    value.ok_or_else(|| format!("it has no `{column}`"))
}

/// One row. The columns `split` and `head_room` are derived from others, for other programs, and
/// are not read.
fn row_of(cells: &mut Cells) -> Result<Row, String> {
    let level = match cells.take("level") {
        None => None,
        Some(Field::Int(level)) => {
            Some(u8::try_from(level).map_err(|_| format!("`level` is {level}"))?)
        }
        Some(_) => return Err("`level` is not a whole number".to_owned()),
    };
    let ops = match there("ops", cells.take("ops"))? {
        Field::ListInternal(list) => list
            .elements()
            .iter()
            .map(|element| match element {
                Field::Str(text) => Ok(text.clone()),
                _ => Err("`ops` holds something that is not text".to_owned()),
            })
            .collect::<Result<Vec<_>, _>>()?,
        _ => return Err("`ops` is not a list".to_owned()),
    };
    Ok(Row {
        name: there("name", cells.text("name")?)?,
        level,
        code: there("code", cells.text("code")?)?,
        ops,
        data_source: there("data_source", cells.text("data_source")?)?,
        measured: measured_of(cells)?,
        graph: cells.json("graph")?,
        provenance: provenance_of(cells)?,
    })
}

fn measured_of(cells: &mut Cells) -> Result<Option<Measured>, String> {
    let Some(eager_ms) = cells.number("eager_ms")? else { return Ok(None) };
    Ok(Some(Measured {
        inputs: there("inputs", cells.json("inputs")?)?,
        outputs: there("outputs", cells.json("outputs")?)?,
        bytes: there("bytes", cells.whole("bytes")?)?,
        eager_ms,
        compile_ms: there("compile_ms", cells.number("compile_ms")?)?,
        floor_ms: there("floor_ms", cells.number("floor_ms")?)?,
        fingerprint: there("fingerprint", cells.text("fingerprint")?)?,
    }))
}

fn provenance_of(cells: &mut Cells) -> Result<Option<Provenance>, String> {
    let Some(composer) = cells.text("composer")? else { return Ok(None) };
    Ok(Some(Provenance {
        composer,
        seed: there("seed", cells.whole("seed")?)?,
        catalogue: there("catalogue", cells.text("catalogue")?)?,
        parent: cells.text("parent")?,
    }))
}

/// A foreign table: the released data set has `ops`, `data_source` and `code`.
fn foreign(path: &Path) -> Result<DataSet, DataSetError> {
    let suite = Suite::read(path)?;
    let mut set = DataSet::new(Shares::default());
    for task in suite.tasks {
        set.push(Row {
            name: task.name,
            level: task.level,
            code: task.source,
            ops: task.ops.unwrap_or_default(),
            data_source: task.data_source.unwrap_or_else(|| suite.name.clone()),
            measured: None,
            graph: None,
            provenance: None,
        })?;
    }
    Ok(set)
}
