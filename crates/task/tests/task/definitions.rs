//! Definitions of SOL-ExecBench and FlashInfer-Bench.

use std::path::Path;

use fs_err as fs;
use insta::assert_snapshot;
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};
use warpwright_task::{MAX_SOURCE_BYTES, Suite, Task};

fn scale() -> Value {
    json!({
        "name": "scale_h8",
        "description": "x * weight\nover two lines",
        "op_type": "rmsnorm",
        "axes": {
            "rows": {"type": "var"},
            "hidden": {"type": "const", "value": 8},
            "all": {"type": "expr", "expression": "rows * hidden"}
        },
        "constraints": ["all == hidden * rows", "rows == index[-1].item()"],
        "inputs": {
            "x": {"shape": ["rows", "hidden"], "dtype": "bfloat16"},
            "norm_weight": {"shape": ["hidden"], "dtype": "bfloat16"},
            "eps": {"shape": null, "dtype": "float32"}
        },
        "outputs": {"y": {"shape": ["rows", "hidden"], "dtype": "bfloat16"}},
        "reference": "import torch\n\n@torch.no_grad()\ndef run(x, norm_weight, eps):\n    return x * norm_weight + eps\n"
    })
}

fn workload(uuid: &str, rows: u64) -> Value {
    json!({
        "uuid": uuid,
        "axes": {"rows": rows},
        "inputs": {
            "x": {"type": "random"},
            "norm_weight": {"type": "random"},
            "eps": {"type": "scalar", "value": 1e-6}
        },
        "tolerance": {"max_atol": 0.002, "max_rtol": 0.05, "required_match_ratio": 0.98}
    })
}

fn write(path: &Path, text: impl AsRef<str>) {
    fs::create_dir_all(path.parent().expect("a parent")).expect("create");
    fs::write(path, text.as_ref()).expect("write");
}

/// A problem of SOL-ExecBench.
fn problem(definition: &Value, workloads: &[Value]) -> TempDir {
    let folder = tempdir().expect("a temporary folder");
    write(&folder.path().join("definition.json"), definition.to_string());
    let lines: Vec<String> = workloads.iter().map(Value::to_string).collect();
    write(&folder.path().join("workload.jsonl"), lines.join("\n"));
    folder
}

/// The error of a definition, without the folder's name.
fn error(definition: &Value, workloads: &[Value]) -> String {
    let folder = problem(definition, workloads);
    let error = Task::read(folder.path()).expect_err("an error");
    let text = format!("{error}\nhint: {}", error.hint().unwrap_or_default());
    text.replace(&folder.path().display().to_string(), "FOLDER")
}

fn with(mut value: Value, pointer: &str, new: Value) -> Value {
    *value.pointer_mut(pointer).expect(pointer) = new;
    value
}

