//! Lawful candidates in the forms that people write: results and Python programs.

use crate::support::{Case, judge_all};
use warpwright_judge::Device;
use warpwright_record::verdict::{FailureClass, Stage, Verdict};

/// y = a x, and the same of complex numbers and rounded to whole ones.
const KERNEL: &str = r#"
#include <cuda_runtime.h>
#include <math.h>
__global__ void scaled(const float* x, float* y, int n, float a) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i];
}
__global__ void paired(const float* x, float* y, int n, float a) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { y[2 * i] = x[i]; y[2 * i + 1] = a * x[i]; }
}
__global__ void rounded(const float* x, signed char* y, int n, float a) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (signed char)fminf(fmaxf(rintf(a * x[i]), -100.0f), 100.0f);
}
extern "C" void scaled_launcher(const float* x, float* y, int n, float a, cudaStream_t stream) {
    scaled<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n, a);
}
extern "C" void paired_launcher(const float* x, float* y, int n, float a, cudaStream_t stream) {
    paired<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n, a);
}
extern "C" void rounded_launcher(const float* x, signed char* y, int n, float a, cudaStream_t stream) {
    rounded<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n, a);
}
"#;

const HEAD: &str = "\
import collections, contextlib, dataclasses, enum, functools, itertools, math, typing
import torch
import torch.nn as nn
";

/// Verdicts on candidates with these expressions as results, where the reference gives another.
fn judged(reference: &str, results: &[&str]) -> Vec<Verdict> {
    let helpers = "\
        Pair = collections.namedtuple('Pair', ['first', 'second'])\n\n\
        @dataclasses.dataclass\nclass Record:\n    first: torch.Tensor\n    second: torch.Tensor\n    note: object = None\n\n";
    let task = format!(
        "{HEAD}{helpers}class Model(nn.Module):\n    def forward(self, x):\n        return {reference}\n\n\
         def get_inputs():\n    return [torch.randn(64, 96)]\n"
    );
    let case = |result: &&str| {
        let model = format!(
            "{HEAD}import cuda_extension\n\n{helpers}\
             def scaled(x, a, y=None):\n    y = torch.empty_like(x) if y is None else y\n    \
             cuda_extension.scaled_launcher(x, y, x.numel(), a)\n    return y\n\n\
             def paired(x, a):\n    y = torch.empty(x.shape, dtype=torch.complex64)\n    \
             cuda_extension.paired_launcher(x, torch.view_as_real(y), x.numel(), a)\n    return y\n\n\
             def rounded(x, a, dtype=torch.int8):\n    y = torch.empty(x.shape, dtype=dtype)\n    \
             cuda_extension.rounded_launcher(x, y, x.numel(), a)\n    return y\n\n\
             class ModelNew(nn.Module):\n    def forward(self, x):\n        return {result}\n"
        );
        Case { task: String::new(), model, kernels: vec![("k.cu", KERNEL.into())] }.candidate()
    };
    judge_all(Device::Cpu, &task, results.iter().map(case), Stage::Verified)
}

/// All of these results count as the reference's, and none of the others does.
fn accepted(reference: &str, right: &[&str], wrong: &[(&str, FailureClass)]) {
    let all: Vec<&str> = right.iter().copied().chain(wrong.iter().map(|each| each.0)).collect();
    let mut verdicts = judged(reference, &all).into_iter();
    for result in right {
        let verdict = verdicts.next().unwrap();
        assert!(verdict.verified, "{result} for {reference}: {:#?}", verdict.failure);
    }
    for (result, class) in wrong {
        let failure = verdicts.next().unwrap().failure;
        let found = failure.as_ref().map(|failure| failure.class);
        assert_eq!(found, Some(*class), "{result} for {reference}: {failure:#?}");
    }
}

#[test]
fn dicts_are_compared_by_key_and_records_by_field() {
    accepted(
        "{'a': 2 * x, 'b': 3 * x}",
        &[
            "{'a': scaled(x, 2.0), 'b': scaled(x, 3.0)}",
            "{'b': scaled(x, 3.0), 'a': scaled(x, 2.0)}",
        ],
        &[
            ("{'b': scaled(x, 2.0), 'a': scaled(x, 3.0)}", FailureClass::Mismatch),
            ("{'b': scaled(x, 3.0), 'c': scaled(x, 2.0)}", FailureClass::Shape),
        ],
    );
    accepted(
        "Record(2 * x, 3 * x)",
        &["Record(scaled(x, 2.0), scaled(x, 3.0))"],
        &[("Record(scaled(x, 2.0), scaled(x, 2.0))", FailureClass::Mismatch)],
    );
    accepted(
        "Pair(2 * x, (None, 3 * x))",
        &[
            "[scaled(x, 2.0), [None, scaled(x, 3.0)]]",
            "Pair(scaled(x, 2.0), (None, scaled(x, 3.0)))",
        ],
        &[("Pair(scaled(x, 2.0), (scaled(x, 3.0), None))", FailureClass::Shape)],
    );
}

