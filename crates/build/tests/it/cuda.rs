//! Builds for a GPU, on any machine that has `nvcc`: nothing is launched.

use warpwright_build::{ParamKind, Returns};
use warpwright_record::verdict::{FailureClass, Severity};

use crate::bench::{bench_with_nvcc, built, candidate, failed, sm_90a};

const AXPBY: &str = r#"#include <cuda_runtime.h>

namespace fast {
template <typename T, int N>
__global__ void axpby(const T* __restrict__ x, T* y, T a, int n) {
    __shared__ T tile[N];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? x[i] : T(0);
    __syncthreads();
    if (i < n) y[i] += a * tile[N - 1 - threadIdx.x];
}
}  // namespace fast

extern "C" int axpby(const float* x, float* y, float a, int n, cudaStream_t stream) {
    fast::axpby<float, 256><<<(n + 255) / 256, 256, 0, stream>>>(x, y, a, n);
    return cudaGetLastError();
}
"#;

#[test]
fn launcher_is_built_with_its_signature_and_resources() {
    let Some(bench) = bench_with_nvcc() else { return };
    let artifact =
        built(bench.builder.build(&candidate(&[("kernels/a.cu", AXPBY)]), &sm_90a()).unwrap());
    let launcher = &artifact.launchers[0];
    assert_eq!(launcher.name, "axpby");
    assert_eq!((launcher.returns, launcher.has_stream), (Returns::Int, true));
    assert_eq!(launcher.params.len(), 4);
    assert_eq!(launcher.params[0].kind, ParamKind::Pointer);
    let kernel = &artifact.kernels[0];
    assert_eq!((kernel.name.as_str(), kernel.arch.as_str()), ("fast::axpby<float, 256>", "sm_90a"));
    assert!(kernel.registers > 0);
    assert_eq!(kernel.shared_bytes, 1024);
    assert!(artifact.dir.join("libkernels.so").is_file());
    assert!(!artifact.has_extension && !artifact.inline && !artifact.cached);
}

/// The hashes of the fat binaries in a library, by their headers.
fn fat_binaries(library: &[u8]) -> Vec<String> {
    const MAGIC: [u8; 8] = [0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0];
    let at = |start: usize| {
        let follows = library[start + 8..start + 16].try_into().unwrap();
        let end = start + 16 + usize::try_from(u64::from_le_bytes(follows)).unwrap();
        blake3::hash(&library[start..end]).to_hex().to_string()
    };
    let starts = (0..library.len() - 16).filter(|start| library[*start..].starts_with(&MAGIC));
    starts.map(at).collect()
}

#[test]
fn artifact_lists_the_device_code_of_the_compiler() {
    let Some(bench) = bench_with_nvcc() else { return };
    // nvcc compiles a file as a whole where the host's compiler alone cannot.
    let whole = format!("__device__ int counter;\n{AXPBY}");
    let whole = whole.replace("return cuda", "cudaMemcpyToSymbol(counter, &n, 4); return cuda");
    for text in [AXPBY, &whole] {
        let files = candidate(&[("kernels/a.v2.cu", text)]);
        let artifact = built(bench.builder.build(&files, &sm_90a()).unwrap());
        let library = fs_err::read(artifact.dir.join("libkernels.so")).unwrap();
        assert_eq!(artifact.device_images.len(), 1);
        assert_eq!(artifact.device_images, fat_binaries(&library));
        let again = built(bench.builder.build(&files, &sm_90a()).unwrap());
        assert!(again.cached && again.device_images == artifact.device_images);
    }
}

#[test]
fn syntax_error_has_its_line_and_column() {
    let Some(bench) = bench_with_nvcc() else { return };
    let text = AXPBY.replace("float a, int n, cuda", "float a int n, cuda");
    let why =
        failed(bench.builder.build(&candidate(&[("kernels/a.cu", &text)]), &sm_90a()).unwrap());
    assert_eq!(why.class, FailureClass::Build);
    let first = &why.diagnostics[0];
    assert_eq!(first.file.as_deref(), Some("kernels/a.cu"));
    assert_eq!((first.line, first.column), (Some(14), Some(56)));
    assert!(first.excerpt.contains("   14 | extern \"C\""), "{}", first.excerpt);
    assert!(!why.raw_tail.contains(&bench.folder.path().display().to_string()));
}

