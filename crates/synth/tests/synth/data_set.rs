//! The file: written data is read back, and unreadable files are refused with the correct reason.

use std::path::Path;
use std::sync::Arc;

use fs_err as fs;
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use proptest::prelude::*;
use tempfile::tempdir;
use warpwright_synth::{Appended, DataSet, DataSetError, Pushed, Row, Shares, Split};
use warpwright_task::Suite;

use crate::rows::{any_row, row};

fn set(rows: impl IntoIterator<Item = Row>) -> DataSet {
    let mut set = DataSet::new(Shares::default());
    for row in rows {
        set.push(row).expect("a row");
    }
    set
}

/// A file of text columns, written without our code.
fn write_table(path: &Path, columns: &[(&str, &[&str])], header: Option<&str>) {
    let fields: String =
        columns.iter().map(|(name, _)| ["required binary ", name, " (UTF8); "].concat()).collect();
    let schema = Arc::new(parse_message_type(&format!("message m {{ {fields} }}")).unwrap());
    let header =
        header.map(|text| vec![KeyValue::new("warpwright.data_set".to_owned(), text.to_owned())]);
    let properties = WriterProperties::builder().set_key_value_metadata(header).build();
    let file = fs::File::create(path).unwrap().into_parts().0;
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).unwrap();
    let mut group = writer.next_row_group().unwrap();
    for (_, values) in columns {
        let values: Vec<ByteArray> = values.iter().map(|value| ByteArray::from(*value)).collect();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<ByteArrayType>().write_batch(&values, None, None).unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.close().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn written_set_is_read_back(rows in prop::collection::vec(any_row(), 0..12)) {
        let folder = tempdir().unwrap();
        let path = folder.path().join("set.parquet");
        let written = set(rows);
        written.write(&path).unwrap();
        prop_assert_eq!(DataSet::read(&path).unwrap(), written);
    }

    #[test]
    fn pushed_rows_get_unique_names(rows in prop::collection::vec(any_row(), 0..30)) {
        let set = set(rows.clone());
        let mut names: Vec<String> =
            set.rows().iter().map(|row| row.name.to_ascii_lowercase()).collect();
        names.sort();
        names.dedup();
        prop_assert_eq!(names.len(), set.rows().len());
        let mut sources: Vec<&str> = rows.iter().map(|row| row.code.as_str()).collect();
        sources.sort_unstable();
        sources.dedup();
        prop_assert_eq!(sources.len(), set.rows().len());
    }

    /// A file written in several runs equals that of one run.
    #[test]
    fn appending_in_parts_equals_appending_at_once(
        rows in prop::collection::vec(any_row(), 1..12),
        parts in 1usize..5,
    ) {
        let folder = tempdir().unwrap();
        let path = folder.path().join("set.parquet");
        let mut added = 0;
        for part in rows.chunks(rows.len().div_ceil(parts)) {
            let appended = DataSet::append(&path, Shares::default(), part.to_vec()).unwrap();
            prop_assert_eq!(appended.added + appended.present, part.len());
            added += appended.added;
            prop_assert_eq!(appended.total, added);
        }
        prop_assert_eq!(DataSet::read(&path).unwrap(), set(rows));
    }

    /// A truncated or changed file is refused or read; no panic escapes.
    #[test]
    fn damaged_file_never_panics(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>()) {
        let folder = tempdir().unwrap();
        let path = folder.path().join("set.parquet");
        set((0..4).map(|n| row(n, &["torch.relu"]))).write(&path).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        let at = at.index(bytes.len());
        if cut { bytes.truncate(at) } else { bytes[at] = byte }
        fs::write(&path, bytes).unwrap();
        if let Err(error) = DataSet::read(&path) {
            prop_assert!(error.to_string().contains("set.parquet"), "{error}");
        }
    }
}

#[test]
fn columns_match_the_documentation() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("set.parquet");
    set([row(1, &["torch.relu", "torch.sum"])]).write(&path).unwrap();
    let file = fs::File::open(&path).unwrap().into_parts().0;
    let reader = SerializedFileReader::new(file).unwrap();
    let schema = reader.metadata().file_metadata().schema();
    let names: Vec<&str> = schema.get_fields().iter().map(|field| field.name()).collect();
    assert_eq!(
        names.join(" "),
        "name level split code ops data_source inputs outputs bytes eager_ms compile_ms floor_ms \
         head_room fingerprint graph composer seed catalogue parent"
    );
    let documented = include_str!("../../../../docs/reference/data-set.md");
    for name in names {
        assert!(documented.contains(&format!("`{name}`")), "{name} is not documented");
    }
    let row = reader.get_row_iter(None).unwrap().next().unwrap().unwrap();
    let text = row.to_string();
    assert!(text.contains("head_room: 5.8"), "{text}");
}

