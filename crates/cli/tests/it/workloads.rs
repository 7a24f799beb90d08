//! Tasks with several workloads on the command line.

use crate::program::{KERNEL, MODEL_NEW, Program, TASK};

const LIST: &str = "\
def get_workloads():
    return [
        {'name': 'narrow', 'arguments': {'columns': 128}},
        {'name': 'wide', 'arguments': {'columns': 256}},
    ]


def get_inputs(columns: int = 256) -> list[torch.Tensor]:
    return [torch.randn(128, columns)]
";

fn task() -> String {
    let (module, _) = TASK.split_once("def get_inputs").unwrap();
    format!("{module}{LIST}")
}

fn scene() -> Program {
    let program = Program::new();
    program.write("task.py", &task());
    program.write("good/model_new.py", MODEL_NEW);
    program.write("good/kernels/relu_add.cu", KERNEL);
    program
}

#[test]
fn judge_prints_each_workload_and_their_mean() {
    let program = scene();
    let ran = program.run(&[
        "judge",
        "task.py",
        "--candidate",
        "good",
        "--device",
        "cpu",
        "--out",
        "run",
    ]);
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    assert!(ran.stdout.contains("geometric means over the workloads:"), "{}", ran.show());
    for name in ["narrow", "wide"] {
        assert!(ran.stdout.contains(&format!("  {name}: ")), "{}", ran.show());
    }
    let report = program.run(&["report", "run"]);
    assert!(report.stdout.contains("task: workloads: narrow "), "{}", report.show());
    let page = fs_err::read_to_string(program.path("run/report.html"));
    assert!(page.is_ok_and(|page| page.contains("<td>wide</td>")));
}

#[test]
fn workloads_that_cannot_be_read_are_usage_errors() {
    let program = scene();
    let cases = [
        (
            "{'columns': 128}",
            "{'columns': [128]}",
            "nested in another way",
            "nested in the same way",
        ),
        ("'wide'", "'narrow'", "two workloads have the name `narrow`", "a name of its own"),
        ("{'columns': 256}", "{'columns': 128 * 2}", "it is computed", "write the list literally"),
    ];
    for (from, to, cause, cure) in cases {
        let bad = task().replacen(from, to, 1);
        assert_ne!(bad, task());
        program.write("bad.py", &bad);
        let ran = program.run(&["judge", "bad.py", "--candidate", "good", "--device", "cpu"]);
        assert_eq!(ran.code, Some(2), "{}", ran.show());
        assert!(ran.stderr.contains(cause) && ran.stderr.contains(cure), "{}", ran.show());
        assert!(ran.stderr.contains("bad.py"), "{}", ran.show());
    }
}

#[test]
fn at_least_one_workload_remains_seen() {
    let program = scene();
    for command in ["eval", "optimize"] {
        let ran = program.run(&[command, "task.py", "--device", "cpu", "--held-out-shapes", "2"]);
        assert_eq!(ran.code, Some(2), "{}", ran.show());
        let told = "failed to hold out 2 workloads of task task: it has 2";
        assert!(
            ran.stderr.contains(told) && ran.stderr.contains("hint: hold out fewer"),
            "{}",
            ran.show()
        );
    }
}

#[test]
fn held_out_workload_is_not_in_the_workspace() {
    let program = scene();
    let ran = program.run(&[
        "optimize",
        "task.py",
        "--device",
        "cpu",
        "--held-out-shapes",
        "1",
        "--max-turns",
        "1",
        "--out",
        "run",
    ]);
    assert_eq!(ran.code, Some(3), "no candidate yet: {}", ran.show());
    let shown = fs_err::read_to_string(program.path("run/workspace/model.py")).unwrap();
    assert!(shown.contains("1 more are held out"), "{shown}");
    let named = ["narrow", "wide"].map(|name| shown.contains(name));
    assert!(named[0] != named[1], "{shown}");
}

/// Rows of 96 numbers, as a definition of another benchmark, and three numbers of rows.
fn definition() -> (String, String) {
    let definition = serde_json::json!({
        "name": "softmax_h96",
        "axes": {"rows": {"type": "var"}, "hidden": {"type": "const", "value": 96}},
        "inputs": {
            "x": {"shape": ["rows", "hidden"], "dtype": "float32"},
            "scale": {"shape": null, "dtype": "float32"}
        },
        "outputs": {"y": {"shape": ["rows", "hidden"], "dtype": "float32"}},
        "reference": "import torch\n\n@torch.no_grad()\ndef run(x, scale):\n    return torch.softmax(x * scale, -1)\n"
    });
    let workload = |rows: u32| {
        let inputs = serde_json::json!({
            "x": {"type": "random"}, "scale": {"type": "scalar", "value": 0.5}
        });
        let all = serde_json::json!({
            "uuid": format!("rows-{rows}"), "axes": {"rows": rows}, "inputs": inputs
        });
        all.to_string()
    };
    (definition.to_string(), [65, 130, 200].map(workload).join("\n"))
}

#[test]
fn built_in_policy_passes_a_held_out_shape() {
    let program = Program::new();
    let (definition, workloads) = definition();
    program.write("softmax/definition.json", &definition);
    program.write("softmax/workload.jsonl", &workloads);
    let ran = program.run(&[
        "optimize",
        "softmax",
        "--device",
        "cpu",
        "--held-out-shapes",
        "1",
        "--max-turns",
        "2",
        "--out",
        "run",
    ]);
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    assert!(ran.stdout.contains("(held out)"), "{}", ran.show());
    let model = fs_err::read_to_string(program.path("run/workspace/model_new.py")).unwrap();
    let seen = [65, 130, 200].map(|rows| model.contains(&format!("(({rows}, 96)")));
    assert_eq!(seen.iter().filter(|seen| **seen).count(), 2, "{model}");
}
