//! Refusals, the cache, and infrastructure errors.

use warpwright_build::{BuildError, Builder, Outcome, Settings};
use warpwright_record::candidate::Candidate;
use warpwright_record::verdict::FailureClass;

use crate::bench::{Bench, bench, bench_with, built, candidate, failed, quick};

/// A launcher whose host part is `host`.
fn launcher(head: &str, host: &str) -> String {
    format!(
        "#include <cuda_runtime.h>\n{head}\n\
         __global__ void inc(float* x, int n) {{\n\
             int i = blockIdx.x * blockDim.x + threadIdx.x;\n\
             if (i < n) x[i] += 1.0f;\n}}\n\
         extern \"C\" int inc_all(float* x, int n, cudaStream_t stream) {{\n\
             {host}\n\
             inc<<<(n + 255) / 256, 256, 0, stream>>>(x, n);\n\
             return 0;\n}}\n"
    )
}

/// A builder on the cache of `bench` whose compiler always fails: it can return only what is cached.
fn without_compiler(bench: &Bench) -> Builder {
    let mut toolchain = bench.builder.toolchain().clone();
    toolchain.cxx.as_mut().unwrap().path = "/usr/bin/false".into();
    let cache = bench.builder.cache_dir();
    Builder::new(bench.jail.clone(), toolchain, Settings::default(), cache).unwrap()
}

#[test]
fn forbidden_functions_are_refused_by_name() {
    let bench = bench();
    let with = launcher(
        "#include <cstdlib>\n#include <dlfcn.h>\n#include <unistd.h>\n#include <sys/socket.h>",
        "if (n < 0) { (void)!system(\"true\"); dlopen(\"libm.so.6\", RTLD_NOW); (void)fork(); \
         socket(1, 1, 0); }",
    );
    let why =
        failed(bench.builder.build(&candidate(&[("kernels/a.cu", &with)]), &quick()).unwrap());
    assert_eq!(why.class, FailureClass::ForbiddenImport);
    let named: Vec<_> = why.diagnostics.iter().map(|d| d.message.as_str()).collect();
    assert_eq!(
        named,
        [
            "forbidden function: dlopen",
            "forbidden function: fork",
            "forbidden function: socket",
            "forbidden function: system",
        ]
    );
    let without = launcher("#include <cstdlib>\n#include <dlfcn.h>", "if (n < 0) { abort(); }");
    built(bench.builder.build(&candidate(&[("kernels/a.cu", &without)]), &quick()).unwrap());
}

#[test]
fn prebuilt_code_and_escaping_names_are_refused() {
    let bench = bench();
    let text = launcher("", "").into_bytes();
    let build = |name: &str, bytes: &[u8]| {
        let files = [("model_new.py", b"".as_slice()), ("kernels/a.cu", &text), (name, bytes)];
        let files = files.iter().map(|(n, b)| ((*n).to_owned(), b.to_vec())).collect();
        bench.builder.build(&Candidate::from_files(files), &quick()).unwrap()
    };
    assert_eq!(failed(build("kernels/b.bin", b"\x7fELF\x02")).class, FailureClass::ForbiddenImport);
    assert_eq!(failed(build("kernels/../../b.cuh", b"")).class, FailureClass::Build);
    assert!(!bench.folder.path().join("b.cuh").exists());
    built(build("kernels/b.cuh", b""));
}

#[test]
fn compiler_cannot_read_host_files() {
    let bench = bench();
    // Outside the jail the file is there for everybody to read.
    let secret = bench.folder.path().join("secret.h");
    fs_err::write(&secret, "#define SECRET 1\n").unwrap();
    assert!(secret.is_file());
    let text = launcher(&format!("#include \"{}\"", secret.display()), "");
    let why =
        failed(bench.builder.build(&candidate(&[("kernels/a.cu", &text)]), &quick()).unwrap());
    assert!(why.message.contains("No such file"), "{}", why.message);
    let path = bench.folder.path().display().to_string();
    assert!(!format!("{} {}", why.message, why.raw_tail).contains(&path), "{why:?}");
    // The same text beside the source is found.
    let text = launcher("#include \"secret.h\"\nstatic_assert(SECRET == 1, \"\");", "");
    let files = [("kernels/a.cu", text.as_str()), ("kernels/secret.h", "#define SECRET 1\n")];
    built(bench.builder.build(&candidate(&files), &quick()).unwrap());
}

