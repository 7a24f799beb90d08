//! Signatures that are read, and those that are not.

use super::*;
use crate::signature::{Element, ParamKind};

#[test]
fn launchers_are_found_in_definitions_and_extern_c_blocks() {
    let source = r#"
        // extern "C" void not_me(int) {}
        extern "C" void only_declared(float* x, int n);
        extern "C" cudaError_t gelu(const float* __restrict__ x, __half *y, size_t n,
                                    float eps = 1e-5f, cudaStream_t stream) { return 0; }
        extern "C" {
          struct S { int a; };
          static const int table[] = {1, 2};
          __global__ void kernel(float* x) {}
          int two(const __nv_bfloat16* a, unsigned char b[], long long n, bool f, unsigned k,
                  const void* v, float4* q, double, unsigned long long) { if (1) { return 1; } return 0; }
        }
    "#;
    let found = launchers(source, "a.cu").unwrap();
    assert_eq!(found.iter().map(|l| l.name.as_str()).collect::<Vec<_>>(), ["gelu", "two"]);
    let pointer = |element, constant| ParamKind::Pointer { element, constant };
    let kinds = |l: &Launcher| l.params.iter().map(|p| p.kind).collect::<Vec<_>>();
    assert!(found[0].has_stream && found[0].returns == Returns::CudaError);
    assert_eq!(
        kinds(&found[0]),
        [pointer(Element::F32, true), pointer(Element::F16, false), ParamKind::U64, ParamKind::F32]
    );
    assert_eq!(found[0].params[0].c_type, "const float * __restrict__");
    assert_eq!((found[0].line, found[1].line), (4, 10));
    assert_eq!(
        kinds(&found[1]),
        [
            pointer(Element::BF16, true),
            pointer(Element::U8, false),
            ParamKind::I64,
            ParamKind::Bool,
            ParamKind::U32,
            pointer(Element::Void, true),
            pointer(Element::F32, false),
            ParamKind::F64,
            ParamKind::U64
        ]
    );
    assert_eq!(found[1].params[7].name, "arg7");
}

#[test]
fn parameter_may_have_the_name_of_a_type() {
    let source = "extern \"C\" void f(const float *x, int half, unsigned int, const half *half, long long) {}";
    let found = launchers(source, "a.cu").unwrap();
    let told: Vec<_> =
        found[0].params.iter().map(|p| (p.c_type.as_str(), p.name.as_str(), p.kind)).collect();
    let halves = ParamKind::Pointer { element: Element::F16, constant: true };
    assert_eq!(told[1], ("int", "half", ParamKind::I32));
    assert_eq!((told[2].1, told[2].2), ("arg2", ParamKind::U32));
    assert_eq!(told[3], ("const half *", "half", halves));
    assert_eq!((told[4].1, told[4].2), ("arg4", ParamKind::I64));
}

#[test]
fn unknown_parameter_types_are_refused_with_their_line() {
    for (line, text) in [
        "extern \"C\" void f(int n,\n  Config c) {}",
        "extern \"C\" void f(\n  float& x) {}",
        "extern \"C\" void f(\n  void (*g)(int)) {}",
        "extern \"C\" void f(\n  float** x) {}",
        "extern \"C\"\nfloat f(int x) {}",
    ]
    .iter()
    .map(|t| (2, t))
    {
        let refused = launchers(text, "a.cu").unwrap_err();
        assert_eq!((refused[0].line, refused.len()), (line, 1), "{text}");
    }
}

fn kinds(params: &str) -> Vec<ParamKind> {
    let source = format!("extern \"C\" void f({params}) {{}}");
    launchers(&source, "a.cu").unwrap()[0].params.iter().map(|p| p.kind).collect()
}

#[test]
fn small_integers_are_passed_by_value() {
    use ParamKind::{Bool, I8, I16, U8, U16};
    assert_eq!(
        kinds("char a, signed char, int8_t c, unsigned char d, std::uint8_t e, bool f"),
        [I8, I8, I8, U8, U8, Bool]
    );
    assert_eq!(
        kinds("short a, short int b, int16_t, unsigned short d, uint16_t e"),
        [I16, I16, I16, U16, U16]
    );
}

