//! Builds for the host, loaded and run together with torch.

use warpwright_build::{KernelsAlone, Request, Resources, Target};
use warpwright_record::verdict::FailureClass;

use crate::alone::{recorded, run_alone};
use crate::bench::{
    bench, bench_with_nvcc, bench_with_torch_headers, built, candidate, failed, unique,
};

const GELU: &str = r#"#include <cuda_runtime.h>
#include <math.h>
#include "tools/gelu.cuh"

__global__ void gelu_kernel(const float* __restrict__ x, float* __restrict__ y, float scale, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = gelu_of(x[i]) * scale;
}

extern "C" int gelu(const float* x, float* y, float scale, int n, cudaStream_t stream) {
    gelu_kernel<<<(n + 255) / 256, 256, 0, stream>>>(x, y, scale, n);
    return (int)cudaGetLastError();
}
"#;
const HEADER: &str = "#pragma once\n__device__ __forceinline__ float gelu_of(float x) {\n    \
                      return 0.5f * x * (1.0f + erff(x * 0.70710678f));\n}\n";

/// The paper's binding file with its own spellings.
const BINDING: &str = r#"#include <torch/types.h>
#include <torch/csrc/utils/pybind.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/cuda/CUDAGuard.h>
#include <ATen/cuda/CUDAContext.h>
#include "../binding_registry.h"

#define CHECK_CUDA(x) TORCH_CHECK(x.is_cuda(), #x " must be a CUDA tensor")

extern "C" int gelu(const float* x, float* y, float scale, int n, cudaStream_t stream);

static torch::Tensor gelu_forward(torch::Tensor x, double scale) {
    CHECK_CUDA(x);
    TORCH_CHECK(x.device().type() == torch::kCUDA, "x must be on CUDA");
    TORCH_CHECK(x.is_contiguous() && x.dtype() == torch::kFloat32, "x must be contiguous float32");
    const at::cuda::OptionalCUDAGuard guard(device_of(x));
    auto y = torch::empty(x.sizes(), torch::TensorOptions().dtype(torch::kFloat32).device(torch::kCUDA));
    cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
    C10_CUDA_CHECK((cudaError_t)gelu(x.data_ptr<float>(), y.data_ptr<float>(), (float)scale, (int)x.numel(), stream));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    TORCH_CHECK(at::cuda::getCurrentDeviceProperties()->multiProcessorCount > 0);
    return y;
}

static void register_gelu(pybind11::module& m) {
    m.def("gelu_forward", &gelu_forward, py::arg("x"), py::arg("scale") = 1.0);
}

REGISTER_BINDING(gelu, register_gelu);
"#;

/// Whether a branch is compiled is not always known in advance; the library's symbols decide.
#[test]
fn uncompiled_launchers_are_omitted() {
    let bench = bench();
    let twice = |condition: &str| {
        format!(
            "#include \"ops.def\"\n#if {condition}\nextern \"C\" void absent(float* x, Config c) {{}}\n#endif\n\
             #if __WCHAR_WIDTH__ == 7\nextern \"C\" void odd(float* x, int n) {{}}\n#endif\nMAKE(double_it)\n"
        )
    };
    let list = "#define MAKE(name) __global__ void name##_kernel(float* x) { x[threadIdx.x] *= 2; } \
                extern \"C\" void name(float* x, short n) { name##_kernel<<<1, n>>>(x); }\n";
    let files = |text: &str| candidate(&[("kernels/a.cu", text), ("kernels/ops.def", list)]);
    let artifact = built(bench.builder.build(&files(&twice("0")), &Target::Cpu).unwrap());
    let names: Vec<&str> = artifact.launchers.iter().map(|l| l.name.as_str()).collect();
    assert_eq!(names, ["double_it"]);
    assert!(artifact.warnings.iter().any(|w| w.message.contains("odd was not compiled")));
    let again = built(bench.builder.build(&files(&twice("0")), &Target::Cpu).unwrap());
    assert_eq!((again.cached, again.launchers), (true, artifact.launchers));
    let text = twice("0").replace("MAKE(double_it)", "");
    let why = failed(bench.builder.build(&files(&text), &Target::Cpu).unwrap());
    assert!(why.message.contains("odd was not compiled"), "{}", why.message);
}