#[test]
fn results_may_be_views_of_buffers_or_expanded() {
    accepted(
        "2 * x",
        &[
            "scaled(x, 2.0, torch.empty(80, 96)[:64])",
            "scaled(x, 2.0, torch.empty(9000)[100:100 + 6144].view(64, 96))",
        ],
        &[("scaled(x, 2.0)[:1].expand(64, 96)", FailureClass::Shape)],
    );
    accepted("(2 * x).T", &["scaled(x, 2.0).T"], &[("scaled(x, 2.0)", FailureClass::Shape)]);
    accepted(
        "(2 * x[0]).expand(512, 96)",
        &[
            "scaled(x[0], 2.0).expand(512, 96)",
            "torch.empty(512, 96).copy_(scaled(x[0], 2.0).expand(512, 96))",
        ],
        &[("scaled(x[:, 0].contiguous(), 2.0)[:1].expand(512, 96)", FailureClass::Shape)],
    );
}

#[test]
fn complex_and_small_integers_are_compared() {
    accepted(
        "torch.complex(x, 2 * x)",
        &["paired(x, 2.0)", "paired(x.T.contiguous(), 2.0).T"],
        &[
            ("paired(x, -2.0)", FailureClass::Mismatch),
            ("paired(x, -2.0).conj()", FailureClass::Exception),
        ],
    );
    accepted(
        "torch.round(20 * x).clamp(-100, 100).to(torch.int8)",
        &["rounded(x, 20.0)"],
        &[
            ("rounded(x, 21.0)", FailureClass::Mismatch),
            ("rounded(x, 20.0).view(torch.uint8)", FailureClass::Shape),
        ],
    );
}

#[test]
fn a_conjugated_view_is_refused_with_its_reason() {
    let failure = judged("torch.complex(x, 2 * x)", &["paired(x, -2.0).conj()"]).remove(0).failure;
    let message = failure.unwrap().message;
    assert!(message.contains("conjugated or negated view"), "{message}");
}

const TASK: &str = "
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scales = nn.ParameterList([nn.Parameter(torch.randn(size))])

    def forward(self, x):
        return x * self.scales[0]

def get_inputs():
    return [torch.randn(64, 96)]

def get_init_inputs():
    return [96]
";

const TIMES: &str = r#"
#include <cuda_runtime.h>
__global__ void times(const float* x, const float* s, float* y, int n, int columns) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * s[i % columns];
}
extern "C" void times_launcher(const float* x, const float* s, float* y, int n, int columns, cudaStream_t stream) {
    times<<<(n + 255) / 256, 256, 0, stream>>>(x, s, y, n, columns);
}
"#;

/// A module whose class has these members, after these definitions; `run` launches the kernel.
fn module(definitions: &str, members: &str) -> Case {
    let members: String = members.lines().flat_map(|line| ["    ", line, "\n"]).collect();
    let model = format!(
        "{HEAD}import cuda_extension\n\n\
         def run(x, s, y=None):\n    y = torch.empty_like(x) if y is None else y\n    \
         cuda_extension.times_launcher(x, s, y, x.numel(), x.shape[-1])\n    return y\n\n\
         class Base(nn.Module):\n    def __init__(self, size):\n        super().__init__()\n        \
         self.scales = nn.ParameterList([nn.Parameter(torch.ones(size))])\n        self.made(size)\n\n    \
         def made(self, size):\n        pass\n\n    \
         def forward(self, x):\n        return run(x, self.scales[0])\n\n\
         {definitions}\n\nclass ModelNew(Base):\n{members}"
    );
    Case { task: String::new(), model, kernels: vec![("times.cu", TIMES.into())] }
}