#[test]
fn type_aliases_are_resolved() {
    let source = r#"
        using scalar_t = float;
        namespace types { typedef const __half* halves; using index = std::int64_t; }
        typedef unsigned char byte, *bytes;
        using std::size_t;
        using vec = float4;
        using status = cudaError_t;
        template <typename T> using pointer = T*;
        struct S { using scalar_t = double; };
        extern "C" status f(const scalar_t* const __restrict__ x, types::halves h, types::index n,
                            byte b, bytes p, ::std::size_t m, const vec* v, scalar_t) { return cudaSuccess; }
    "#;
    let found = launchers(source, "a.cu").unwrap();
    let pointer = |element, constant| ParamKind::Pointer { element, constant };
    let kinds: Vec<ParamKind> = found[0].params.iter().map(|p| p.kind).collect();
    assert_eq!(found[0].returns, Returns::CudaError);
    assert_eq!(
        kinds,
        [
            pointer(Element::F32, true),
            pointer(Element::F16, true),
            ParamKind::I64,
            ParamKind::U8,
            pointer(Element::U8, false),
            ParamKind::U64,
            pointer(Element::F32, true),
            ParamKind::F32
        ]
    );
    assert_eq!(found[0].params[6].c_type, "const float4 *");
    let unknown = source.replace("float4", "Vector");
    assert!(launchers(&unknown, "a.cu").is_err(), "an alias of what is not known is not known");
}

#[test]
fn attributes_and_trailing_return_types_are_parsed() {
    for text in [
        "extern \"C\" __attribute__((visibility(\"default\"))) int f(float* x, int n) noexcept {",
        "extern \"C\" [[nodiscard]] int f([[maybe_unused]] float* x, int n = 3) {",
        "extern \"C\" auto f(float x[], int n) -> int {",
        "extern \"C\" __host__ int f(float x[4], const int n) __attribute__((noinline)) {",
        "extern \"C\" { namespace k { namespace { } extern \"C\" { int f(float* __restrict__ x, int) {",
        "#define EXPORT extern \"C\"\n#define T float\nEXPORT int f(T* x, int n) {",
        "#define F(T, n) extern \"C\" int n(T* x, int m) {\nF(float, f)",
    ] {
        let found = launchers(&format!("{text} return 0; }}"), "a.cu").unwrap();
        assert_eq!(found.len(), 1, "{text}");
        assert_eq!((found[0].name.as_str(), found[0].returns), ("f", Returns::Int), "{text}");
        let kinds: Vec<_> = found[0].params.iter().map(|p| p.kind).collect();
        let pointer = ParamKind::Pointer { element: Element::F32, constant: false };
        assert_eq!(kinds, [pointer, ParamKind::I32], "{text}");
    }
}

#[test]
fn unexported_functions_are_no_launchers() {
    let source = r#"
        extern "C" { static float a(float x) { return x; } inline void b() {}
          __device__ float c(float x) { return x; }
          struct S { void d() {} }; extern "C++" { template <class T> void e(T x) {} } }
        extern "C" __attribute__((visibility("hidden"))) void g() {}
        #if 0
        extern "C" void h(Config c) {}
        #endif
        #ifdef DEBUG_LAUNCHERS
        extern "C" void i() {}
        #endif
        #if CUDART_VERSION >= 12000
        extern "C" void j(int n) {}
        #else
        extern "C" void j(int n, int m) {}
        #endif
    "#;
    let found = launchers(source, "a.cu").unwrap();
    let told: Vec<_> = found.iter().map(|l| (l.name.as_str(), l.params.len())).collect();
    assert_eq!(told, [("j", 1)]);
}

#[test]
fn launchers_in_a_header_have_its_lines() {
    let header = |_: &str, _: &str| {
        let text =
            "#pragma once\nusing real = double;\n\nextern \"C\" void g(float x, int& n) {}\n";
        Some(("k/h.cuh".to_owned(), text.to_owned()))
    };
    let source = "#include \"h.cuh\"\nextern \"C\" void f(real* x) {}\n";
    let refused = launchers_with(source, "k/a.cu", &header).unwrap_err();
    assert_eq!((refused[0].file.as_str(), refused[0].line), ("k/h.cuh", 4));
}
