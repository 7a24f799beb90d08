//! The rewriter's output, for constructs with important details.

use proptest::prelude::*;
use warpwright_hostcuda::{Translated, launchers, translate, translate_with};

fn cpp(source: &str) -> String {
    translate(source, "a.cu").unwrap().cpp
}

fn has(source: &str, part: &str) {
    let text = cpp(source);
    assert!(text.contains(part), "no {part:?} in\n{text}");
}

#[test]
fn launches_keep_their_arguments_in_place() {
    has(
        "__global__ void k(int* p) {}\nvoid f() { k<<<dim3(1, 2), 32, 4, s>>>(p); }",
        "(hostcuda_at, hostcuda_args...); }), ::hostcuda::Config(\"k\", dim3(1, 2), 32, 4, s), p);",
    );
    has(
        "template <class T> __global__ void k() {}\nvoid f() { ns::k<A<B<int>>><<<1, 2>>>(); }",
        "ns::k<A<B<int>>>(hostcuda_at",
    );
    has(
        "void f() { k<<<n >> 5, (a >> 2) + 1>>>(NULL); }",
        "Config(\"k\", n >> 5, (a >> 2) + 1), nullptr)",
    );
    has(
        "#define L(k, n, ...) k<<<n, 256>>>(__VA_ARGS__)\n",
        "{ k(hostcuda_at, hostcuda_args...); }, ::hostcuda::Config(\"k\", n, 256), __VA_ARGS__)",
    );
}

/// A recording has the address of a kernel that is chosen at run time; what the file names needs none.
#[test]
fn kernels_chosen_at_run_time_become_pointers() {
    let launched = |expression: &str| {
        let kernels = "#define MACRO k\ntemplate <class T> __global__ void k(T* p) {}\n";
        cpp(&format!("{kernels}void f() {{ {expression}<<<1, 2>>>(p); }}"))
    };
    for named in ["k", "k<float>", "n::k<float>", "(k<float>)"] {
        let text = launched(named);
        assert!(
            text.contains("::hostcuda::launch<false, false, 0>(::hostcuda::named([&]"),
            "{text}"
        );
        assert!(!text.contains("pointer("), "{text}");
    }
    for evaluated in ["(b ? k<float> : k<int>)", "table[1]", "pick(b)"] {
        let text = launched(evaluated);
        let expected = format!("launch<false, false, 0>(::hostcuda::pointer({evaluated}), ");
        assert!(text.contains(&expected), "{text}");
    }
    for variable in ["v", "this->v", "(v)"] {
        let text = launched(variable);
        assert!(text.contains("::hostcuda::launch_either<") && text.contains("pointer("), "{text}");
    }
    // What a macro stands for may have no address: a template whose arguments are deduced.
    assert!(!launched("MACRO").contains("pointer("));
}

/// Kernels with synchronisation, directly or through functions, macros and functors, and kernels
/// without.
#[test]
fn synchronisation_is_found_through_calls() {
    let source = "
        #define SYNC() __syncthreads()
        struct Op { __device__ float go(float v) { return __shfl_down_sync(~0u, v, 1); } };
        template <class T> __device__ T inner(T v) { return __shfl_xor_sync(~0u, v, 1); }
        __device__ float outer(float v) { return inner(v); }
        __global__ void direct(float* x) { __syncthreads(); }
        __global__ void through_two(float* x) { x[0] = outer(x[0]); }
        __global__ void through_macro(float* x) { SYNC(); }
        __global__ void through_member(float* x) { Op op; x[0] = op.go(x[0]); }
        __global__ void alone(float* x) { /* __syncthreads(); */ x[0] = 1; }
        __global__ void grouped(float* x) { cg::thread_block b = cg::this_thread_block(); b.sync(); }
    ";
    let Translated { kernels, .. } = translate(source, "a.cu").unwrap();
    let waits: Vec<(&str, bool)> = kernels.iter().map(|(n, w)| (n.as_str(), *w)).collect();
    assert_eq!(
        waits,
        [
            ("direct", true),
            ("through_two", true),
            ("through_macro", true),
            ("through_member", true),
            ("alone", false),
            ("grouped", true)
        ]
    );
}

