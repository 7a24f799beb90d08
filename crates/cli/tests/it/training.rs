//! `warpwright train`: a policy from nothing, and what is refused.

use serde_json::Value;

use crate::program::{Program, TASK};

/// A configuration of a task that is there.
const CONFIG: &str = "\
[tasks]
train = [\"task.py\"]

[model]
vocabulary = 512
hidden = 32
feed_forward = 64
layers = 1
heads = 2
groups = 1
positions = 256

[demos]
episodes = 1

[sft]
rate = 1e-3
epochs = 1
";

/// What the program says of a configuration, of which nothing has run.
fn refused(program: &Program, arguments: &[&str]) -> String {
    let mut all = vec!["train"];
    all.extend(arguments);
    all.extend(["--device", "cpu"]);
    let ran = program.run(&all);
    assert_eq!(ran.code, Some(2), "{}", ran.show());
    ran.stderr
}

#[test]
fn configurations_that_make_no_sense_are_refused_before_anything_runs() {
    let program = Program::new();
    program.write("task.py", TASK);
    let other = |what: &str, by: &str| {
        assert!(CONFIG.contains(what));
        program.write("a.toml", &CONFIG.replace(what, by));
        refused(&program, &["run", "a.toml"])
    };
    let told = other("epochs = 1", "epochs = 1\nepoch = 2");
    assert!(told.contains("unknown field `epoch`") && told.contains("docs/training.md"), "{told}");
    let told = other("train = [\"task.py\"]", "train = [\"task.py\"]\nheld_out = [\"task.py\"]");
    assert!(told.contains("which is trained on"), "{told}");
    let told = other("train = [\"task.py\"]", "train = []");
    assert!(told.contains("names nothing to train on"), "{told}");
    let told = other("heads = 2", "heads = 3");
    assert!(told.contains("a multiple of twice model.heads"), "{told}");
    let told = other("[sft]", "[eval]\nepisodes = 1\n\n[sft]");
    assert!(told.contains("eval needs tasks.held_out"), "{told}");

    program.write("a.toml", CONFIG);
    let told = refused(&program, &["ppo", "a.toml"]);
    assert!(told.contains("failed to find stage ppo") && told.contains("[ppo]"), "{told}");
    let told = refused(&program, &["run", "nothing.toml"]);
    assert!(told.contains("nothing.toml"), "{told}");
}

/// From nothing to a policy whose kernels are rewarded more than at first; then what is done is done, and
/// a folder that was begun with something else is left alone.
#[test]
fn a_policy_from_nothing_learns_which_kernels_are_rewarded() {
    let program = Program::new();
    let configs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/smoke-cpu.toml");
    let run = |seed: &'static str| {
        let mut arguments = vec!["train", "run", configs, "--device", "cpu", "--out", "out"];
        arguments.extend(["--seed", seed, "--json"]);
        program.run(&arguments)
    };
    let first = run("1");
    assert_eq!(first.code, Some(0), "{}", first.show());
    let figure = |of: &Value, name: &str| of[name].as_f64().unwrap();
    let told = first.object();
    assert!(figure(&told, "reward_last") > figure(&told, "reward_first"), "{}", first.show());
    assert_eq!(told["stages"], serde_json::json!(["demos", "sft", "collect", "value", "ppo"]));
    assert!(figure(&told, "judged") > 3.0, "{told}");

    let again = run("1");
    assert!(again.stderr.contains("ppo: done before"), "{}", again.show());
    assert_eq!(again.object()["judged"], 0);
    assert_eq!(again.object()["reward_last"], told["reward_last"]);

    let another = run("2");
    assert_eq!(another.code, Some(2), "{}", another.show());
    assert!(another.object()["error"]["message"].as_str().unwrap().contains("--seed"));
}