#[test]
fn python_programs_of_many_forms_are_verified() {
    let shapes = [
        ("plain", "", "pass"),
        (
            "a submodule named prepare",
            "",
            "def made(self, size):\n    self.prepare = nn.Identity()",
        ),
        (
            "a tensor named prepare",
            "",
            "def made(self, size):\n    self.prepare = torch.ones(size)",
        ),
        (
            "a helper named prepare",
            "",
            "def prepare(self, x):\n    raise ValueError('not for the judge')",
        ),
        (
            "weights outside the state_dict",
            "",
            "def made(self, size):\n    self.register_buffer('ones', torch.ones(size), persistent=False)\n    \
             self.more = torch.ones(size)\n\
             def forward(self, x):\n    return run(run(x, self.scales[0]), self.ones)",
        ),
        (
            "allocation and views",
            "",
            "def forward(self, x):\n    y = x.new_empty(x.shape[0], x.shape[1])\n    \
             z = torch.zeros(x.shape, dtype=x.dtype, device=x.device)\n    \
             z.copy_(x)\n    w = torch.full((2,), 3.0).view(1, 2).expand(4, 2).contiguous().t().reshape(-1)[:1]\n    \
             return run(z.view(-1).view(x.shape).contiguous(), self.scales[0], y).unsqueeze(0).squeeze(0)",
        ),
        (
            "a table in the first call",
            "",
            "def forward(self, x):\n    if not hasattr(self, 'packed'):\n        \
             self.packed = (torch.arange(x.shape[-1]) * 0 + 1) * self.scales[0]\n    return run(x, self.packed)",
        ),
        (
            "caches, records and enumerations",
            "class Kind(enum.Enum):\n    ROWS = 1\n\n@dataclasses.dataclass(frozen=True)\nclass Plan:\n    \
             rows: int\n    kind: Kind = Kind.ROWS\n\n@functools.lru_cache(maxsize=None)\ndef plan(rows: int) -> Plan:\n    \
             return Plan(rows)\n\ncounts: typing.Dict[str, int] = collections.defaultdict(int)",
            "@staticmethod\ndef grid(n: int) -> int:\n    return math.ceil(n / 256)\n\
             @classmethod\ndef named(cls) -> str:\n    return cls.__name__\n\
             @property\ndef scale(self):\n    return self.scales[0]\n\
             def forward(self, x):\n    counts[self.named()] += self.grid(plan(x.shape[0]).rows)\n    \
             with contextlib.nullcontext():\n        \
             assert list(itertools.chain([1], [2])) == [1, 2]\n        return run(x, self.scale)",
        ),
        (
            "an autograd function",
            "class Times(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x, s):\n        \
             ctx.save_for_backward(x, s)\n        return run(x, s)\n\n    @staticmethod\n    def backward(ctx, g):\n        \
             raise NotImplementedError",
            "def forward(self, x):\n    return Times.apply(x, self.scales[0])",
        ),
        (
            "a custom operator",
            "@torch.library.custom_op('mine::times', mutates_args=())\n\
             def times(x: torch.Tensor, s: torch.Tensor) -> torch.Tensor:\n    return run(x, s)\n\n\
             @times.register_fake\ndef _(x, s):\n    return torch.empty_like(x)",
            "def forward(self, x):\n    return torch.ops.mine.times(x, self.scales[0])",
        ),
        ("a call of its own", "", "def __call__(self, x):\n    return run(x, self.scales[0])"),
        (
            "hooks",
            "",
            "def made(self, size):\n    self.register_forward_pre_hook(lambda module, given: (given[0].contiguous(),))\n    \
             self.register_forward_hook(lambda module, given, result: result.view(given[0].shape))",
        ),
        (
            "streams",
            "",
            "def made(self, size):\n    self.stream = torch.cuda.Stream()\n\
             def forward(self, x):\n    self.stream.wait_stream(torch.cuda.current_stream())\n    \
             with torch.cuda.stream(self.stream):\n        y = run(x, self.scales[0])\n    \
             torch.cuda.current_stream().wait_stream(self.stream)\n    return y",
        ),
    ];
    let candidates =
        shapes.iter().map(|(_, definitions, members)| module(definitions, members).candidate());
    let verdicts = judge_all(Device::Cpu, TASK, candidates, Stage::Verified);
    for ((name, ..), verdict) in shapes.iter().zip(verdicts) {
        assert!(verdict.verified, "{name}: {:#?}", verdict.failure);
    }
}

#[test]
fn an_unlawful_candidate_is_refused_with_its_reason() {
    let cases = [
        (
            "",
            "def made(self, size):\n    self.more = nn.Parameter(torch.ones(size))",
            FailureClass::StateDict,
            "more",
        ),
        (
            "",
            "def forward(self, x):\n    torch.arange(4)\n    return run(x, self.scales[0])",
            FailureClass::ForbiddenCall,
            "in prepare() or the first call",
        ),
        ("import helper", "pass", FailureClass::Load, "No module named 'helper'"),
        (
            "",
            "def prepare(self):\n    raise ValueError('its own')",
            FailureClass::Exception,
            "its own",
        ),
    ];
    let candidates =
        cases.iter().map(|(definitions, members, ..)| module(definitions, members).candidate());
    let verdicts = judge_all(Device::Cpu, TASK, candidates, Stage::Verified);
    for ((_, members, class, text), verdict) in cases.iter().zip(verdicts) {
        let failure = verdict.failure.unwrap();
        assert_eq!(failure.class, *class, "{members}: {}", failure.message);
        assert!(failure.message.contains(text), "{members}: {}", failure.message);
    }
}

/// A launcher behind a condition is listed from the source, and the library lacks it.
#[test]
fn an_uncompiled_launcher_does_not_fail_the_candidate() {
    let mut case = module("", "pass");
    case.kernels[0].1.push_str(
        "#if defined(NEVER)\nextern \"C\" void other_launcher(float* y, cudaStream_t stream) {}\n#endif\n",
    );
    let verdict = judge_all(Device::Cpu, TASK, [case.candidate()], Stage::Verified).remove(0);
    assert!(verdict.verified, "{:#?}", verdict.failure);
}
