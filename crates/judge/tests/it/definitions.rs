//! A definition of another benchmark, read and judged.

use fs_err as fs;
use serde_json::json;
use warpwright_judge::Device;
use warpwright_record::verdict::{FailureClass, Stage};
use warpwright_task::Task;

use crate::support::{Case, shared_judge};

const KERNEL: &str = r#"
#include <cuda_runtime.h>
__global__ void rows(const float* x, const float* w, float* y, int n, int hidden, float eps) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * WEIGHT + eps;
}
extern "C" void scale(const float* x, const float* w, float* y, int n, int hidden, float eps, cudaStream_t stream) {
    rows<<<(n + 255) / 256, 256, 0, stream>>>(x, w, y, n, hidden, eps);
}
"#;

const MODEL: &str = "\
import torch
import torch.nn as nn
import cuda_extension

class ModelNew(nn.Module):
    def forward(self, x, norm_weight, eps):
        y = torch.empty_like(x)
        cuda_extension.scale(x, norm_weight, y, x.numel(), x.shape[1], eps)
        return y
";

#[test]
fn definition_is_opened_and_judged() {
    let definition = json!({
        "name": "scale_h48",
        "axes": {"rows": {"type": "var"}, "hidden": {"type": "const", "value": 48}},
        "inputs": {
            "x": {"shape": ["rows", "hidden"], "dtype": "float32"},
            "norm_weight": {"shape": ["hidden"], "dtype": "float32"},
            "eps": {"shape": null, "dtype": "float32"}
        },
        "outputs": {"y": {"shape": ["rows", "hidden"], "dtype": "float32"}},
        "reference": "import torch\n\n@torch.no_grad()\ndef run(x, norm_weight, eps):\n    return x * norm_weight + eps\n"
    });
    let workload = json!({
        "uuid": "a", "axes": {"rows": 65}, "inputs": {
            "x": {"type": "random"}, "norm_weight": {"type": "random"},
            "eps": {"type": "scalar", "value": 0.25}
        }
    });
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("definition.json"), definition.to_string()).unwrap();
    fs::write(folder.path().join("workload.jsonl"), workload.to_string()).unwrap();
    let task = Task::read(folder.path()).unwrap();
    let judged = |weight: &str| {
        let kernels = vec![("scale.cu", KERNEL.replace("WEIGHT", weight))];
        let case = Case { task: String::new(), model: MODEL.to_owned(), kernels };
        let mut session = shared_judge(Device::Cpu).task(&task).unwrap();
        session.judge(&case.candidate(), Stage::Verified).unwrap()
    };
    let honest = judged("w[i % hidden]");
    assert!(honest.verified, "{:?}", honest.failure);
    // Benchmarks have ones there: a kernel could leave the weight out.
    let failure = judged("1.0f").failure.unwrap();
    assert_eq!(failure.class, FailureClass::Mismatch, "{}", failure.message);
}
