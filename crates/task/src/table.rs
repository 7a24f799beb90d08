//! Tables of tasks: JSONL and Parquet with a column `code`.
//!
//! Both become the same rows and then tasks by the same function, so that a data set means the same
//! in either form. Columns other than those named in [`Suite::read`](crate::Suite::read) are not
//! even decoded.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;

use fs_err as fs;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use parquet::schema::types::Type;
use ruff_python_ast::Expr;
use serde_json::Value;

use crate::facts::deep::on_deep_stack;
use crate::limits::MAX_SOURCE_BYTES;
use crate::mode::Mode;
use crate::read_error::ReadError;
use crate::task::{Task, safe_name};

/// Columns that mean something here.
const COLUMNS: [&str; 7] = ["code", "name", "level", "ops", "data_source", "split", "mode"];

/// UTF-8's byte order mark.
const BOM: &[u8] = "\u{feff}".as_bytes();

/// One row: column to value, columns with null left out.
type Cells = BTreeMap<String, Value>;

/// Reads one JSON object per line; blank lines are skipped.
pub(crate) fn read_jsonl(path: &Path) -> Result<Vec<Task>, ReadError> {
    let file = fs::File::open(path).map_err(|error| ReadError::io(path, error))?;
    let stem = stem(path);
    let mut tasks = Vec::new();
    for (index, line) in BufReader::new(file).split(b'\n').enumerate() {
        let line = line.map_err(|error| ReadError::io(path, error))?;
        // Some editors put a byte order mark before the first row.
        let line = if index == 0 { line.strip_prefix(BOM).unwrap_or(&line) } else { &line };
        if line.trim_ascii().is_empty() {
            continue;
        }
        let row = index + 1;
        let refuse = |reason: String| ReadError::Row { path: path.to_owned(), row, reason };
        let value: Value = serde_json::from_slice(line).map_err(|e| refuse(e.to_string()))?;
        let Value::Object(object) = value else {
            return Err(refuse("it is not a JSON object".to_owned()));
        };
        if tasks.is_empty() && !object.contains_key("code") {
            let found: Vec<&str> = object.keys().map(String::as_str).collect();
            return Err(ReadError::NoCode { path: path.to_owned(), found: listed(&found) });
        }
        let cells = object
            .into_iter()
            .filter(|(name, value)| COLUMNS.contains(&name.as_str()) && !value.is_null())
            .collect();
        let name = format!("{stem}-{row}");
        tasks.push(task_of(path, &name, cells).map_err(refuse)?);
    }
    Ok(tasks)
}

/// Reads a Parquet file. The `parquet` crate asserts some of what a damaged file can break, so a
/// panic is taken for damage.
pub(crate) fn read_parquet(path: &Path) -> Result<Vec<Task>, ReadError> {
    std::panic::catch_unwind(|| read_parquet_unguarded(path)).unwrap_or_else(|_| {
        let reason = "the file is damaged".to_owned();
        Err(ReadError::Parquet { path: path.to_owned(), reason })
    })
}

fn read_parquet_unguarded(path: &Path) -> Result<Vec<Task>, ReadError> {
    let file = std::fs::File::open(path).map_err(|error| ReadError::io(path, error))?;
    let damaged = |error: parquet::errors::ParquetError| ReadError::Parquet {
        path: path.to_owned(),
        reason: error.to_string(),
    };
    let reader = SerializedFileReader::new(file).map_err(damaged)?;
    let schema = reader.metadata().file_metadata().schema();
    let kept: Vec<_> =
        schema.get_fields().iter().filter(|f| COLUMNS.contains(&f.name())).cloned().collect();
    if !kept.iter().any(|field| field.name() == "code") {
        let found: Vec<&str> = schema.get_fields().iter().map(|f| f.name()).collect();
        return Err(ReadError::NoCode { path: path.to_owned(), found: listed(&found) });
    }
    let projection =
        Type::group_type_builder(schema.name()).with_fields(kept).build().map_err(damaged)?;
    let stem = stem(path);
    let mut tasks = Vec::new();
    for (index, row) in reader.get_row_iter(Some(projection)).map_err(damaged)?.enumerate() {
        let row_number = index + 1;
        let name = format!("{stem}-{row_number}");
        let task = task_of(path, &name, cells_of(&row.map_err(damaged)?))
            .map_err(|reason| ReadError::Row { path: path.to_owned(), row: row_number, reason })?;
        tasks.push(task);
    }
    Ok(tasks)
}