/// A data set is a suite, which `warpwright run` and other commands read.
#[test]
fn data_set_file_is_readable_as_a_suite() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("set.parquet");
    let written = set((1..4).map(|n| row(n, &["torch.relu", "torch.sum"])));
    written.write(&path).unwrap();
    let suite = Suite::read(&path).unwrap();
    for (task, row) in suite.tasks.iter().zip(written.rows()) {
        let mut expected = row.task();
        expected.origin = Some(path.clone());
        expected.split = Some(written.split_of(row).name().to_owned());
        assert_eq!(*task, expected);
    }
    assert_eq!(suite.tasks.len(), 3);
}

#[test]
fn released_data_set_is_read() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("CUDA-Agent-Ops-6K.parquet");
    let columns: [(&str, &[&str]); 3] = [
        ("ops", &["[\"torch.diag\", \"torch.matmul\"]", "['nn.Conv2d']"]),
        ("data_source", &["torch#2", "transformers#1"]),
        ("code", &["import torch\n", "import transformers\n"]),
    ];
    write_table(&path, &columns, None);
    let set = DataSet::read(&path).unwrap();
    let rows = set.rows();
    assert_eq!(rows[0].ops, ["torch.diag", "torch.matmul"]);
    assert_eq!(
        (rows[0].data_source.as_str(), rows[0].code.as_str()),
        ("torch#2", "import torch\n")
    );
    assert_eq!(rows[1].ops, ["nn.Conv2d"]);
    assert!(rows.iter().all(|row| row.measured.is_none() && row.level.is_none()));
    let error = DataSet::append(&path, Shares::default(), [row(1, &["torch.relu"])]).unwrap_err();
    assert!(matches!(error, DataSetError::Foreign { .. }), "{error}");
}

#[test]
fn newer_format_is_refused_and_unchanged() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("set.parquet");
    write_table(&path, &[("code", &["import torch"])], Some(r#"{"version":2,"other":true}"#));
    let before = fs::read(&path).unwrap();
    for error in [
        DataSet::read(&path).unwrap_err(),
        DataSet::append(&path, Shares::default(), [row(1, &[])]).unwrap_err(),
    ] {
        assert!(matches!(error, DataSetError::Newer { found: 2, .. }), "{error}");
        assert!(
            error.to_string().ends_with("its format 2 is newer than 1, which this program reads"),
            "{error}"
        );
        assert!(error.hint().is_some());
    }
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn missing_and_non_parquet_files_are_named_in_the_error() {
    let folder = tempdir().unwrap();
    let missing = folder.path().join("none.parquet");
    let error = DataSet::read(&missing).unwrap_err().to_string();
    assert!(error.starts_with("failed to read a data set: ") && error.contains("none.parquet"));
    let text = folder.path().join("text.parquet");
    fs::write(&text, "not Parquet").unwrap();
    let error = DataSet::append(&text, Shares::default(), [row(1, &[])]).unwrap_err();
    assert!(matches!(error, DataSetError::Parquet { .. }), "{error}");
    let nowhere = folder.path().join("no/folder/set.parquet");
    let error = DataSet::append(&nowhere, Shares::default(), [row(1, &[])]).unwrap_err();
    assert!(error.to_string().contains("no/folder"), "{error}");
}

#[test]
fn invalid_rows_are_refused_by_name() {
    let mut bad = row(1, &["torch.relu"]);
    if let Some(measured) = &mut bad.measured {
        measured.floor_ms = 0.0;
    }
    let error = DataSet::default().push(bad).unwrap_err().to_string();
    assert_eq!(error, "failed to add task `task_1`: `floor_ms` is 0, not a time");
    let mut set = DataSet::default();
    assert_eq!(set.push(row(1, &[])).unwrap(), Pushed::Added);
    assert_eq!(set.push(row(1, &[])).unwrap(), Pushed::Present);
    let mut same_name = row(2, &[]);
    same_name.name = "TASK_1".to_owned();
    set.push(same_name).unwrap();
    assert_eq!(set.rows()[1].name, "TASK_1-2");
}

#[test]
fn appending_with_other_split_shares_is_refused() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("set.parquet");
    DataSet::append(&path, Shares::new(0.1, 0.2).unwrap(), [row(1, &["torch.relu"])]).unwrap();
    let error = DataSet::append(&path, Shares::default(), [row(2, &["torch.relu"])]).unwrap_err();
    assert!(error.to_string().contains("its shares are 0.1/0.2, but 0.05/0.1 were requested"));
    let shares = Shares::new(0.1, 0.2).unwrap();
    let appended = DataSet::append(&path, shares, [row(1, &["torch.relu"]), row(2, &[])]).unwrap();
    assert_eq!(appended, Appended { added: 1, present: 1, total: 2 });
    assert!(Shares::new(0.6, 0.5).is_err() && Shares::new(-0.1, 0.5).is_err());
    assert!(Shares::new(f64::NAN, 0.5).is_err());
}

#[test]
fn removed_rows_are_returned_and_others_unchanged() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("set.parquet");
    let before = set((0..6).map(|n| row(n, &["torch.relu"])));
    before.write(&path).unwrap();
    let name = |n: usize| before.rows()[n].name.clone();
    let unknown = DataSet::remove(&path, &[name(1), "nobody".to_owned()].into()).unwrap_err();
    assert!(unknown.to_string().contains("`nobody`"), "{unknown}");
    assert_eq!(DataSet::read(&path).unwrap(), before, "all or nothing");
    let gone = DataSet::remove(&path, &[name(4), name(1)].into()).unwrap();
    assert_eq!(gone, [before.rows()[1].clone(), before.rows()[4].clone()]);
    let left = DataSet::read(&path).unwrap();
    let stayed = [0, 2, 3, 5].map(|n| before.rows()[n].clone());
    assert_eq!((left.rows(), left.shares()), (&stayed[..], before.shares()));
}

