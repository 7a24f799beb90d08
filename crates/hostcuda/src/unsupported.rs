//! Constructs that the cpu device refuses, by name.

use crate::code::{Seq, Unit};
use crate::function::Found;
use crate::include::Flat;
use crate::lexer::Token;
use crate::refusal::Refusal;

/// Headers by prefix, with reasons.
const HEADERS: [(&str, &str); 23] = [
    ("cub/", "cub is not available on the cpu device: write the reduction or scan out"),
    ("thrust/", "thrust is not available on the cpu device: write a kernel"),
    ("cutlass/", "cutlass is not available on the cpu device"),
    ("cute/", "cute is not available on the cpu device"),
    ("mma.h", "tensor core operations (wmma) have no counterpart on the cpu device"),
    ("cuda_pipeline", "asynchronous copies have no counterpart on the cpu device: load and store"),
    ("cuda/", "libcu++ is not available on the cpu device"),
    ("nv/", "libcu++ is not available on the cpu device"),
    ("cudaTypedefs.h", "the driver API is not available on the cpu device"),
    ("cuda_fp4.h", "4-bit floating point is not available on the cpu device"),
    ("cuda_fp6.h", "6-bit floating point is not available on the cpu device"),
    ("curand", "curand is not available on the cpu device"),
    ("cufft", "cufft is not available on the cpu device"),
    ("cusparse", "cusparse is not available on the cpu device"),
    ("cusolver", "cusolver is not available on the cpu device"),
    ("cublasLt.h", "cublasLt is not available on the cpu device: cublas_v2.h has the plain GEMMs"),
    ("cublasXt.h", "cublasXt is not available on the cpu device: cublas_v2.h has the plain GEMMs"),
    ("cudnn", "cudnn is not available on the cpu device"),
    ("nvrtc.h", "compiling at run time is not available on the cpu device"),
    ("texture_", "textures are not available on the cpu device: read global memory"),
    ("surface_", "surfaces are not available on the cpu device: write global memory"),
    (
        "cooperative_groups/memcpy_async.h",
        "asynchronous copies have no counterpart on the cpu device",
    ),
    (
        "cooperative_groups/scan.h",
        "group scans are not available on the cpu device: use __shfl_up_sync",
    ),
];

/// Identifiers by exact name.
const WORDS: [(&str, &str); 33] = [
    ("asm", "inline PTX cannot run on the cpu device: write it in C++"),
    ("__asm__", "inline PTX cannot run on the cpu device: write it in C++"),
    ("__asm", "inline PTX cannot run on the cpu device: write it in C++"),
    ("wmma", "tensor core operations (wmma) have no counterpart on the cpu device"),
    ("nvcuda", "tensor core operations (wmma) have no counterpart on the cpu device"),
    ("cub", "cub is not available on the cpu device: write the reduction or scan out"),
    ("thrust", "thrust is not available on the cpu device: write a kernel"),
    ("cutlass", "cutlass is not available on the cpu device"),
    ("cudaMallocManaged", "managed memory is not available on the cpu device: use cudaMalloc"),
    ("__managed__", "managed memory is not available on the cpu device: use __device__"),
    ("cudaTextureObject_t", "textures are not available on the cpu device: read global memory"),
    ("cudaCreateTextureObject", "textures are not available on the cpu device: read global memory"),
    ("cudaSurfaceObject_t", "surfaces are not available on the cpu device: write global memory"),
    ("tex1D", "textures are not available on the cpu device: read global memory"),
    ("tex2D", "textures are not available on the cpu device: read global memory"),
    ("tex3D", "textures are not available on the cpu device: read global memory"),
    ("tex1Dfetch", "textures are not available on the cpu device: read global memory"),
    ("cudaStreamBeginCapture", "CUDA graphs are not available on the cpu device"),
    ("cudaStreamEndCapture", "CUDA graphs are not available on the cpu device"),
    (
        "cudaLaunchCooperativeKernel",
        "a grid-wide barrier cannot run on the cpu device: split the kernel",
    ),
    ("this_grid", "a grid-wide barrier cannot run on the cpu device: split the kernel"),
    ("grid_group", "a grid-wide barrier cannot run on the cpu device: split the kernel"),
    ("multi_grid_group", "a grid-wide barrier cannot run on the cpu device: split the kernel"),
    (
        "coalesced_threads",
        "coalesced groups are not available on the cpu device: use a tile and a predicate",
    ),
    (
        "coalesced_group",
        "coalesced groups are not available on the cpu device: use a tile and a predicate",
    ),
    ("this_cluster", "thread block clusters are not available on the cpu device"),
    ("cluster_group", "thread block clusters are not available on the cpu device"),
    ("__cluster_dims__", "thread block clusters are not available on the cpu device"),
    ("memcpy_async", "asynchronous copies have no counterpart on the cpu device: load and store"),
    ("__cvta_generic_to_shared", "shared memory has no address space of its own on the cpu device"),
    ("__nanosleep", "waiting for another block cannot work on the cpu device: split the kernel"),
    ("cudaLaunchHostFunc", "stream callbacks are not available on the cpu device"),
    ("cudaStreamAddCallback", "stream callbacks are not available on the cpu device"),
];

