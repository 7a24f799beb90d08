//! Every architecture that people have, with an instruction that needs it. Compiling needs no GPU.

use warpwright_build::{Outcome, Target};

use crate::bench::{Bench, bench_with_nvcc, built, candidate, failed};

/// A file whose kernel has this statement, and whose launcher Python can call.
fn with(statement: &str) -> String {
    format!(
        r#"#include <cuda_runtime.h>
#include <cstdint>

__global__ void special(float* y, const uint32_t* x) {{
    __shared__ alignas(128) uint32_t tile[1024];
    uint32_t shared = (uint32_t)__cvta_generic_to_shared(tile);
    float d0 = 0, d1 = 0, d2 = 0, d3 = 0;
    uint32_t a0 = x[0], a1 = x[1], a2 = x[2], a3 = x[3], b0 = x[4], b1 = x[5];
    {statement}
    y[threadIdx.x] = d0 + d1 + d2 + d3 + a0 + a1 + a2 + a3 + b0 + b1 + tile[0] + shared;
}}

extern "C" int special_rows(float* y, const uint32_t* x, cudaStream_t stream) {{
    special<<<1, 128, 0, stream>>>(y, x);
    return (int)cudaGetLastError();
}}
"#
    )
}

/// A matrix instruction with four numbers of float32 as sum.
fn mma(kind: &str, a: &[&str], b: &[&str], scales: &str) -> String {
    let operands = |first: usize, of: &[&str]| {
        let numbers: Vec<String> = (first..first + of.len()).map(|n| format!("%{n}")).collect();
        format!("{{{}}}", numbers.join(", "))
    };
    let inputs: Vec<String> = a.iter().chain(b).map(|name| format!("\"r\"({name})")).collect();
    let (first, second) = (operands(4, a), operands(4 + a.len(), b));
    format!(
        r#"asm volatile("mma.sync.aligned.{kind} {{%0, %1, %2, %3}}, {first}, {second}, {{%0, %1, %2, %3}}{scales};"
        : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3) : {});"#,
        inputs.join(", ")
    )
}

fn half_products() -> String {
    mma("m16n8k8.row.col.f32.f16.f16.f32", &["a0", "a1"], &["b0"], "")
}

fn bfloat16_products() -> String {
    let copy =
        r#"asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" :: "r"(shared), "l"(x));"#;
    let kind = "m16n8k16.row.col.f32.bf16.bf16.f32";
    copy.to_owned() + &mma(kind, &["a0", "a1", "a2", "a3"], &["b0", "b1"], "")
}

fn fp8_products() -> String {
    let kind = "m16n8k32.row.col.f32.e4m3.e4m3.f32";
    mma(kind, &["a0", "a1", "a2", "a3"], &["b0", "b1"], "")
}

const WARPGROUPS: &str = r#"asm volatile("wgmma.fence.sync.aligned;");
    asm volatile("wgmma.commit_group.sync.aligned;");"#;

/// For clusters, without the letter.
const BULK_TENSOR: &str = r#"asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %2}], [%3];" :: "r"(shared), "l"(x), "r"(0), "r"(shared + 512) : "memory");
    asm volatile("barrier.cluster.arrive.aligned;");"#;

const TENSOR_MEMORY: &str = r#"asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 32;"
        :: "r"(shared) : "memory");"#;

fn block_scaled_products() -> String {
    let kind = "m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e2m1.f32.ue8m0";
    let scales = ", {%4}, {0, 0}, {%8}, {0, 0}";
    mma(kind, &["a0", "a1", "a2", "a3"], &["b0", "b1"], scales)
}

fn build(bench: &Bench, statement: &str, arch: &str) -> Outcome {
    let files = candidate(&[("kernels/special.cu", &with(statement))]);
    bench.builder.build(&files, &Target::Cuda { arch: arch.to_owned() }).unwrap()
}

/// The statement compiles for all of `on`, and for none of `without`.
fn needs(statement: &str, on: &[&str], without: &[&str]) {
    let Some(bench) = bench_with_nvcc() else { return };
    for arch in on {
        let artifact = built(build(&bench, statement, arch));
        assert_eq!(artifact.kernels[0].arch, *arch);
        assert_eq!(artifact.device_images.len(), 1, "{arch}");
    }
    for arch in without {
        let why = failed(build(&bench, statement, arch));
        let told = format!("{} {}", why.message, why.raw_tail);
        let refused = ["not supported on .target", "requires .target"];
        assert!(refused.iter().any(|text| told.contains(text)), "{arch}: {told}");
    }
}

/// nvcc 13 compiles for nothing older.
#[test]
fn turing_has_half_tensor_cores() {
    needs(&half_products(), &["sm_75"], &[]);
}

#[test]
fn ampere_has_asynchronous_copies_and_bfloat16() {
    needs(&bfloat16_products(), &["sm_80", "sm_86"], &["sm_75"]);
}

#[test]
fn ada_has_fp8_products() {
    needs(&fp8_products(), &["sm_89"], &["sm_86"]);
}

/// The letter is what allows them.
#[test]
fn hopper_has_warpgroups_and_bulk_tensors() {
    needs(WARPGROUPS, &["sm_90a"], &["sm_90"]);
    needs(BULK_TENSOR, &["sm_90a"], &["sm_89"]);
}

#[test]
fn data_centre_blackwell_has_tensor_memory() {
    needs(TENSOR_MEMORY, &["sm_100a", "sm_103a"], &["sm_90a", "sm_103"]);
}

#[test]
fn consumer_blackwell_has_block_scaled_products() {
    needs(&block_scaled_products(), &["sm_120a"], &["sm_100a", "sm_120"]);
}

/// The siblings of the above.
#[test]
fn other_blackwells_compile() {
    needs(TENSOR_MEMORY, &["sm_110a"], &["sm_110"]);
    needs(&block_scaled_products(), &["sm_121a"], &["sm_121"]);
}
