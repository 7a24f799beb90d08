//! `report.html`.

use std::path::Path;

use proptest::prelude::*;
use roxmltree::{Document, Node, ParsingOptions};
use warpwright_record::error::ReadError;
use warpwright_record::event::{EpisodeId, Event, Outcome};
use warpwright_record::reader::RunReader;
use warpwright_record::run::RunInfo;
use warpwright_record::writer::{ResumePolicy, RunWriter};
use warpwright_report::html::{ReportError, write_html};

use crate::sample;

fn page(dirs: &[&Path]) -> String {
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("report.html");
    write_html(dirs, &[], &path).unwrap();
    let names = fs_err::read_dir(out.path()).unwrap().count();
    assert_eq!(names, 1, "nothing but the report is left behind");
    let html = fs_err::read_to_string(&path).unwrap();
    if let Some(keep) = std::env::var_os("REPORT_TEST_KEEP") {
        fs_err::write(keep, &html).unwrap();
    }
    html
}

fn sample_page() -> String {
    let dir = tempfile::tempdir().unwrap();
    drop(sample::write_run(dir.path()));
    page(&[dir.path()])
}

/// The page is also valid XML, which is the strictest check of its structure.
fn parse(html: &str) -> Document<'_> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    Document::parse_with_options(html.trim_start(), options).unwrap()
}

fn text(node: Node<'_, '_>) -> String {
    node.descendants().filter(Node::is_text).filter_map(|n| n.text()).collect()
}

fn elements<'a>(document: &'a Document<'a>, name: &str) -> Vec<Node<'a, 'a>> {
    document.descendants().filter(|n| n.has_tag_name(name)).collect()
}

#[test]
fn page_is_well_formed_and_self_contained() {
    let html = sample_page();
    assert!(html.trim_start().starts_with("<!DOCTYPE html>"));
    let document = parse(&html);
    for node in document.descendants().filter(Node::is_element) {
        let name = node.tag_name().name();
        assert!(!["script", "link", "img", "iframe", "object"].contains(&name), "<{name}>");
        for attribute in node.attributes() {
            let (key, value) = (attribute.name(), attribute.value());
            assert!(!key.starts_with("on") && key != "src", "{key}={value}");
            assert!(key != "href" || value.starts_with('#'), "{key}={value}");
        }
    }
    let style = text(elements(&document, "style")[0]);
    assert!(!style.contains("url(") && !style.contains("@import"));
    // Anchors lead somewhere, and once.
    let ids: Vec<&str> = document.descendants().filter_map(|n| n.attribute("id")).collect();
    assert_eq!(ids, ["r0e0", "r0e1", "r0e2"]);
}

#[test]
fn hostile_markup_is_escaped() {
    let html = sample_page();
    assert!(!html.contains("<script"), "markup of a candidate reached the page");
    assert!(!html.contains("<img"), "markup of a policy reached the page");
    let document = parse(&html);
    let all = text(document.root());
    for shown in [
        "row_softmax <b>&\"hostile\"</b>",
        "<script>alert('from the candidate')</script>",
        "wrong: <script>alert('tool')</script>",
        "<img src=x onerror=alert(2)> Now verify.",
        "// </pre><script>alert(1)</script>",
        "\\x1b[31mred\\x1b[0m",
    ] {
        assert!(all.contains(shown), "not shown: {shown}");
    }
    assert!(!html.contains('\u{1b}'));
}

#[test]
fn page_shows_results_with_confidence_intervals() {
    let html = sample_page();
    let document = parse(&html);
    let articles: Vec<String> = elements(&document, "article").into_iter().map(text).collect();
    let good = &articles[0];
    for part in [
        "verified",
        "2.36×", // 0.1625 ms over 0.2310 / 3.35 ms
        "over reduce-overhead, the fastest baseline measured",
        "69.0 68.3–69.6", // a row of the plot
        "memory roofline 48.9 µs",
        "71 %",
        "NVIDIA H200",
        "the final verdict",
        "full isolation",
        "Conditions while timing: SM 1980 (1965 to 1980) MHz, memory 3201 MHz, 44 (41 to 44) C",
        "alone on the GPU",
        "bias_gelu_kernel<<<(n4 + 255) / 256, 256, 0, stream>>>(",
        "identifier \"residuall\" is undefined",
    ] {
        assert!(good.contains(part), "not there: {part}");
    }
    let facts = text(elements(&document, "dl")[0]);
    assert!(facts.contains("cuda:0: identical kernels called faster 1 of 300"), "{facts}");
    assert_eq!(
        elements(&document, "article")[0]
            .descendants()
            .filter(|n| n.attribute("class") == Some("plot"))
            .count(),
        2,
        "two plots"
    );
    let bad = &articles[1];
    for part in [
        "wrong values",
        "4 096 of 16 777 216 elements (0.02 %)",
        "not finite",
        "out of turns",
        "expected 1.5, got nan",
        "untrusted text of the candidate",
        "the baseline could not be compiled with max-autotune",
    ] {
        assert!(bad.contains(part), "not there: {part}");
    }
}

