//! Every unsupported construct is refused by name, at its line, with a reason.

use std::fmt::Write as _;

use warpwright_hostcuda::{Refusal, translate, translate_with};

fn refused(body: &str) -> Vec<Refusal> {
    translate(body, "kernels/a.cu").expect_err(body)
}

/// Puts `construct` on line 3 of a kernel.
fn in_kernel(statement: &str) -> String {
    format!("__global__ void k(float* x, int n) {{\n  int i = threadIdx.x;\n  {statement}\n}}\n")
}

#[test]
fn unsupported_device_constructs_are_refused() {
    for (statement, construct) in [
        ("asm volatile(\"mov.u32 %0, %laneid;\" : \"=r\"(i));", "asm"),
        ("wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;", "wmma"),
        ("nvcuda::wmma::fill_fragment(c, 0.f);", "nvcuda"),
        ("x[i] = tex2D<float>(t, 1, 2);", "tex2D"),
        ("x[i] = tex1Dfetch<float>(t, i);", "tex1Dfetch"),
        ("k<<<1, 32>>>(x, n);", "<<<"),
        ("cudaDeviceSynchronize();", "cudaDeviceSynchronize"),
        ("cub::BlockReduce<float, 128> r;", "cub"),
        ("thrust::sort(x, x + n);", "thrust"),
        ("auto g = cg::this_grid();", "this_grid"),
        ("cooperative_groups::grid_group g;", "grid_group"),
        ("auto c = cg::this_cluster();", "this_cluster"),
        ("auto a = cg::coalesced_threads();", "coalesced_threads"),
        ("cg::memcpy_async(b, s, x, 4);", "memcpy_async"),
        ("__pipeline_memcpy_async(s, x, 16);", "__pipeline_memcpy_async"),
        ("unsigned a = __cvta_generic_to_shared(x);", "__cvta_generic_to_shared"),
        ("curandState s;", "curandState"),
        ("__nanosleep(100);", "__nanosleep"),
        ("volatile float* v = x; v[i] += v[i + 16];", "volatile"),
        ("volatile __shared__ float s[64];", "volatile"),
        ("__nv_fp4_e2m1 f;", "__nv_fp4_e2m1"),
    ] {
        let found = refused(&in_kernel(statement));
        let first = &found[0];
        assert_eq!((first.line, first.construct.as_str()), (3, construct), "{statement}");
        assert_eq!(first.file, "kernels/a.cu");
        assert!(first.reason.len() > 20, "{first}");
    }
}

#[test]
fn unsupported_host_and_file_scope_constructs_are_refused() {
    for (line, construct) in [
        ("__managed__ int counter;", "__managed__"),
        ("__global__ void __cluster_dims__(2, 1, 1) c(float* x) {}", "__cluster_dims__"),
        ("cudaTextureObject_t t;", "cudaTextureObject_t"),
        ("void f() { cudaMallocManaged(&p, 4); }", "cudaMallocManaged"),
        ("void f() { cudaGraphLaunch(g, s); }", "cudaGraphLaunch"),
        ("void f() { cudaStreamBeginCapture(s, m); }", "cudaStreamBeginCapture"),
        ("void f() { cudaLaunchCooperativeKernel(k, g, b, a); }", "cudaLaunchCooperativeKernel"),
        ("void f() { cudaLaunchKernelExC(&c, k, a); }", "cudaLaunchKernelExC"),
        ("void f() { cublasLtMatmul(h); }", "cublasLtMatmul"),
        ("void f() { cudnnCreate(&h); }", "cudnnCreate"),
        ("void f() { curandCreateGenerator(&g, t); }", "curandCreateGenerator"),
        ("#define PTX(x) asm(x)", "asm"),
        ("#include <cub/cub.cuh>", "#include <cub/cub.cuh>"),
        ("#include <thrust/sort.h>", "#include <thrust/sort.h>"),
        ("#include <cutlass/gemm.h>", "#include <cutlass/gemm.h>"),
        ("#include <mma.h>", "#include <mma.h>"),
        ("#include <cuda_pipeline.h>", "#include <cuda_pipeline.h>"),
        ("#include <cuda/barrier>", "#include <cuda/barrier>"),
        ("#include <curand_kernel.h>", "#include <curand_kernel.h>"),
        ("#include <cuda_fp4.h>", "#include <cuda_fp4.h>"),
        (
            "#include <cooperative_groups/memcpy_async.h>",
            "#include <cooperative_groups/memcpy_async.h>",
        ),
    ] {
        let found = refused(&format!("// one\n\n{line}\n"));
        assert_eq!((found[0].line, found[0].construct.as_str()), (3, construct), "{line}");
    }
}

