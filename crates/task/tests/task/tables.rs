//! JSONL and Parquet.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fs_err as fs;
use insta::assert_snapshot;
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};
use warpwright_task::{MAX_SOURCE_BYTES, Mode, ReadError, Suite, Task};

use crate::GOOD;

fn jsonl(text: &str) -> (TempDir, PathBuf) {
    let folder = tempdir().expect("a temporary folder");
    let path = folder.path().join("tasks.jsonl");
    fs::write(&path, text).expect("write");
    (folder, path)
}

fn read(text: &str) -> Vec<Task> {
    let (_folder, path) = jsonl(text);
    Suite::read(&path).unwrap_or_else(|error| panic!("{error}: {text}")).tasks
}

fn said(error: &ReadError, path: &Path) -> String {
    let text = format!("{error}\nhint: {}", error.hint().unwrap_or_default());
    text.replace(&path.display().to_string(), "TABLE")
}

fn refused(text: &str) -> String {
    let (_folder, path) = jsonl(text);
    said(&Suite::read(&path).expect_err(text), &path)
}

#[test]
fn byte_order_mark_before_the_first_row_is_skipped() {
    let row = json!({"code": GOOD, "name": "marked"});
    assert_eq!(read(&format!("\u{feff}{row}\n{row}\n")).len(), 2);
    assert!(refused(&format!("{row}\n\u{feff}{row}\n")).contains("row 2"));
}

#[test]
fn known_jsonl_columns_are_read() {
    let rows = [
        json!({"code": GOOD, "ops": ["torch.add", "torch.relu"], "data_source": "synth", "extra": {"x": 1}}),
        json!({"code": GOOD, "name": "my task", "level": 3, "ops": null, "mode": "train", "split": "test"}),
    ];
    let tasks = read(&format!("{}\n\n{}\n", rows[0], rows[1]));
    assert_eq!(tasks[0].name, "tasks-1");
    assert_eq!(tasks[0].source, GOOD);
    assert_eq!(
        tasks[0].ops.as_deref(),
        Some(&["torch.add".to_owned(), "torch.relu".to_owned()][..])
    );
    assert_eq!(tasks[0].data_source.as_deref(), Some("synth"));
    assert_eq!((tasks[1].name.as_str(), tasks[1].level), ("my_task", Some(3)));
    assert_eq!((tasks[0].split.as_deref(), tasks[1].split.as_deref()), (None, Some("test")));
    assert_eq!((tasks[1].mode, tasks[1].ops.as_ref()), (Mode::Train, None));
}

#[test]
fn operators_are_read_in_every_data_set_format() {
    let ops = |value: Value| read(&json!({"code": GOOD, "ops": value}).to_string())[0].ops.clone();
    let two = Some(vec!["nn.Conv2d".to_owned(), "nn.ReLU".to_owned()]);
    assert_eq!(ops(json!(["nn.Conv2d", "nn.ReLU"])), two);
    assert_eq!(ops(json!("[\"nn.Conv2d\", \"nn.ReLU\"]")), two);
    assert_eq!(ops(json!("['nn.Conv2d', 'nn.ReLU']")), two);
    assert_eq!(ops(json!("('nn.Conv2d', 'nn.ReLU')")), two);
    assert_eq!(ops(json!("nn.Conv2d")), Some(vec!["nn.Conv2d".to_owned()]));
    assert_eq!(ops(json!("[]")), Some(vec![]));
    let deep = "[".repeat(100_000);
    assert_eq!(ops(json!(deep)), Some(vec![deep]));
}

#[test]
fn names_are_made_unique_and_safe() {
    let row = json!({"code": GOOD, "name": "../x"}).to_string();
    let tasks = read(&format!("{row}\n{row}\n{row}"));
    let names: Vec<_> = tasks.iter().map(|task| task.name.as_str()).collect();
    assert_eq!(names, ["_._x", "_._x-2", "_._x-3"]);
}

