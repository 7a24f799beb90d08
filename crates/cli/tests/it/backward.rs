//! `--backward`: a call computes the outputs, and then the gradients of inputs and parameters.

use serde_json::json;
use warpwright_record::reader::RunReader;

use crate::program::{Program, Ran, TASK};

/// Inputs with gradients around one without; parameters with, without and of no use; two outputs.
const MIXED: &str = "\
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))
        self.frozen = nn.Parameter(torch.randn(features), requires_grad=False)
        self.unused = nn.Parameter(torch.randn(features))
        self.shift = nn.Parameter(torch.randn(features))

    def forward(self, x, signs, more):
        y = x * self.scale * signs * self.frozen + more['z'] * self.shift
        return y, more['z'].sum()


def get_inputs():
    signs = torch.randint(0, 2, (32,)) * 2 - 1
    return [torch.randn(64, 32), signs, {'z': torch.randn(64, 32)}]


def get_init_inputs():
    return [32]
";

/// The gradients in closed form, not by autograd.
const MIXED_NEW: &str = "\
import torch
from torch import nn

import cuda_extension


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        for name in ('scale', 'frozen', 'unused', 'shift'):
            setattr(self, name, nn.Parameter(torch.empty(features)))

    def forward(self, x, signs, more):
        y, total = torch.empty_like(x), x.new_empty(())
        self.saved = (x, signs, more['z'])
        weights = (self.scale, self.frozen, self.shift)
        cuda_extension.outputs(x, signs, more['z'], *weights, y, total, *x.shape)
        return y, total

    def backward(self, grad_y, grad_total):
        x, signs, z = self.saved
        weights = (self.scale, self.frozen, self.shift)
        grad_x, grad_z = torch.empty_like(x), torch.empty_like(z)
        cuda_extension.of_inputs(signs, *weights, grad_y, grad_total, grad_x, grad_z, *x.shape)
        of_weights = [torch.empty_like(weight) for weight in (self.scale, self.unused, self.shift)]
        cuda_extension.of_weights(x, signs, z, self.frozen, grad_y, *of_weights, *x.shape)
        return grad_x, grad_z, *of_weights
";

const MIXED_CU: &str = "\
#include <cuda_runtime.h>

__global__ void outputs_kernel(const float* x, const long long* signs, const float* z, const float* scale,
                               const float* frozen, const float* shift, float* y, float* total, int rows, int n) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x, i = at % n;
    if (at < rows * n) y[at] = x[at] * scale[i] * signs[i] * frozen[i] + z[at] * shift[i];
    if (at != 0) return;
    double sum = 0;
    for (int k = 0; k < rows * n; ++k) sum += z[k];
    *total = (float)sum;
}

__global__ void of_inputs_kernel(const long long* signs, const float* scale, const float* frozen,
                                 const float* shift, const float* grad_y, const float* grad_total,
                                 float* grad_x, float* grad_z, int rows, int n) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x, i = at % n;
    if (at >= rows * n) return;
    grad_x[at] = grad_y[at] * frozen[i] * signs[i] * scale[i];
    grad_z[at] = grad_y[at] * shift[i] + *grad_total;
}

__global__ void of_weights_kernel(const float* x, const long long* signs, const float* z, const float* frozen,
                                  const float* grad_y, float* of_scale, float* of_unused, float* of_shift,
                                  int rows, int n) {
    const int i = threadIdx.x;
    if (i >= n) return;
    double scale = 0, shift = 0;
    for (int at = i; at < rows * n; at += n) {
        scale += (double)grad_y[at] * frozen[i] * signs[i] * x[at];
        shift += (double)grad_y[at] * z[at];
    }
    of_scale[i] = (float)scale;
    of_unused[i] = 0;
    of_shift[i] = (float)shift;
}

extern \"C\" int outputs(const float* x, const long long* signs, const float* z, const float* scale,
                       const float* frozen, const float* shift, float* y, float* total, int rows, int n,
                       cudaStream_t stream) {
    outputs_kernel<<<(rows * n + 127) / 128, 128, 0, stream>>>(x, signs, z, scale, frozen, shift, y, total, rows, n);
    return (int)cudaGetLastError();
}

extern \"C\" int of_inputs(const long long* signs, const float* scale, const float* frozen, const float* shift,
                         const float* grad_y, const float* grad_total, float* grad_x, float* grad_z, int rows,
                         int n, cudaStream_t stream) {
    of_inputs_kernel<<<(rows * n + 127) / 128, 128, 0, stream>>>(signs, scale, frozen, shift, grad_y, grad_total,
                                                                 grad_x, grad_z, rows, n);
    return (int)cudaGetLastError();
}

