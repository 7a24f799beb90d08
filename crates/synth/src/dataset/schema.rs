//! Columns of the file, and the conversion of rows to columns.

use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;
use serde::{Deserialize, Serialize};

use super::error::DataSetError;
use super::split::Shares;
use super::{DataSet, Measured, Row, TensorForm};

/// Version of the file's format. Newer files are refused.
pub const FORMAT_VERSION: u32 = 1;

/// Key of the header in the file's metadata.
pub(super) const HEADER_KEY: &str = "warpwright.data_set";

/// The header in the file's metadata.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) version: u32,
    /// Version of the program that wrote it.
    pub(super) program: String,
    pub(super) shares: Shares,
}

/// The columns, in the order in which they are written. Those of the released CUDA-Agent-Ops-6K
/// have the same meaning there. The columns `inputs` to `fingerprint` are null together; so are
/// `composer` to `catalogue`.
const SCHEMA: &str = "message data_set {
    required binary name (UTF8);
    optional int32 level;
    required binary split (UTF8);
    required binary code (UTF8);
    required group ops (LIST) { repeated group list { required binary element (UTF8); } }
    required binary data_source (UTF8);
    optional binary inputs (JSON);
    optional binary outputs (JSON);
    optional int64 bytes (UINT_64);
    optional double eager_ms;
    optional double compile_ms;
    optional double floor_ms;
    optional double head_room;
    optional binary fingerprint (UTF8);
    optional binary graph (JSON);
    optional binary composer (UTF8);
    optional int64 seed (UINT_64);
    optional binary catalogue (UTF8);
    optional binary parent (UTF8);
}";

/// Text that seldom repeats: a dictionary would only be one more copy.
const UNIQUE_TEXT: [&str; 4] = ["name", "code", "graph", "parent"];

/// Bytes of a page. Compression works within a page, and sources are similar to each other.
const PAGE_BYTES: usize = 16 << 20;

/// Rows of a row group, and the number of rows buffered.
const GROUP_ROWS: usize = 20_000;

/// The file's bytes; `path` is named in errors.
pub(super) fn encode(set: &DataSet, path: &Path) -> Result<Vec<u8>, DataSetError> {
    let failed = |reason: String| DataSetError::Encode { path: path.to_owned(), reason };
    let header = Header {
        version: FORMAT_VERSION,
        program: env!("CARGO_PKG_VERSION").to_owned(),
        shares: set.shares(),
    };
    let header = serde_json::to_string(&header).map_err(|error| failed(error.to_string()))?;
    encoded(set, header).map_err(|error| failed(error.to_string()))
}

fn encoded(set: &DataSet, header: String) -> Result<Vec<u8>, ParquetError> {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(19)?))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_data_page_size_limit(PAGE_BYTES)
        .set_key_value_metadata(Some(vec![KeyValue::new(HEADER_KEY.to_owned(), header)]));
    for column in UNIQUE_TEXT {
        let column = ColumnPath::from(column);
        properties = properties
            .set_column_statistics_enabled(column.clone(), EnabledStatistics::None)
            .set_column_dictionary_enabled(column, false);
    }
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, Arc::new(properties.build()))?;
    for rows in set.rows().chunks(GROUP_ROWS) {
        let mut group = writer.next_row_group()?;
        write_rows(set, rows, &mut group)?;
        group.close()?;
    }
    writer.close()?;
    Ok(bytes)
}

