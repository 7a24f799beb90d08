//! Inputs that are designed to take long, or to crash the reader.

use std::fmt::Write as _;

use rustix::time::{ClockId, clock_gettime};
use warpwright_hostcuda::{Refusal, host_part, launchers, translate};

/// Runs all readers of a text.
fn read(text: &str) -> Option<Refusal> {
    let _ = host_part(text, "a.cu", &|_, _| None);
    let translated = translate(text, "a.cu").err();
    let launchers = launchers(text, "a.cu").err();
    translated.or(launchers).map(|refused| refused[0].clone())
}

/// Runs `read` with a stack too small for recursion over a long text.
fn read_with_little_stack(text: String) -> Option<Refusal> {
    let thread = std::thread::Builder::new().stack_size(1 << 20);
    thread.spawn(move || read(&text)).unwrap().join().unwrap()
}

#[test]
fn deep_nesting_is_refused() {
    for bracket in ["(", "[", "{", "f(", "a = {"] {
        for text in [
            format!("int x;\nint y = {}", bracket.repeat(100_000)),
            format!("int x;\n#define M {}\n", bracket.repeat(100_000)),
            format!("int x;\nvoid f() {{ k<<<{}", bracket.repeat(1000)),
        ] {
            let refused = read_with_little_stack(text).unwrap();
            assert_eq!(refused.line, 2, "{bracket}");
            assert!(refused.reason.contains("256"), "{refused}");
        }
    }
    let within = format!("int y = {}1{};", "(".repeat(250), ")".repeat(250));
    assert_eq!(read_with_little_stack(within), None, "positive control");
}

#[test]
fn deep_chains_and_unclosed_brackets_never_crash() {
    let chain = |link: &dyn Fn(usize) -> String| (1..5000).map(link).collect::<String>();
    for text in [
        chain(&|i| format!("using a{i} = a{};\n", i - 1)),
        chain(&|i| format!("#define a{i} a{}\n", i - 1)) + "#define a0 __device__\na4999 int x;",
        chain(&|i| format!("#define a{i}(x) a{}(x)\n", i - 1))
            + "#define a0(x) __global__ x\na4999(y)",
        chain(&|i| format!("__device__ int f{i}() {{ return f{}(); }}\n", i - 1)),
        format!("a{} x;", "<a".repeat(30_000)),
        format!("a{}{} x;", "<a".repeat(30_000), ">".repeat(30_000)),
        format!("#if {}1\n#endif\n", "!(".repeat(30_000)),
        "#if X_\n".repeat(30_000),
        "/*".repeat(30_000),
        "R\"x(".repeat(30_000),
        "\"\n".repeat(30_000),
        "'".repeat(30_000),
        "\\\n".repeat(30_000),
    ] {
        let start: String = text.chars().take(40).collect();
        // That it comes back is what is asked; a refusal is as good.
        if let Some(refused) = read_with_little_stack(text) {
            assert!(
                refused.reason.contains("256") || refused.reason.contains("million"),
                "{start}: {refused}"
            );
        }
    }
}

/// Processor time that this thread needs to read a text. Other work on the machine does not count.
fn seconds(text: &str) -> f64 {
    let used = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as f64 + 1e-9 * time.tv_nsec as f64
    };
    let before = used();
    let _ = read(text);
    used() - before
}

#[test]
fn translation_time_is_linear_in_source_length() {
    type Make = fn(usize) -> String;
    let made: [(&str, Make); 18] = [
        ("macros", |n| {
            let mut text = "#define a0 threadIdx.x\n".to_owned();
            for i in 1..n {
                let _ = writeln!(text, "#define a{i} a{}", i - 1);
            }
            text
        }),
        ("redefinitions", |n| "#define D __device__\nD int x;\n#undef D\n".repeat(n)),
        ("functions", |n| {
            (1..n).fold(String::new(), |text, i| {
                text + &format!("__device__ int f{i}() {{ return f{}(); }}\n", i - 1)
            })
        }),
        ("kernels", |n| {
            (0..n / 2).fold(String::new(), |text, i| text + &format!("#define M{i} x\n__global__ void k{i}(int n) {{ int i = threadIdx.x; if (i < n) return; }}\n"))
        }),
        ("one name", |n| "__global__ void k(int n) { if (n < 2) return; }\n".repeat(n / 2)),
        ("declarations", |n| {
            format!(
                "__global__ void k(int n) {{ {} if (a < n) return; }}",
                "int a = threadIdx.x; ".repeat(n)
            )
        }),
        ("pointers", |n| {
            format!(
                "__global__ void k(float* x) {{ {} }}",
                "float* p = x + threadIdx.x; ".repeat(n)
            )
        }),
        ("hidden indices", |n| {
            (0..n / 2).fold(String::new(), |text, i| {
                text + &format!(
                    "#define M{i} threadIdx.x\n__global__ void k{i}() {{ int a = M{i}; }}\n"
                )
            })
        }),
        ("qualifiers", |n| "__device__ f() ".repeat(n)),
        ("shared", |n| {
            format!(
                "{}{}",
                "extern __shared__ int s[];\n".repeat(n),
                "__global__ void k() { s[0] = 1; }\n".repeat(n / 4)
            )
        }),
        ("shared words", |n| format!("__global__ void k() {{ {} }}", "__shared__ ".repeat(n))),
        ("launches", |n| {
            format!(
                "__global__ void a() {{}} void (*t)() = a; void f() {{ {} }}",
                "t<<<1, 2>>>(); ".repeat(n / 2)
            )
        }),
        ("open launches", |n| format!("void f() {{ {} }}", "k<<<".repeat(n))),
        ("classes", |n| "struct a { __device__ int f(); };\n".repeat(n / 2)),
        ("words", |n| "struct a ".repeat(n) + &"template < ".repeat(n) + &"typedef ".repeat(n)),
        ("conditions", |n| "#ifdef A\nint x;\n#else\nint y;\n#endif\n".repeat(n / 2)),
        ("loops", |n| format!("void f() {{ {} }}", "for (int o = 16; o; o /= 2) ".repeat(n / 2))),
        ("launchers", |n| {
            "extern \"C\" void f(float* x, int n) { }\nusing a = float;\n".repeat(n / 2)
        }),
    ];
    for (name, make) in made {
        let (short, long) = (make(700), make(5600));
        // Eight times the text takes as long as eight such texts, and eight times as long if every token is
        // read with every other. What other work does to the caches may lengthen one of them by chance.
        let eight = || (0..8).map(|_| seconds(&short)).sum::<f64>();
        let proportionate = (0..10).any(|_| seconds(&long) < 2.25 * eight());
        assert!(proportionate, "{name}");
    }
}
