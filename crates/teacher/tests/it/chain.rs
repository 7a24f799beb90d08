//! Several kernels behind one launcher: correct in repeated calls, with a CUDA graph on a GPU.

use std::collections::BTreeMap;

use warpwright_record::verdict::Profile;

use crate::bench::{Bench, device};

/// Eight layers, with values that live across some of them, a constant, and two results.
const DEEP: &str = "import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.register_buffer('scale', torch.linspace(0.5, 1.5, width))

    def forward(self, x, mask):
        first = None
        for layer, norm in zip(self.layers, self.norms):
            y = torch.tanh(layer(norm(x))) * self.scale
            first = y if first is None else first
            x = x + torch.where(mask > 0, y, first)
        return x, x.softmax(-1)

def get_inputs():
    return [torch.randn(7, 48), torch.randn(7, 1)]

def get_init_inputs():
    return [48, 8]
";

/// More weights than one function accepts.
const MANY: &str = "import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, width, count):
        super().__init__()
        self.shifts = nn.ParameterList(nn.Parameter(torch.randn(width)) for _ in range(count))

    def forward(self, x):
        for shift in self.shifts:
            x = x + shift
        return x.softmax(-1), (x * x).sum(0)

def get_inputs():
    return [torch.randn(7, 48)]

def get_init_inputs():
    return [48, 260]
";

const SHORT: &str = "import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x.tanh()

def get_inputs():
    return [torch.randn(7, 48)]

def get_init_inputs():
    return []
";

#[test]
fn single_kernel_needs_no_chain() {
    let bench = Bench::new();
    let sources = [("deep", DEEP), ("many", MANY), ("short", SHORT)];
    let sources: BTreeMap<String, String> =
        sources.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
    let cases = bench.trace_sources(&sources);
    let chain = |case: usize, on: &str, plain: bool| {
        let trace = &cases[case].trace;
        let files =
            warpwright_teacher::translate(trace, &device(on), Profile::Strict, plain).unwrap();
        files.get("kernels/chain.cu").cloned()
    };
    let gpu = chain(0, "cuda:0", false).unwrap();
    assert!(gpu.matches("return error;").count() > 16, "{gpu}");
    assert!(gpu.contains("cudaGraphLaunch"), "{gpu}");
    assert!(!chain(0, "cpu", false).unwrap().contains("cudaGraph"));
    assert_eq!(chain(0, "cuda:0", true), None, "the plainest form calls them one by one");
    assert!(chain(1, "cuda:0", false).unwrap().contains("chain_hold_1_launcher"));
    assert_eq!(chain(2, "cuda:0", false), None, "nothing to chain");

    for on in ["cpu", "cuda:0"] {
        let wrong = bench.conform(&cases, &device(on), false);
        assert!(wrong.is_empty(), "on {on}:\n{}", wrong.join("\n"));
    }
    bench.compile_for(&cases, &device("cuda:0"), "sm_90");
}