#[test]
fn shared_declarations_are_rewritten() {
    has(
        "__global__ void k() { __shared__ float a[2][3], b; }",
        "auto& a = hostcuda_block_0.a; auto& b = hostcuda_block_0.b;",
    );
    has(
        "__global__ void k() { extern __shared__ __align__(16) unsigned char s[]; }",
        "unsigned char* const s = (unsigned char*)::hostcuda::dynamic_shared();",
    );
    has(
        "__global__ void k() { extern __shared__ float t[][33]; }",
        "float (*const t)[33] = (float (*)[33])::hostcuda::dynamic_shared();",
    );
    has(
        "extern __shared__ float g[];\n__global__ void k() { g[0] = 1; }",
        "{ HOSTCUDA_INDICES(hostcuda_index)  float* const g =",
    );
}

/// Two files of one candidate may use the same names for different things.
#[test]
fn device_code_is_internal_to_its_file() {
    has(
        "__device__ __forceinline__ float act(float x) { return x; }",
        "static __forceinline__ float act",
    );
    has("__constant__ float c[4];", "static float c[4];");
    has("struct F { __device__ float operator()(float x) { return x; } };", "namespace { struct F");
    has("extern \"C\" __global__ void k(float* x) {}", "extern \"C\" inline");
    has(
        "template <class T> __device__ T f(T x);\ntemplate <> __device__ float f<float>(float x) { return x; }",
        "template <> __device__ float f<float>",
    );
}

#[test]
fn shuffle_reductions_become_one_barrier() {
    let kernel = |body: &str| format!("__global__ void k(float v) {{ {body} }}");
    for body in [
        "for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(~0u, v, o);",
        "for (int o = 16; o; o /= 2) { v = fmaxf(v, __shfl_down_sync(~0u, v, o)); }",
        "for (unsigned o = warpSize / 2; o >= 1; o >>= 1) v = v + __shfl_xor_sync(~0u, v, o, 32);",
        "for (int o = 16; o > 0; o >>= 1) { v += __shfl_xor_sync(~0u, v, o); w += __shfl_xor_sync(~0u, w, o); }",
    ] {
        let text = cpp(&kernel(body));
        assert!(text.contains("::hostcuda::tree<") && !text.contains("__shfl"), "{text}");
    }
    for body in [
        "for (int o = 1; o < 32; o <<= 1) v += __shfl_xor_sync(~0u, v, o);",
        "for (int o = 16; o > 0; o >>= 1) v += __shfl_up_sync(~0u, v, o);",
        "for (int o = 16; o > 0; o >>= 1) v += w * __shfl_xor_sync(~0u, v, o);",
        "for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(~0u, w, o);",
        "for (int o = 16; o > 0; o >>= 1) { v += __shfl_xor_sync(~0u, v, o); w += v; }",
    ] {
        assert!(!cpp(&kernel(body)).contains("tree<"), "{body}");
    }
}

