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

/// The files hold the constants of workloads alone.
#[test]
fn constants_that_depend_on_sizes_leave_no_general_form() {
    let scaled = |depends: bool| {
        move |text: String| {
            let rows = text.split("\"shape\":[").nth(1).unwrap().split(',').next().unwrap();
            let rows: i64 = if depends { rows.parse().unwrap() } else { 64 };
            let constant = format!(
                "\"constants\":[{{\"name\":\"c\",\"shape\":[2],\"dtype\":\"float32\",\
                 \"values\":[{rows},{}]}}",
                2 * rows
            );
            let last = "\"outputs\":[{\"n\":\"mul_1\"}]";
            let (before, node) = text.split_once("{\"name\":\"mul_1\"").unwrap();
            let node = node.split_once('\n').unwrap().0;
            let scale = node.replace("\"mul\"", "\"mul_1\"").replace("p_weight", "c");
            assert!(scale.contains("{\"n\":\"c\"}"), "{scale}");
            let nodes = format!("{{\"name\":\"mul_1\"{node},\n{{\"name\":\"mul_2\"{scale}\n],\n");
            format!("{before}{nodes}{}}}", last.replace("mul_1", "mul_2"))
                .replace("\"constants\":[\n", &constant)
                .replace("2048", "2")
        }
    };
    for (depends, is_general) in [(false, true), (true, false)] {
        let text = model(&printed(&[64], &[129, 259], scaled(depends)));
        assert_eq!(text.contains("def _forward_any_0("), is_general, "{text}");
    }
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