#[test]
fn launcher_results_match_torch() {
    let bench = bench();
    let files = [("kernels/gelu.cu", GELU), ("kernels/tools/gelu.cuh", HEADER)];
    let artifact = built(bench.builder.build(&candidate(&files), &Target::Cpu).unwrap());
    assert!(artifact.kernels.is_empty(), "nobody asked");
    let printed = bench.python(
        &artifact,
        r#"
import torch
from pathlib import Path
from warpwright_oracle import extension
extension.install(Path(ARTIFACT), "cpu")
import cuda_extension
x = torch.randn(1003)
y = torch.empty_like(x)
cuda_extension.gelu(x, y, 2.0, x.numel())
torch.testing.assert_close(y, 2 * torch.nn.functional.gelu(x))
try:
    cuda_extension.gelu(x.double(), y, 2.0, x.numel())
except TypeError as error:
    print(error)
"#,
    );
    assert!(printed.contains("dtype torch.float32"), "{printed}");
}

#[test]
fn nvcc_reports_resources_of_a_host_build() {
    let Some(bench) = bench_with_nvcc() else { return };
    let files = [("kernels/gelu.cu", GELU), ("kernels/tools/gelu.cuh", HEADER)];
    let resources = Resources::Report { arch: "sm_90".to_owned() };
    let request = Request { resources, ..Request::default() };
    let candidate = candidate(&files);
    let artifact = built(bench.builder.build_with(&candidate, &Target::Cpu, &request).unwrap());
    assert_eq!(artifact.kernels[0].name, "gelu_kernel");
    assert!(artifact.kernels[0].registers > 0);

    // Inline PTX of an unknown kind: the host refuses it by name, before anything is compiled.
    let bad = GELU.replace("if (i < n) y", "asm volatile(\"frob;\");\n    if (i < n) y");
    let files = [("kernels/gelu.cu", bad.as_str()), ("kernels/tools/gelu.cuh", HEADER)];
    let why = failed(bench.builder.build(&crate::bench::candidate(&files), &Target::Cpu).unwrap());
    assert_eq!(why.class, FailureClass::Build);
    let first = &why.diagnostics[0];
    assert_eq!(first.file.as_deref(), Some("kernels/gelu.cu"));
    assert_eq!(first.line, Some(7));
    assert!(first.message.contains("asm"), "{}", first.message);
    assert!(first.excerpt.contains("frob"), "{}", first.excerpt);
}

#[test]
fn errors_are_located_in_sources_and_headers() {
    let bench = bench();
    let build = |text: &str, header: &str| {
        let files = [("kernels/gelu.cu", text), ("kernels/tools/gelu.cuh", header)];
        failed(bench.builder.build(&candidate(&files), &Target::Cpu).unwrap())
    };
    let why = build(&GELU.replace("* scale;", "* scales;"), HEADER);
    assert_eq!(why.diagnostics[0].file.as_deref(), Some("kernels/gelu.cu"));
    assert_eq!(why.diagnostics[0].line, Some(7));
    assert!(why.message.contains("scales"), "{}", why.message);

    let why = build(GELU, &HEADER.replace("erff(x", "erff(z"));
    assert_eq!(why.diagnostics[0].file.as_deref(), Some("kernels/tools/gelu.cuh"));
    assert_eq!(why.diagnostics[0].line, Some(3));

    let why = build(
        &GELU.replace("return (int)", "extern int helper(int); return helper(n) + (int)"),
        HEADER,
    );
    assert!(why.message.contains("undefined symbol: helper"), "{}", why.message);
    assert_eq!(why.diagnostics[0].line, Some(12));
}

