//! `analyze` reads records and files only, without Python, torch or a device.

use insta::assert_snapshot;
use serde_json::json;

use crate::program::{Program, Ran};
use crate::suite::{self, ComesTo, attempt, right};

const NAMES: [&str; 3] = ["level1-1_relu", "level1-2_softmax", "level2-1_mlp"];

/// A program in a folder with three evaluations: `slow`, `fast`, and `again`, a later one of `slow`.
fn program() -> Program {
    let program = Program::bare();
    let attempts = [
        attempt("org/slow", NAMES[0], right(2.0)),
        attempt("org/slow", NAMES[1], right(2.0)),
        attempt("org/slow", NAMES[2], ComesTo::Wrong),
    ];
    drop(suite::write_attempts(&program.path("slow"), &NAMES, &attempts, "cuda:0"));
    let again = [attempt("org/slow", NAMES[2], right(2.0))];
    drop(suite::write_attempts(&program.path("again"), &NAMES[2..], &again, "cuda:0"));
    let attempts = [
        attempt("org/fast", NAMES[0], right(4.0)),
        attempt("org/fast", NAMES[1], right(2.0)),
        attempt("org/fast", NAMES[2], right(2.0)),
    ];
    drop(suite::write_attempts(&program.path("fast"), &NAMES, &attempts, "cuda:0"));
    // The sample's candidates are equal; those of the two policies are not.
    for policy in ["slow", "fast"] {
        let evaluation = warpwright_report::analysis::stored::evaluation(&program.path(policy));
        let mut evaluation = evaluation.unwrap();
        for row in &mut evaluation.rows {
            row.candidate = Some(policy.to_owned());
        }
        program.write(&format!("{policy}.json"), &json!(evaluation).to_string());
    }
    program
}

fn analyze(program: &Program, arguments: &[&str]) -> Ran {
    program.run(&[&["analyze"][..], arguments].concat())
}

fn number(object: &serde_json::Value, pointer: &str) -> f64 {
    object.pointer(pointer).and_then(serde_json::Value::as_f64).unwrap()
}

#[test]
fn gap_is_computed_from_json_files() {
    let program = program();
    let command = ["gap", "slow", "fast", "slow.json", "fast.json"];
    let ran = analyze(&program, &command);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{}", ran.show());
    assert!(ran.stdout.starts_with("from: org/slow\nto: org/fast\n"), "{}", ran.show());
    assert!(ran.stdout.contains("gap closed: 100 %"), "{}", ran.show());
    let object = analyze(&program, &[&command[..], &["--json"]].concat()).object();
    assert_eq!(object["version"], 2);
    // The two policies are equal on the second task.
    assert_eq!((&object["gap"]["tasks"], &object["gap"]["open"]), (&json!(3), &json!(2)));
    let ratio = number(&object, "/tasks/0/to") / number(&object, "/tasks/0/from");
    assert!((ratio - 2.0).abs() < 1e-9, "{object}");
    assert!((number(&object, "/gap/closed/value") - 1.0).abs() < 1e-9, "{object}");
}

#[test]
fn best_of_n_compares_two_policies() {
    let program = program();
    let command = ["best-of", "slow", "fast", "slow.json", "fast.json", "--json"];
    let object = analyze(&program, &command).object();
    assert_eq!(object["lines"].as_array().unwrap().len(), 1, "one episode per task");
    assert!(number(&object, "/lines/0/ratio/value") > 1.0, "{object}");
}

#[test]
fn later_run_replaces_its_tasks() {
    let program = program();
    let ran = analyze(&program, &["merge", "slow"]);
    assert!(ran.stdout.contains("not verified: level2-1_mlp: wrong values"), "{}", ran.show());
    let ran = analyze(&program, &["merge", "slow", "again"]);
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    assert!(!ran.stdout.contains("not verified"), "{}", ran.show());
    let ran = analyze(&program, &["merge", "slow", "again", "--json"]);
    let object = ran.object();
    assert!((number(&object, "/overall/pass_rate/value") - 1.0).abs() < 1e-12, "{object}");
    // The object is an evaluation like any other.
    program.write("merged.json", &ran.stdout);
    let ran = analyze(&program, &["merge", "merged.json", "--json"]);
    assert_eq!(ran.object()["rows"], object["rows"]);
}

