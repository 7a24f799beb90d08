//! Objects in two parts do what nvcc's do: the same library calls the same functions of the runtime with
//! the same arguments. The runtime here is a recorder; no GPU is needed.

use std::path::Path;

use crate::bench::{Bench, bench_with_nvcc, built, candidate, sm_90a};

const HEADER: &str = "#pragma once
struct Range { float low, high; };
__device__ __forceinline__ float clamp(float x, Range r) { return fminf(fmaxf(x, r.low), r.high); }
__host__ __device__ inline int blocks(int n, int size) { return (n + size - 1) / size; }
";

const SOURCE: &str = r#"#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include "range.cuh"

constexpr int kThreads = 128;

namespace fast {
template <typename T, int N = 4>
__global__ void __launch_bounds__(256) axpby(const T* __restrict__ x, T* y, T a, int n) {
    __shared__ T tile[N];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x % N] = i < n ? x[i] : T(0);
    __syncthreads();
    if (i < n) y[i] += a * tile[N - 1 - threadIdx.x % N];
}
struct Sum {
    float total;
    __device__ Sum() : total(0) {}
    __device__ void add(float x) { total += __shfl_xor_sync(~0u, x, 1); }
};
}  // namespace fast

__global__ void limit(float* y, Range range, long long n, bool on) {
    extern __shared__ float dynamic[];
    fast::Sum sum;
    for (long long i = threadIdx.x; i < n; i += blockDim.x) {
        sum.add(y[i]);
        if (on) y[i] = clamp(y[i] + sum.total + dynamic[0], range);
    }
}
extern "C" __global__ void nothing() {}

extern "C" int go(const float* x, float* y, float a, int n, cudaStream_t stream) {
    if (n > 0) fast::axpby<float, 8><<<blocks(n, 256), 256, 0, stream>>>(x, y, a, n);
    for (int i = 0; i < 2; ++i)
        fast::axpby<__half><<<dim3(2, i + 1), dim3(kThreads)>>>((const __half*)x, (__half*)y,
                                                              __float2half(a), n);
    Range range = {-1.f, a};
    limit<<<1, 32, kThreads * sizeof(float),
            stream>>>(y, range, 1ll << 40, n > 3);
    nothing<<<7, 1>>>();
    return cudaGetLastError();
}
"#;

/// Prints the arguments of the runtime's functions.
const RECORDER: &str = r#"
#include <cstdio>
#include <cstring>
struct dim3 { unsigned x, y, z; };
static const void* functions[64]; static const char* names[64]; static int known;
static dim3 grid, block; static size_t bytes; static void* stream;
extern "C" {
static void* handle[4];
void** __cudaRegisterFatBinary(void* wrapper) {
    auto words = (unsigned*)wrapper; auto data = *(unsigned**)((char*)wrapper + 8);
    printf("fat binary %x %u holds %x\n", words[0], words[1], data[0]);
    return handle;
}
void __cudaRegisterFatBinaryEnd(void** h) { printf("end %d\n", h == handle); }
void __cudaUnregisterFatBinary(void** h) { printf("gone %d\n", h == handle); fflush(stdout); }
void __cudaRegisterFunction(void** h, const char* function, char*, const char* name, int limit, void*, void*, void*,
                            void*, int*) {
    functions[known] = function; names[known++] = strdup(name);
    fprintf(stderr, "kernel %s %d %d\n", name, limit, h == handle);
}
unsigned __cudaPushCallConfiguration(dim3 g, dim3 b, size_t n, void* s) {
    grid = g; block = b; bytes = n; stream = s; return 0;
}
int __cudaPopCallConfiguration(dim3* g, dim3* b, size_t* n, void** s) {
    *g = grid; *b = block; *n = bytes; *s = stream; return 0;
}
int __cudaGetKernel(const void** kernel, const void* function) { *kernel = function; return 0; }
int __cudaLaunchKernel(const void* function, dim3 g, dim3 b, void** arguments, size_t n, void* s) {
    const char* name = "unknown";
    for (int i = 0; i < known; ++i) if (functions[i] == function) name = names[i];
    printf("%s <%u %u %u, %u %u %u, %zu, %p>", name, g.x, g.y, g.z, b.x, b.y, b.z, n, s);
    static const int half[] = {8, 8, 2, 4}, whole[] = {8, 8, 4, 4}, limit[] = {8, 8, 8, 1};
    const int* sizes = strstr(name, "half") ? half : strstr(name, "axpby") ? whole : limit;
    for (int i = 0; i < (strcmp(name, "nothing") ? 4 : 0); ++i) {
        unsigned long long value = 0;
        memcpy(&value, arguments[i], sizes[i]);
        printf(" %llx", value);
    }
    printf("\n");
    return 0;
}
int cudaLaunchKernel(const void* function, dim3 g, dim3 b, void** arguments, size_t n, void* s) {
    return __cudaLaunchKernel(function, g, b, arguments, n, s);
}
int cudaGetLastError() { return 0; }
}
"#;

