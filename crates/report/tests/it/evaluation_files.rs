//! An evaluation as files: JSONL, Parquet, pages.

use std::collections::BTreeSet;
use std::path::Path;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use roxmltree::{Document, ParsingOptions};
use warpwright_record::event::{EpisodeId, Event, Outcome};
use warpwright_record::verdict::IntegrityFinding;
use warpwright_report::evaluation::Evaluation;
use warpwright_report::evaluation::export::{ExportError, export};
use warpwright_report::evaluation::rows::Row;

use crate::{sample, suite};

/// The sample with a hostile episode: markup and terminal escapes in every text field.
fn write(dir: &Path) -> Evaluation {
    let run = suite::write(dir);
    let hostile = "level1-9_x</script><script>alert(1)</script>\u{1b}[2J/../../up";
    let episode = EpisodeId(90);
    let mut setup = sample::setup(&run, hostile, "cuda:0");
    setup.policy = "alpha<img src=x>".into();
    run.append(&Event::EpisodeStarted { episode, setup }).unwrap();
    let candidate = sample::candidate("");
    let mut verdict = sample::failed(hostile, &candidate, sample::mismatch());
    let message = "<iframe src=x>".to_owned();
    verdict.integrity.push(IntegrityFinding { class: "late_write".into(), message });
    let verdict = Box::new(verdict);
    let (turn, files) = (None, Vec::new());
    run.append(&Event::VerdictGiven { episode, turn, verdict: verdict.clone(), files }).unwrap();
    run.append(&Event::EpisodeFinished {
        episode,
        outcome: Outcome::Stopped,
        final_verdict: Some(verdict),
        best_verdict: None,
        candidate: None,
        turns: 0,
        seconds: 1.0,
    })
    .unwrap();
    Evaluation::read(dir).unwrap()
}

#[test]
fn jsonl_reads_back_as_the_rows() {
    let dir = tempfile::tempdir().unwrap();
    let evaluation = write(dir.path());
    let out = dir.path().join("rows.jsonl");
    export(&evaluation, dir.path(), &out).unwrap();
    let text = fs_err::read_to_string(out).unwrap();
    let rows: Vec<Row> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows, evaluation.rows);
}

#[test]
fn parquet_reads_back_as_the_rows() {
    let dir = tempfile::tempdir().unwrap();
    let evaluation = write(dir.path());
    let out = dir.path().join("rows.parquet");
    export(&evaluation, dir.path(), &out).unwrap();
    let reader = SerializedFileReader::new(std::fs::File::open(out).unwrap()).unwrap();
    let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
    assert_eq!(rows.len(), evaluation.rows.len());
    for (row, expected) in rows.iter().zip(&evaluation.rows) {
        let field = |name: &str| {
            row.get_column_iter().find(|(n, _)| *n == name).map(|(_, field)| field.clone()).unwrap()
        };
        assert_eq!(field("task"), Field::Str(expected.task.clone()));
        assert_eq!(field("verified"), Field::Bool(expected.verified));
        assert_eq!(field("input_tokens"), Field::Long(expected.usage.input_tokens as i64));
        let figure = |value: Option<f64>| value.map_or(Field::Null, Field::Double);
        let best = expected.measured.best;
        assert_eq!(field("speedup_best"), figure(best.map(|b| b.value)));
        assert_eq!(field("speedup_best_low"), figure(best.map(|b| b.low)));
        assert_eq!(field("time_ms_high"), figure(expected.measured.time_ms.map(|t| t.high)));
        let level = expected.level.clone().map_or(Field::Null, Field::Str);
        assert_eq!(field("level"), level);
    }
    let verified = evaluation.rows.iter().filter(|row| row.verified).count();
    assert!(verified > 0 && verified < rows.len(), "both kinds were compared");
}

#[test]
fn unknown_file_extension_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let evaluation = write(dir.path());
    let error = export(&evaluation, dir.path(), &dir.path().join("rows.csv")).unwrap_err();
    assert!(matches!(error, ExportError::Format { .. }), "{error}");
}