#[test]
fn killed_run_is_shown_up_to_its_last_event() {
    let dir = tempfile::tempdir().unwrap();
    drop(sample::write_run(dir.path()));
    // Half an event, as kill -9 leaves it.
    let log = dir.path().join("events.jsonl");
    let mut bytes = fs_err::read(&log).unwrap();
    bytes.extend(br#"{"version":1,"seq":99,"ti"#);
    fs_err::write(&log, bytes).unwrap();
    let html = page(&[dir.path()]);
    let document = parse(&html);
    let killed = text(elements(&document, "article")[2]);
    for part in [
        "unfinished: killed or still running",
        "there is no final verdict",
        "no result: the run stopped here",
        "say nothing about a GPU",
        "clocks were not locked",
        "partial isolation",
    ] {
        assert!(killed.contains(part), "not there: {part}");
    }
}

#[test]
fn run_without_verdicts_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let run = RunWriter::create(dir.path(), RunInfo::default()).unwrap();
    let html = page(&[dir.path()]);
    assert!(text(parse(&html).root()).contains("The run has no episodes."));
    let episode = sample::killed_episode(&run).swap_remove(0);
    run.append(&episode).unwrap();
    let html = page(&[dir.path()]);
    assert!(text(parse(&html).root()).contains("The judge gave no verdict in this episode."));
}

#[test]
fn page_is_the_same_without_the_index() {
    let dir = tempfile::tempdir().unwrap();
    sample::finish(sample::write_run(dir.path()));
    let strip =
        |html: String| html.lines().filter(|l| !l.contains("Written by")).collect::<String>();
    let with = strip(page(&[dir.path()]));
    fs_err::remove_file(dir.path().join("index.sqlite")).unwrap();
    assert_eq!(strip(page(&[dir.path()])), with);
}

#[test]
fn missing_blob_is_named_in_place_of_the_file() {
    let dir = tempfile::tempdir().unwrap();
    drop(sample::write_run(dir.path()));
    fs_err::remove_dir_all(dir.path().join("blobs")).unwrap();
    let html = page(&[dir.path()]);
    assert!(text(parse(&html).root()).contains("the blob is missing"));
}