#[test]
fn definition_becomes_a_kernelbench_task() {
    let folder = problem(&scale(), &[workload("aa-1", 7), workload("bb-2", 3)]);
    let task = Task::read(folder.path()).expect("a task");
    assert_eq!(task.name, "scale_h8");
    assert_eq!(task, Task::read(&folder.path().join("definition.json")).expect("by its file"));
    assert_eq!(Suite::read(folder.path()).expect("a suite").tasks, std::slice::from_ref(&task));
    task.facts().expect("sound");
    let start = task.source.find("def get_inputs").expect("get_inputs");
    assert_snapshot!(&task.source[start..], @r#"
    def get_inputs(rows=7, eps=1e-6):
        hidden = 8
        all = int(rows * hidden)
        return [
            _warpwright_draw("normal", (rows, hidden), "bfloat16"),
            _warpwright_draw("scale", (hidden,), "bfloat16"),
            eps,
        ]


    def get_workloads():
        return [
            {"name": "aa-1", "arguments": {"rows": 7, "eps": 1e-6}, "tolerance": {"atol": 0.002, "rtol": 0.05}},
            {"name": "bb-2", "arguments": {"rows": 3, "eps": 1e-6}, "tolerance": {"atol": 0.002, "rtol": 0.05}},
        ]
    "#);
    assert!(task.source.contains(scale()["reference"].as_str().expect("text")), "unchanged");
    assert!(task.source.starts_with("# The definition scale_h8.\n# x * weight over two lines\n"));
}

#[test]
fn text_of_a_stranger_is_short_in_messages() {
    let long = "x".repeat(100_000);
    let kind = json!({"type": long, "value": 1});
    let axes = with(scale(), "/axes", json!({long.clone(): {"type": "const"}}));
    for definition in [
        with(scale(), "/axes/hidden", kind),
        axes,
        with(scale(), "/inputs/x/dtype", json!(long)),
        with(scale(), "/axes/hidden/value", json!(long)),
        with(scale(), "/reference", json!(format!("def {long} {long}"))),
    ] {
        let error = error(&definition, &[workload("aa", 2)]);
        assert!(error.len() < 1000, "{} bytes: {}", error.len(), &error[..200]);
    }
    let mut other = workload("aa", 2);
    other["axes"][&long] = json!(4);
    let error = error(&scale(), &[other]);
    assert!(error.len() < 1000 && error.contains("is no variable axis"), "{error}");
}

#[test]
fn trace_set_and_data_set_are_suites() {
    let folder = tempdir().expect("a folder");
    let at = |path: &str| folder.path().join(path);
    let trace = |name: &str| {
        let workload = workload("aa", 2);
        json!({"definition": name, "solution": null, "workload": workload, "evaluation": null})
    };
    for (number, name) in [(10, "ten"), (2, "two")] {
        let definition = with(scale(), "/name", json!(name));
        write(&at(&format!("traces/definitions/op/{number}.json")), definition.to_string());
        write(&at(&format!("traces/workloads/op/{number}.jsonl")), trace(name).to_string());
        write(&at(&format!("sol/L1/{number}/definition.json")), definition.to_string());
        write(&at(&format!("sol/L1/{number}/workload.jsonl")), workload("aa", 2).to_string());
    }
    write(&at("sol/L1/1/definition.json"), "{");
    let names = |path: &str| {
        let suite = Suite::read(&at(path)).expect("a suite");
        suite.tasks.into_iter().map(|t| (t.name.clone(), t.facts().is_ok())).collect::<Vec<_>>()
    };
    let both = [("two".to_owned(), true), ("ten".to_owned(), true)];
    assert_eq!(names("traces"), both);
    let of_file = Task::read(&at("traces/definitions/op/2.json")).expect("a task");
    assert_eq!(of_file.name, "two");
    let all = names("sol");
    assert_eq!(all[0], ("1".to_owned(), false), "one bad definition spoils no suite");
    assert_eq!(all[1..], both);
    let bad = &Suite::read(&at("sol")).expect("a suite").tasks[0];
    let told = bad.facts().expect_err("refused").to_string();
    assert!(told.contains("EOF while parsing"), "{told}");
}

#[test]
fn bad_definition_is_refused_with_cause_and_cure() {
    let good = [workload("aa", 2)];
    assert_snapshot!(error(&with(scale(), "/reference", json!(null)), &good), @"
    failed to read a definition from FOLDER/definition.json: it has no `reference`
    hint: a definition has `name`, `axes`, `inputs`, `outputs` and `reference`, Python with a function `run` of the inputs
    ");
    let reason = |definition: &Value| {
        let text = error(definition, &good);
        text.lines().next().expect("a line").split(": ").skip(1).collect::<Vec<_>>().join(": ")
    };
    let told = [
        (
            with(scale(), "/reference", json!("def run(x): return x")),
            "`run` takes (x), and the inputs are (x, norm_weight, eps)",
        ),
        (with(scale(), "/reference", json!("def run(:")), "its `reference` is not Python"),
        (
            with(scale(), "/reference", json!("def main(): pass")),
            "its `reference` has no function `run`",
        ),
        (with(scale(), "/inputs/x/dtype", json!("float12")), "`x`: its dtype `float12` is unknown"),
        (
            with(scale(), "/inputs/x/dtype", json!("float4_e2m1fn_x2")),
            "`x`: its dtype float4_e2m1fn_x2 is not judged",
        ),
        (
            with(scale(), "/inputs/x/shape", json!(["rows", "wide"])),
            "`x`: its shape names `wide`, which is no axis",
        ),
        (with(scale(), "/inputs/x/shape", json!("rows")), "invalid type"),
        (
            with(scale(), "/axes/rows/type", json!("free")),
            "its axis `rows` has the unknown type `free`",
        ),
        (with(scale(), "/axes/hidden/value", json!(-8)), "invalid value"),
        (
            with(scale(), "/axes/hidden/value", json!(1_u64 << 50)),
            "its axis `hidden` is larger than any tensor",
        ),
        (
            with(scale(), "/axes/all/expression", json!("__import__('os')")),
            "its axis `all` is not arithmetic",
        ),
        (
            with(scale(), "/axes", json!({"x=print(1)": {"type": "var"}})),
            "`x=print(1)` can name no axis or input",
        ),
        (with(scale(), "/axes", json!({"x": {"type": "var"}})), "`x` is both an axis and an input"),
    ];
    for (definition, expected) in told {
        let found = reason(&definition);
        assert!(found.starts_with(expected), "{found}\nexpected {expected}");
    }
}

#[test]
fn unusable_workload_is_left_out_by_name() {
    let index = json!({
        "shape": ["rows"], "dtype": "int32"
    });
    let mut definition = scale();
    definition["inputs"]["index"] = index;
    definition["reference"] = json!("def run(x, norm_weight, eps, index):\n    return x[index]");
    let mut good = workload("good", 2);
    good["inputs"]["index"] =
        json!({"type": "safetensors", "path": "data/blob/i.safetensors", "tensor_key": "i"});
    let mut drawn = workload("drawn", 2);
    drawn["inputs"]["index"] = json!({"type": "random"});
    let missing = with(good.clone(), "/inputs/index/path", json!("blob/other.safetensors"));
    let escaping = with(good.clone(), "/inputs/index/path", json!("../blob/i.safetensors"));
    let large = with(good.clone(), "/axes/rows", json!(3));
    let no_axis = with(good.clone(), "/axes", json!({}));
    let typo = with(good.clone(), "/inputs/index/type", json!("zipf"));
    let hostile = with(good.clone(), "/axes/rows", json!(1_u64 << 39));
    let all = [good, drawn, missing, escaping, large, no_axis, typo, hostile];
    let folder = problem(&definition, &all);
    let header = br#"{"i":{"dtype":"I32","shape":[2],"data_offsets":[0,8]}}"#;
    let mut blob = (header.len() as u64).to_le_bytes().to_vec();
    blob.extend_from_slice(header);
    blob.extend_from_slice(&[1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    let file = folder.path().join("blob/i.safetensors");
    fs::create_dir(folder.path().join("blob")).expect("create");
    fs::write(&file, &blob).expect("write");
    let task = Task::read(folder.path()).expect("a task");
    task.facts().expect("sound");
    assert!(task.source.contains("\"good/index\": [1, -1],"), "{}", task.source);
    assert_eq!(task.source.matches("\"name\": ").count(), 1);
    assert_snapshot!(task.notes().join("\n"), @"
    workload drawn: its input `index` is of random int32: nothing says which values are valid indices
    workload line 3: its input `index`: blob/other.safetensors is not there
    workload line 4: its input `index`: ../blob/i.safetensors is not a relative path without `..`
    workload line 5: its input `index`: data/blob/i.safetensors holds `i` as I32 [2], and the definition says I32 [3]
    workload line 6: it has no value for the axis `rows`
    workload line 7: its input `index` has the unknown type `zipf`: random, scalar, safetensors or custom
    workload line 8: its axis `all` is 4398046511104, not a number up to 1099511627776
    ");
    for cut in [4, 30, blob.len() - 1] {
        fs::write(&file, &blob[..cut]).expect("write");
        assert!(Task::read(folder.path()).is_err(), "a damaged file of {cut} bytes");
    }
}

#[test]
fn constraints_that_are_not_understood_are_named() {
    let mut definition = scale();
    let long = format!("rows {} > 0", "+ 0 ".repeat(400));
    definition["constraints"] =
        json!(["rows > 0", "norm_weight.max() <= 2\nx", "rows >", "rows in {2}", long]);
    let folder = problem(&definition, &[workload("aa", 2), workload("bb", 3)]);
    let task = Task::read(folder.path()).expect("a task");
    task.facts().expect("sound");
    assert!(task.notes().is_empty(), "{:?}", task.notes());
    let unchecked = task.unchecked();
    assert_eq!(
        unchecked[..3],
        [
            "constraint `norm_weight.max() <= 2 x`",
            "constraint `rows >`",
            "constraint `rows in {2}`",
        ]
    );
    assert!(
        unchecked.len() == 4 && unchecked[3].starts_with("constraint `rows + 0"),
        "{unchecked:?}"
    );

    definition["constraints"] = json!(["rows > 0"]);
    let task = Task::read(problem(&definition, &[workload("aa", 2)]).path()).expect("a task");
    assert!(task.unchecked().is_empty());

    let many: Vec<String> = (0..30).map(|i| format!("x.max() < {i}")).collect();
    definition["constraints"] = json!(many);
    let task = Task::read(problem(&definition, &[workload("aa", 2)]).path()).expect("a task");
    assert_eq!((task.unchecked().len(), task.unchecked()[8]), (9, "22 more constraints"));
}

#[test]
fn of_many_workloads_an_even_spread_is_kept() {
    let all: Vec<Value> = (1..=200).map(|rows| workload(&format!("w{rows}"), rows)).collect();
    let folder = problem(&scale(), &all);
    let task = Task::read(folder.path()).expect("a task");
    assert_eq!(task.source.matches("\"name\": ").count(), 64);
    assert!(task.source.contains("\"w1\"") && task.source.contains("\"w200\""));
    assert_eq!(task.notes(), ["workload others: 136 of 200: a task has at most 64, evenly spread"]);
}

#[test]
fn custom_inputs_come_from_the_reference() {
    let mut definition = scale();
    definition["custom_inputs_entrypoint"] = json!("get_inputs");
    let reference = "def get_inputs(axes_and_scalars, device):\n    return {}\ndef run(x, norm_weight, eps):\n    return x\n";
    definition["reference"] = json!(reference);
    let mut custom = workload("aa", 2);
    for input in ["x", "norm_weight"] {
        custom["inputs"][input] = json!({"type": "custom"});
    }
    let folder = problem(&definition, &[custom, workload("bb", 2)]);
    let task = Task::read(folder.path()).expect("a task");
    assert!(task.source.contains("_warpwright_entry = get_inputs\n"));
    assert!(
        task.source.contains("{\"rows\": rows, \"hidden\": hidden, \"all\": all, \"eps\": eps},")
    );
    let left_out =
        "workload bb: its input `x` has another kind of source than in the first workload";
    assert_eq!(task.notes(), [left_out]);
}

#[test]
fn hostile_sizes_are_refused() {
    let folder = problem(&scale(), &[]);
    fs::write(folder.path().join("definition.json"), vec![b' '; 2 << 20]).expect("write");
    let told = Task::read(folder.path()).expect_err("too large").to_string();
    assert!(told.contains("exceed the limit"), "{told}");
    let long =
        format!("def run(x, norm_weight, eps):\n    return x\n#{}", "x".repeat(MAX_SOURCE_BYTES));
    let told = error(&with(scale(), "/reference", json!(long)), &[workload("aa", 2)]);
    assert!(told.contains("exceed the limit"), "{told}");
    let deep = "[".repeat(4000);
    let folder = problem(&scale(), &[]);
    write(&folder.path().join("workload.jsonl"), &deep);
    assert!(Task::read(folder.path()).is_err());
}

/// JSON of any form.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,6}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_change_is_read_without_panic(
        in_definition in any::<bool>(),
        at in prop::sample::select(vec![
            "", "/name", "/axes", "/axes/rows", "/axes/rows/type", "/axes/hidden/value",
            "/axes/all/expression", "/inputs", "/inputs/x", "/inputs/x/shape", "/inputs/x/dtype",
            "/outputs", "/reference", "/constraints", "/uuid", "/inputs/eps/value", "/inputs/x/type",
            "/tolerance", "/tolerance/max_atol", "/description", "/op_type",
        ]),
        new in any_json(),
    ) {
        let (mut definition, mut workload) = (scale(), workload("aa", 2));
        let changed = if in_definition { &mut definition } else { &mut workload };
        if let Some(place) = changed.pointer_mut(at) {
            *place = new;
        }
        let folder = problem(&definition, &[workload]);
        if let Ok(task) = Task::read(folder.path()) {
            prop_assert!(task.facts().is_ok());
        }
    }
}

#[test]
fn definition_that_is_a_device_is_refused() {
    let folder = problem(&scale(), &[workload("a", 3)]);
    let path = folder.path().join("definition.json");
    fs::remove_file(&path).expect("remove");
    fs::os::unix::fs::symlink("/dev/zero", &path).expect("link");
    let told = Task::read(&path).expect_err("it never ends").to_string();
    assert!(told.contains("no regular file"), "{told}");
}

#[test]
fn number_for_a_tensor_leaves_a_workload_out() {
    let number = json!({"type": "scalar", "value": 0.5});
    let told = error(&scale(), &[with(workload("a", 3), "/inputs/x", number)]);
    assert!(told.contains("is a number where the definition has a tensor"), "{told}");
}
