//! Imports of honest candidates pass, and functions that compute for a candidate are refused.

use warpwright_build::{Artifact, Instrument, Request, Target};
use warpwright_record::candidate::Candidate;
use warpwright_record::verdict::FailureClass;

use crate::bench::{Bench, bench, bench_with_nvcc, built, candidate, failed, quick, sm_90a};

const EVERYTHING: &str = include_str!("../honest/everything_binding.cpp");
const RUNTIME: &str = include_str!("../honest/runtime.cu");
const STANDARD: &str = include_str!("../honest/standard.cu");
const SCALE: &str = "#include <cuda_runtime.h>
template <int N> __global__ void scale_kernel(const float* x, float* y, long long n, float a) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i];
}
extern \"C\" int scale(const float* x, float* y, long long n, float a, cudaStream_t stream) {
    scale_kernel<1><<<(unsigned)((n + 255) / 256), 256, 0, stream>>>(x, y, n, a);
    return (int)cudaGetLastError();
}
";

#[test]
fn long_honest_bindings_pass_on_the_host() {
    let bench = bench();
    let files = [("kernels/everything_binding.cpp", EVERYTHING), ("kernels/scale.cu", SCALE)];
    let artifact = built(bench.builder.build(&candidate(&files), &Target::Cpu).unwrap());
    bench.python(
        &artifact,
        "import torch\nfrom pathlib import Path\nfrom warpwright_oracle import extension\n\
         extension.install(Path(ARTIFACT), 'cpu')\nimport cuda_extension as c\n\
         x = torch.randn(4, 6)\n\
         torch.testing.assert_close(c.scaled(x, a=3.0), 3 * x)\n\
         assert len(c.allocated(x, bias=torch.zeros(6))) == 5\n\
         c.moved(x), c.dispatched(x), c.workspace(x)\n\
         assert c.counted([1], {}, (2,), 3, a=4) == 4\n\
         assert c.described(torch.float16, [2, 3], torch.device('cpu'), 1.0, None).shape == (2, 3)\n\
         torch.testing.assert_close(c.Plan(x).run(x), 2 * x)\n",
    );
}

/// Locks, containers, streams, exceptions and clocks.
#[test]
fn launchers_may_use_the_standard_library() {
    let Some(bench) = bench_with_nvcc() else { return };
    let files = [("kernels/standard.cu", STANDARD)];
    let artifact = built(bench.builder.build(&candidate(&files), &Target::Cpu).unwrap());
    bench.python(
        &artifact,
        "import torch\nfrom pathlib import Path\nfrom warpwright_oracle import extension\n\
         extension.install(Path(ARTIFACT), 'cpu')\nimport cuda_extension as c\n\
         y = torch.zeros(1000)\n\
         c.fill_launcher(y, 1000, 2.0)\n\
         assert bool((y == 2).all())\n",
    );
    built(bench.builder.build(&candidate(&files), &sm_90a()).unwrap());
}