/// Identifiers by prefix.
const PREFIXES: [(&str, &str); 10] = [
    ("cudaGraph", "CUDA graphs are not available on the cpu device"),
    ("cudaLaunchKernelEx", "extended launches are not available on the cpu device: use <<< >>>"),
    ("__pipeline_", "asynchronous copies have no counterpart on the cpu device: load and store"),
    ("curand", "curand is not available on the cpu device"),
    ("cublasLt", "cublasLt is not available on the cpu device: cublas_v2.h has the plain GEMMs"),
    ("cudnn", "cudnn is not available on the cpu device"),
    ("__nv_fp4", "4-bit floating point is not available on the cpu device"),
    ("__nv_fp6", "6-bit floating point is not available on the cpu device"),
    ("__wgmma", "tensor core operations have no counterpart on the cpu device"),
    ("__mma", "tensor core operations have no counterpart on the cpu device"),
];

/// Maximum number of refusals: a longer list helps no reader.
pub(crate) const MAX_REFUSALS: usize = 200;

const VOLATILE: &str = "a volatile pointer in device code relies on the threads of a warp running in \
    lock step, which GPUs since Volta do not promise either: use __syncwarp() or shuffles";
const NESTED: &str = "a kernel cannot launch kernels on the cpu device (dynamic parallelism)";

/// Everything refused in the unit, in the order of the source.
pub(crate) fn refusals(unit: &Unit<'_>, found: &Found<'_>, flat: &Flat) -> Vec<Refusal> {
    let source = unit.main.source;
    let mut list: Vec<(Token, String, &str)> = Vec::new();
    for token in &unit.includes {
        let text = token.text(source);
        let name = text.trim_matches(['<', '>', '"']);
        if let Some((_, why)) = HEADERS.iter().find(|(prefix, _)| name.starts_with(prefix)) {
            list.push((*token, format!("#include {text}"), why));
        }
    }
    words(&unit.main, &mut list);
    for m in &unit.macros {
        words(&m.body, &mut list);
    }
    for function in &found.functions {
        let seq = &unit.main;
        let end = function.body.map_or(function.close, |b| b.1);
        for i in function.open..end {
            match seq.text(i) {
                "volatile" if pointer_follows(seq, i) => {
                    list.push((seq.tokens[i], "volatile".to_owned(), VOLATILE));
                }
                "<<<" => list.push((seq.tokens[i], "<<<".to_owned(), NESTED)),
                "cudaDeviceSynchronize" if !function.host => {
                    list.push((seq.tokens[i], seq.text(i).to_owned(), NESTED));
                }
                _ => {}
            }
        }
    }
    list.sort_by_key(|(token, ..)| token.start);
    list.dedup_by_key(|(token, ..)| token.start);
    list.into_iter()
        .take(MAX_REFUSALS)
        .map(|(token, construct, why)| flat.refusal(&token, construct, why))
        .collect()
}

fn words(seq: &Seq<'_>, list: &mut Vec<(Token, String, &str)>) {
    for i in 0..seq.len() {
        if !seq.is_ident(i) || (i > 0 && matches!(seq.text(i - 1), "." | "->")) {
            continue;
        }
        let word = seq.text(i);
        let exact = WORDS.iter().find(|(name, _)| *name == word);
        let why = exact.or_else(|| PREFIXES.iter().find(|(prefix, _)| word.starts_with(prefix)));
        // `cub` alone may be somebody's variable; the library is always followed by `::`.
        let library = matches!(word, "cub" | "thrust" | "cutlass" | "wmma");
        if let Some((_, why)) = why
            && (!library || seq.text(i + 1) == "::")
        {
            // One refusal for `nvcuda::wmma`, not two.
            if !(word == "wmma" && i > 1 && seq.text(i - 2) == "nvcuda") {
                list.push((seq.tokens[i], word.to_owned(), why));
            }
        }
    }
}

/// `volatile float*` or `volatile __shared__ float s[`: up to the next `*` or `[`, words only.
fn pointer_follows(seq: &Seq<'_>, volatile: usize) -> bool {
    let mut i = volatile + 1;
    while seq.is_ident(i) || seq.text(i) == "::" {
        i += 1;
    }
    matches!(seq.text(i), "*" | "[")
}