#[test]
fn error_names_the_bad_row() {
    let good = json!({"code": GOOD});
    assert_snapshot!(refused(&format!("{good}\n{{\"code\": ")), @r#"
    failed to read a suite from TABLE: row 2: EOF while parsing a value at line 1 column 9
    hint: a row looks like {"code": "import torch ...", "name": "relu", "ops": ["torch.relu"]}; only `code` is required
    "#);
    assert_snapshot!(refused(&format!("{good}\n\n{{\"name\": \"x\"}}")), @r#"
    failed to read a suite from TABLE: row 3: it has no `code`
    hint: a row looks like {"code": "import torch ...", "name": "relu", "ops": ["torch.relu"]}; only `code` is required
    "#);
    assert_snapshot!(refused("[1, 2]"), @r#"
    failed to read a suite from TABLE: row 1: it is not a JSON object
    hint: a row looks like {"code": "import torch ...", "name": "relu", "ops": ["torch.relu"]}; only `code` is required
    "#);
    assert_snapshot!(refused("{\"source\": \"x\", \"id\": 1}"), @"
    failed to read a suite from TABLE: it has no column `code`; its columns are `id`, `source`
    hint: rename the column that holds the Python sources to `code`
    ");
    assert_snapshot!(refused("{\"code\": 5}"), @r#"
    failed to read a suite from TABLE: row 1: `code` is not text
    hint: a row looks like {"code": "import torch ...", "name": "relu", "ops": ["torch.relu"]}; only `code` is required
    "#);
    assert_snapshot!(refused("{\"code\": \"x\", \"level\": -1}"), @r#"
    failed to read a suite from TABLE: row 1: `level` is -1, not a number from 0 to 255
    hint: a row looks like {"code": "import torch ...", "name": "relu", "ops": ["torch.relu"]}; only `code` is required
    "#);
    assert_snapshot!(refused("{\"code\": \"x\", \"ops\": [1]}"), @r#"
    failed to read a suite from TABLE: row 1: `ops` holds something that is not text
    hint: a row looks like {"code": "import torch ...", "name": "relu", "ops": ["torch.relu"]}; only `code` is required
    "#);
    assert_snapshot!(refused("{\"code\": \"x\", \"mode\": \"fast\"}"), @r#"
    failed to read a suite from TABLE: row 1: `mode` is "fast", neither "eval" nor "train"
    hint: a row looks like {"code": "import torch ...", "name": "relu", "ops": ["torch.relu"]}; only `code` is required
    "#);
    assert_snapshot!(refused("\n\n"), @"
    failed to read a suite from TABLE: it contains no tasks
    hint: a suite is a folder of .py files, a KernelBench checkout (level1, level2, ...), a table with a `code` column, or a folder with a definition.json in each folder; files whose names begin with `_` or `.` are ignored
    ");
    let large = json!({"code": "#".repeat(MAX_SOURCE_BYTES + 1)});
    assert_snapshot!(refused(&large.to_string()), @r#"
    failed to read a suite from TABLE: row 1: the 262145 bytes of its `code` exceed the limit of 262144
    hint: a row looks like {"code": "import torch ...", "name": "relu", "ops": ["torch.relu"]}; only `code` is required
    "#);
}

/// Writes rows of (code, ops, data_source, level); `ops` as a list column, as Hugging Face does.
fn write_parquet(
    path: &Path,
    rows: &[(String, Vec<String>, Option<String>, i64)],
    how: Compression,
) {
    let schema = "message schema {
        required binary code (UTF8);
        optional group ops (LIST) { repeated group list { optional binary element (UTF8); } }
        optional binary data_source (UTF8);
        required int64 level;
        required int64 unrelated;
    }";
    let schema = Arc::new(parse_message_type(schema).expect("a schema"));
    let properties = WriterProperties::builder().set_compression(how).build();
    let file = std::fs::File::create(path).expect("create");
    let mut writer =
        SerializedFileWriter::new(file, schema, Arc::new(properties)).expect("a writer");
    let mut group = writer.next_row_group().expect("a row group");
    let text = |s: &String| ByteArray::from(s.as_str());

    let mut column = group.next_column().expect("a column").expect("code");
    let code: Vec<_> = rows.iter().map(|row| text(&row.0)).collect();
    column.typed::<ByteArrayType>().write_batch(&code, None, None).expect("write");
    column.close().expect("close");

    let mut column = group.next_column().expect("a column").expect("ops");
    let ops: Vec<_> = rows.iter().flat_map(|row| row.1.iter().map(text)).collect();
    let mut definition = Vec::new();
    let mut repetition = Vec::new();
    for row in rows {
        // 3: a value; 1: an empty list.
        definition.extend(if row.1.is_empty() { vec![1] } else { vec![3; row.1.len()] });
        repetition.extend((0..row.1.len().max(1)).map(|i| i16::from(i > 0)));
    }
    column
        .typed::<ByteArrayType>()
        .write_batch(&ops, Some(&definition), Some(&repetition))
        .expect("write");
    column.close().expect("close");

    let mut column = group.next_column().expect("a column").expect("data_source");
    let sources: Vec<_> = rows.iter().filter_map(|row| row.2.as_ref().map(text)).collect();
    let definition: Vec<i16> = rows.iter().map(|row| i16::from(row.2.is_some())).collect();
    column.typed::<ByteArrayType>().write_batch(&sources, Some(&definition), None).expect("write");
    column.close().expect("close");

    for _ in ["level", "unrelated"] {
        let mut column = group.next_column().expect("a column").expect("a number");
        let numbers: Vec<_> = rows.iter().map(|row| row.3).collect();
        column.typed::<Int64Type>().write_batch(&numbers, None, None).expect("write");
        column.close().expect("close");
    }
    group.close().expect("close");
    writer.close().expect("close");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn parquet_and_jsonl_give_equal_tasks(
        rows in prop::collection::vec(
            ("\\PC{0,40}", prop::collection::vec("[a-z.]{1,8}", 0..4), prop::option::of("\\PC{0,8}"), 0i64..256),
            1..8,
        ),
        how in prop::sample::select(vec![Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::ZSTD(ZstdLevel::default())]),
    ) {
        let folder = tempdir().expect("a temporary folder");
        let parquet = folder.path().join("tasks.parquet");
        write_parquet(&parquet, &rows, how);
        let lines: Vec<String> = rows
            .iter()
            .map(|(code, ops, source, level)| {
                json!({"code": code, "ops": ops, "data_source": source, "level": level}).to_string()
            })
            .collect();
        let text = folder.path().join("tasks.jsonl");
        fs::write(&text, lines.join("\n")).expect("write");

        let mut from_parquet = Suite::read(&parquet).expect("parquet").tasks;
        let mut from_jsonl = Suite::read(&text).expect("jsonl").tasks;
        prop_assert_eq!(from_parquet.len(), rows.len());
        for (task, row) in from_parquet.iter().zip(&rows) {
            prop_assert_eq!(&task.source, &row.0);
            prop_assert_eq!(task.ops.as_deref(), Some(&row.1[..]));
            prop_assert_eq!(&task.data_source, &row.2);
            prop_assert_eq!(task.level.map(i64::from), Some(row.3));
        }
        for task in from_parquet.iter_mut().chain(&mut from_jsonl) {
            task.origin = None;
        }
        prop_assert_eq!(from_parquet, from_jsonl);
    }
}

#[test]
fn error_for_parquet_without_code_names_its_columns() {
    let folder = tempdir().expect("a temporary folder");
    let path = folder.path().join("other.parquet");
    let schema = Arc::new(
        parse_message_type("message m { required int64 b; required int64 a; }").expect("a schema"),
    );
    let file = std::fs::File::create(&path).expect("create");
    SerializedFileWriter::new(file, schema, Arc::default())
        .expect("a writer")
        .close()
        .expect("close");
    assert_snapshot!(said(&Suite::read(&path).expect_err("no code"), &path), @"
    failed to read a suite from TABLE: it has no column `code`; its columns are `a`, `b`
    hint: rename the column that holds the Python sources to `code`
    ");
}

#[test]
fn non_parquet_file_is_refused() {
    let folder = tempdir().expect("a temporary folder");
    let path = folder.path().join("pointer.parquet");
    fs::write(&path, "version https://git-lfs.github.com/spec/v1\n").expect("write");
    assert_snapshot!(said(&Suite::read(&path).expect_err("not parquet"), &path), @"
    failed to read a suite from TABLE: Parquet error: Invalid Parquet file. Corrupt footer
    hint: check that the file was downloaded in full (a Git LFS pointer is a small text file); snappy, zstd, gzip and no compression can be read
    ");
}

#[test]
fn damaged_parquet_file_never_panics() {
    let folder = tempdir().expect("a temporary folder");
    let path = folder.path().join("tasks.parquet");
    let rows: Vec<_> =
        (0..20).map(|i| (GOOD.to_owned(), vec![format!("op{i}")], None, i)).collect();
    write_parquet(&path, &rows, Compression::SNAPPY);
    let whole = fs::read(&path).expect("read");
    assert_eq!(Suite::read(&path).expect("whole").tasks.len(), 20);
    for length in (0..whole.len()).step_by(97) {
        fs::write(&path, &whole[..length]).expect("write");
        Suite::read(&path).expect_err("cut short");
    }
    for index in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[index] ^= 0x55;
        fs::write(&path, &bytes).expect("write");
        // A flipped byte in a value may go unnoticed; it must not bring the program down.
        let _ = Suite::read(&path);
    }
}
