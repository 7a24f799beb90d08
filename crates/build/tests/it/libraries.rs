//! CUTLASS, CuTe, cub and thrust: refused by default, built where they are allowed.

use warpwright_build::{Outcome, Request};
use warpwright_record::libraries::{Library, LibrarySet};
use warpwright_record::verdict::FailureClass;
use warpwright_test_support::{Need, missing};

use crate::bench::{Bench, bench_with_nvcc, built, candidate, failed, sm_90a};

const CUB: &str = include_str!("../honest/cub_sum.cu");
const CUTLASS: &str = include_str!("../honest/cutlass_gemm.cu");

fn build(bench: &Bench, text: &str, allowed: &[Library]) -> Outcome {
    let files = candidate(&[("kernels/a.cu", text)]);
    let libraries: LibrarySet = allowed.iter().collect();
    let request = Request { libraries, ..Request::default() };
    bench.builder.build_with(&files, &sm_90a(), &request).unwrap()
}

#[test]
fn cub_is_refused_until_it_is_allowed() {
    let Some(bench) = bench_with_nvcc() else { return };
    let why = failed(build(&bench, CUB, &[]));
    assert_eq!(why.class, FailureClass::ForbiddenImport);
    assert!(why.message.contains("`--libraries cccl` allows it"), "{}", why.message);
    let artifact = built(build(&bench, CUB, &[Library::Cccl]));
    assert_eq!(artifact.libraries, [Library::Cccl]);
    assert!(artifact.own_kernels > 1, "{artifact:?}");
    // The refusal is not the cached artifact of another set.
    failed(build(&bench, CUB, &[]));
    assert!(built(build(&bench, CUB, &[Library::Cccl])).cached);
}

/// The compiler says what it read, whatever the text looks like.
#[test]
fn includes_made_of_macros_are_seen() {
    let Some(bench) = bench_with_nvcc() else { return };
    let block = "#define HEADER <cub/block/block_reduce.cuh>\n#include HEADER
#include <cuda_runtime.h>
__global__ void k(float* x) { __shared__ cub::BlockReduce<float, 32>::TempStorage s;
  *x = cub::BlockReduce<float, 32>(s).Sum(*x); }
extern \"C\" void go(float* x, cudaStream_t s) { k<<<1, 32, 0, s>>>(x); }\n";
    let why = failed(build(&bench, block, &[]));
    assert!(why.message.contains("`--libraries cccl`"), "{}", why.message);
    // libcu++ is part of CUDA C++.
    let plain = "#include <cuda/atomic>\n#include <cuda_runtime.h>
__global__ void k(int* x) { cuda::atomic_ref<int, cuda::thread_scope_device> a(*x); a.fetch_add(1); }
extern \"C\" void go(int* x, cudaStream_t s) { k<<<1, 32, 0, s>>>(x); }\n";
    assert_eq!(built(build(&bench, plain, &[])).libraries, []);
}

/// One that never uses what it may use has used nothing.
#[test]
fn allowed_libraries_are_not_yet_used() {
    let Some(bench) = bench_with_nvcc() else { return };
    let text = "#include <cuda_fp16.h>\n#include <cuda_runtime.h>
__global__ void k(float* x) { *x = 1; }
extern \"C\" void go(float* x, cudaStream_t s) { k<<<1, 1, 0, s>>>(x); }\n";
    assert_eq!(built(build(&bench, text, &[Library::Cccl])).libraries, []);
}

#[test]
fn cutlass_is_refused_until_it_is_allowed() {
    let Some(bench) = bench_with_nvcc() else { return };
    if bench.builder.toolchain().cutlass.is_none() {
        missing(Need::Cutlass);
        return;
    }
    let why = failed(build(&bench, CUTLASS, &[Library::Cccl]));
    assert!(why.message.contains("`--libraries cutlass` allows it"), "{}", why.message);
    let artifact = built(build(&bench, CUTLASS, &[Library::Cutlass]));
    assert_eq!((artifact.libraries, artifact.own_kernels), (vec![Library::Cutlass], 1));
}

#[test]
fn missing_cutlass_is_named_with_its_command() {
    let Some(bench) = bench_with_nvcc() else { return };
    let mut toolchain = bench.builder.toolchain().clone();
    toolchain.cutlass = None;
    assert!(toolchain.has([Library::Cccl].iter().collect()).is_ok());
    let told = toolchain.has([Library::Cutlass].iter().collect()).unwrap_err().to_string();
    assert!(told.contains("scripts/setup.d/libraries"), "{told}");
}