const DRIVER: &str = r#"
#include <dlfcn.h>
#include <cstdio>
int main(int, char** given) {
    void* library = dlopen(given[1], RTLD_NOW);
    if (!library) { puts(dlerror()); return 1; }
    auto go = (int (*)(const void*, void*, float, int, void*))dlsym(library, "go");
    printf("%d\n", go((void*)0x1000, (void*)0x2000, 2.5f, 1000, (void*)0x70));
    dlclose(library);
}
"#;

#[expect(clippy::disallowed_types, reason = "the test starts its own programs")]
fn run(command: &mut std::process::Command) -> String {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stderr), text(&output.stdout));
    text(&output.stdout)
}

/// The calls of a candidate's `go`, and the library.
#[expect(clippy::disallowed_types, reason = "the test starts its own programs")]
fn calls(bench: &Bench, source: &str) -> (String, Vec<u8>) {
    let files = [("kernels/a.cu", source), ("kernels/range.cuh", HEADER)];
    let artifact = built(bench.builder.build(&candidate(&files), &sm_90a()).unwrap());
    assert_eq!(artifact.kernels.len(), 4, "{:?}", artifact.kernels);
    let library = artifact.dir.join("libkernels.so");
    let bytes = fs_err::read(&library).unwrap();
    let folder = bench.folder.path();
    let soname = bench.builder.toolchain().nvcc.as_ref().unwrap().cudart.clone().unwrap();
    let recorder = folder.join(Path::new(soname.file_name().unwrap()));
    let driver = folder.join("driver");
    if !driver.exists() {
        for (text, arguments, to) in
            [(RECORDER, &["-shared", "-fPIC"][..], &recorder), (DRIVER, &[][..], &driver)]
        {
            let source = to.with_extension("cpp");
            fs_err::write(&source, text).unwrap();
            run(std::process::Command::new("g++").args(arguments).arg(source).arg("-o").arg(to));
        }
    }
    let said = run(std::process::Command::new(driver).arg(library).env("LD_LIBRARY_PATH", folder));
    (said, bytes)
}

#[test]
fn split_compilation_launches_as_nvcc_does() {
    let Some(bench) = bench_with_nvcc() else { return };
    let (parts, library) = calls(&bench, SOURCE);
    // What asks for the compiler is left to nvcc.
    let (whole, other) = calls(&bench, &format!("{SOURCE}#ifdef __CUDACC__\n#endif\n"));
    let marked = |bytes: &[u8]| bytes.windows(17).any(|part| part == b"warpwright_fatbin");
    assert!(marked(&library) && !marked(&other));
    assert_eq!(parts, whole);
    assert_eq!(whole.lines().filter(|line| line.contains('<')).count(), 5, "{whole}");
    assert!(whole.contains("limit"), "{whole}");
    assert!(whole.contains(" 1000 2000 40200000 3e8\n"), "positive control: {whole}");
}

/// Kernels with internal linkage have no name under which they could be registered.
#[test]
fn kernels_with_internal_linkage_are_left_to_nvcc() {
    let Some(bench) = bench_with_nvcc() else { return };
    for source in [
        SOURCE.replace("__global__ void limit", "static __global__ void limit"),
        SOURCE
            .replace("namespace fast {\ntemplate", "namespace fast { namespace {\ntemplate")
            .replace("struct Sum", "}\nstruct Sum"),
    ] {
        let (said, library) = calls(&bench, &source);
        assert!(!library.windows(17).any(|part| part == b"warpwright_fatbin"));
        assert_eq!(said.lines().filter(|line| line.contains('<')).count(), 5, "{said}");
    }
}
