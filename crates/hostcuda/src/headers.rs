//! The headers that translated text includes, and the flags for compiling it.

use std::io;
use std::path::Path;

use fs_err as fs;

macro_rules! headers {
    ($($name:literal),* $(,)?) => {
        /// Every header: path below the include folder, and text.
        const HEADERS: &[(&str, &str)] = &[$(($name, include_str!(concat!("../include/", $name)))),*];
    };
}

headers!(
    "cooperative_groups.h",
    "cooperative_groups/reduce.h",
    "cuComplex.h",
    "cublas_v2.h",
    "cuda.h",
    "cuda_bf16.h",
    "cuda_fp16.h",
    "cuda_fp8.h",
    "cuda_runtime.h",
    "cuda_runtime_api.h",
    "device_functions.h",
    "device_launch_parameters.h",
    "driver_types.h",
    "hostcuda/api.h",
    "hostcuda/atomics.h",
    "hostcuda/convert.h",
    "hostcuda/entry.h",
    "hostcuda/fiber.h",
    "hostcuda/gemm.h",
    "hostcuda/half.h",
    "hostcuda/integer.h",
    "hostcuda/launch.h",
    "hostcuda/math.h",
    "hostcuda/pointer.h",
    "hostcuda/record.h",
    "hostcuda/rounded.h",
    "hostcuda/shared.h",
    "hostcuda/special.h",
    "hostcuda/switch.h",
    "hostcuda/trace.h",
    "hostcuda/vector_types.h",
    "hostcuda/warp.h",
    "math_constants.h",
    "vector_functions.h",
    "vector_types.h",
);

/// Writes the headers below `dir`, which is created. The compiler needs `-I dir` before other
/// include folders.
pub fn write_headers(dir: &Path) -> io::Result<()> {
    for (name, text) in HEADERS {
        let path = dir.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, text)?;
    }
    Ok(())
}

/// Flags for g++ or clang++, without `-I`, `-shared` and the files. Not-a-number and infinity keep
/// their meaning; `errno`, trapping, and the sign of zero do not.
pub fn compile_flags() -> Vec<String> {
    [
        "-std=c++17",
        "-O3",
        "-march=native",
        "-fPIC",
        "-fopenmp",
        "-ffp-contract=fast",
        "-fno-math-errno",
        "-fno-trapping-math",
        "-fno-signed-zeros",
        "-fno-semantic-interposition",
        "-fno-gnu-unique",
        "-w",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// A hash of everything in this crate that can change the translation of a file: its version, its
/// headers and its flags. For cache keys; 64 hexadecimal digits.
pub fn fingerprint() -> String {
    let mut hasher = blake3::Hasher::new();
    let mut part = |text: &str| {
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    };
    part(env!("CARGO_PKG_VERSION"));
    for source in REWRITER {
        part(source);
    }
    for (name, text) in HEADERS {
        part(name);
        part(text);
    }
    for flag in compile_flags() {
        part(&flag);
    }
    hasher.finalize().to_hex().to_string()
}

/// The rewriter's own sources: changing one of them can change the translation.
const REWRITER: [&str; 25] = [
    include_str!("alias.rs"),
    include_str!("brackets.rs"),
    include_str!("casts.rs"),
    include_str!("code.rs"),
    include_str!("condition.rs"),
    include_str!("context.rs"),
    include_str!("ctype.rs"),
    include_str!("division.rs"),
    include_str!("edit.rs"),
    include_str!("expand.rs"),
    include_str!("function.rs"),
    include_str!("include.rs"),
    include_str!("launch.rs"),
    include_str!("launcher.rs"),
    include_str!("lexer.rs"),
    include_str!("linear.rs"),
    include_str!("macros.rs"),
    include_str!("phase.rs"),
    include_str!("places.rs"),
    include_str!("pointer.rs"),
    include_str!("rewrite.rs"),
    include_str!("shared.rs"),
    include_str!("shuffle.rs"),
    include_str!("signature.rs"),
    include_str!("unsupported.rs"),
];
