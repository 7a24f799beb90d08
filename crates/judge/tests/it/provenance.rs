//! Finds the code that computed a verified result by running the candidate without its kernels.

use crate::support::{Case, body, judge_one};
use warpwright_judge::Device;
use warpwright_record::verdict::{AblationResult, FailureClass, Stage, Verdict};

const TASK: &str = r"
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return x @ x

def get_inputs():
    return [torch.randn(64, 64)]

def get_init_inputs():
    return []
";

const PRODUCT: &str = r#"
#include <cuda_runtime.h>
__global__ void product_kernel(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n * n) return;
    float sum = 0;
    for (int k = 0; k < n; ++k) sum += x[i / n * n + k] * x[k * n + i % n];
    y[i] = sum;
}
extern "C" void product(const float* x, float* y, int n, cudaStream_t stream) {
    product_kernel<<<(n * n + 255) / 256, 256, 0, stream>>>(x, y, n);
}
"#;

const LIBRARY: &str = r#"
#include <cublas_v2.h>
extern "C" void library_product(const float* x, float* y, int n, cudaStream_t stream) {
    cublasHandle_t handle;
    cublasCreate(&handle);
    cublasSetStream(handle, stream);
    const float one = 1, zero = 0;
    cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, x, n, x, n, &zero, y, n);
    cublasDestroy(handle);
}
"#;

/// Computes on the host what its kernel only seems to compute.
const DECOY: &str = r#"
#include <cuda_runtime.h>
__global__ void look_busy(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 0 * x[i];
}
extern "C" void product(const float* x, float* y, int n, cudaStream_t stream) {
    look_busy<<<n, 64, 0, stream>>>(x, y, n * n);
    for (int r = 0; r < n; ++r)
        for (int c = 0; c < n; ++c) {
            float sum = 0;
            for (int k = 0; k < n; ++k) sum += x[r * n + k] * x[k * n + c];
            y[r * n + c] = sum;
        }
}
"#;

const CALL: &str = "y = torch.empty_like(x)\ncuda_extension.product(x, y, x.shape[0])\nreturn y";
const CALL_LIBRARY: &str =
    "y = torch.empty_like(x)\ncuda_extension.library_product(x, y, x.shape[0])\nreturn y";

/// Has operators stay what they are, whatever the runner does about them.
const UNBANNED: &str = "import warpwright_oracle.runner as r\n\
    r.Runner.lock = lambda self, request: {'operators': 0}\n\
    import gc\n\
    for o in gc.get_objects():\n\
    \x20   if type(o).__name__ == 'Runner':\n\
    \x20       o.forbid = lambda names: len(names)\n";

fn judged(head: &str, forward: &str, kernels: &[(&'static str, &str)]) -> Verdict {
    let imports = if kernels.is_empty() { "" } else { "import cuda_extension\n" };
    let model = format!(
        "import torch\n{imports}{head}\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n{}",
        body(forward)
    );
    let kernels = kernels.iter().map(|(name, text)| (*name, (*text).into())).collect();
    judge_one(Device::Cpu, &Case { task: TASK.into(), model, kernels }, Stage::Verified)
}

fn found(verdict: &Verdict) -> Vec<&str> {
    verdict.integrity.iter().map(|f| f.class.as_str()).collect()
}

#[test]
fn a_candidate_fails_without_its_own_kernels() {
    let verdict = judged("", CALL, &[("product.cu", PRODUCT)]);
    assert!(verdict.verified, "{verdict:#?}");
    let provenance = verdict.provenance.unwrap();
    assert_eq!(provenance.ablation, AblationResult::FailedWithoutKernels);
    assert_eq!((provenance.own_kernels, provenance.library_calls.len()), (1, 0));
}

#[test]
fn library_calls_alone_are_verified_and_labelled() {
    let library = judged("", CALL_LIBRARY, &[("library.cu", LIBRARY)]);
    // An unused kernel hides nothing.
    let kernels = [("library.cu", LIBRARY), ("product.cu", PRODUCT)];
    for (verdict, own) in [(library, 0), (judged("", CALL_LIBRARY, &kernels), 1)] {
        assert!(verdict.verified, "{verdict:#?}");
        assert!(verdict.caveats.iter().any(|c| c.starts_with("library calls only")));
        let provenance = verdict.provenance.unwrap();
        assert_eq!(provenance.ablation, AblationResult::FailedWithoutLibraries);
        assert_eq!((provenance.own_kernels, provenance.library_calls.len()), (own, 1));
    }
}

#[test]
fn kernels_without_effect_are_decoys() {
    let verdict = judged("", CALL, &[("product.cu", DECOY)]);
    assert_eq!(found(&verdict), ["decoy_kernels"], "{verdict:#?}");
    assert!(!verdict.verified && verdict.reward.paper < 0.0);
}

#[test]
fn operators_behind_a_removed_ban_are_detected() {
    let plain = judged("", "return x @ x", &[]);
    assert_eq!(plain.failure.unwrap().class, FailureClass::ForbiddenCall);
    let undone = judged(UNBANNED, "return x @ x", &[]);
    assert_eq!(found(&undone), ["no_kernels"], "{undone:#?}");
    // A kernel that is built, or launched, changes nothing.
    let built = judged(UNBANNED, "return x @ x", &[("product.cu", PRODUCT)]);
    assert_eq!(found(&built), ["decoy_kernels"], "{built:#?}");
    let called = "y = torch.empty_like(x)\ncuda_extension.product(x, y, 64)\nreturn x @ x";
    let launched = judged(UNBANNED, called, &[("product.cu", PRODUCT)]);
    assert_eq!(found(&launched), ["decoy_kernels"], "{launched:#?}");
    let library = judged(UNBANNED, "return x @ x", &[("library.cu", LIBRARY)]);
    assert_eq!(found(&library), ["no_kernels"], "{library:#?}");
}

#[test]
fn a_task_that_only_moves_data_needs_no_kernel() {
    let task = TASK.replace("return x @ x", "return torch.cat([x, x.t()])");
    let model = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        \
                 y = x.new_empty(128, 64)\n        y[:64].copy_(x)\n        y[64:].copy_(x.t())\n        return y\n";
    let case = Case { task, model: model.into(), kernels: Vec::new() };
    let verdict = judge_one(Device::Cpu, &case, Stage::Verified);
    assert!(verdict.verified, "{verdict:#?}");
    assert_eq!(verdict.provenance.unwrap().ablation, AblationResult::NotRun);
}
