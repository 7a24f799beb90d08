//! Spellings that models and people use, each built and run. Long: torch's headers are compiled
//! for most of them.

use warpwright_build::{Request, Target};
use warpwright_record::candidate::Candidate;

use crate::bench::{Bench, bench, bench_with_nvcc, built, candidate, sm_90a};

fn single_file(text: &str) -> Candidate {
    let file = ("model_new.py".to_owned(), text.as_bytes().to_vec());
    Candidate::from_files(std::iter::once(file).collect())
}

/// Builds a single-file candidate for the host and runs `check` after it in one namespace.
fn run_inline(bench: &Bench, text: &str, reference: Option<&str>, check: &str) {
    let request = Request { reference: reference.map(str::to_owned), ..Request::default() };
    let outcome = bench.builder.build_with(&single_file(text), &Target::Cpu, &request).unwrap();
    let artifact = built(outcome);
    assert!(artifact.inline, "{:?}", artifact.warnings);
    let script = format!(
        "import torch\nfrom warpwright_oracle import harvest\nharvest.install(ARTIFACT)\n{text}\n{check}"
    );
    bench.python(&artifact, &script);
}

const DISPATCH: &str = r#"
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r'''
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime.h>
#include <vector>

template <typename scalar_t>
__global__ void relu_scale(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, scalar_t s, int64_t n) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)blockDim.x * gridDim.x)
        y[i] = x[i] > scalar_t(0) ? x[i] * s : scalar_t(0);
}

template <int BLOCK>
__global__ void row_sum(const float* x, float* out, int cols) {
    __shared__ float part[BLOCK];
    float sum = 0.f;
    for (int c = threadIdx.x; c < cols; c += BLOCK) sum += x[blockIdx.x * cols + c];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int k = BLOCK / 2; k > 0; k >>= 1) {
        if (threadIdx.x < k) part[threadIdx.x] += part[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}

torch::Tensor relu_scale_cuda(torch::Tensor x, double s) {
    TORCH_CHECK(x.is_cuda(), "x must be a CUDA tensor");
    x = x.contiguous();
    auto y = torch::empty_like(x);
    const int threads = 256;
    const int blocks = std::min<int64_t>((x.numel() + threads - 1) / threads, 1024);
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "relu_scale_cuda", ([&] {
        relu_scale<scalar_t><<<blocks, threads, 0, at::cuda::getCurrentCUDAStream()>>>(
            x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), (scalar_t)s, x.numel());
    }));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}

std::vector<torch::Tensor> sums(torch::Tensor x) {
    auto options = torch::TensorOptions().dtype(torch::kFloat32).device(x.device());
    auto out = torch::empty({x.size(0)}, options);
    dim3 grid(x.size(0)), block(128);
    row_sum<128><<<grid, block>>>(x.data_ptr<float>(), out.data_ptr<float>(), (int)x.size(1));
    cudaError_t err = cudaGetLastError();
    if (err != cudaSuccess) { printf("CUDA error: %s\n", cudaGetErrorString(err)); }
    return {out, x};
}
'''
header = r'''
#include <torch/extension.h>
#include <vector>
torch::Tensor relu_scale_cuda(torch::Tensor x, double s);
std::vector<torch::Tensor> sums(torch::Tensor x);
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("relu_scale", &relu_scale_cuda, "relu and scale (CUDA)", py::arg("x"), py::arg("s") = 2.0);
    m.def("sums", &sums);
}
'''
module = load_inline(name="dispatch-example", cpp_sources=[header], cuda_sources=[source], verbose=False)
"#;

#[test]
fn long_dispatch_macros_and_own_module_definitions_build() {
    run_inline(
        &bench(),
        DISPATCH,
        None,
        "x = torch.randn(33, 257)\n\
         torch.testing.assert_close(module.relu_scale(x), x.relu() * 2)\n\
         torch.testing.assert_close(module.relu_scale(x.double().t(), s=0.5), x.double().t().relu() / 2)\n\
         torch.testing.assert_close(module.sums(x)[0], x.sum(1))\n",
    );
}

const IN_INIT: &str = r#"
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
__global__ void linear_kernel(const float* x, const float* w, float* y, int m, int n, int k) {
    int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= m || col >= n) return;
    float sum = 0;
    for (int i = 0; i < k; ++i) sum += x[row * k + i] * w[col * k + i];
    y[row * n + col] = sum;
}

