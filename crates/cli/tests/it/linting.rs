//! `task lint` reports objections to tasks.

use crate::program::Program;

fn task(forward: &str) -> String {
    format!(
        "import torch\n\
         from torch import nn\n\n\n\
         class Model(nn.Module):\n\
         \x20   def __init__(self) -> None:\n\
         \x20       super().__init__()\n\
         \x20       self.bias = nn.Parameter(torch.randn(256))\n\n\
         \x20   def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:\n\
         \x20       return {forward}\n\n\n\
         def get_inputs() -> list[torch.Tensor]:\n\
         \x20   return [torch.randn(64, 256), torch.randn(64, 256)]\n"
    )
}

#[test]
fn lint_reports_sound_flawed_and_failing_tasks() {
    let program = Program::new();
    let sound = task("torch.tanh(x + y) * self.bias");
    program.write("suite/sound.py", &format!("libraries = [\"cccl\"]\n{sound}"));
    program.write("suite/ignores.py", &task("x + self.bias + 0 * y"));
    program.write("suite/raises.py", &task("x.nonsense(y)"));
    let ran = program.run(&["task", "lint", "suite", "--device", "cpu", "--json"]);
    assert_eq!(ran.code, Some(3), "{}", ran.show());
    let found = ran.object();
    assert_eq!(found["sound"], 1);
    let row = |name: &str| {
        found["tasks"].as_array().unwrap().iter().find(|row| row["task"] == name).unwrap()
    };
    assert_eq!(row("sound")["objections"].as_array().unwrap().len(), 0);
    assert_eq!(row("sound")["libraries"], serde_json::json!(["cccl"]));
    assert!(row("ignores").get("libraries").is_none());
    let ms = |field: &str| row("sound")[field].as_f64().unwrap();
    assert!(ms("best_ms") > 0.0 && ms("best_ms") <= ms("eager_ms"), "{found:#}");
    let objection = &row("ignores")["objections"][0];
    assert_eq!(objection["kind"], "input_ignored");
    assert_eq!(
        objection["message"],
        "input 1 is ignored: changing it changes only 0.0 % of the results"
    );
    let refused = row("raises")["refused"].as_str().unwrap();
    assert!(refused.contains("AttributeError"), "{refused}");
}

#[test]
fn libraries_of_a_task_are_shown_and_checked() {
    let program = Program::new();
    let source = task("x + y");
    program.write("task.py", &format!("libraries = (\"cccl\", \"cutlass\")\n{source}"));
    let ran = program.run(&["task", "show", "task.py"]);
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    assert!(ran.stdout.contains("# libraries: cccl, cutlass"), "{}", ran.show());
    program.write("bad.py", &format!("libraries = [\"cublas\"]\n{source}"));
    let ran = program.run(&["judge", "bad.py", "--candidate", ".", "--device", "cpu"]);
    assert_eq!(ran.code, Some(2), "{}", ran.show());
    let told = "failed to read `libraries`: `cublas` is no library";
    assert!(ran.stderr.contains(told) && ran.stderr.contains("hint: "), "{}", ran.show());
}

#[test]
fn lint_examines_a_sample_with_shared_processes() {
    let program = Program::new();
    for i in 1..6 {
        program.write(&format!("suite/task{i}.py"), &task(&format!("(x + {i} * y) * self.bias")));
    }
    let flags = ["--sample", "2", "--share-processes", "--jobs", "1", "--device", "cpu", "--json"];
    let ran = program.run(&[&["task", "lint", "suite"], &flags[..]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    let found = ran.object();
    assert_eq!(found["sound"], 2);
    assert_eq!(found["tasks"].as_array().unwrap().len(), 2);
}

#[test]
fn lint_refuses_a_single_invalid_task_file() {
    let program = Program::new();
    program.write("broken.py", "def forward(:\n");
    let ran = program.run(&["task", "lint", "broken.py", "--device", "cpu"]);
    assert_eq!(ran.code, Some(2), "{}", ran.show());
}

#[test]
fn lint_lists_an_invalid_task_among_the_others() {
    let program = Program::new();
    program.write("suite/broken.py", "x = 1\n");
    program.write("suite/sound.py", &task("torch.tanh(x + y) * self.bias"));
    let ran = program.run(&["task", "lint", "suite", "--device", "cpu", "--json"]);
    assert_eq!(ran.code, Some(3), "{}", ran.show());
    let found = ran.object();
    assert_eq!(found["sound"], 1);
    let refused = found["tasks"][0]["refused"].as_str().unwrap();
    assert!(refused.contains("no class `Model`"), "{refused}");
}

/// `eval` lists a degenerate task next to the tables, and counts it with `--include-degenerate`.
#[test]
fn eval_counts_degenerate_tasks_only_on_request() {
    let program = Program::new();
    program.write("suite/zeros.py", &task("torch.relu(-(x + y + self.bias).abs())"));
    let eval = ["eval", "suite", "--device", "cpu", "--max-turns", "2", "--json"];
    let ran = program.run(&[&eval[..], &["--out", "without"]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    let found = ran.object();
    assert_eq!(found["rows"][0]["state"], "degenerate");
    assert_eq!(found["overall"]["tasks"], 0);
    assert_eq!(found["overall"]["not_judged"]["degenerate"], 1);
    assert!(found["rows"][0]["reason"].as_str().unwrap().contains("constant"), "{found:#}");
    let ran = program.run(&[&eval[..], &["--out", "with", "--include-degenerate"]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    let found = ran.object();
    assert_eq!(found["rows"][0]["state"], "judged");
    assert_eq!(found["overall"]["tasks"], 1);
    assert!(ran.stderr.contains("degenerate; no reward can be earned"), "{}", ran.show());
}