fn parse(html: &str) -> Document<'_> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    Document::parse_with_options(html.trim_start(), options).unwrap()
}

#[test]
fn page_is_well_formed_self_contained_and_links_to_tasks() {
    let dir = tempfile::tempdir().unwrap();
    let evaluation = write(dir.path());
    let out = tempfile::tempdir().unwrap();
    let page = out.path().join("evaluation.html");
    export(&evaluation, dir.path(), &page).unwrap();
    let html = fs_err::read_to_string(&page).unwrap();
    if let Some(keep) = std::env::var_os("REPORT_TEST_KEEP") {
        fs_err::write(keep, &html).unwrap();
    }
    let document = parse(&html);
    let mut links = BTreeSet::new();
    let mut scripts = Vec::new();
    for node in document.descendants().filter(roxmltree::Node::is_element) {
        let name = node.tag_name().name();
        assert!(!["link", "img", "iframe", "object"].contains(&name), "<{name}>");
        if name == "script" {
            scripts.push(node.text().unwrap_or_default());
        }
        for attribute in node.attributes() {
            let (key, value) = (attribute.name(), attribute.value());
            assert!(!key.starts_with("on") && key != "src", "{key}={value}");
            if key == "href" {
                links.insert(value.to_owned());
            }
        }
    }
    // One script: ours, which holds nothing of the record and asks for nothing.
    assert_eq!(scripts.len(), 1);
    let ours = include_str!("../../templates/evaluation.js");
    assert_eq!(scripts[0].trim(), ours.trim());
    for word in ["fetch", "XMLHttpRequest", "innerHTML", "eval", "import", "http"] {
        assert!(!ours.contains(word), "{word}");
    }
    // Every link leads to a page of its own, and no page is without a link.
    let mut files = BTreeSet::new();
    for entry in fs_err::read_dir(out.path().join("tasks")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let html = fs_err::read_to_string(out.path().join("tasks").join(&name)).unwrap();
        assert!(parse(&html).descendants().all(|n| !n.has_tag_name("script")));
        files.insert(format!("tasks/{name}"));
    }
    assert_eq!(links, files);
    assert_eq!(files.len(), 6, "each task that was begun");
    assert_eq!(fs_err::read_dir(out.path()).unwrap().count(), 2, "no path leads out");
    assert!(!html.contains('\u{1b}'));
    let text: String =
        document.descendants().filter(roxmltree::Node::is_text).filter_map(|n| n.text()).collect();
    for part in [
        "level1-9_x</script><script>alert(1)</script>\\x1b[2J/../../up",
        "<iframe src=x>",
        "incomplete",
        "62.5 %",
        "the oracle died",
        "it raised <script>alert(1)</script>",
        "never begun",
        "pass@1, pass@2",
    ] {
        assert!(text.contains(part), "not there: {part}");
    }
    let first = document.descendants().find(|n| n.has_tag_name("tbody")).unwrap();
    let cells: Vec<&str> = first
        .descendants()
        .filter(|n| n.has_tag_name("td"))
        .filter_map(|n| n.text())
        .take(4)
        .collect();
    assert_eq!(cells, ["overall", "alpha, strict, cuda:0", "4", "62.5 %"], "the headline");
    assert!(!text.contains("arXiv"), "the hostile task is not KernelBench's");
}

#[test]
fn page_of_kernelbench_has_the_papers_table() {
    let dir = tempfile::tempdir().unwrap();
    drop(suite::write(dir.path()));
    let evaluation = Evaluation::read(dir.path()).unwrap();
    let out = dir.path().join("evaluation.html");
    export(&evaluation, dir.path(), &out).unwrap();
    let html = fs_err::read_to_string(out).unwrap();
    parse(&html);
    assert!(html.contains("arXiv 2602.24286") && html.contains("98.8 %"));
}
