//! The starter suite is within the teacher's reach: it writes every task, and what it writes agrees
//! with torch at reduced sizes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use warpwright_record::verdict::Profile;

use crate::bench::{Bench, Case, device};

/// One entry of the suite's `tasks.json`.
#[derive(Deserialize)]
struct Row {
    /// Constants of the task's file and what they are replaced by.
    small: BTreeMap<String, i64>,
}

fn suite() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/starter")
}

fn rows() -> BTreeMap<String, Row> {
    let text = fs_err::read_to_string(suite().join("tasks.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Sources by a name that can be a file's.
fn sources(sizes: impl Fn(&Row) -> BTreeMap<String, i64>) -> BTreeMap<String, String> {
    rows()
        .iter()
        .map(|(name, row)| {
            let mut text = fs_err::read_to_string(suite().join(format!("{name}.py"))).unwrap();
            for (constant, value) in sizes(row) {
                text = resized(&text, &constant, value);
            }
            (name.replace('/', "-"), text)
        })
        .collect()
}

/// `text` with the line that defines `constant` replaced.
fn resized(text: &str, constant: &str, value: i64) -> String {
    let start = format!("{constant} = ");
    let (mut out, mut count) = (String::new(), 0);
    for line in text.lines() {
        if line.starts_with(&start) {
            out.push_str(&format!("{start}{value}\n"));
            count += 1;
        } else {
            out.push_str(&format!("{line}\n"));
        }
    }
    assert_eq!(count, 1, "tasks.json replaces {constant}, which is there {count} times:\n{text}");
    out
}

/// Tasks that the teacher does not write, each with its reason.
fn refusals(cases: &[Case], device: &str) -> Vec<String> {
    let refusal = |case: &Case| {
        let reason = warpwright_teacher::translate(
            &case.trace,
            &crate::bench::device(device),
            Profile::Strict,
            false,
        )
        .err()?;
        Some(format!("{}: {reason}", case.name))
    };
    cases.iter().filter_map(refusal).collect()
}

#[test]
fn long_starter_suite_is_within_the_teachers_reach() {
    let bench = Bench::new();
    let cases = bench.trace_sources(&sources(|row| row.small.clone()));
    assert_eq!(cases.len(), rows().len());
    let wrong = bench.conform(&cases, &device("cpu"), false);
    assert!(wrong.is_empty(), "{} wrong for cpu:\n{}", wrong.len(), wrong.join("\n"));
    // What is written for a GPU runs on the host too, but for cuDNN, which has no counterpart there.
    let on_host = |case: &Case| {
        let files =
            warpwright_teacher::translate(&case.trace, &device("cuda:0"), Profile::Strict, false)
                .unwrap();
        !files.values().any(|text| text.contains("cudnnHandle_t"))
    };
    let (some, others): (Vec<Case>, Vec<Case>) = cases.iter().cloned().partition(on_host);
    assert!(some.len() * 10 > cases.len() * 9, "only {} run on the host", some.len());
    let wrong = bench.conform(&some, &device("cuda:0"), false);
    assert!(wrong.is_empty(), "{} wrong for cuda:0:\n{}", wrong.len(), wrong.join("\n"));
    // The rest compiles, with the real library's headers.
    bench.compile_for(&others, &device("cuda:0"), "sm_90");
}

#[test]
fn long_unsupported_or_invalid_task_is_reported() {
    let name = "level1-08_log_returns";
    let mut all = sources(|row| row.small.clone());
    let text = all.remove(name).unwrap();
    let ranked = text.replace("torch.log(", "torch.sort(").replace("[:, :-1])", "[:, :-1]).values");
    let few = BTreeMap::from([(name.to_owned(), text), ("ranked".to_owned(), ranked)]);
    let bench = Bench::new();
    let mut cases = bench.trace_sources(&few);
    let refused = refusals(&cases, "cuda:0");
    assert!(matches!(&refused[..], [one] if one.contains("ranked") && one.contains("sort")));
    // The reference is another function than the one that was traced.
    cases.truncate(1);
    cases[0].model = cases[0].model.replace("torch.log(", "torch.log1p(");
    let wrong = bench.conform(&cases, &device("cpu"), false);
    assert!(matches!(&wrong[..], [one] if one.contains(name)), "{wrong:?}");
}

#[test]
fn long_starter_suite_is_planned_at_full_size() {
    let cases = Bench::new().trace_sources(&sources(|_| BTreeMap::new()));
    assert_eq!(cases.len(), rows().len());
    let refused = refusals(&cases, "cuda:0");
    assert!(refused.is_empty(), "{} refused:\n{}", refused.len(), refused.join("\n"));
}