#[test]
fn roofline_of_a_run_is_a_table_of_its_tasks() {
    let program = program();
    let ran = analyze(&program, &["roofline", "slow"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{}", ran.show());
    assert!(ran.stdout.contains("2 of 3 verified; 2 of 2 with room won (100 %)"), "{}", ran.show());
    let object = analyze(&program, &["roofline", "slow", "--json"]).object();
    assert_eq!(object["episodes"][2]["result"], "wrong values");
    assert!(number(&object, "/episodes/0/head_room") > 1.1, "{object}");
    assert_eq!((object["judged"].as_u64(), object["won"].as_u64()), (Some(3), Some(2)));
}

#[test]
fn times_of_verdicts_and_steps_come_from_a_record() {
    let program = program();
    let object = analyze(&program, &["verdict-times", "fast", "--json"]).object();
    assert_eq!(object["deciles"].as_array().unwrap().len(), 6, "two verdicts per episode");
    let ran = analyze(&program, &["step-times", "fast", "--episodes", "2", "--json"]);
    let object = ran.object();
    let steps = object["steps"].as_array().unwrap();
    let episodes: Vec<_> = steps.iter().map(|step| step["episodes"].as_u64()).collect();
    assert_eq!(episodes, [Some(2), Some(1)]);
}

#[test]
fn analyses_of_unsuitable_inputs_are_usage_errors() {
    let program = program();
    assert_snapshot!(analyze(&program, &["gap", "slow", "none", "slow.json"]).show(), @r"
    exit code 2
    --- stderr
    error: failed to choose a policy: `none` matches 0 of org/slow
    hint: name one policy, or the end of its name
    ");
    assert_snapshot!(analyze(&program, &["merge", "slow", "fast"]).show(), @r"
    exit code 2
    --- stderr
    error: failed to combine the evaluations: they have several policies: org/fast, org/slow
    hint: name evaluations of one kind only
    ");
    assert_snapshot!(analyze(&program, &["roofline", "nowhere"]).show(), @r"
    exit code 2
    --- stderr
    error: failed to read a run from nowhere: there is no such folder
    hint: name a run folder of `warpwright optimize` or `warpwright eval`, or the folder `record` of a stage of `warpwright train`
    ");
    assert_snapshot!(analyze(&program, &["plot", "slow", "out.svg"]).show(), @r"
    exit code 2
    --- stderr
    error: failed to plot slow: the folder has no folder `arms`
    hint: name the `--out` folder of `warpwright experiment`
    ");
    let ran = analyze(&program, &["steps", "slow", "fast", "--json"]);
    assert_eq!(ran.code, Some(2), "{}", ran.show());
    assert_eq!(ran.object()["error"]["kind"], "usage");
    let ran = analyze(&program, &["merge", "missing.json"]);
    assert_eq!(ran.code, Some(2), "{}", ran.show());
    assert!(ran.stderr.contains("error: failed to read missing.json"), "{}", ran.show());
}

/// Checks that an analysis refuses each path as a usage error with this reason and this cure. The
/// command line is the words before the path, the path, and the words after it.
fn refuses(program: &Program, words: [&[&str]; 2], paths: [(&str, &str); 4], cure: &str) {
    let [before, after] = words;
    for (path, reason) in paths {
        let ran = analyze(program, &[before, &[path][..], after].concat());
        assert_eq!(ran.code, Some(2), "{}", ran.show());
        let lines: Vec<&str> = ran.stderr.lines().collect();
        assert_eq!(lines.len(), 2, "{}", ran.show());
        let (error, hint) = (lines[0], lines[1]);
        assert!(error.starts_with("error: failed to ") && error.contains(reason), "{}", ran.show());
        assert!(hint.starts_with("hint: ") && hint.contains(cure), "{}", ran.show());
    }
}

#[test]
fn unreadable_inputs_are_refused_with_a_cure() {
    let program = program();
    program.write("empty", "");
    program.write("times.csv", "task,time\na,1\n");
    fs_err::create_dir(program.path("folder")).unwrap();
    let evaluations = [
        ("missing", "failed to read missing: "),
        ("empty", "failed to read the evaluation empty: the file is empty"),
        ("times.csv", "times.csv: it is not the output of `warpwright eval --json`: "),
        ("folder", "failed to read a run from folder: the folder has no run.json"),
    ];
    for before in [&["gap", "slow", "fast"][..], &["best-of", "slow", "fast"], &["merge"]] {
        refuses(&program, [before, &[]], evaluations, "output of `warpwright eval --json`");
    }
    let runs = [
        ("missing", "failed to read a run from missing: there is no such folder"),
        ("empty", "failed to read a run from empty: it is a file, not a run folder"),
        ("times.csv", "failed to read a run from times.csv: it is a file, not a run folder"),
        ("folder", "failed to read a run from folder: the folder has no run.json"),
    ];
    refuses(&program, [&["roofline"], &[]], runs, "run folder of `warpwright optimize`");
    refuses(&program, [&["verdict-times"], &[]], runs, "run folder of `warpwright optimize`");
    refuses(&program, [&["step-times"], &["--episodes", "2"]], runs, "`OUT/ppo/record`");
    let states = [
        ("missing", "failed to read training steps from missing: "),
        ("empty", "failed to read training steps from empty: the file is empty"),
        ("times.csv", "times.csv: it is not the state of an RL stage: "),
        ("folder", "failed to read training steps from folder: the folder has no train.json"),
    ];
    refuses(&program, [&["steps"], &["slow"]], states, "run folder of `warpwright train`");
    let experiments = [
        ("missing", "failed to plot missing: there is no such folder"),
        ("empty", "failed to plot empty: it is a file, not a folder"),
        ("times.csv", "failed to plot times.csv: it is a file, not a folder"),
        ("folder", "failed to plot folder: the folder has no folder `arms`"),
    ];
    refuses(&program, [&["plot"], &["out.svg"]], experiments, "of `warpwright experiment`");
    assert!(!program.path("out.svg").exists());
}

#[test]
fn training_runs_without_steps_are_refused() {
    let program = Program::bare();
    program.write("state.json", r#"{"updates": [], "zero_variance": {}}"#);
    assert_snapshot!(analyze(&program, &["steps", "state.json", "state.json"]).show(), @r"
    exit code 2
    --- stderr
    error: failed to read training steps from state.json: it has no training step
    hint: name a run folder of `warpwright train` with a training step of an RL stage, or `state.json` or `done.json` of such a stage
    ");
    // A copy that was cut.
    program.write("cut/train.json", "");
    program.write("cut/ppo/done.json", "");
    let ran = analyze(&program, &["steps", "cut", "cut"]);
    assert_eq!(ran.code, Some(4), "{}", ran.show());
    assert!(ran.stderr.contains("hint: copy the run folder again"), "{}", ran.show());
    fs_err::create_dir_all(program.path("begun/arms/a/seed-1")).unwrap();
    assert_snapshot!(analyze(&program, &["plot", "begun", "out.svg"]).show(), @r"
    exit code 2
    --- stderr
    error: failed to plot begun: it has no finished run with an RL stage
    hint: wait until the RL stage of a run is done, or name another experiment
    ");
}

#[test]
fn steps_of_two_runs_are_paired_by_task() {
    let program = program();
    let update = |reward: f64| {
        json!({
            "number": 0, "failed": 0, "pass_rate": 0.5, "faster_rate": 0.25, "truncated_rate": 0.0,
            "turns": 2.0, "response_tokens": 64.0, "rewards": {"0": reward, "3": reward}, "lr": 1e-4,
            "report": {
                "episodes": 4, "used": 4, "actions": 100, "reward": reward,
                "zero_variance_share": 0.0, "reward_std": 0.0, "entropy": 0.1, "loss": 0.0,
                "grad_norm": 0.0, "alarms": []
            },
            "play_seconds": 1.0, "learn_seconds": 0.5
        })
    };
    for (name, reward, task) in [("a", 0.5, "one"), ("b", 1.0, "one"), ("other", 1.0, "two")] {
        let begun = json!({
            "version": 3, "config": "", "folder": "", "tasks": [[task], []], "seed": 0, "devices": ["cpu"]
        });
        program.write(&format!("{name}/train.json"), &begun.to_string());
        let state = json!({"updates": [update(reward)], "zero_variance": {}});
        program.write(&format!("{name}/ppo/done.json"), &state.to_string());
    }
    let ran = analyze(&program, &["steps", "a", "b/ppo/done.json"]);
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    let line = "steps 1 to 1, 2 tasks: reward, second minus first: +0.500 [+0.500, +0.500]";
    assert!(ran.stdout.contains(line), "{}", ran.show());
    assert_eq!(analyze(&program, &["steps", "a", "b"]).code, Some(0));
    let ran = analyze(&program, &["steps", "a", "other"]);
    assert_eq!(ran.code, Some(2), "{}", ran.show());
    assert!(ran.stderr.contains("their training tasks differ"), "{}", ran.show());
}
