//! `--fit`: tasks that are too large for the device are scaled down.

use serde_json::{Value, json};
use warpwright_record::event::EpisodeId;
use warpwright_record::history::History;
use warpwright_record::reader::RunReader;
use warpwright_task::Task;

use crate::judging::recorded;
use crate::program::{KERNEL, MODEL_NEW, Program, TASK};

/// Memory that a quarter of [`large`] fits.
const LIMIT: [&str; 4] = ["--device", "cpu", "--memory-limit", "640MiB"];

/// 16 MiB of inputs and as much of outputs.
fn large() -> String {
    TASK.replace("\n\nclass", "\nbatch_size = 4096\n\n\nclass")
        .replace("(512, 256)", "(batch_size, 1024)")
}

#[test]
fn large_task_is_judged_scaled_down() {
    let program = Program::new();
    program.write("large.py", &large());
    program.write("candidate/model_new.py", MODEL_NEW);
    program.write("candidate/kernels/relu_add.cu", KERNEL);
    let judge = |limit: &[&str], more: &[&str]| {
        let fixed = ["judge", "large.py", "--candidate", "candidate", "--json"];
        program.run(&[&fixed[..], &["--stage", "verified"], limit, more].concat())
    };
    let refused = judge(&LIMIT, &[]);
    assert_eq!(refused.code, Some(2), "{}", refused.show());
    assert!(refused.stdout.contains("it is too large"), "{}", refused.show());
    let scaled = judge(&LIMIT, &["--fit", "--out", "run"]);
    assert_eq!(scaled.code, Some(0), "{}", scaled.show());
    let fit = json!({ "dimension": "batch_size", "from": 4096, "to": 1024 });
    assert_eq!(scaled.object()["verdict"]["fit"], fit, "{}", scaled.show());
    assert!(
        scaled.stderr.contains("`--fit` scales it down: batch_size 2048 of 4096"),
        "{}",
        scaled.show()
    );
    let memory = &scaled.object()["verdict"]["memory"];
    let bytes = |part: &str| memory[part].as_u64().unwrap_or_else(|| panic!("{part}: {memory}"));
    assert!(bytes("candidate_bytes") > 8 << 20, "its inputs and outputs: {memory}");
    assert!(bytes("oracle_bytes") > 16 << 20, "{memory}");
    assert_eq!(bytes("peak_bytes"), bytes("candidate_bytes") + bytes("oracle_bytes"), "{memory}");
    // Its record is the smaller task's, which is judged again as it is.
    let reader = RunReader::open(&program.path("run")).unwrap();
    let setup = History::read(&reader).unwrap().episodes.remove(&EpisodeId(0)).unwrap().setup;
    assert_eq!(json!(setup.fit), fit);
    let source = String::from_utf8(reader.blob(setup.source).unwrap()).unwrap();
    assert_eq!(Task::from_source("large", source).fits()[0].to, 1024);
}

#[test]
fn only_workloads_too_large_are_scaled_down() {
    let program = Program::new();
    let list = "\n\ndef get_workloads():\n    return [\n        {\"name\": \"small\", \"arguments\": [256]},\n        \
                {\"name\": \"big\", \"arguments\": [4096]},\n    ]\n";
    let task =
        TASK.replace("get_inputs()", "get_inputs(rows=256)").replace("(512, 256)", "(rows, 1024)");
    program.write("large.py", &(task + list));
    program.write("candidate/model_new.py", MODEL_NEW);
    program.write("candidate/kernels/relu_add.cu", KERNEL);
    let judge = |more: &[&str]| {
        let fixed = ["judge", "large.py", "--candidate", "candidate", "--json"];
        program.run(&[&fixed[..], &["--stage", "verified"], &LIMIT, more].concat())
    };
    let without = judge(&[]);
    let workloads = without.object()["verdict"]["workloads"].clone();
    assert!(workloads.to_string().contains("it is too large"), "{}", without.show());
    let scaled = judge(&["--fit"]);
    assert_eq!(scaled.code, Some(0), "{}", scaled.show());
    let verdict = &scaled.object()["verdict"];
    let part = json!({ "workload": "big", "from": 4096, "to": 1024 });
    let fit = json!({ "dimension": "rows", "from": 4096, "to": 1024, "workloads": [part] });
    assert_eq!(verdict["fit"], fit, "{}", scaled.show());
    assert!(!verdict["workloads"].to_string().contains("too large"), "{}", scaled.show());
    let told = "`--fit` scales it down: rows 1024 of 4096 in workload big";
    assert!(scaled.stderr.contains(told), "{}", scaled.show());
}

#[test]
fn scaled_tasks_have_a_table_of_their_own() {
    let program = Program::new();
    program.write("suite/large.py", &large());
    program.write("suite/fixed.py", &large().replace("(batch_size,", "(4096,"));
    program.write("suite/task.py", TASK);
    // It does not build: nothing is timed.
    recorded(&program, "large", &KERNEL.replace("0.5f;", "0.5f"));
    let fixed =
        ["eval", "--suite", "suite", "--policy", "replay:recorded", "--fit", "--out", "run"];
    let ran = program.run(&[&fixed[..], &LIMIT, &["--json"]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    let told = ran.object();
    let rows = told["rows"].as_array().unwrap();
    let row = |task: &str| rows.iter().find(|row| row["task"] == task).unwrap();
    let fit = json!({ "dimension": "batch_size", "from": 4096, "to": 1024 });
    assert_eq!((&row("large")["fit"], &row("large")["state"]), (&fit, &json!("judged")));
    assert_eq!(row("task").get("fit"), None, "it fits");
    assert_eq!(row("fixed")["state"], "too_large", "{}", ran.show());
    let why = row("fixed")["reason"].as_str().unwrap();
    assert!(why.contains("`--fit` cannot scale it down: get_inputs() makes no tensor"), "{why}");
    let scaled: Vec<&Value> =
        told["tables"].as_array().unwrap().iter().map(|table| &table["scaled_down"]).collect();
    assert_eq!(scaled, [&Value::Null, &json!(true)], "{}", ran.show());
    let model = fs_err::read_to_string(program.path("run/workspaces/large/model.py")).unwrap();
    let first = "# Scaled down by warpwright --fit: batch_size from 4096 to 1024\n";
    assert!(model.starts_with(first) && model.contains("batch_size = 1024\n"), "{model}");
}