#[test]
fn page_size_is_bounded_for_a_huge_candidate() {
    let dir = tempfile::tempdir().unwrap();
    let run = RunWriter::create(dir.path(), RunInfo::default()).unwrap();
    let huge = sample::candidate(&"// padding\n".repeat(200_000));
    let mut events = sample::killed_episode(&run);
    let stored = run.put_candidate(&huge).unwrap();
    events.push(Event::EpisodeFinished {
        episode: EpisodeId(2),
        outcome: Outcome::Stopped,
        final_verdict: None,
        best_verdict: None,
        candidate: Some(stored),
        turns: 2,
        seconds: 1.0,
    });
    for event in &events {
        run.append(event).unwrap();
    }
    let html = page(&[dir.path()]);
    assert!(html.contains("bytes are shown; the file is blob"));
    assert!(html.len() < 8 << 20, "{} bytes", html.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// No text of a record changes the structure of the page.
    #[test]
    fn no_text_changes_the_structure_of_the_page(text in prop_oneof![
        any::<String>(),
        "[<>&\"'/a-z!\\[\\]{}%#-]{0,80}",
    ]) {
        let dir = tempfile::tempdir().unwrap();
        let info = RunInfo { command: text.clone(), config: serde_json::json!({"k": text}) };
        let run = RunWriter::create(dir.path(), info).unwrap();
        let candidate = sample::candidate(&text);
        let mut failure = sample::mismatch();
        failure.message.clone_from(&text);
        failure.output_tail.clone_from(&text);
        failure.diagnostics = sample::build_failure().diagnostics;
        failure.diagnostics[0].excerpt.clone_from(&text);
        failure.diagnostics[0].file = Some(text.clone());
        let mut verdict = sample::failed(&text, &candidate, failure);
        verdict.caveats.push(text.clone());
        verdict.fingerprint.hardware.clone_from(&text);
        verdict.isolation.missing.push(text.clone());
        let episode = EpisodeId(0);
        let mut events = vec![Event::EpisodeStarted {
            episode,
            setup: sample::setup(&run, &text, &text),
        }];
        let call = (text.as_str(), text.as_str(), serde_json::json!({"content": text, "x": text}));
        events.extend(sample::turn(&run, episode, 1, call, &text, Some(verdict), &candidate));
        for event in &events {
            run.append(event).unwrap();
        }
        let html = page(&[dir.path()]);
        let document = parse(&html);
        prop_assert_eq!(elements(&document, "article").len(), 1);
        prop_assert!(elements(&document, "script").is_empty());
        let known = [
            "html", "head", "meta", "title", "style", "body", "header", "p", "svg", "path", "h1",
            "main", "section", "dl", "div", "dt", "dd", "code", "span", "table", "thead", "tr",
            "th", "tbody", "td", "a", "article", "h2", "b", "br", "h3", "i", "details", "summary",
            "pre", "h4", "ul", "li", "ol", "footer",
        ];
        for node in document.descendants().filter(Node::is_element) {
            prop_assert!(known.contains(&node.tag_name().name()), "{:?}", node.tag_name());
        }
    }
}

#[test]
fn several_runs_make_one_page() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    for dir in &dirs {
        drop(sample::write_run(dir.path()));
    }
    let html = page(&[dirs[0].path(), dirs[1].path()]);
    let document = parse(&html);
    assert_eq!(elements(&document, "article").len(), 6);
    let mut ids: Vec<_> = document.descendants().filter_map(|n| n.attribute("id")).collect();
    ids.dedup();
    assert_eq!(ids.len(), 6);
}

#[test]
fn figures_of_two_machines_are_marked_not_comparable() {
    let dir = tempfile::tempdir().unwrap();
    drop(sample::write_run(dir.path()));
    let log = dir.path().join("events.jsonl");
    let text_of = fs_err::read_to_string(&log).unwrap();
    // The last verdict of the first episode was measured elsewhere.
    let at = text_of.find("\"type\":\"verdict_given\"").unwrap();
    let changed = text_of[at..].replacen("NVIDIA H200", "NVIDIA H100", 1);
    fs_err::write(&log, text_of[..at].to_owned() + &changed).unwrap();
    let html = page(&[dir.path()]);
    let document = parse(&html);
    let first = text(elements(&document, "article")[0]);
    assert!(first.contains("under 2 different fingerprints"), "{first}");
    let second = text(elements(&document, "article")[1]);
    assert!(!second.contains("different fingerprints"));
}

#[test]
fn recorded_run_is_marked_with_its_hardware_and_date() {
    let dir = tempfile::tempdir().unwrap();
    drop(sample::write_run(dir.path()));
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("report.html");
    write_html(&[dir.path()], &[dir.path()], &path).unwrap();
    let html = fs_err::read_to_string(&path).unwrap();
    let document = parse(&html);
    let marks: Vec<bool> = elements(&document, "section")
        .into_iter()
        .filter(|section| section.attribute("class") == Some("run"))
        .map(|run| {
            text(run).contains("It was recorded on Intel Xeon Platinum 8480 and NVIDIA H200 on 20")
        })
        .collect();
    assert_eq!(marks, [false, true], "{html}");
}

#[test]
fn a_folder_without_a_run_is_an_error_with_a_hint() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("report.html");
    let error = write_html(&[dir.path()], &[], &out).unwrap_err();
    assert!(matches!(error, ReportError::Read(ReadError::NotARun { .. })));
    assert!(error.hint().is_some());
    assert!(!out.exists());

    let run = tempfile::tempdir().unwrap();
    drop(sample::write_run(run.path()));
    let error =
        write_html(&[run.path()], &[], &dir.path().join("no/such/folder.html")).unwrap_err();
    assert!(error.to_string().contains("no/such/folder.html"), "{error}");
    // Reading does not lock: the run can still be taken up.
    RunWriter::resume(run.path(), ResumePolicy::SameProgram).unwrap();
    RunReader::open(run.path()).unwrap();
}
