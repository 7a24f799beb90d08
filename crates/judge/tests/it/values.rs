//! Records, named arguments and element types that few tasks have, on the cpu device.

use crate::support::{Case, body, judge_all};
use warpwright_judge::Device;
use warpwright_record::verdict::{FailureClass, Stage};

const HEAD: &str = "\
import collections, dataclasses
import torch
import torch.nn as nn
";

const HELPERS: &str = "
import cuda_extension

def scaled(x, a):
    y = torch.empty_like(x)
    cuda_extension.scale(x, y, x.numel(), a)
    return y

def run(x, dtype):
    y = torch.empty(x.shape, dtype=dtype)
    cuda_extension.run(x, y, x.numel())
    return y

";

/// y = a x.
const SCALED: &str = r#"
#include <cuda_runtime.h>
__global__ void scaled(const float* x, float* y, int n, float a) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i];
}
extern "C" void scale(const float* x, float* y, int n, float a, cudaStream_t stream) {
    scaled<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n, a);
}
"#;

/// `forward` with this head, after these lines.
fn module(name: &str, lines: &str, parameters: &str, forward: &str) -> String {
    format!(
        "{HEAD}{lines}\n\nclass {name}(nn.Module):\n    def forward(self, {parameters}):\n{}\n",
        body(forward)
    )
}

/// A task and candidates: a head of `forward` and its body each, and why it fails.
struct Tried<'a> {
    lines: &'a str,
    reference: [&'a str; 2],
    inputs: &'a str,
    kernel: String,
    candidates: &'a [([&'a str; 2], Option<FailureClass>)],
}

impl Tried<'_> {
    fn check(&self) {
        let [parameters, forward] = self.reference;
        let task = module("Model", self.lines, parameters, forward);
        let task = format!("{task}\ndef get_inputs():\n    return {}\n", self.inputs);
        let lines = format!("{HELPERS}{}", self.lines);
        let case = |([parameters, forward], _): &([&str; 2], Option<FailureClass>)| {
            let model = module("ModelNew", &lines, parameters, forward);
            let kernels = vec![("k.cu", self.kernel.clone())];
            Case { task: String::new(), model, kernels }.candidate()
        };
        let all = self.candidates.iter().map(case);
        let verdicts = judge_all(Device::Cpu, &task, all, Stage::Verified);
        for (verdict, (candidate, wanted)) in verdicts.iter().zip(self.candidates) {
            let found = verdict.failure.as_ref().map(|failure| failure.class);
            assert_eq!(found, *wanted, "{candidate:?} for {task}: {:#?}", verdict.failure);
            assert_eq!(verdict.verified, wanted.is_none(), "{candidate:?}");
        }
    }
}

/// Candidates of a reference that takes `x`, by what they return.
fn results(lines: &str, reference: &str, candidates: &[(&str, Option<FailureClass>)]) {
    let returned: Vec<String> =
        candidates.iter().map(|(result, _)| format!("return {result}")).collect();
    let pairs = returned.iter().zip(candidates);
    let all: Vec<_> = pairs.map(|(text, (_, wanted))| (["x", text.as_str()], *wanted)).collect();
    let reference = ["x", &format!("return {reference}")];
    let (inputs, kernel) = ("[torch.randn(32, 48)]", SCALED.to_owned());
    Tried { lines, reference, inputs, kernel, candidates: &all }.check();
}

#[test]
fn a_named_tuple_may_be_returned_as_tuple() {
    let shape = Some(FailureClass::Shape);
    let lines = "Out = collections.namedtuple('Out', 'y z')\n";
    results(
        lines,
        "Out(2 * x, {0: 3 * x, 'k': None, 1: -x})",
        &[
            ("Out(scaled(x, 2.0), {1: scaled(x, -1.0), 0: scaled(x, 3.0), 'k': None})", None),
            ("[scaled(x, 2.0), {0: scaled(x, 3.0), 'k': None, 1: scaled(x, -1.0)}]", None),
            (
                "{'z': {0: scaled(x, 3.0), 'k': None, 1: scaled(x, -1.0)}, 'y': scaled(x, 2.0)}",
                None,
            ),
            ("Out(scaled(x, 2.0), {'0': scaled(x, 3.0), 'k': None, '1': scaled(x, -1.0)})", shape),
            ("Out(scaled(x, 2.0), {0: scaled(x, 3.0), 1: scaled(x, -1.0)})", shape),
        ],
    );
}

