//! The host part of CUDA C++ for a GPU: a plain C++ compiler compiles it to an object, while nvcc
//! compiles the device code of the same file.
//!
//! Kernels become what NVIDIA's front end makes of them: functions that pass their arguments to the
//! runtime under their own address. Device functions keep only their declarations. The caller that
//! links the two parts checks that they belong together. Files that cannot be translated reliably
//! have no host part.

use std::collections::HashSet;
use std::fmt::Write as _;

use crate::code::{Seq, Unit};
use crate::edit::Edits;
use crate::expand::{Which, expand};
use crate::function::{Found, Function, find};
use crate::include::{Resolve, flatten};
use crate::launch::{config_end, kernel_start};

/// Declarations that launches and launch stubs call. As in NVIDIA's own headers, where only its own
/// compiler sees them.
const BEFORE: &str = "#include <cuda_runtime.h>
extern \"C\" unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block = 1, size_t bytes = 0,
                                                struct CUstream_st* stream = nullptr);
extern \"C\" cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* bytes, void* stream);
#ifndef __launch_bounds__
#define __launch_bounds__(...)
#endif
#ifndef __maxnreg__
#define __maxnreg__(...)
#endif
#ifndef __cluster_dims__
#define __cluster_dims__(...)
#endif
#if CUDART_VERSION >= 13000
extern \"C\" cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function);
extern \"C\" cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                                          size_t bytes, cudaStream_t stream);
#define WARPWRIGHT_KERNEL(function) \\
  ([&] { cudaKernel_t kernel = 0; __cudaGetKernel(&kernel, (const void*)function); return kernel; }())
#define WARPWRIGHT_LAUNCH __cudaLaunchKernel
#else
#define WARPWRIGHT_KERNEL(function) ((const void*)function)
#define WARPWRIGHT_LAUNCH cudaLaunchKernel
#endif
";

/// Words whose meaning would differ in the host part.
const UNSUITED: [&str; 9] = [
    "__constant__",
    "__managed__",
    "__grid_constant__",
    "texture",
    "surface",
    "cudaMemcpyToSymbol",
    "cudaMemcpyFromSymbol",
    "cudaGetSymbolAddress",
    "__cudaPushCallConfiguration",
];

/// The host part of a file, for a compiler other than NVIDIA's; `None` if it is not known to have
/// the same meaning. `resolve` finds the headers of its quoted includes, which become part of the
/// text.
pub fn host_part(source: &str, file: &str, resolve: &Resolve<'_>) -> Option<String> {
    let flat = expand(flatten(source, file, resolve).ok()?, Which::None).ok()?;
    let unit = Unit::new(&flat.text, &flat.dead);
    if unit.too_deep().is_some() {
        return None;
    }
    let found = find(&unit);
    if !suits(&flat.text, &unit, &found) {
        return None;
    }
    let mut edits = Edits::default();
    for function in &found.functions {
        let Some((open, close)) = function.body else { continue };
        let (seq, end) = (&unit.main, unit.main.tokens[close].end);
        if function.kernel {
            let body = hand_over(seq, function)?;
            edits.replace(seq.source, seq.tokens[open].start, end, body);
        } else if !function.host {
            edits.replace(seq.source, seq.tokens[function.close].end, end, ";");
        }
    }
    for seq in std::iter::once(&unit.main).chain(unit.macros.iter().map(|m| &m.body)) {
        for at in (0..seq.len()).filter(|&i| seq.text(i) == "<<<") {
            launch(seq, at, &mut edits)?;
        }
    }
    Some(format!("{BEFORE}{}", edits.apply(&flat.text)))
}

