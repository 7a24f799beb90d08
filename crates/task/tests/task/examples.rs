//! The examples are tasks, and those for the H200 are the same ones with other sizes.

use std::path::PathBuf;

use warpwright_task::{InitInputs, Mode, Suite};

fn examples() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

#[test]
fn every_example_is_a_task_without_warnings() {
    for folder in [examples(), examples().join("h200")] {
        let suite = Suite::read(&folder).expect("a suite");
        let names: Vec<_> = suite.tasks.iter().map(|task| task.name.as_str()).collect();
        assert_eq!(names, ["bias_gelu_residual", "geglu", "masked_softmax", "rms_norm"]);
        for task in &suite.tasks {
            let facts = task.facts().expect("an example is a task");
            assert_eq!(facts.init_inputs, InitInputs::Declared);
            assert_eq!(facts.required_packages(), ["torch"]);
            assert_eq!(facts.warnings(Mode::Train), [], "{}", task.name);
            assert_eq!(facts.device_uses, [], "{}", task.name);
        }
    }
}

#[test]
fn h200_examples_differ_only_in_sizes() {
    let is_size =
        |line: &&str| line.split_once(" = ").is_some_and(|(_, n)| n.parse::<u32>().is_ok());
    let small = Suite::read(&examples()).expect("a suite");
    let large = Suite::read(&examples().join("h200")).expect("a suite");
    for (small, large) in small.tasks.iter().zip(&large.tasks) {
        assert_ne!(small.hash, large.hash, "{}", small.name);
        let rest =
            |source: &str| source.lines().filter(|l| !is_size(l)).collect::<Vec<_>>().join("\n");
        assert_eq!(rest(&small.source), rest(&large.source), "{}", small.name);
    }
}