/// As in transformers: a mapping without what is None, whose items are attributes as well.
const OUTPUT: &str = "
@dataclasses.dataclass
class Output(collections.OrderedDict):
    logits: torch.Tensor = None
    aux: torch.Tensor = None

    def __post_init__(self):
        for field in dataclasses.fields(self):
            if getattr(self, field.name) is not None:
                self[field.name] = getattr(self, field.name)
";

#[test]
fn a_dataclass_mapping_may_be_returned_as_dict() {
    let (shape, mismatch) = (Some(FailureClass::Shape), Some(FailureClass::Mismatch));
    results(
        OUTPUT,
        "Output(logits=2 * x)",
        &[
            ("Output(logits=scaled(x, 2.0))", None),
            ("{'logits': scaled(x, 2.0)}", None),
            ("{'logits': scaled(x, 2.0), 'aux': None}", None),
            ("(scaled(x, 2.0),)", None),
            ("scaled(x, 2.0)", shape),
            ("Output(aux=scaled(x, 2.0))", shape),
            ("Output(logits=scaled(x, 2.5))", mismatch),
        ],
    );
}

#[test]
fn keyword_only_arguments_are_passed_by_name() {
    let mismatch = Some(FailureClass::Mismatch);
    let kernel = SCALED.to_owned();
    Tried {
        lines: "",
        reference: ["x, *, scale, bias=None", "return x * scale"],
        inputs: "{'scale': 2.0, 'x': torch.randn(32, 48)}",
        kernel: kernel.clone(),
        candidates: &[
            (["x, *, scale, bias=None", "return scaled(x, scale)"], None),
            (["x, scale", "return scaled(x, scale)"], None),
            (["x, **more", "return scaled(x, 1.0)"], mismatch),
        ],
    }
    .check();
    Tried {
        lines: "",
        reference: ["x, z, scale=1.0", "return x * scale + 0 * z"],
        inputs: "[[torch.randn(32, 48), torch.ones(32, 48)], {'scale': 3.0}]",
        kernel,
        candidates: &[
            (["x, z, scale=1.0", "return scaled(x, scale)"], None),
            (["x, z, scale=1.0", "return scaled(x, 1.0)"], mismatch),
        ],
    }
    .check();
}

#[test]
fn records_and_integer_keys_are_handed_over() {
    let mismatch = Some(FailureClass::Mismatch);
    let lines = "Batch = collections.namedtuple('Batch', 'x by_layer')\n\n\
        @dataclasses.dataclass\nclass Options:\n    scale: float\n\n";
    Tried {
        lines,
        reference: [
            "b, o",
            "assert isinstance(b, Batch)\no = dataclasses.replace(o)\n\
             return b.x * o.scale + 0 * b.by_layer[7]",
        ],
        inputs: "[Batch(torch.randn(32, 48), {7: torch.ones(48)}), Options(2.0)]",
        kernel: SCALED.to_owned(),
        candidates: &[
            (["b, o", "return scaled(b.x, o.scale)"], None),
            (["b, o", "(x, layers), (scale,) = b, o\nlayers[7]\nreturn scaled(x, scale)"], None),
            (["b, o", "return scaled(b.x, 3.0)"], mismatch),
        ],
    }
    .check();
}