#[test]
fn a_binding_needs_no_header_of_torch() {
    let Some(bench) = bench_with_nvcc() else { return };
    let binding = "#include <cuda_runtime.h>
#include <functional>
#include <memory>
#include <regex>
#include <string>
#include \"../binding_registry.h\"
extern \"C\" int scale(const float*, float*, long long, float, cudaStream_t);
static int run(size_t x, size_t y, long long n, float a) {
    return scale((const float*)x, (float*)y, n, a, nullptr);
}
REGISTER_BINDING(scale, [](pybind11::module& m) { m.def(\"run\", &run); });
";
    let files = [("kernels/scale_binding.cpp", binding), ("kernels/scale.cu", SCALE)];
    let artifact = built(bench.builder.build(&candidate(&files), &Target::Cpu).unwrap());
    bench.python(
        &artifact,
        "import torch\nfrom pathlib import Path\nfrom warpwright_oracle import extension\n\
         extension.install(Path(ARTIFACT), 'cpu')\nimport cuda_extension as c\n\
         x, y = torch.randn(8), torch.empty(8)\n\
         assert c.run(x.data_ptr(), y.data_ptr(), 8, 3.0) == 0\n\
         torch.testing.assert_close(y, 3 * x)\n",
    );
    built(bench.builder.build(&candidate(&files), &sm_90a()).unwrap());
}

#[test]
fn long_honest_bindings_pass_for_a_gpu() {
    let Some(bench) = bench_with_nvcc() else { return };
    let files = [("kernels/everything_binding.cpp", EVERYTHING), ("kernels/scale.cu", SCALE)];
    let artifact = built(bench.builder.build(&candidate(&files), &sm_90a()).unwrap());
    assert!(artifact.has_extension && artifact.own_kernels == 1);
}

#[test]
fn launchers_may_use_cuda_runtime_libraries_and_instructions() {
    let Some(bench) = bench_with_nvcc() else { return };
    let artifact =
        built(bench.builder.build(&candidate(&[("kernels/a.cu", RUNTIME)]), &sm_90a()).unwrap());
    assert_eq!(artifact.own_kernels, 2);
    assert_eq!(artifact.library_calls, ["cublasLtMatmul", "cublasSgemm_v2"]);
    assert!(artifact.kernels.iter().all(|k| k.arch == "sm_90a"), "{:?}", artifact.kernels);
    // The instruction is why: without the letter there is none.
    let plain = Target::Cuda { arch: "sm_90".to_owned() };
    let why =
        failed(bench.builder.build(&candidate(&[("kernels/a.cu", RUNTIME)]), &plain).unwrap());
    assert!(why.message.contains("wgmma"), "{}", why.message);
}

#[test]
fn only_tensor_map_functions_of_the_driver_are_allowed() {
    let Some(bench) = bench_with_nvcc() else { return };
    let with = |call: &str| {
        format!(
            "#include <cuda.h>\n{SCALE}\nextern \"C\" int describe(void* p) {{ return {call}; }}\n"
        )
    };
    let lawful = with(
        "(int)cuTensorMapEncodeTiled((CUtensorMap*)p, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 1, p, \
         0, 0, 0, 0, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, \
         CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)",
    );
    built(bench.builder.build(&candidate(&[("kernels/a.cu", &lawful)]), &sm_90a()).unwrap());
}

/// Looks up functions of the driver, in a program of its own: there need be no driver.
const LOOKS_UP: &str = r#"
#include <dlfcn.h>
#include <cstdio>
int main(int, char** given) {
    void* library = dlopen(given[1], RTLD_NOW);
    if (!library) { puts(dlerror()); return 1; }
    auto found = (int (*)(const char*))dlsym(library, "found");
    printf("%d %d %d\n", found("cuTensorMapEncodeTiled"), found("cuModuleLoadData"), found("cuLaunchKernel"));
    return 0;
}
"#;

#[test]
#[expect(clippy::disallowed_types, reason = "the test starts its own programs")]
fn entry_points_are_those_that_may_be_imported() {
    let Some(bench) = bench_with_nvcc() else { return };
    let entry = format!(
        "{SCALE}\nextern \"C\" int found(const char* name) {{
  void* function = nullptr;
  cudaDriverEntryPointQueryResult told;
  int error = cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &told);
  return error ? -1 : function && told == cudaDriverEntryPointSuccess;
}}\n"
    );
    let artifact =
        built(bench.builder.build(&candidate(&[("kernels/a.cu", &entry)]), &sm_90a()).unwrap());
    let library = artifact.dir.join("libkernels.so");
    let folder = bench.folder.path();
    let cudart = bench.builder.toolchain().nvcc.as_ref().unwrap().cudart.clone().unwrap();
    let driver = "extern \"C\" { int cuTensorMapEncodeTiled; int cuTensorMapEncodeIm2col; int cuGetErrorString;
        int cuModuleLoadData; int cuLaunchKernel; }";
    let compile = |text: &str, name: &str, arguments: &[&str]| {
        let source = folder.join(name).with_extension("cpp");
        fs_err::write(&source, text).unwrap();
        let mut command = std::process::Command::new("g++");
        command.args(arguments).arg(source).arg("-o").arg(folder.join(name));
        assert!(command.status().unwrap().success());
    };
    compile(driver, "libcuda.so.1", &["-shared", "-fPIC"]);
    compile(LOOKS_UP, "looks-up", &[]);
    let path = format!("{}:{}", folder.display(), cudart.parent().unwrap().display());
    let output = std::process::Command::new(folder.join("looks-up"))
        .arg(library)
        .env("LD_LIBRARY_PATH", path)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1 0 0\n");
}

