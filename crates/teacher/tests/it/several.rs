//! Tasks with workloads: one candidate for all, and for sizes that the tracer did not see.

use std::collections::BTreeMap;

use warpwright_record::verdict::Profile;

use crate::bench::{Bench, device};

/// A reference with workloads, sizes that it is tried at besides, and sizes that must be refused.
fn task(layers: &str, forward: &str, inputs: (&str, &str), sizes: [&[&[i64]]; 3]) -> String {
    let (names, drawn) = inputs;
    let arguments = |values: &[i64]| {
        let pairs = names.split(", ").zip(values);
        let pairs: Vec<String> =
            pairs.map(|(name, value)| format!("\"{name}\": {value}")).collect();
        format!("{{{}}}", pairs.join(", "))
    };
    let list = |sets: &[&[i64]]| {
        let all: Vec<String> = sets.iter().map(|values| arguments(values)).collect();
        all.join(", ")
    };
    let workloads: Vec<String> = sizes[0]
        .iter()
        .enumerate()
        .map(|(i, values)| {
            format!("{{\"name\": \"case {i}\", \"arguments\": {}}}", arguments(values))
        })
        .collect();
    format!(
        "import torch
from torch import nn
import torch.nn.functional as F

UNSEEN = [{}]
REFUSED = [{}]

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {layers}

    def forward(self, *given):
        {forward}

def get_workloads():
    return [{}]

def get_inputs({names}):
    return [{drawn}]

def get_init_inputs():
    return []
",
        list(sizes[1]),
        list(sizes[2]),
        workloads.join(", ")
    )
}

fn sources() -> BTreeMap<String, String> {
    let norm = task(
        "self.weight = nn.Parameter(torch.randn(96))",
        "return F.rms_norm(given[0], (96,)) * self.weight",
        ("rows", "torch.randn(rows, 96)"),
        [&[&[16], &[40], &[300]], &[&[1], &[7], &[333]], &[]],
    );
    let two = task(
        "pass",
        "return F.softmax(given[0] * 0.5, -1), F.gelu(given[0]) * given[1].unsqueeze(-1)",
        ("batch, length", "torch.randn(batch, length, 48), torch.randn(batch, length)"),
        [&[&[2, 8], &[3, 20]], &[&[1, 1], &[5, 7], &[2, 33]], &[]],
    );
    // What a reduction is over cannot be a number of rows.
    let column = task(
        "pass",
        "return F.softmax(given[0], -1)",
        ("columns", "torch.randn(12, columns)"),
        [&[&[16], &[40], &[130]], &[], &[&[17], &[41]]],
    );
    let layers = task(
        "self.first, self.second = nn.Linear(24, 40), nn.Linear(40, 9)
        self.scale = nn.Parameter(torch.rand(40) + 0.5)",
        "return self.second(F.gelu(self.first(given[0])) * self.scale)",
        ("rows", "torch.randn(rows, 24)"),
        [&[&[4], &[18], &[33]], &[], &[]],
    );
    // The constants of two workloads have other values, and the same name.
    let table = task(
        "pass",
        "return given[0] * torch.tensor([1.0, 2.0, 4.0] if given[0].shape[0] > 5 else [3.0, 7.0, 9.0])",
        ("rows", "torch.randn(rows, 3)"),
        [&[&[4], &[18], &[5]], &[], &[&[100]]],
    );
    let only = task(
        "pass",
        "return torch.tanh(given[0]) + 1",
        ("rows", "torch.randn(rows, 33)"),
        [&[&[64]], &[&[9], &[128]], &[]],
    );
    let named = [
        ("norm", norm),
        ("two", two),
        ("column", column),
        ("layers", layers),
        ("table", table),
        ("only", only),
    ];
    named.map(|(name, text)| (name.to_owned(), text)).into()
}

#[test]
fn all_workloads_and_unseen_sizes_agree_with_torch() {
    let bench = Bench::new();
    let cases = bench.trace_sources(&sources());
    for on in ["cpu", "cuda:0"] {
        let wrong = bench.conform(&cases, &device(on), false);
        assert!(wrong.is_empty(), "{on}: {}", wrong.join("\n"));
    }
    // Kernels that differ in the number of rows alone are one file.
    let files = |name: &str, on: &str| {
        let case = cases.iter().find(|case| case.name == name).unwrap();
        warpwright_teacher::translate(&case.trace, &device(on), Profile::Strict, false).unwrap()
    };
    assert_eq!(files("norm", "cuda:0").len(), 2);
    for on in ["cpu", "cuda:0"] {
        let is_of_second = |path: &String| path.ends_with("_case_1.cu");
        assert!(files("column", on).keys().any(is_of_second), "{on}");
    }
}