fn cells_of(row: &Row) -> Cells {
    row.get_column_iter()
        .filter_map(|(name, field)| Some((name.clone(), value_of(field)?)))
        .collect()
}

/// A Parquet value as JSON; `None` for null and for types that no column of ours has.
fn value_of(field: &Field) -> Option<Value> {
    Some(match field {
        Field::Str(text) => Value::from(text.as_str()),
        // Old writers do not mark their text columns as such.
        Field::Bytes(bytes) => Value::from(bytes.as_utf8().ok()?),
        Field::Byte(n) => Value::from(*n),
        Field::Short(n) => Value::from(*n),
        Field::Int(n) => Value::from(*n),
        Field::Long(n) => Value::from(*n),
        Field::UByte(n) => Value::from(*n),
        Field::UShort(n) => Value::from(*n),
        Field::UInt(n) => Value::from(*n),
        Field::ULong(n) => Value::from(*n),
        Field::ListInternal(list) => list.elements().iter().filter_map(value_of).collect(),
        _ => return None,
    })
}

fn task_of(path: &Path, fallback_name: &str, mut cells: Cells) -> Result<Task, String> {
    let source = text(&mut cells, "code")?.ok_or("it has no `code`")?;
    if source.len() > MAX_SOURCE_BYTES {
        return Err(format!(
            "the {} bytes of its `code` exceed the limit of {MAX_SOURCE_BYTES}",
            source.len()
        ));
    }
    let name = text(&mut cells, "name")?;
    let mut task = Task::from_source(name.as_deref().unwrap_or(fallback_name), source);
    task.origin = Some(path.to_owned());
    task.data_source = text(&mut cells, "data_source")?;
    task.split = text(&mut cells, "split")?;
    task.level = match cells.remove("level") {
        None => None,
        Some(value) => {
            let level = value.as_u64().and_then(|n| u8::try_from(n).ok());
            Some(level.ok_or_else(|| format!("`level` is {value}, not a number from 0 to 255"))?)
        }
    };
    task.ops = cells.remove("ops").map(operators).transpose()?;
    task.mode = match cells.remove("mode") {
        None => Mode::default(),
        Some(value) => serde_json::from_value(value.clone())
            .map_err(|_| format!("`mode` is {value}, neither \"eval\" nor \"train\""))?,
    };
    Ok(task)
}

fn text(cells: &mut Cells, column: &str) -> Result<Option<String>, String> {
    match cells.remove(column) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("`{column}` is not text")),
    }
}

/// `ops` as lists of names, or as the text of one: data sets hold `["a", "b"]` (JSON) and
/// `['a', 'b']` (Python) in text columns. Any other text is one operator.
fn operators(value: Value) -> Result<Vec<String>, String> {
    match value {
        Value::Array(items) => items
            .into_iter()
            .map(|item| match item {
                Value::String(text) => Ok(text),
                _ => Err("`ops` holds something that is not text".to_owned()),
            })
            .collect(),
        Value::String(text) => Ok(python_list(&text).unwrap_or_else(|| vec![text])),
        _ => Err("`ops` is neither a list nor text".to_owned()),
    }
}

/// The items of a Python list or tuple of string literals.
fn python_list(text: &str) -> Option<Vec<String>> {
    if text.len() > MAX_SOURCE_BYTES || !text.trim().starts_with(['[', '(']) {
        return None;
    }
    on_deep_stack(|| string_items(text))?
}

fn string_items(text: &str) -> Option<Vec<String>> {
    let parsed = ruff_python_parser::parse_expression(text.trim()).ok()?;
    let items = match &*parsed.syntax().body {
        Expr::List(list) => &list.elts,
        Expr::Tuple(tuple) => &tuple.elts,
        _ => return None,
    };
    items
        .iter()
        .map(|item| match item {
            Expr::StringLiteral(literal) => Some(literal.value.to_str().to_owned()),
            _ => None,
        })
        .collect()
}

fn stem(path: &Path) -> String {
    safe_name(&path.file_stem().unwrap_or_default().to_string_lossy())
}

/// Column names for people: sorted, quoted, the first dozen.
fn listed(names: &[&str]) -> String {
    const SHOWN: usize = 12;
    let mut names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.sort();
    let more = names.len().saturating_sub(SHOWN);
    names.truncate(SHOWN);
    match (names.is_empty(), more) {
        (true, _) => "none at all".to_owned(),
        (false, 0) => names.join(", "),
        (false, more) => format!("{} and {more} more", names.join(", ")),
    }
}