fn suits(text: &str, unit: &Unit<'_>, found: &Found<'_>) -> bool {
    // Conditions on the compiler would choose otherwise.
    if text.contains("__CUDACC") || text.contains("__NVCC__") || !found.variables.is_empty() {
        return false;
    }
    let unsuited = |seq: &Seq<'_>| (0..seq.len()).any(|i| UNSUITED.contains(&seq.text(i)));
    let qualifies = |seq: &Seq<'_>| {
        (0..seq.len()).any(|i| matches!(seq.text(i), "__global__" | "__device__" | "__shared__"))
    };
    if unsuited(&unit.main) || unit.macros.iter().any(|m| unsuited(&m.body) || qualifies(&m.body)) {
        return false;
    }
    // A lambda has no declaration to keep, and overloads are not told apart by name.
    let lambda = |f: &Function<'_>| f.qualifier > 0 && unit.main.text(f.qualifier - 1) == "]";
    let mut names = HashSet::new();
    let bodies = || found.functions.iter().filter(|f| f.body.is_some());
    !found.functions.iter().any(lambda)
        && bodies().filter(|f| f.kernel).all(|f| names.insert(f.name))
        && !names.is_empty()
}

/// The body of a kernel's launch stub.
fn hand_over(seq: &Seq<'_>, kernel: &Function<'_>) -> Option<String> {
    let mut own = kernel.name.to_owned();
    let parameters = template_parameters(seq, kernel)?;
    if !parameters.is_empty() {
        let _ = write!(own, "<{}>", parameters.join(", "));
    }
    let mut arguments = String::new();
    for (from, to) in seq.split_commas(kernel.open + 1, kernel.close) {
        if from == to || (to == from + 1 && seq.text(from) == "void") {
            continue;
        }
        let (name, _) = declared(seq, from, to)?;
        let _ = write!(arguments, "(void*)&{name}, ");
    }
    Some(format!(
        "{{ auto* warpwright_function = &{own}; void* warpwright_arguments[] = {{{arguments}nullptr}}; \
         static const auto warpwright_kernel = WARPWRIGHT_KERNEL(warpwright_function); dim3 warpwright_grid, warpwright_block; size_t warpwright_bytes; void* warpwright_stream; \
         if (__cudaPopCallConfiguration(&warpwright_grid, &warpwright_block, &warpwright_bytes, \
         &warpwright_stream) == cudaSuccess) (void)WARPWRIGHT_LAUNCH(warpwright_kernel, \
         warpwright_grid, warpwright_block, warpwright_arguments, warpwright_bytes, \
         (cudaStream_t)warpwright_stream); }}"
    ))
}

/// The arguments with which a template names itself inside its definition; empty if the kernel is
/// not a template.
fn template_parameters(seq: &Seq<'_>, kernel: &Function<'_>) -> Option<Vec<String>> {
    let Some(at) = (kernel.start..kernel.open).find(|&i| seq.text(i) == "template") else {
        return Some(Vec::new());
    };
    let end = seq.past_angle(at + 1)? - 1;
    if (at + 2..end).any(|i| seq.text(i) == "<") {
        return None;
    }
    let each = seq.split_commas(at + 2, end).into_iter().map(|(from, to)| {
        let (name, pack) = declared(seq, from, to)?;
        Some(if pack { format!("{name}...") } else { name.to_owned() })
    });
    each.collect()
}

/// The name that a parameter declares, and whether it is a pack.
fn declared<'a>(seq: &Seq<'a>, from: usize, to: usize) -> Option<(&'a str, bool)> {
    let end = (from..to).find(|&i| seq.text(i) == "=").unwrap_or(to);
    // `float x[4]`, `void (*f)(int)`: rare enough to leave alone.
    if (from..end).any(|i| matches!(seq.text(i), "[" | "(")) {
        return None;
    }
    let last = end.checked_sub(1)?;
    // One word alone is a type without a name.
    let named = last > from && seq.is_ident(last) && !is_type_word(seq.text(last));
    let pack = (from..end).any(|i| seq.text(i) == "...");
    named.then(|| (seq.text(last), pack))
}

/// Words that end a type and are not names.
fn is_type_word(word: &str) -> bool {
    matches!(
        word,
        "int"
            | "long"
            | "short"
            | "char"
            | "float"
            | "double"
            | "unsigned"
            | "signed"
            | "bool"
            | "const"
            | "typename"
            | "class"
            | "__restrict__"
            | "volatile"
    )
}