#[test]
fn all_refusals_are_reported_in_order() {
    let found = refused("#include <mma.h>\n__global__ void k() {\n  asm(\"\");\n  asm(\"\");\n}\n");
    let lines: Vec<u32> = found.iter().map(|r| r.line).collect();
    assert_eq!(lines, [1, 3, 4]);
    assert_eq!(found[1].column, 3);
}

#[test]
fn number_of_refusals_is_bounded() {
    assert_eq!(refused(&"asm(\"\");\n".repeat(1000)).len(), 200);
    assert_eq!(refused(&"asm(\"\");\n".repeat(150)).len(), 150, "positive control");
}

#[test]
fn dead_branches_comments_and_strings_are_not_refused() {
    for text in [
        "#if 0\nasm(\"\");\n#endif\n",
        "#ifdef __CUDA_ARCH__\nasm(\"\");\n#endif\n",
        "#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800\nasm(\"\");\n#else\nint x;\n#endif\n",
        "#if __CUDA_ARCH__ >= 800\nasm(\"\");\n#endif\n",
        "// asm\n/* wmma:: */ const char* s = \"cudaGraphLaunch <<<\";\n",
        "struct S { int asm_; } s; int f() { int cub = 1; return cub; }\n",
    ] {
        assert!(translate(text, "a.cu").is_ok(), "{text}");
    }
    // Positive control: the same construct outside the dead branch.
    assert_eq!(refused("#if 0\nasm(\"\");\n#else\nasm(\"\");\n#endif\n")[0].line, 4);
}

#[test]
fn refusal_in_a_local_header_names_the_header() {
    let header = |name: &str, from: &str| {
        assert_eq!((name, from), ("util.cuh", "k/a.cu"));
        Some((
            "k/util.cuh".to_owned(),
            "#pragma once\n\n__device__ void f() { asm(\"\"); }\n".to_owned(),
        ))
    };
    let found = translate_with(
        "\n#include \"util.cuh\"\nint x;\nvoid g() { asm(\"\"); }\n",
        "k/a.cu",
        &header,
    )
    .unwrap_err();
    let places: Vec<(&str, u32)> = found.iter().map(|r| (r.file.as_str(), r.line)).collect();
    assert_eq!(places, [("k/util.cuh", 3), ("k/a.cu", 4)]);
}

#[test]
fn headers_that_include_themselves_are_refused() {
    let again = |name: &str, _: &str| {
        Some((name.to_owned(), "#include \"a.cuh\"\n#include \"a.cuh\"\n".to_owned()))
    };
    let found = translate_with("#include \"a.cuh\"\n", "k.cu", &again).unwrap_err();
    assert!(found[0].construct.contains("a.cuh"));
}

#[test]
fn oversized_macro_expansion_is_refused() {
    let mut text = String::from("#define K0 __device__ int a;\n");
    for i in 1..40 {
        let _ = writeln!(text, "#define K{i} K{} K{}", i - 1, i - 1);
    }
    let found = refused(&format!("{text}K39\n"));
    assert_eq!((found[0].line, found[0].construct.as_str()), (41, "K39"));
    assert!(found[0].reason.contains("million"), "{}", found[0]);
    // Positive control: as many are read where they come to little; nobody looks at what is not used.
    assert!(translate(&format!("{text}K3\n"), "a.cu").is_ok());
}