#[test]
fn concurrent_appends_lose_no_rows() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("set.parquet");
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let path = &path;
            scope.spawn(move || {
                for number in 0..5 {
                    let row = row(writer * 100 + number, &["torch.relu"]);
                    DataSet::append(path, Shares::default(), [row]).unwrap();
                }
            });
        }
    });
    assert_eq!(DataSet::read(&path).unwrap().rows().len(), 20);
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn split_assignment_is_frozen() {
    // Written down once: a change would move the rows of every file there is.
    let shares = Shares::new(0.3, 0.3).unwrap();
    let of = |ops: &[&str]| shares.split_of(&row(1, ops).combination());
    let splits: Vec<&str> = (0..24)
        .map(|n| of(&[["torch.relu", "torch.sum", "nn.Conv2d"][n % 3], &format!("op{n}")]).name())
        .collect();
    assert_eq!(splits.join(" "), SPLITS);
}

const SPLITS: &str = "train validation validation validation train train train train test train train \
    test test train train train train validation train test train train validation train";

proptest! {
    /// The split is independent of the order of operators and of other rows, and the shares hold.
    #[test]
    fn combination_always_has_the_same_split(
        ops in prop::collection::vec("[a-z]{1,6}", 0..6),
        keys in prop::collection::vec(any::<u32>(), 6),
        others in prop::collection::vec(prop::collection::vec("[a-z]{1,3}", 0..4), 0..20),
        validation in 0.0..0.5f64,
        test in 0.0..0.5f64,
    ) {
        let borrowed: Vec<&str> = ops.iter().map(String::as_str).collect();
        let mut order: Vec<usize> = (0..ops.len()).collect();
        order.sort_by_key(|&i| keys[i]);
        let shuffled: Vec<&str> = order.iter().map(|&i| borrowed[i]).collect();
        let shares = Shares::new(validation, test).unwrap();
        let mut set = DataSet::new(shares);
        set.push(row(0, &borrowed)).unwrap();
        let split = set.split_of(&set.rows()[0]);
        prop_assert_eq!(set.split_of(&row(1, &shuffled)), split);
        for (n, other) in others.iter().enumerate() {
            let other: Vec<&str> = other.iter().map(String::as_str).collect();
            set.push(row(n as u64 + 2, &other)).unwrap();
        }
        prop_assert_eq!(set.split_of(&set.rows()[0]), split);
        // Disjoint: every row of a combination is in the one split.
        let of = |split| set.split(split).map(Row::combination).collect::<std::collections::BTreeSet<_>>();
        prop_assert!(of(Split::Test).is_disjoint(&of(Split::Train)));
        prop_assert!(of(Split::Test).is_disjoint(&of(Split::Validation)));
        prop_assert!(of(Split::Train).is_disjoint(&of(Split::Validation)));
        // A larger share for validation takes nothing from test.
        let wider = Shares::new(0.5, test).unwrap();
        let combination = set.rows()[0].combination();
        prop_assert_eq!(
            wider.split_of(&combination) == Split::Test,
            shares.split_of(&combination) == Split::Test
        );
    }
}

#[test]
fn splits_have_the_requested_shares() {
    let shares = Shares::new(0.05, 0.1).unwrap();
    let mut counts = [0_u32; 3];
    for n in 0..20_000 {
        let row = row(1, &[&format!("a{n}"), "torch.relu"]);
        counts[shares.split_of(&row.combination()) as usize] += 1;
    }
    // Five standard errors.
    for (count, share) in counts.iter().zip([0.85, 0.05, 0.1]) {
        let (count, expected) = (f64::from(*count), 20_000.0 * share);
        assert!((count - expected).abs() < 5.0 * (expected * (1.0 - share)).sqrt(), "{counts:?}");
    }
}