/// `k<<<grid, block>>>(args)` becomes a call of `k` once the runtime has taken the configuration.
fn launch(seq: &Seq<'_>, at: usize, edits: &mut Edits) -> Option<()> {
    let start = kernel_start(seq, at)?;
    let close = config_end(seq, at)?;
    let open = close + 3;
    let end = seq.close(open)?;
    let (source, tokens) = (seq.source, &seq.tokens);
    let kernel = &source[tokens[start].start..tokens[at].start];
    edits.replace(source, tokens[start].start, tokens[at].end, "(__cudaPushCallConfiguration(");
    // The kernel is named once more, in one line: the lines of the first are kept.
    let kernel = kernel.split_whitespace().collect::<Vec<_>>().join(" ");
    edits.replace(
        source,
        tokens[close].start,
        tokens[open].end,
        format!(") ? (void)0 : {kernel}("),
    );
    edits.insert(tokens[end].end, ")");
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(source: &str) -> Option<String> {
        host_part(source, "a.cu", &|_, _| None)
    }

    const SOURCE: &str = "namespace n {
__device__ float twice(float x) { return 2 * x * threadIdx.x; }
template <typename T, int N = 4>
__global__ void k(const T* __restrict__ x, T* y, int) {
  y[threadIdx.x] = twice(x[N]);
}
}
extern \"C\" void go(const float* x, float* y, cudaStream_t s) {
  n::k<float, 8><<<dim3(1, 2), 32,
                   0, s>>>(x, y, 3);
}
";

    #[test]
    fn kernel_with_an_unnamed_parameter_is_left_to_nvcc() {
        assert_eq!(part(SOURCE), None);
    }

    #[test]
    fn kernels_become_launch_stubs_and_device_functions_declarations() {
        let text = part(&SOURCE.replace("int)", "int n)")).unwrap();
        let lines: Vec<&str> = text.strip_prefix(BEFORE).unwrap().lines().collect();
        // The first line says where the text is from.
        assert_eq!(lines[2], "__device__ float twice(float x);");
        assert!(lines[4].contains("&k<T, N>; "), "{}", lines[4]);
        assert!(lines[4].contains("{(void*)&x, (void*)&y, (void*)&n, nullptr}"), "{}", lines[4]);
        assert_eq!(lines[9], "  (__cudaPushCallConfiguration(dim3(1, 2), 32,");
        assert_eq!(lines[10], "                   0, s) ? (void)0 : n::k<float, 8>(x, y, 3));");
        assert_eq!(lines.len(), 1 + SOURCE.lines().count(), "lines keep their numbers");
    }

    #[test]
    fn source_that_would_change_meaning_is_left_to_nvcc() {
        let sound = SOURCE.replace("int)", "int n)");
        for spoilt in [
            sound.replace("namespace n {", "namespace n { __constant__ float c[4];"),
            sound.replace("namespace n {", "namespace n { __device__ int counter;"),
            format!("#ifdef __CUDACC__\n#endif\n{sound}"),
            format!("#define DEV __device__\n{sound}"),
            format!("{sound}__global__ void k(int a) {{ }}\n"),
            sound.replace("__global__", ""),
        ] {
            assert_eq!(part(&spoilt), None, "{spoilt}");
        }
        assert!(part(&sound).is_some(), "positive control");
    }

    proptest::proptest! {
        #[test]
        fn no_fragments_make_the_host_part_panic(parts in proptest::collection::vec(
            proptest::sample::select(vec![
                "__global__ ", "void k", "(", ")", "{", "}", "<", ">", "<<<", ">>>", "template ", ", ",
                "int n", "= ", "...", ";", "__device__ ", "x", "#define A ", "\n", "\"",
            ]), 0..60)) {
            let _ = part(&parts.concat());
        }
    }
}