torch::Tensor linear(torch::Tensor x, torch::Tensor w) {
    int m = x.size(0), k = x.size(1), n = w.size(0);
    auto y = torch::zeros({m, n}, x.options());
    dim3 threads(16, 16);
    dim3 blocks((n + 15) / 16, (m + 15) / 16);
    linear_kernel<<<blocks, threads>>>(x.data_ptr<float>(), w.data_ptr<float>(), y.data_ptr<float>(), m, n, k);
    return y;
}
"""


class ModelNew(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=False)
        self.code = load_inline(name="lin", cpp_sources="torch::Tensor linear(torch::Tensor x, torch::Tensor w);",
                                cuda_sources=source, functions=["linear"])

    def forward(self, x):
        return self.code.linear(x, self.linear.weight)
"#;

#[test]
fn long_inline_sources_in_the_constructor_build() {
    run_inline(
        &bench(),
        IN_INIT,
        Some("def get_init_inputs():\n    return [37, 53]\n"),
        "model = ModelNew(37, 53)\nx = torch.randn(19, 37)\n\
         with torch.no_grad():\n    torch.testing.assert_close(model(x), model.linear(x))\n",
    );
}

const CUBLAS: &str = r#"
#include <torch/types.h>
#include <torch/csrc/utils/pybind.h>
#include <ATen/cuda/CUDAContext.h>
#include <cublas_v2.h>
#include "../binding_registry.h"

extern "C" void bias_launcher(float* y, const float* b, int rows, int cols, cudaStream_t stream);

static torch::Tensor linear(torch::Tensor x, torch::Tensor w, torch::Tensor b) {
    const int m = x.size(0), k = x.size(1), n = w.size(0);
    auto y = torch::empty({m, n}, x.options());
    const float one = 1.f, zero = 0.f;
    cublasHandle_t handle = at::cuda::getCurrentCUDABlasHandle();
    cublasSetStream(handle, at::cuda::getCurrentCUDAStream());
    auto status = cublasSgemm(handle, CUBLAS_OP_T, CUBLAS_OP_N, n, m, k, &one, w.data_ptr<float>(), k,
                              x.data_ptr<float>(), k, &zero, y.data_ptr<float>(), n);
    TORCH_CHECK(status == CUBLAS_STATUS_SUCCESS, "cublas");
    bias_launcher(y.data_ptr<float>(), b.data_ptr<float>(), m, n, at::cuda::getCurrentCUDAStream());
    return y;
}
static void bind(pybind11::module& m) { m.def("linear", &linear); }
REGISTER_BINDING(linear, bind);
"#;
const BIAS: &str = r#"
#include <cuda_runtime.h>
__global__ void bias_kernel(float* y, const float* b, int rows, int cols) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < rows * cols) y[i] += b[i % cols];
}
extern "C" void bias_launcher(float* y, const float* b, int rows, int cols, cudaStream_t stream) {
    bias_kernel<<<(rows * cols + 127) / 128, 128, 0, stream>>>(y, b, rows, cols);
}
"#;

#[test]
fn long_cublas_call_through_torchs_handle_builds() {
    let bench = bench();
    let files = [("kernels/linear_binding.cpp", CUBLAS), ("kernels/bias.cu", BIAS)];
    let artifact = built(bench.builder.build(&candidate(&files), &Target::Cpu).unwrap());
    bench.python(
        &artifact,
        "import torch\nfrom pathlib import Path\nfrom warpwright_oracle import extension\n\
         extension.install(Path(ARTIFACT), 'cpu')\nimport cuda_extension\n\
         x, w, b = torch.randn(5, 7), torch.randn(11, 7), torch.randn(11)\n\
         y = cuda_extension.linear(x, w, b)\n\
         torch.testing.assert_close(y, torch.nn.functional.linear(x, w, b))\n\
         cuda_extension.bias_launcher(y, b, 5, 11)\n\
         torch.testing.assert_close(y, torch.nn.functional.linear(x, w, 2 * b))\n",
    );
}

#[test]
fn long_gpu_binding_loads_without_a_gpu() {
    let Some(bench) = bench_with_nvcc() else { return };
    let files = [("kernels/linear_binding.cpp", CUBLAS), ("kernels/bias.cu", BIAS)];
    let artifact = built(bench.builder.build(&candidate(&files), &sm_90a()).unwrap());
    assert!(artifact.has_extension);
    assert_eq!(artifact.launchers.len(), 1);
    assert_eq!(artifact.kernels[0].name, "bias_kernel");
    // It can be loaded without a GPU: what it needs is there, and it registers its functions.
    let printed = bench.python(
        &artifact,
        "import torch\nfrom warpwright_oracle import extension\nfrom pathlib import Path\n\
         module = extension.load_compiled('cuda_extension', Path(ARTIFACT) / 'cuda_extension.so')\n\
         print(module.linear.__name__)\n",
    );
    assert_eq!(printed.trim(), "linear");
}

#[test]
fn long_inline_sources_build_for_a_gpu() {
    let Some(bench) = bench_with_nvcc() else { return };
    let artifact = built(bench.builder.build(&single_file(DISPATCH), &sm_90a()).unwrap());
    assert!(artifact.inline);
    assert!(
        artifact.kernels.iter().any(|k| k.name == "relu_scale<float>"),
        "{:?}",
        artifact.kernels
    );
}