#[test]
fn bounds_checks_are_recognised() {
    let shape = |body: &str| {
        let text = cpp(&format!(
            "__global__ void k(float* x, int n, int d) {{ {body} }}\nvoid f() {{ k<<<1, 2>>>(x, n, d); }}"
        ));
        let at = text.find("launch<false, false, ").expect("a launch") + 21;
        text[at..=at].parse::<u32>().unwrap()
    };
    let index = "int i = blockIdx.x * blockDim.x + threadIdx.x;";
    assert_eq!(shape(&format!("{index} if (i < n) x[i] = 1;")), 5);
    assert_eq!(shape(&format!("{index} if (i >= n || d > 3) return; x[i] = 1;")), 5);
    assert_eq!(
        shape(&format!("{index} for (int j = i; j < n; j += gridDim.x * blockDim.x) x[j] = 1;")),
        7
    );
    // Not affine: every thread is asked.
    // A parameter may be negative, and an unsigned sum wraps.
    assert_eq!(shape(&format!("{index} if (i + d < n) x[i] = 1;")), 1);
    assert_eq!(shape(&format!("{index} if (i - 1 < n) x[i] = 1;")), 1);
    assert_eq!(shape(&format!("{index} int r = i / d; if (r < n) x[i] = 1;")), 1);
    assert_eq!(shape(&format!("{index} int r = i * i; if (r < n) x[i] = 1;")), 1);
    assert_eq!(shape(&format!("{index} int r = (unsigned char)i; if (r < n) x[i] = 1;")), 1);
    assert_eq!(shape(&format!("{index} short r = i; if (r < n) x[i] = 1;")), 1);
    assert_eq!(shape(&format!("{index} if ((i < n) && (i + 3 < d)) x[i] = 1;")), 5);
    assert_eq!(shape(&format!("{index} if (i != n) x[i] = 1;")), 1);
    assert_eq!(shape(&format!("{index} if (i < n || i > d) x[i] = 1;")), 1);
    // The check reads memory, or is not the first statement with an effect.
    assert_eq!(shape(&format!("{index} if (x[i] > 0) x[i] = 1;")), 0);
    assert_eq!(shape(&format!("{index} x[i] = 2; if (i < n) x[i] = 1;")), 0);
    // Something is carried from turn to turn, or follows the loop.
    assert_eq!(
        shape(&format!("{index} float s = 0.f; for (int j = i; j < n; j += d) s += x[j];")),
        0
    );
    assert_eq!(shape(&format!("{index} for (int j = i; j < n; j += d) x[j] = 1; x[i] = 3;")), 0);
    assert_eq!(
        shape(&format!(
            "{index} for (int j = i; j < n; j += d) {{ if (x[j] > 2) break; x[j] = 1; }}"
        )),
        0
    );
    // A loop of each thread's own.
    assert_eq!(shape(&format!("{index} for (int j = 0; j < n; j += 1) x[i * d + j] = 1;")), 0);
}

/// Indices are signed where the result is equal, so that the code vectorises, and unchanged
/// elsewhere.
#[test]
fn indices_become_signed_only_if_equivalent() {
    let kernel = |body: &str| format!("__global__ void k(float* x, unsigned n) {{ {body} }}");
    let index = "blockIdx.x * blockDim.x + threadIdx.x";
    has(
        &kernel(&format!("int i = ({index}) * 4; x[i] = 1;")),
        "(blockIdx.x * blockDim.x + 0u) * 4, hostcuda_threadIdx.x * (4));",
    );
    has(
        &kernel(&format!("unsigned i = {index}; if (i - 1 < n) x[i] = 1;")),
        "::hostcuda::shadow(i, blockIdx.x * blockDim.x + 0u, hostcuda_threadIdx.x);",
    );
    has(&kernel(&format!("unsigned i = {index}; x[i] = i;")), "x[hostcuda_i] = i;");
    has(
        &kernel("x[threadIdx.y * n + 1] = 1;"),
        "x[hostcuda_threadIdx.y * ::hostcuda::as_signed(n) + 1]",
    );
    has(
        &kernel(&format!("size_t i = {index}; x[i] = 1;")),
        "size_t i = ::hostcuda::plus<int64_t>(",
    );
    let sized = "#define HALF 64\n#define TILE (2 * HALF)\n#define ODD a ? 1 : 2\n";
    has(
        &format!("{sized}{}", kernel("int i = blockIdx.x * TILE + threadIdx.x; x[i] = 1;")),
        "blockIdx.x * TILE + 0u, hostcuda_threadIdx.x);",
    );
    let odd = cpp(&format!("{sized}{}", kernel("int i = threadIdx.x + ODD; x[i] = 1;")));
    assert!(!odd.contains("plus<"), "{odd}");
    for body in [
        "size_t i = threadIdx.x - 1; x[i] = 1;",
        "x[threadIdx.x % n] = 1;",
        "x[f(n) + threadIdx.x] = 1;",
        "int h = threadIdx.x * 2654435761u; x[h & 3] = 1;",
        "unsigned i = threadIdx.x; i ^= n; x[i] = 1;",
        "unsigned i = threadIdx.x; for (int i = 0; i < 3; ++i) x[i] = 1;",
        "unsigned i = 2 / (threadIdx.x + 1); x[i] = 1;",
    ] {
        let text = cpp(&kernel(body));
        assert!(text.contains(body), "{text}");
    }
}

