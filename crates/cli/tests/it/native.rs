//! `--policy native`: the shipped model in its own engine.

use std::collections::BTreeMap;

use warpwright_record::history::History;
use warpwright_record::reader::RunReader;

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
fn native_policy_leaves_unknown_operators_to_the_teacher() {
    let program = Program::new();
    program.write("known.py", KNOWN);
    // It was never shown `torch.sub`.
    program.write("other.py", &TASK.replace("x + 1.0", "torch.sub(x, 1.0)"));
    let ran = program.run(&[
        "optimize", "known.py", "other.py", "--policy", "native", "--device", "cpu", "--out", "run",
    ]);
    // Whatever the model says, the teacher is behind it.
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    let reader = RunReader::open(&program.path("run")).unwrap();
    let history = History::read(&reader).unwrap();
    let drawn: BTreeMap<String, bool> = history
        .episodes
        .values()
        .map(|episode| {
            let first = episode.turns.first().unwrap();
            (episode.setup.task.clone(), first.message.generation.is_some())
        })
        .collect();
    assert!(drawn["known"] && !drawn["other"], "{drawn:?}");
}