extern \"C\" int of_weights(const float* x, const long long* signs, const float* z, const float* frozen,
                          const float* grad_y, float* of_scale, float* of_unused, float* of_shift, int rows, int n,
                          cudaStream_t stream) {
    of_weights_kernel<<<1, n, 0, stream>>>(x, signs, z, frozen, grad_y, of_scale, of_unused, of_shift, rows, n);
    return (int)cudaGetLastError();
}
";

/// Judges MIXED and a candidate with these files.
fn judged(model: &str, kernels: &str, more: &[&str]) -> Ran {
    let program = Program::new();
    program.write("mixed.py", MIXED);
    program.write("candidate/model_new.py", model);
    program.write("candidate/kernels/mixed.cu", kernels);
    let fixed = ["judge", "mixed.py", "--candidate", "candidate", "--device", "cpu", "--json"];
    program.run(&[&fixed[..], more].concat())
}

#[test]
fn gradients_are_outputs_in_the_documented_order() {
    let backward = &["--backward", "--stage", "verified"];
    let good = judged(MIXED_NEW, MIXED_CU, backward);
    assert_eq!(good.code, Some(0), "{}", good.show());
    assert_eq!(good.object()["verdict"]["backward"], true);
    let more = [&backward[..], &["--require-tier", "device"]].concat();
    let device = judged(MIXED_NEW, MIXED_CU, &more);
    assert_eq!(device.code, Some(0), "{}", device.show());
    assert_eq!(device.object()["verdict"]["tier"], "device");
    for (what, model, kernels) in [
        (
            "inputs exchanged",
            MIXED_NEW.replace("return grad_x, grad_z,", "return grad_z, grad_x,"),
            MIXED_CU.to_owned(),
        ),
        (
            "parameters exchanged",
            MIXED_NEW
                .replace(
                    "in (self.scale, self.unused, self.shift)]",
                    "in (self.shift, self.unused, self.scale)][::-1]",
                )
                .replace(
                    "return grad_x, grad_z, *of_weights",
                    "return grad_x, grad_z, *of_weights[::-1]",
                ),
            MIXED_CU.to_owned(),
        ),
        (
            "gradient of a weight",
            MIXED_NEW.to_owned(),
            MIXED_CU.replace("= (float)shift", "= 0.99f * (float)shift"),
        ),
        (
            "zeros of an unused weight",
            MIXED_NEW.to_owned(),
            MIXED_CU.replace("of_unused[i] = 0", "of_unused[i] = 1"),
        ),
        (
            "gradient of the second output",
            MIXED_NEW.to_owned(),
            MIXED_CU.replace(" + *grad_total", ""),
        ),
    ] {
        let bad = judged(&model, &kernels, backward);
        assert_eq!(bad.code, Some(3), "{what}: {}", bad.show());
        assert_eq!(bad.object()["verdict"]["failure"]["class"], "mismatch", "{what}");
    }
}

#[test]
fn candidate_without_backward_fails_with_its_reason() {
    let (model, _) = MIXED_NEW.split_once("    def backward").unwrap();
    for tier in ["host", "device"] {
        let more = ["--backward", "--stage", "verified", "--require-tier", tier];
        let ran = judged(model, MIXED_CU, &more);
        assert_eq!(ran.code, Some(3), "{}", ran.show());
        let failure = ran.object()["verdict"]["failure"].clone();
        assert_eq!(failure["class"], "load", "{}", ran.show());
        let text = failure["message"].as_str().unwrap();
        assert!(text.contains("ModelNew defines no method backward"), "{text}");
        // It is a candidate of the task without gradients.
        let forward = judged(model, MIXED_CU, &["--stage", "verified", "--require-tier", tier]);
        assert_eq!(forward.code, Some(0), "{}", forward.show());
        assert_eq!(forward.object()["verdict"].get("backward"), None);
    }
}