#[test]
fn compiler_time_limit_is_the_candidates_failure() {
    let settings = Settings { compile_seconds: 0.05, ..Settings::default() };
    let bench = bench_with(settings);
    let text = launcher("", "");
    let why =
        failed(bench.builder.build(&candidate(&[("kernels/a.cu", &text)]), &quick()).unwrap());
    assert_eq!(why.class, FailureClass::Build);
    assert!(why.message.contains("used more than 0.05 s of processor time"), "{}", why.message);
}

#[test]
fn missing_compiler_is_an_infrastructure_error() {
    let bench = bench();
    let mut toolchain = bench.builder.toolchain().clone();
    toolchain.cxx = None;
    let cache = bench.folder.path().join("other");
    let builder = Builder::new(bench.jail.clone(), toolchain, Settings::default(), &cache).unwrap();
    let text = launcher("", "");
    match builder.build(&candidate(&[("kernels/a.cu", &text)]), &quick()) {
        Err(BuildError::MissingTool { hint, .. }) => assert!(hint.contains("g++")),
        other => panic!("{other:?}"),
    }
}

#[test]
fn unchanged_candidate_is_cached_and_damaged_entry_rebuilt() {
    let bench = bench();
    let (text, other) = (launcher("", ""), launcher("// Another text.", ""));
    let changed = candidate(&[("kernels/a.cu", &other)]);
    let candidate = candidate(&[("kernels/a.cu", &text)]);
    let first = built(bench.builder.build(&candidate, &quick()).unwrap());
    let library = first.dir.join("libkernels.so");
    let bytes = fs_err::read(&library).unwrap();

    let no_compiler = without_compiler(&bench);
    let again = built(no_compiler.build(&candidate, &quick()).unwrap());
    assert!(again.cached && !first.cached);
    assert_eq!(fs_err::read(again.dir.join("libkernels.so")).unwrap(), bytes);
    failed(no_compiler.build(&changed, &quick()).unwrap());

    // Without our headers nothing compiles; objects still link.
    let support = bench.builder.cache_dir().join("support");
    fs_err::rename(&support, bench.folder.path().join("support")).unwrap();
    let compiled = bench.builder.build(&changed, &quick());
    assert!(!matches!(compiled, Ok(Outcome::Built(_))), "positive control: {compiled:?}");
    let mut damaged = bytes.clone();
    damaged[100] ^= 1;
    fs_err::write(&library, &damaged).unwrap();
    let mended = built(bench.builder.build(&candidate, &quick()).unwrap());
    assert!(!mended.cached);
    assert_eq!(fs_err::read(mended.dir.join("libkernels.so")).unwrap(), bytes);
}

#[test]
fn concurrent_builders_on_one_cache_agree() {
    let bench = bench();
    let text = launcher("", "");
    let candidate = candidate(&[("kernels/a.cu", &text)]);
    let results: Vec<_> = std::thread::scope(|scope| {
        let build = || {
            let toolchain = bench.builder.toolchain().clone();
            let cache = bench.builder.cache_dir();
            let builder =
                Builder::new(bench.jail.clone(), toolchain, Settings::default(), cache).unwrap();
            built(builder.build(&candidate, &quick()).unwrap())
        };
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(build)).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(results.iter().all(|r| r.dir == results[0].dir));
    let scratch = fs_err::read_dir(bench.builder.cache_dir().join("scratch")).unwrap();
    assert_eq!(scratch.count(), 0, "nothing is left behind");
    let no_compiler = without_compiler(&bench);
    assert!(built(no_compiler.build(&candidate, &quick()).unwrap()).cached);
}
