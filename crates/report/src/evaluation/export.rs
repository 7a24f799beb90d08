//! An evaluation's rows as a file: JSONL (every field), Parquet (a flat table), HTML (the page).

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, ConvertedType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use thiserror::Error;

use super::rows::Row;
use super::scores::Of;
use super::{Evaluation, call};
use crate::html::{ReportError, write_evaluation};

/// Format of an export, chosen by the file extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `.jsonl`: one row a line.
    Jsonl,
    /// `.parquet`: one row a row.
    Parquet,
    /// `.html`: a page, with a page for each task in a folder `tasks` beside it.
    Html,
}

impl Format {
    /// The format of a file extension; `None` if it is unknown.
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "jsonl" => Some(Self::Jsonl),
            "parquet" => Some(Self::Parquet),
            "html" => Some(Self::Html),
            _ => None,
        }
    }
}

/// Why an evaluation could not be exported.
#[derive(Debug, Error)]
pub enum ExportError {
    /// The file name has no known extension. A usage error.
    #[error(
        "failed to export to {path}: unknown format; the name must end in .jsonl, .parquet or .html"
    )]
    Format {
        /// The file.
        path: PathBuf,
    },
    /// The file system refused.
    #[error("failed to write {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The page could not be made.
    #[error(transparent)]
    Page(#[from] ReportError),
}

/// Writes the rows of `evaluation`, which was read from the run in `run_dir`, in the format that
/// `out`'s name ends in.
pub fn export(evaluation: &Evaluation, run_dir: &Path, out: &Path) -> Result<(), ExportError> {
    let Some(format) = Format::of(out) else {
        return Err(ExportError::Format { path: out.to_owned() });
    };
    let written = match format {
        Format::Html => return Ok(write_evaluation(evaluation, run_dir, out)?),
        Format::Jsonl => crate::files::replace(out, |file| jsonl(&evaluation.rows, file)),
        Format::Parquet => {
            let bytes = parquet(&evaluation.rows).map_err(io::Error::other);
            bytes.and_then(|bytes| crate::files::replace(out, |file| file.write_all(&bytes)))
        }
    };
    written.map_err(|source| ExportError::Write { path: out.to_owned(), source })
}

fn jsonl(rows: &[Row], file: &mut dyn Write) -> io::Result<()> {
    for row in rows {
        serde_json::to_writer(&mut *file, row)?;
        file.write_all(b"\n")?;
    }
    Ok(())
}

