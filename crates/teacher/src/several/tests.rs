use warpwright_agent::judge::DeviceFacts;
use warpwright_record::verdict::Profile;

use super::*;
use crate::draft::Draft;
use crate::tune::Knobs;

const RMSNORM: &str = include_str!("../../tests/fixtures/rmsnorm.json");

/// What the tracer prints of workloads and probes with these numbers of rows; the fixture has 64.
fn printed(workloads: &[i64], probes: &[i64], change: impl Fn(String) -> String) -> String {
    let graph = |rows: &i64| change(RMSNORM.replace("64", &rows.to_string()));
    let named = |rows: &i64| {
        let mut value: Value = serde_json::from_str(&graph(rows)).unwrap();
        value["workloads"] = Value::from(vec![format!("rows {rows}")]);
        value.to_string()
    };
    let list = |graphs: Vec<String>| graphs.join(",");
    let (workloads, probes) =
        (list(workloads.iter().map(named).collect()), list(probes.iter().map(graph).collect()));
    format!("{{\"version\":1,\"workloads\":[{workloads}],\"probes\":[{probes}],\"failed\":[]}}")
}

fn model(printed: &str) -> String {
    let device = DeviceFacts::assumed("cuda:0");
    let draft = Draft::of(printed, &device, Profile::Strict).unwrap();
    draft.files(&Knobs::default()).unwrap()["model_new.py"].clone()
}

#[test]
fn unseen_rows_have_a_form_if_three_graphs_agree() {
    let same = |text| text;
    for (workloads, probes, is_general) in [
        (&[64, 200][..], &[129, 259][..], true),
        (&[64, 200, 1000], &[], true),
        (&[64], &[129, 259], true),
        (&[64, 200], &[], false),
    ] {
        let text = model(&printed(workloads, probes, same));
        assert_eq!(text.contains("def _forward_any_0("), is_general, "{workloads:?}: {text}");
        assert!(text.contains("def _forward_rows_64("), "{text}");
    }
}

/// A number that grows with the rows in one graph alone has no rule.
#[test]
fn numbers_without_a_rule_leave_no_general_form() {
    let odd = |text: String| {
        if text.contains("129") { text.replace("2048", "2050") } else { text }
    };
    let text = model(&printed(&[64], &[129, 259], odd));
    assert!(!text.contains("_forward_any"), "{text}");
    assert!(text.contains("raise ValueError"), "{text}");
}

#[test]
fn suffixes_are_distinct_identifiers() {
    let draft = |name: &str| {
        let text = printed(&[64], &[], |text| text).replace("rows 64", name);
        let device = DeviceFacts::assumed("cpu");
        Draft::of(&text, &device, Profile::Strict).unwrap().files(&Knobs::default()).unwrap()
    };
    for (name, method) in [
        ("Prompt 7/b", "_forward_prompt_7_b("),
        ("7", "_forward_7("),
        ("\\u00e9\\u00e9", "_forward_w0("),
    ] {
        let files = draft(name);
        assert!(files["model_new.py"].contains(method), "{name}: {}", files["model_new.py"]);
    }
}
