//! The judge on a GPU, for real. Run by `make test-gpu` on a machine that has one.
#![expect(clippy::unwrap_used, reason = "tests")]

mod support;

use support::{Case, body, judge_all};
use warpwright_judge::Device;
use warpwright_record::candidate::Candidate;
use warpwright_record::verdict::{FailureClass, Stage, Verdict};

const GPU: Device = Device::Cuda(0);

const TASK: &str = r"
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(size))

    def forward(self, x):
        return torch.relu(x + self.bias)

def get_inputs():
    return [torch.randn(8192, 4096)]

def get_init_inputs():
    return [4096]
";

const KERNEL: &str = r#"
#include <cuda_runtime.h>
__global__ void bias_relu(const float4* x, const float4* bias, float4* out, int n, int columns) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 v = x[i], b = bias[i % columns];
    out[i] = make_float4(fmaxf(v.x + b.x, 0.f), fmaxf(v.y + b.y, 0.f), fmaxf(v.z + b.z, 0.f),
                         fmaxf(v.w + b.w, 0.f));
}
__global__ void wild(float* out) { out[(1ll << 40) + threadIdx.x] = 1.f; }
__global__ void forever(volatile int* stop) { while (*stop != 12345) {} }
__global__ void slowly(const float4* x, const float4* bias, float4* out, int n, int columns) {
    long long start = clock64();
    while (clock64() - start < 2000000000ll) {}
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (; i < n; i += gridDim.x * blockDim.x) {
        float4 v = x[i], b = bias[i % columns];
        out[i] = make_float4(fmaxf(v.x + b.x, 0.f), fmaxf(v.y + b.y, 0.f), fmaxf(v.z + b.z, 0.f),
                             fmaxf(v.w + b.w, 0.f));
    }
}
extern "C" void launch(const float* x, const float* bias, float* out, int n, int columns, cudaStream_t s) {
    bias_relu<<<(n / 4 + 255) / 256, 256, 0, s>>>((const float4*)x, (const float4*)bias, (float4*)out, n / 4,
                                                  columns / 4);
}
extern "C" int launch_wild(float* out, cudaStream_t s) {
    wild<<<1, 32, 0, s>>>(out);
    return cudaStreamSynchronize(s);
}
extern "C" void launch_wild_unchecked(float* out, cudaStream_t s) { wild<<<1, 32, 0, s>>>(out); }
extern "C" int launch_too_large(float* out, cudaStream_t s) {
    wild<<<1, 4096, 0, s>>>(out);
    return cudaGetLastError();
}
extern "C" void launch_forever(float* out, cudaStream_t s) { forever<<<1, 1, 0, s>>>((int*)out); }
"#;

fn candidate(forward: &str) -> Candidate {
    let model = format!(
        "import torch\nimport torch.nn as nn\nimport cuda_extension\n\n\
         class ModelNew(nn.Module):\n\
         \x20   def __init__(self, size):\n\
         \x20       super().__init__()\n\
         \x20       self.bias = nn.Parameter(torch.randn(size))\n\n\
         \x20   def forward(self, x):\n{}\n",
        body(forward)
    );
    Case { task: TASK.into(), model, kernels: vec![("k.cu", KERNEL.into())] }.candidate()
}

const HONEST: &str = "out = torch.empty_like(x)\n\
    cuda_extension.launch(x, self.bias, out, x.numel(), x.shape[1])\n\
    return out";

fn honest_still_works(verdicts: &[Verdict]) {
    let last = verdicts.last().unwrap();
    assert!(last.verified, "the GPU is not usable afterwards: {last:#?}");
}