/// A column: its name and its value in each row.
enum Column {
    Text(&'static str, Vec<Option<String>>),
    Flag(&'static str, Vec<Option<bool>>),
    Count(&'static str, Vec<Option<i64>>),
    Figure(String, Vec<Option<f64>>),
}

fn columns(rows: &[Row]) -> Vec<Column> {
    let text = |name, of: &dyn Fn(&Row) -> Option<String>| {
        Column::Text(name, rows.iter().map(of).collect())
    };
    let count =
        |name, of: &dyn Fn(&Row) -> Option<i64>| Column::Count(name, rows.iter().map(of).collect());
    let number = |n: u64| Some(i64::try_from(n).unwrap_or(i64::MAX));
    let name_of = |value: serde_json::Result<serde_json::Value>| {
        value.ok().and_then(|value| value.as_str().map(str::to_owned))
    };
    let mut columns = vec![
        text("task", &|r| Some(r.task.clone())),
        text("level", &|r| r.level.clone()),
        text("policy", &|r| Some(r.policy.clone())),
        count("attempt", &|r| Some(r.attempt.into())),
        text("profile", &|r| Some(r.profile.to_string())),
        text("dtype", &|r| r.dtype.map(|dtype| dtype.to_string())),
        text("fit", &|r| r.fit.as_ref().map(ToString::to_string)),
        text("call", &|r| Some(call(r.backward).to_owned())),
        text("device", &|r| Some(r.device.clone())),
        count("episode", &|r| r.episode.map(i64::from)),
        text("state", &|r| name_of(serde_json::to_value(r.state))),
        text("reason", &|r| r.reason.clone()),
        text("outcome", &|r| r.outcome.clone()),
        Column::Flag("verified", rows.iter().map(|r| Some(r.verified)).collect()),
        text("result", &|r| Some(r.result.clone())),
        text("integrity", &|r| {
            let classes: Vec<&str> = r.integrity.iter().map(|f| f.class.as_str()).collect();
            (!classes.is_empty()).then(|| classes.join(","))
        }),
        text("best_baseline", &|r| r.measured.best_baseline.clone()),
        Column::Flag(
            "best_seen_verified",
            rows.iter().map(|r| Some(r.best_seen.is_some())).collect(),
        ),
        text("candidate", &|r| r.candidate.clone()),
        count("turns", &|r| Some(r.turns.into())),
        count("input_tokens", &|r| number(r.usage.input_tokens)),
        count("cached_tokens", &|r| number(r.usage.cached_tokens)),
        count("output_tokens", &|r| number(r.usage.output_tokens)),
        count("peak_memory_bytes", &|r| number(r.memory?.peak_bytes)),
        text("fingerprint", &|r| serde_json::to_string(r.fingerprint.as_ref()?).ok()),
    ];
    let mut figure = |name: &str, of: &dyn Fn(&Row) -> Option<f64>| {
        let values = rows.iter().map(|r| of(r).filter(|x| x.is_finite())).collect();
        columns.push(Column::Figure(name.to_owned(), values));
    };
    figure("seconds", &|r| Some(r.seconds));
    figure("judge_seconds", &|r| Some(r.judge_seconds));
    figure("dollars", &|r| r.usage.dollars);
    let intervals: [(&str, Of); 4] = [
        ("time_ms", |m| m.time_ms),
        ("speedup_eager", |m| m.eager),
        ("speedup_compile", |m| m.compile),
        ("speedup_best", |m| m.best),
    ];
    for (name, get) in intervals {
        figure(name, &|r| Some(get(&r.measured)?.value));
        figure(&format!("{name}_low"), &|r| Some(get(&r.measured)?.low));
        figure(&format!("{name}_high"), &|r| Some(get(&r.measured)?.high));
        figure(&format!("best_seen_{name}"), &|r| Some(get(r.best_seen.as_ref()?)?.value));
    }
    columns
}

fn parquet(rows: &[Row]) -> Result<Vec<u8>, ParquetError> {
    let columns = columns(rows);
    let field = |name: &str, physical: Physical, text: bool| {
        let mut builder =
            Type::primitive_type_builder(name, physical).with_repetition(Repetition::OPTIONAL);
        if text {
            builder = builder.with_converted_type(ConvertedType::UTF8);
        }
        builder.build().map(Arc::new)
    };
    let fields = columns
        .iter()
        .map(|column| match column {
            Column::Text(name, _) => field(name, Physical::BYTE_ARRAY, true),
            Column::Flag(name, _) => field(name, Physical::BOOLEAN, false),
            Column::Count(name, _) => field(name, Physical::INT64, false),
            Column::Figure(name, _) => field(name, Physical::DOUBLE, false),
        })
        .collect::<Result<Vec<_>, _>>()?;
    let schema = Arc::new(Type::group_type_builder("evaluation").with_fields(fields).build()?);
    let compression = Compression::ZSTD(ZstdLevel::default());
    let properties = Arc::new(WriterProperties::builder().set_compression(compression).build());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties)?;
    let mut group = writer.next_row_group()?;
    for column in &columns {
        let Some(mut out) = group.next_column()? else { break };
        match column {
            Column::Text(_, values) => {
                let bytes = |text: &String| ByteArray::from(text.as_bytes().to_vec());
                let (levels, values) = split(values, bytes);
                out.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None)?;
            }
            Column::Flag(_, values) => {
                let (levels, values) = split(values, |flag| *flag);
                out.typed::<BoolType>().write_batch(&values, Some(&levels), None)?;
            }
            Column::Count(_, values) => {
                let (levels, values) = split(values, |count| *count);
                out.typed::<Int64Type>().write_batch(&values, Some(&levels), None)?;
            }
            Column::Figure(_, values) => {
                let (levels, values) = split(values, |figure| *figure);
                out.typed::<DoubleType>().write_batch(&values, Some(&levels), None)?;
            }
        }
        out.close()?;
    }
    group.close()?;
    writer.into_inner()
}

/// Parquet's form of a column with gaps: for each row whether there is a value, and the values.
fn split<T, U>(values: &[Option<T>], of: impl Fn(&T) -> U) -> (Vec<i16>, Vec<U>) {
    let levels = values.iter().map(|value| i16::from(value.is_some())).collect();
    (levels, values.iter().flatten().map(of).collect())
}