fn write_rows(
    set: &DataSet,
    rows: &[Row],
    group: &mut SerializedRowGroupWriter<'_, &mut Vec<u8>>,
) -> Result<(), ParquetError> {
    let measured =
        |of: fn(&Measured) -> f64| rows.iter().map(move |row| row.measured.as_ref().map(of));
    let text = |value: &str| ByteArray::from(value);
    let made = |row: &Row, of: fn(&crate::Provenance) -> &str| {
        row.provenance.as_ref().map(|provenance| text(of(provenance)))
    };
    let json = |value: Result<String, serde_json::Error>| {
        value.map(|json| text(&json)).map_err(|error| ParquetError::General(error.to_string()))
    };

    required::<ByteArrayType>(group, rows.iter().map(|row| text(&row.name)))?;
    optional::<Int32Type>(group, rows.iter().map(|row| row.level.map(i32::from)))?;
    required::<ByteArrayType>(group, rows.iter().map(|row| text(set.split_of(row).name())))?;
    required::<ByteArrayType>(group, rows.iter().map(|row| text(&row.code)))?;
    lists(group, rows.iter().map(|row| row.ops.as_slice()))?;
    required::<ByteArrayType>(group, rows.iter().map(|row| text(&row.data_source)))?;
    let sides: [fn(&Measured) -> &[TensorForm]; 2] = [|m| &m.inputs, |m| &m.outputs];
    for tensors in sides {
        let column: Result<Vec<_>, _> = rows
            .iter()
            .map(|row| row.measured.as_ref().map(|m| json(serde_json::to_string(tensors(m)))))
            .map(Option::transpose)
            .collect();
        optional::<ByteArrayType>(group, column?.into_iter())?;
    }
    let bytes = rows.iter().map(|row| row.measured.as_ref().map(|m| m.bytes as i64));
    optional::<Int64Type>(group, bytes)?;
    optional::<DoubleType>(group, measured(|m| m.eager_ms))?;
    optional::<DoubleType>(group, measured(|m| m.compile_ms))?;
    optional::<DoubleType>(group, measured(|m| m.floor_ms))?;
    optional::<DoubleType>(group, measured(Measured::head_room))?;
    let fingerprints = rows.iter().map(|row| row.measured.as_ref().map(|m| text(&m.fingerprint)));
    optional::<ByteArrayType>(group, fingerprints)?;
    let graphs: Result<Vec<_>, _> = rows
        .iter()
        .map(|row| row.graph.as_ref().map(|graph| json(serde_json::to_string(graph))).transpose())
        .collect();
    optional::<ByteArrayType>(group, graphs?.into_iter())?;
    optional::<ByteArrayType>(group, rows.iter().map(|row| made(row, |p| &p.composer)))?;
    let seeds = rows.iter().map(|row| row.provenance.as_ref().map(|p| p.seed as i64));
    optional::<Int64Type>(group, seeds)?;
    optional::<ByteArrayType>(group, rows.iter().map(|row| made(row, |p| &p.catalogue)))?;
    let parents = rows.iter().map(|row| Some(text(row.provenance.as_ref()?.parent.as_deref()?)));
    optional::<ByteArrayType>(group, parents)
}

/// Writes the next column, which has no null values.
fn required<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, &mut Vec<u8>>,
    values: impl Iterator<Item = T::T>,
) -> Result<(), ParquetError> {
    let values: Vec<T::T> = values.collect();
    write_column::<T>(group, &values, None, None)
}

/// Writes the next column, whose values may be null: level 1 is a value, level 0 is null.
fn optional<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, &mut Vec<u8>>,
    values: impl Iterator<Item = Option<T::T>>,
) -> Result<(), ParquetError> {
    let values: Vec<Option<T::T>> = values.collect();
    let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
    let values: Vec<T::T> = values.into_iter().flatten().collect();
    write_column::<T>(group, &values, Some(&levels), None)
}

/// Writes the next column, of lists of texts: an empty list has one entry at level 0, and
/// repetition level 0 begins a list.
fn lists<'r>(
    group: &mut SerializedRowGroupWriter<'_, &mut Vec<u8>>,
    rows: impl Iterator<Item = &'r [String]>,
) -> Result<(), ParquetError> {
    let (mut values, mut defined, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        if row.is_empty() {
            defined.push(0);
            repeated.push(0);
        }
        for (index, value) in row.iter().enumerate() {
            values.push(ByteArray::from(value.as_str()));
            defined.push(1);
            repeated.push(i16::from(index > 0));
        }
    }
    write_column::<ByteArrayType>(group, &values, Some(&defined), Some(&repeated))
}

fn write_column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, &mut Vec<u8>>,
    values: &[T::T],
    defined: Option<&[i16]>,
    repeated: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let missing = || ParquetError::General("there are more columns than the schema has".to_owned());
    let mut column = group.next_column()?.ok_or_else(missing)?;
    column.typed::<T>().write_batch(values, defined, repeated)?;
    column.close()
}