#[test]
fn binding_with_torch_headers_runs_unmodified() {
    let bench = bench_with_torch_headers();
    let binding = format!("{BINDING}{}", unique());
    let files = [
        ("kernels/gelu.cu", GELU),
        ("kernels/gelu_binding.cpp", &binding),
        ("kernels/tools/gelu.cuh", HEADER),
    ];
    let artifact = built(bench.builder.build(&candidate(&files), &Target::Cpu).unwrap());
    assert!(artifact.has_extension);
    assert!(artifact.launchers.is_empty(), "its binding is what exposes it");
    bench.python(
        &artifact,
        r#"
import torch
from pathlib import Path
from warpwright_oracle import extension
extension.install(Path(ARTIFACT), "cpu")
import cuda_extension
x = torch.randn(17, 59)
torch.testing.assert_close(cuda_extension.gelu_forward(x, scale=3.0), 3 * torch.nn.functional.gelu(x))
try:
    cuda_extension.gelu_forward(x.t())
except RuntimeError as error:
    assert "contiguous" in str(error)
else:
    raise AssertionError("not refused")
"#,
    );
    // The module registers itself when it is loaded, and needs torch; its kernels need neither.
    let module = "import torch\nfrom pathlib import Path\nfrom warpwright_oracle import extension\n\
                  extension.install(Path(ARTIFACT), 'cpu')\nimport cuda_extension\n";
    let call = "cuda_extension.gelu_forward(torch.zeros(17, 59), scale=3.0)";
    let recording = recorded(&bench, &artifact, "cuda_extension.so", (module, call));
    let numbers = run_alone(&bench, &artifact, "cuda_extension.so", &recording);
    assert!((numbers[0] - 3.0 * 0.841_344_7).abs() < 1e-5, "gelu(1) is {}", numbers[0] / 3.0);
    assert_eq!((numbers[1002], numbers[1003]), (numbers[0], 1.0));
    // Only the binding changes: the kernel's object is not made again, and torch operators are found.
    let cheat = binding.replace("    return y;", "    return y + torch::matmul(x, x.t()).sum();");
    let files = [
        ("kernels/gelu.cu", GELU),
        ("kernels/gelu_binding.cpp", &cheat),
        ("kernels/tools/gelu.cuh", HEADER),
    ];
    let why = failed(bench.builder.build(&crate::bench::candidate(&files), &Target::Cpu).unwrap());
    assert_eq!(why.class, FailureClass::ForbiddenImport);
    let named: Vec<_> = why.diagnostics.iter().map(|d| d.message.as_str()).collect();
    for operator in ["add_Tensor", "matmul", "sum"] {
        assert!(
            named.contains(&format!("forbidden torch operator: {operator}").as_str()),
            "{named:?}"
        );
    }
}

const INLINE: &str = r#"
import torch
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void add_kernel(const float* a, const float* b, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] + b[i];
}

torch::Tensor add_cuda(torch::Tensor a, torch::Tensor b) {
    auto out = torch::zeros_like(a);
    int n = a.numel();
    add_kernel<<<(n + 255) / 256, 256>>>(a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), n);
    return out;
}
"""
cpp_source = "torch::Tensor add_cuda(torch::Tensor a, torch::Tensor b);"

elementwise_add = load_inline(
    name="elementwise_add", cpp_sources=cpp_source, cuda_sources=cuda_source, functions=["add_cuda"],
    verbose=True, extra_cflags=["-O3"], extra_cuda_cflags=["--use_fast_math"],
)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return elementwise_add.add_cuda(a, b)
"#;

#[test]
fn inline_sources_are_harvested_built_and_reused() {
    let bench = bench_with_torch_headers();
    let model = INLINE.replacen("__global__", &format!("{}__global__", unique()), 1);
    let files = std::iter::once(("model_new.py".to_owned(), model.clone().into_bytes()));
    let candidate = warpwright_record::candidate::Candidate::from_files(files.collect());
    let artifact = built(bench.builder.build(&candidate, &Target::Cpu).unwrap());
    assert!(artifact.inline && !artifact.has_extension);
    let alone: Vec<_> = artifact.kernels_alone.values().collect();
    assert!(matches!(alone[..], [KernelsAlone::File(_)]), "{alone:?}");
    assert!(artifact.warnings[0].message.contains("--use_fast_math is ignored"));
    let script = format!(
        r#"
import torch
from warpwright_oracle import harvest
harvest.install(ARTIFACT)
scope = {{}}
exec(compile({model:?}, "model_new.py", "exec"), scope)
a, b = torch.randn(3, 700), torch.randn(3, 700)
torch.testing.assert_close(scope["ModelNew"]()(a, b), a + b)
try:
    scope["load_inline"](name="other", cpp_sources="int x;", functions=[])
except harvest.HarvestError as error:
    print(error)
"#
    );
    assert!(bench.python(&artifact, &script).contains("were not seen"));
    assert!(built(bench.builder.build(&candidate, &Target::Cpu).unwrap()).cached);
}
