//! `--policy native`: the model that comes with the program, in its own engine.

use serde_json::Value;

use crate::program::{Program, TASK};

const KNOWN: &str = "\
import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tanh = F.tanh(x)
        return F.relu(tanh)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(512, 1024)]
";

#[test]
fn the_model_that_comes_with_the_program_and_the_teacher_behind_it() {
    let program = Program::new();
    program.write("known.py", KNOWN);
    // A sum with a constant by `torch.sub`, which it was never shown.
    program.write("other.py", &TASK.replace("x + 1.0", "torch.sub(x, 1.0)"));
    let ran = program.run(&[
        "optimize", "known.py", "other.py", "--policy", "native", "--device", "cpu", "--out", "run",
    ]);
    // Whatever the model says, the teacher is behind it.
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    let exported = program.run(&["trajectory", "export", "run", "--out", "all.jsonl"]);
    assert_eq!(exported.code, Some(0), "{}", exported.show());
    let text = fs_err::read_to_string(program.path("all.jsonl")).unwrap();
    let of_model = |task: &str| {
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let found = lines.filter(|line| line.to_string().contains(&format!("\"{task}\"")));
        found.filter(|line| line.to_string().contains("warpwright-rows")).count()
    };
    assert_eq!((of_model("known"), of_model("other")), (1, 0), "{text}");
}