#[test]
fn launcher_with_an_unsupported_type_is_refused_by_name() {
    let Some(bench) = bench_with_nvcc() else { return };
    let text = AXPBY.replace("float a, int n, cuda", "float2 a, int n, cuda");
    let text = text.replace("stream>>>(x, y, a, n)", "stream>>>(x, y, a.x, n)");
    let why =
        failed(bench.builder.build(&candidate(&[("kernels/a.cu", &text)]), &sm_90a()).unwrap());
    assert!(why.message.contains("float2 a"), "{}", why.message);
    assert_eq!(why.diagnostics[0].line, Some(14));
}

#[test]
fn excess_shared_memory_is_a_build_failure() {
    let Some(bench) = bench_with_nvcc() else { return };
    let text = AXPBY.replace("tile[N]", "tile[N * 1024]");
    let why =
        failed(bench.builder.build(&candidate(&[("kernels/a.cu", &text)]), &sm_90a()).unwrap());
    assert_eq!(why.class, FailureClass::Build);
    assert!(why.message.contains("uses too much shared data"), "{}", why.message);
    assert_eq!(why.diagnostics[0].file.as_deref(), Some("kernels/a.cu"));
    assert!(why.message.contains("'fast::axpby<float, 256>'"), "{}", why.message);
}

#[test]
fn undefined_function_is_located_at_its_use() {
    let Some(bench) = bench_with_nvcc() else { return };
    let text = AXPBY.replace("extern \"C\"", "int helper(int);\nextern \"C\"");
    let text = text.replace("(n + 255) / 256", "helper(n)");
    let why =
        failed(bench.builder.build(&candidate(&[("kernels/a.cu", &text)]), &sm_90a()).unwrap());
    assert_eq!(why.diagnostics[0].message, "undefined symbol: helper(int)");
    assert_eq!(why.diagnostics[0].line, Some(16));
}

#[test]
fn warnings_of_a_successful_build_are_kept() {
    let Some(bench) = bench_with_nvcc() else { return };
    let text = AXPBY.replace("__shared__", "int unused = 3;\n    __shared__");
    let artifact =
        built(bench.builder.build(&candidate(&[("kernels/a.cu", &text)]), &sm_90a()).unwrap());
    let warning = &artifact.warnings[0];
    assert_eq!(warning.severity, Severity::Warning);
    assert!(warning.message.contains("unused"), "{}", warning.message);
    let again =
        built(bench.builder.build(&candidate(&[("kernels/a.cu", &text)]), &sm_90a()).unwrap());
    assert!(again.cached);
    assert_eq!(again.warnings, artifact.warnings);
    assert_eq!(again.kernels, artifact.kernels);
}

#[test]
fn several_files_share_headers_and_link_into_one_library() {
    let Some(bench) = bench_with_nvcc() else { return };
    let header = "#pragma once\ntemplate <typename T> __device__ T twice(T x) { return x + x; }\n";
    let kernel = |name: &str| {
        format!(
            "#include \"tools/twice.cuh\"\n__global__ void k_{name}(float* x) {{ x[threadIdx.x] = twice(x[threadIdx.x]); }}\n\
             extern \"C\" void {name}(float* x, cudaStream_t s) {{ k_{name}<<<1, 32, 0, s>>>(x); }}\n"
        )
    };
    let (a, b) = (kernel("a"), kernel("b"));
    let files =
        [("kernels/a.cu", a.as_str()), ("kernels/b.cu", &b), ("kernels/tools/twice.cuh", header)];
    let artifact = built(bench.builder.build(&candidate(&files), &sm_90a()).unwrap());
    let names: Vec<_> = artifact.launchers.iter().map(|l| l.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(artifact.kernels.len(), 2);
}