#[test]
fn gpu_an_honest_kernel_is_verified_and_measured() {
    let verdict = judge_all(GPU, TASK, [candidate(HONEST)], Stage::Measured).remove(0);
    eprintln!("{:#?}\n{:#?}\n{:#?}", verdict.times_ms, verdict.speedup, verdict.seconds);
    eprintln!(
        "floor {:?} checks {:#?} kernels {:?}",
        verdict.floor_ms, verdict.checks, verdict.kernels
    );
    assert!(verdict.verified, "{verdict:#?}");
    assert!(verdict.checks.iter().any(|c| c.name == "timed call"));
    assert!(verdict.speedup.reduce_overhead.is_some());
    let time = verdict.times_ms.candidate.unwrap();
    assert!(time.value > 0.5 * verdict.floor_ms.unwrap(), "{time:?}");
    assert!(!verdict.kernels.is_empty());
}

#[test]
fn gpu_every_way_of_failing_has_its_class_and_harms_nobody_else() {
    let launch =
        |name: &str| format!("out = torch.empty_like(x)\ncuda_extension.{name}(out)\nreturn out");
    let cases = [
        ("return torch.relu(x + self.bias)".to_owned(), FailureClass::ForbiddenCall),
        ("return torch.empty_like(x)".to_owned(), FailureClass::NonFinite),
        (launch("launch_wild"), FailureClass::IllegalAddress),
        (launch("launch_wild_unchecked"), FailureClass::IllegalAddress),
        (launch("launch_too_large"), FailureClass::Launch),
        (launch("launch_forever"), FailureClass::Hang),
        (
            "keep = []\nwhile True: keep.append(torch.empty_like(x))".to_owned(),
            FailureClass::OutOfMemory,
        ),
        ("return torch.empty(4096, 8192, device=x.device)".to_owned(), FailureClass::Shape),
        ("return torch.empty(8192, 4096)".to_owned(), FailureClass::Shape),
    ];
    let mut candidates: Vec<Candidate> = Vec::new();
    for (forward, _) in &cases {
        candidates.push(candidate(forward));
    }
    candidates.push(candidate(HONEST));
    let verdicts = judge_all(GPU, TASK, candidates, Stage::Verified);
    honest_still_works(&verdicts);
    for ((forward, class), verdict) in cases.iter().zip(&verdicts) {
        let failure = verdict.failure.as_ref().unwrap_or_else(|| panic!("{forward}: {verdict:#?}"));
        assert_eq!(failure.class, *class, "{forward}: {}", failure.message);
    }
}

/// The runner says "done" while a kernel on a stream that nobody waits for is still writing.
#[test]
fn gpu_results_that_arrive_after_the_clock_are_found() {
    let late = KERNEL.to_owned()
        + r#"
extern "C" void launch_late(const float* x, const float* bias, float* out, int n, int columns, cudaStream_t s) {
    static cudaStream_t other = nullptr;
    if (!other) cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
    slowly<<<128, 256, 0, other>>>((const float4*)x, (const float4*)bias, (float4*)out, n / 4, columns / 4);
}
"#;
    let forward = HONEST.replace("launch(", "launch_late(");
    // torch.cuda.synchronize waits for every stream; a cheat replaces it.
    let model = "import torch\ntorch.cuda.synchronize = lambda *_: None\n".to_owned();
    let base = candidate(&forward);
    let mut files = base.files().clone();
    let text = String::from_utf8(files["model_new.py"].clone()).unwrap();
    files.insert("model_new.py".into(), (model + &text).into_bytes());
    files.insert("kernels/k.cu".into(), late.into_bytes());
    let cheat = Candidate::from_files(files);
    let verdicts = judge_all(GPU, TASK, [cheat, candidate(HONEST)], Stage::Verified);
    honest_still_works(&verdicts);
    // Found as a late write, or, when the kernel is later still, as results that are not there.
    assert!(!verdicts[0].verified, "{:#?}", verdicts[0]);
    let failed = verdicts[0].failure.as_ref().map(|f| f.class);
    let late = verdicts[0].integrity.first().is_some_and(|f| f.class == "late_write");
    assert!(late || failed == Some(FailureClass::NonFinite), "{:#?}", verdicts[0]);
}