#[test]
fn long_operators_behind_torchs_dispatcher_are_refused() {
    let bench = bench();
    let binding = "#include <torch/csrc/utils/pybind.h>
#include <torch/types.h>
#include <ATen/ops/silu_cpu_dispatch.h>
#include <ATen/Parallel.h>
#include \"../binding_registry.h\"
extern \"C\" void sgemm_(char*, char*, int*, int*, int*, float*, float*, int*, float*, int*, float*, float*, int*);
static torch::Tensor f(torch::Tensor x) {
    int n = 1; float a = 1; char t = 'n';
    sgemm_(&t, &t, &n, &n, &n, &a, &a, &n, &a, &n, &a, &a, &n);
    at::set_num_threads(1);
    return at::cpu::silu(x);
}
REGISTER_BINDING(f, [](pybind11::module& m) { m.def(\"f\", &f); });
";
    let files = [("kernels/f_binding.cpp", binding), ("kernels/scale.cu", SCALE)];
    let why = failed(bench.builder.build(&candidate(&files), &quick()).unwrap());
    assert_eq!(why.class, FailureClass::ForbiddenImport);
    let told: Vec<&str> = why.diagnostics.iter().map(|d| d.message.as_str()).collect();
    for expected in [
        "forbidden use of torch: at::cpu::silu",
        "forbidden use of torch: at::set_num_threads",
        "forbidden function: sgemm_",
    ] {
        assert!(told.contains(&expected), "{told:?}");
    }
}

#[test]
fn candidate_cannot_define_launch_functions() {
    let Some(bench) = bench_with_nvcc() else { return };
    let with = |head: &str| format!("{head}\n{SCALE}");
    for (head, target) in [
        ("extern \"C\" int hostcuda_libraries() { return 1; }", quick()),
        ("extern \"C\" int cublasSgemm_v2() { return 0; }", sm_90a()),
    ] {
        let text = with(head);
        let why =
            failed(bench.builder.build(&candidate(&[("kernels/a.cu", &text)]), &target).unwrap());
        assert_eq!(why.class, FailureClass::ForbiddenImport, "{head}");
        assert!(why.message.contains("forbidden definition of"), "{}", why.message);
    }
}

fn without(bench: &Bench, candidate: &Candidate, target: &Target, what: Instrument) -> Artifact {
    let request = Request { instrument: what, ..Request::default() };
    built(bench.builder.build_with(candidate, target, &request).unwrap())
}

/// The results of `scale` and `product` on the host after an ablation.
const PLAY: &str = "import torch\nfrom pathlib import Path\nfrom warpwright_oracle import extension\n\
    extension.install(Path(ARTIFACT), 'cpu')\nimport cuda_extension as c\n\
    x, y, z = torch.ones(8), torch.zeros(8), torch.zeros(4)\n\
    c.product(x, x, z)\nprint(float(z[0]), flush=True)\n\
    c.scale(x, y, 8, 3.0)\nprint(float(y[0]))\n";

#[test]
fn kernels_and_library_calls_are_ablated_on_the_host() {
    let bench = bench();
    let product = "#include <cublas_v2.h>
extern \"C\" void product(const float* x, const float* y, float* z, cudaStream_t s) {
    cublasHandle_t h; cublasCreate(&h); float one = 1, zero = 0;
    cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, x, 2, y, 2, &zero, z, 2);
}
";
    let candidate = candidate(&[("kernels/scale.cu", SCALE), ("kernels/product.cu", product)]);
    let whole = without(&bench, &candidate, &Target::Cpu, Instrument::None);
    assert_eq!((whole.own_kernels, whole.library_calls.len()), (1, 1));
    for (what, expected) in [
        (Instrument::None, "2.0\n3.0\n"),
        (Instrument::EmptyKernels, "2.0\n0.0\n"),
        (Instrument::EmptyLibraries, "0.0\n3.0\n"),
    ] {
        let artifact = without(&bench, &candidate, &Target::Cpu, what);
        assert_eq!(bench.python(&artifact, PLAY), expected, "{what:?}");
        assert_eq!(artifact.dir == whole.dir, what == Instrument::None);
    }
    let trapped = without(&bench, &candidate, &Target::Cpu, Instrument::TrapKernels);
    let script = format!(
        "import os\nif os.fork():\n    print(os.waitstatus_to_exitcode(os.wait()[1]))\nelse:\n    exec({PLAY:?})"
    );
    assert_eq!(bench.python(&trapped, &script), "2.0\n-4\n");
}

#[test]
fn kernels_and_library_calls_are_ablated_for_a_gpu() {
    let Some(bench) = bench_with_nvcc() else { return };
    let text = RUNTIME.replace("__global__ void k(", "KERNEL k(");
    let text = format!("#define KERNEL __global__ void\n{text}");
    let candidate = candidate(&[("kernels/a.cu", &text)]);
    // That a launch is still there would be a finding, see below.
    for (what, products) in [
        (Instrument::EmptyKernels, 2),
        (Instrument::TrapKernels, 2),
        (Instrument::EmptyLibraries, 0),
    ] {
        let artifact = without(&bench, &candidate, &sm_90a(), what);
        assert_eq!((artifact.own_kernels, artifact.library_calls.len()), (2, products), "{what:?}");
    }
}

#[test]
fn versioned_launch_symbol_is_refused() {
    let Some(bench) = bench_with_nvcc() else { return };
    let text = SCALE.replace(
        "extern \"C\" int scale",
        "extern \"C\" int versioned(const void*, dim3, dim3, void**, size_t, cudaStream_t);
asm(\".symver versioned, cudaLaunchKernel@libcudart.so.13\");
extern \"C\" int scale",
    );
    let text = text.replace(
        "scale_kernel<1><<<(unsigned)((n + 255) / 256), 256, 0, stream>>>(x, y, n, a);",
        "void* args[] = {&x, &y, &n, &a};
    versioned((const void*)scale_kernel<1>, dim3((unsigned)((n + 255) / 256)), dim3(256), args, 0, stream);",
    );
    let candidate = candidate(&[("kernels/a.cu", &text)]);
    let request = Request { instrument: Instrument::EmptyKernels, ..Request::default() };
    let why = failed(bench.builder.build_with(&candidate, &sm_90a(), &request).unwrap());
    assert_eq!(why.class, FailureClass::ForbiddenImport, "{}", why.message);
}
