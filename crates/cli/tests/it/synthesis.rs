//! `synth`, and its data sets in `task show`, `task stats` and `task drop`.

use std::collections::BTreeSet;

use crate::program::Program;

fn synth(program: &Program, count: &str) -> serde_json::Value {
    let arguments = ["synth", "--count", count, "--out", "set/tasks.parquet", "--device", "cpu"];
    // Small operators, so that most take a time that is wanted.
    let ran = program.run(&[&arguments[..], &["--operators", "1-3", "--json"]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    ran.object()
}

fn log(program: &Program) -> Vec<serde_json::Value> {
    let text = fs_err::read_to_string(program.path("set/tasks.tried.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn synth_extends_its_data_set_without_repeating_seeds() {
    let program = Program::new();
    let made = synth(&program, "2");
    assert_eq!((&made["admitted"], &made["added"]), (&2.into(), &2.into()), "{made:#}");
    let before = log(&program);
    assert_eq!(made["tried"], before.len());

    let made = synth(&program, "3");
    assert_eq!((&made["admitted"], &made["added"]), (&3.into(), &1.into()), "{made:#}");
    let after = log(&program);
    assert_eq!(after[..before.len()], before, "what was tried is not tried again");
    let seeds: BTreeSet<u64> = after.iter().map(|trial| trial["seed"].as_u64().unwrap()).collect();
    assert_eq!(seeds.len(), after.len());
    let admitted = after.iter().filter(|trial| trial["outcome"]["kind"] == "admitted");
    assert_eq!(admitted.count(), 3);
    let brittle = after.iter().filter(|trial| trial["outcome"]["reason"] == "brittle").count();

    let ran = program.run(&["task", "show", "set/tasks.parquet", "--json"]);
    let shown = ran.object();
    let tasks = shown["tasks"].as_array().unwrap();
    assert_eq!(tasks.len(), 3, "{}", ran.show());
    for task in tasks {
        let measured = &task["measured"];
        assert!(measured["eager_ms"].as_f64().unwrap() >= 0.1, "{task:#}");
        assert!(measured["compile_ms"].as_f64().unwrap() > 0.0, "{task:#}");
        assert!(task["split"].is_string() && task["code"].is_null(), "{task:#}");
    }

    // What is printed of one is a task.
    let name = tasks[0]["task"].as_str().unwrap();
    let ran = program.run(&["task", "show", "set/tasks.parquet", name]);
    assert!(ran.stdout.starts_with(&format!("# {name}\n")), "{}", ran.show());
    program.write("one.py", &ran.stdout);
    let ran = program.run(&["task", "lint", "one.py", "--device", "cpu"]);
    assert_eq!(ran.code, Some(0), "{}", ran.show());

    let ran = program.run(&["task", "stats", "set/tasks.parquet"]);
    assert!(ran.stdout.starts_with("# tasks\n\n3 tasks"), "{}", ran.show());
    let card = fs_err::read_to_string(program.path("set/tasks.md")).unwrap();
    assert!(card.contains("3 tasks in KernelBench form"), "{card}");

    // What is taken out is not tried again.
    let drop = ["task", "drop", "set/tasks.parquet", "--reason", "brittle"];
    let ran = program.run(&[&drop[..], &["nobody"]].concat());
    assert_eq!(ran.code, Some(2), "{}", ran.show());
    assert!(ran.stderr.contains("`nobody`") && ran.stderr.contains("hint: "), "{}", ran.show());
    program.write("names.txt", &format!("{name}\n\n"));
    let ran = program.run(&[&drop[..], &["--names", "names.txt", "--json"]].concat());
    assert_eq!(ran.object()["dropped"], serde_json::json!([name]), "{}", ran.show());
    let last = log(&program).pop().unwrap();
    assert_eq!((&last["name"], &last["outcome"]["reason"]), (&name.into(), &"brittle".into()));
    let made = synth(&program, "2");
    assert_eq!((&made["admitted"], &made["added"]), (&2.into(), &0.into()), "{made:#}");
    assert_eq!(made["refused"]["brittle"], brittle + 1, "{made:#}");
}

#[test]
fn synth_refuses_unusable_inputs() {
    let program = Program::new();
    let refused = |more: &[&str], code: i32, said: &str| {
        let arguments = ["synth", "--count", "1", "--device", "cpu"];
        let ran = program.run(&[&arguments[..], more].concat());
        assert_eq!(ran.code, Some(code), "{}", ran.show());
        assert!(ran.stderr.contains(said), "{}", ran.show());
    };
    refused(
        &["--out", "a.parquet", "--decontaminate-against", "nowhere"],
        2,
        "there is no such file or folder",
    );
    program.write("broken/suite.json", "{\"version\": 1, \"mode\": 3}");
    refused(&["--out", "a.parquet", "--decontaminate-against", "broken"], 2, "suite.json");
    program.write("damaged.parquet", "PAR1, and nothing else");
    refused(&["--out", "damaged.parquet"], 2, "hint: ");
    program.write("b.tried.jsonl", "{\"seed\": 1}\n{\"seed\": 2}\n");
    refused(&["--out", "b.parquet"], 2, "line 1");
    refused(&["--out", "a.parquet", "--operators", "5-1"], 2, "--operators");
    assert!(!program.path("a.parquet").exists());
}

/// The limit holds for two cores, decontaminating against the starter suite. Prints the figures.
#[test]
fn long_synth_makes_two_hundred_sound_tasks_in_ten_minutes() {
    let program = Program::new();
    let suite = concat!(env!("CARGO_MANIFEST_DIR"), "/../../suites/starter");
    let arguments = ["synth", "--count", "200", "--out", "tasks.parquet", "--device", "cpu"];
    let ran =
        program.run(&[&arguments[..], &["--decontaminate-against", suite, "--json"]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    let made = ran.object();
    eprintln!("{made:#}");
    assert!(made["seconds"].as_f64().unwrap() < 600.0, "{made:#}");

    let shown = program.run(&["task", "show", "tasks.parquet", "--json"]).object();
    let names = shown["tasks"].as_array().unwrap().iter().step_by(5);
    let names: Vec<&str> = names.map(|task| task["task"].as_str().unwrap()).collect();
    let arguments = [&["task", "show", "tasks.parquet", "--json"], &names[..]].concat();
    let again = program.run(&arguments).object();
    let rows = again["tasks"].as_array().unwrap().iter();
    let lines = rows.map(|task| format!("{}\n", serde_json::json!({"code": task["code"]})));
    program.write("again.jsonl", &lines.collect::<String>());
    let ran = program.run(&["task", "lint", "again.jsonl", "--device", "cpu", "--json"]);
    let object = ran.object();
    assert_eq!(object["sound"].as_u64(), Some(names.len() as u64), "{}", ran.stdout);
}

#[test]
fn task_commands_use_the_shipped_data_set_by_default() {
    let program = Program::new();
    let stats = program.run(&["task", "stats", "--json"]);
    assert_eq!(stats.code, Some(0), "{}", stats.show());
    let stats = &stats.object()["stats"];
    let tasks = stats["rows"].as_u64().unwrap();
    assert!(tasks > 3000, "{stats:#}");
    let shown = program.run(&["task", "show", "--json"]);
    let shown = shown.object();
    let rows = shown["tasks"].as_array().unwrap();
    assert_eq!(rows.len() as u64, tasks);
    let name = rows[7]["task"].as_str().unwrap();
    let one = program.run(&["task", "show", "shipped", name]);
    assert!(one.stdout.contains("class Model(nn.Module)"), "{}", one.show());
}