/// Writes `value` of `x[i]`, of these types, to `y[i]`.
fn element_wise(from: &str, to: &str, value: &str) -> String {
    format!(
        "#include <cuda_runtime.h>\n#include <cuda_fp8.h>\n#include <stdint.h>\n\
         __global__ void each(const {from}* x, {to}* y, int n) {{\n\
         \x20   int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) y[i] = {value};\n}}\n\
         extern \"C\" int run(const {from}* x, {to}* y, int n, cudaStream_t stream) {{\n\
         \x20   each<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);\n    return 0;\n}}\n"
    )
}

/// A kernel with the first value passes, and one with the second fails.
fn types(dtype: &str, inputs: &str, reference: &str, [from, to]: [&str; 2], values: [&str; 2]) {
    let task = module("Model", "", "x", reference);
    let task = format!("{task}\ndef get_inputs():\n    return {inputs}\n");
    let forward = format!("return run(x, torch.{dtype})");
    let candidate = |value: &&str| {
        let model = module("ModelNew", HELPERS, "x", &forward);
        let kernels = vec![("k.cu", element_wise(from, to, value))];
        Case { task: String::new(), model, kernels }.candidate()
    };
    let all = values.iter().map(candidate);
    let verdicts = judge_all(Device::Cpu, &task, all, Stage::Verified);
    let found: Vec<_> = verdicts.iter().map(|v| v.failure.as_ref().map(|f| f.class)).collect();
    assert_eq!(found, [None, Some(FailureClass::Mismatch)], "{task}: {verdicts:#?}");
}

#[test]
fn unsigned_integers_are_compared_exactly() {
    types(
        "uint16",
        "[torch.randint(0, 60000, (32, 48)).to(torch.uint16)]",
        "return (x.to(torch.int32) + 9000).to(torch.uint16)",
        ["unsigned short", "uint16_t"],
        ["x[i] + 9000", "(int16_t)x[i] < 0 ? 0 : x[i] + 9000"],
    );
    types(
        "uint32",
        "[torch.randint(0, 1 << 32, (32, 48)).to(torch.uint32)]",
        "return (x.to(torch.int64) // 3).to(torch.uint32)",
        ["uint32_t", "unsigned"],
        ["x[i] / 3", "(int)x[i] / 3"],
    );
    types(
        "uint64",
        "[torch.randint(-(1 << 62), 1 << 62, (32, 48)).view(torch.uint64)]",
        "return (x.view(torch.int64) ^ 5).view(torch.uint64)",
        ["unsigned long long", "unsigned long long"],
        ["x[i] ^ 5", "(unsigned)x[i] ^ 5"],
    );
}

#[test]
fn complex_numbers_are_pairs_of_floats() {
    types(
        "complex64",
        "[torch.randn(32, 48, dtype=torch.complex64)]",
        "return x * x",
        ["float2", "float2"],
        [
            "make_float2(x[i].x * x[i].x - x[i].y * x[i].y, 2 * x[i].x * x[i].y)",
            "make_float2(x[i].x * x[i].x + x[i].y * x[i].y, 2 * x[i].x * x[i].y)",
        ],
    );
    types(
        "complex128",
        "[torch.randn(32, 48, dtype=torch.complex128)]",
        "return x.conj().resolve_conj()",
        ["double2", "double2"],
        ["make_double2(x[i].x, -x[i].y)", "make_double2((float)x[i].x, -x[i].y)"],
    );
}

#[test]
fn eight_bit_floats_are_taken_and_returned() {
    for (dtype, c_type) in [("float8_e4m3fn", "__nv_fp8_e4m3"), ("float8_e5m2", "__nv_fp8_e5m2")] {
        let right = format!("{c_type}(fminf(fmaxf(float(x[i]) * 1.75f + 0.25f, -400), 400))");
        let wrong = format!("{c_type}(fminf(fmaxf(float(x[i]) * 2.5f + 0.25f, -400), 400))");
        types(
            dtype,
            &format!("[torch.randn(32, 48).to(torch.{dtype})]"),
            &format!("return (x.float() * 1.75 + 0.25).clamp(-400, 400).to(torch.{dtype})"),
            [c_type, c_type],
            [&right, &wrong],
        );
    }
}