#[test]
fn task_without_gradients_is_refused() {
    let program = Program::new();
    program.write("suite/task.py", TASK);
    let indices = TASK.replace("torch.relu(x + 1.0) * 0.5", "(x + 1.0).argmax(-1)");
    program.write("suite/indices.py", &indices);
    program.write("kernel.py", "class ModelNew: ...");
    let arguments = ["judge", "suite/indices.py", "--candidate", "kernel.py", "--device", "cpu"];
    let ran = program.run(&[&arguments[..], &["--backward"]].concat());
    assert_eq!(ran.code, Some(2), "{}", ran.show());
    assert!(ran.stderr.contains("no output of forward has"), "{}", ran.stderr);
    // The built-in policy leaves no candidate, and tables keep both kinds of call apart.
    let fixed = ["eval", "--suite", "suite", "--policy", "teacher", "--device", "cpu"];
    let ran = program.run(&[&fixed[..], &["--backward", "--out", "run", "--json"]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    let told = ran.object();
    assert_eq!(told["tables"][0]["backward"], true, "{}", ran.show());
    let states: Vec<_> = told["rows"].as_array().unwrap().iter().map(|row| &row["state"]).collect();
    assert_eq!(states, [&json!("refused"), &json!("judged")], "{}", ran.show());
    let model = fs_err::read_to_string(program.path("run/workspaces/task/model.py")).unwrap();
    assert!(model.starts_with(TASK.trim_end()), "{model}");
    assert!(model.ends_with("_warpwright_backward()\n"), "{model}");
    let skill = fs_err::read_to_string(program.path("run/workspaces/task/SKILL.md")).unwrap();
    assert!(skill.contains("def backward(self, grad_y)"), "{skill}");
    let report = program.run(&["report", "run"]);
    assert!(report.stdout.contains("strict, backward"), "{}", report.show());
    let config = RunReader::open(&program.path("run")).unwrap().header().config.clone();
    assert_eq!(config["tasks"][0]["backward"], true);
}

const HALF: &str = "\
import torch
from torch import nn

backward = True


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(32))

    def forward(self, x):
        return x * self.weight


def get_inputs():
    return [torch.randn(64, 32)]
";

const HALF_NEW: &str = "\
import torch
from torch import nn

import cuda_extension


class ModelNew(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(32))

    def forward(self, x):
        self.x, y = x, torch.empty_like(x)
        cuda_extension.scaled(x, self.weight, y, *x.shape)
        return y

    def backward(self, grad):
        grad_x, grad_weight = torch.empty_like(self.x), torch.empty_like(self.weight)
        cuda_extension.scaled(grad, self.weight, grad_x, *grad.shape)
        cuda_extension.summed(grad, self.x, grad_weight, *grad.shape)
        return [grad_x, grad_weight]
";

const HALF_CU: &str = "\
#include <cuda_bf16.h>

__global__ void scaled_kernel(const __nv_bfloat16* x, const __nv_bfloat16* w, __nv_bfloat16* y, int rows, int n) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < rows * n) y[at] = __float2bfloat16(__bfloat162float(x[at]) * __bfloat162float(w[at % n]));
}

__global__ void summed_kernel(const __nv_bfloat16* g, const __nv_bfloat16* x, __nv_bfloat16* w, int rows, int n) {
    float sum = 0;
    for (int at = threadIdx.x; at < rows * n; at += n) sum += __bfloat162float(g[at]) * __bfloat162float(x[at]);
    w[threadIdx.x] = __float2bfloat16(sum);
}

extern \"C\" int scaled(const __nv_bfloat16* x, const __nv_bfloat16* w, __nv_bfloat16* y, int rows, int n,
                      cudaStream_t stream) {
    scaled_kernel<<<(rows * n + 127) / 128, 128, 0, stream>>>(x, w, y, rows, n);
    return (int)cudaGetLastError();
}

extern \"C\" int summed(const __nv_bfloat16* g, const __nv_bfloat16* x, __nv_bfloat16* w, int rows, int n,
                      cudaStream_t stream) {
    summed_kernel<<<1, n, 0, stream>>>(g, x, w, rows, n);
    return (int)cudaGetLastError();
}
";

#[test]
fn step_in_bfloat16_is_measured_against_autograd() {
    let program = Program::new();
    program.write("half.py", HALF);
    program.write("candidate/model_new.py", HALF_NEW);
    program.write("candidate/kernels/half.cu", HALF_CU);
    let arguments = ["judge", "half.py", "--candidate", "candidate", "--device", "cpu", "--json"];
    let ran = program.run(&[&arguments[..], &["--dtype", "bf16", "--out", "run"]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    let verdict = ran.object()["verdict"].clone();
    assert_eq!((&verdict["dtype"], &verdict["backward"]), (&json!("bf16"), &json!(true)));
    for which in ["candidate", "eager", "compile"] {
        assert!(verdict["times_ms"][which]["value"].as_f64().unwrap() > 0.0, "{}", ran.show());
    }
}