#[test]
fn only_device_math_functions_are_replaced() {
    has(
        "__device__ float f(float x) { return std::exp(x) + ::tanhf(x); }",
        "return ::hostcuda::math::exp(x) + ::hostcuda::math::tanhf(x);",
    );
    has(
        "float g(at::Tensor t) { return at::exp(t).max(1) + t.exp(); }",
        "at::exp(t).max(1) + t.exp()",
    );
    has("int h() { return std::max(1, 2); }", "std::max(1, 2)");
    has(
        "__device__ float exp(float x) { return x; }\n__device__ float f(float x) { return exp(x); }",
        "return exp(x);",
    );
}

#[test]
fn local_headers_are_inlined_once() {
    let header = |name: &str, _: &str| {
        (name == "a.cuh").then(|| {
            (
                "k/a.cuh".to_owned(),
                "#pragma once\n__device__ void f() { __syncthreads(); }\n".to_owned(),
            )
        })
    };
    let source = "#include \"a.cuh\"\n#include \"a.cuh\"\n#include \"cuda_runtime.h\"\n__global__ void k() { f(); }\n";
    let translated = translate_with(source, "k/b.cu", &header).unwrap();
    assert_eq!(translated.inlined, ["k/a.cuh"]);
    assert_eq!(translated.cpp.matches("void f()").count(), 1);
    assert!(
        translated.cpp.contains("#include \"cuda_runtime.h\"\n__global__")
            || translated.kernels == [("k".to_owned(), true)]
    );
    assert!(translated.cpp.contains("#line 1 \"k/b.cu\""));
}

#[test]
fn kernels_defined_by_macros_are_found() {
    let source = "
        #define KERNEL(name, ...) __global__ void name##_kernel(float* x) { __VA_ARGS__ }
        #define MIDDLE(x) x = threadIdx.x
        KERNEL(waiting, __syncthreads();)
        #ifdef NEVER_DEFINED
        KERNEL(dead, x[0] = 1;)
        #else
        KERNEL(alone, MIDDLE(x[0]);)
        #endif
        #undef KERNEL
        #define KERNEL(name) extern \"C\" void name(float* x) { name##_kernel<<<1, 2>>>(x); }
        KERNEL(alone)
    ";
    let translated = translate(source, "a.cu").unwrap();
    let kernels: Vec<(&str, bool)> =
        translated.kernels.iter().map(|(n, w)| (n.as_str(), *w)).collect();
    assert_eq!(kernels, [("waiting_kernel", true), ("alone_kernel", false)]);
    assert!(translated.cpp.contains("void alone (float* x) {"), "{}", translated.cpp);
    assert!(translated.cpp.contains("launch<false, false, 0>("), "{}", translated.cpp);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_text_makes_translation_panic(text in "(?s).{0,300}") {
        let _ = translate(&text, "a.cu");
        let _ = launchers(&text, "a.cu");
    }

    #[test]
    fn no_fragments_make_translation_panic(parts in proptest::collection::vec(prop_oneof![
        Just("__global__ "), Just("__device__ "), Just("__shared__ "), Just("extern "), Just("\"C\" "),
        Just("void k"), Just("("), Just(")"), Just("{"), Just("}"), Just("["), Just("]"), Just("<"),
        Just(">"), Just("<<<"), Just(">>>"), Just(";"), Just(","), Just("="), Just("int i "),
        Just("if "), Just("for "), Just("return"), Just("threadIdx.x "), Just("template "), Just("::"),
        Just("operator"), Just("struct S "), Just("o >>= 1"), Just("v += __shfl_xor_sync"), Just("~0u"),
        Just("#define X "), Just("\n"), Just("cudaLaunchKernel"), Just("*"), Just("&"), Just(":"),
        Just("i / d % e "), Just("__constant__ "), Just("volatile "), Just("-"), Just("16"),
        Just("#define M(a, ...) "), Just("M"), Just("##"), Just("#if "), Just("#ifdef X"), Just("#else"),
        Just("#endif"), Just("#undef M"), Just("__VA_ARGS__"), Just("X "), Just("defined"), Just("# "),
        Just("void (*f)(int)"), Just("using U = "), Just("typedef "),
    ], 0..60)) {
        let text: String = parts.concat();
        let _ = translate(&text, "a.cu");
        let _ = launchers(&text, "a.cu");
    }
}
